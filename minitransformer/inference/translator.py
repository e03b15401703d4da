"""A trained model with its tokenizer, which translates texts, and lines by the model alone."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import get_args

from autograd import to_host
from autograd.array import Device, IntArray
from minitransformer.config import ConfigError, ModelConfig
from minitransformer.data.lexicon import makes_trees
from minitransformer.data.profile import TextProfile
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.alignment import align_words
from minitransformer.inference.attention import AttentionError
from minitransformer.inference.line_search import LineSearch, decoded_texts
from minitransformer.inference.prefix import NO_PREFIX, Prefix, Prefixer
from minitransformer.inference.search import Advance, Constraint, Hypothesis, Sampler, SearchConfig, Wanted
from minitransformer.model.files import CONFIG_FILE, model_directory
from minitransformer.model.transformer import Transformer, WeightsChoice
from minitransformer.system.errors import require_lists
from minitransformer.system.files import CheckpointError
from minitransformer.system.threads import available_cores, map_in_threads, require_wanted
from minitransformer.text.codes import Parts
from minitransformer.text.road import STEPS, Road, Sentences, Step, translated
from minitransformer.text.terms import Terms
from minitransformer.text.translation import Note, Translation

MAX_SOURCE_TOKENS = 1_024  # the rest of a longer line is cut off, so that memory stays bounded
LOOP_TOKENS = 4  # a search that must not repeat itself never generates the same four tokens in a row twice
_log = logging.getLogger(__name__)


class Translator:
    """A trained model, or an ensemble, with its tokenizer.  Create a new one after the model's parameters change.

    Args:
        model: one model, or an ensemble: models whose probabilities of each token are averaged.  The length penalty is
            that of the first model.
        tokenizer: the tokenizer that made the text of the model's training.
        weights: "automatic" is float32; on a GPU products round their factors to TF32.  With "float32" nothing is
            rounded.  "bfloat16" rounds both factors of products with weights; it is faster on CPUs with instructions
            for bfloat16.  "int8" rounds both to 255 levels; it is faster still, needs a quarter of the memory, and
            gives slightly worse translations.  On a GPU, "float16" and "bfloat16" store weights, activations, keys and
            values in 16 bits.
        profile: the languages, and the numbers of sentences and tokens in the training text's lines, by which texts are
            cut into sentences.

    Raises: ConfigError for other ``weights``, or for those in which the device cannot compute, such as "float16" on a
        CPU and "int8" on a GPU.
    """

    def __init__(
        self,
        model: Transformer | Sequence[Transformer],
        tokenizer: Tokenizer,
        *,
        weights: WeightsChoice = "automatic",
        profile: TextProfile | None = None,
    ) -> None:
        if weights not in get_args(WeightsChoice):
            raise ConfigError(f"weights: expected one of {get_args(WeightsChoice)}; got {weights!r}")
        models = [model] if isinstance(model, Transformer) else model
        self.models = [each.for_search(dtype=weights) for each in models]
        self.model, self.tokenizer = self.models[0], tokenizer
        self.weights = "float32" if weights == "automatic" and not self.model.rounds_to_tf32 else weights
        self.profile = profile or TextProfile()
        self._settings = [each.config.to_json() for each in models]  # identify the models, in ``fingerprint``

    @classmethod
    def load(
        cls, directory: str | Path, *others: str | Path, device: Device = "cpu", weights: WeightsChoice = "automatic"
    ) -> Translator:
        """Load the model of a run (the directory ``RunConfig.run``), or an ensemble of the models of several runs.

        Before the first validation of a run, this is the model of its newest checkpoint.
        Raises: CheckpointError if a file is missing or corrupt, or if the runs have different tokenizers; ConfigError
        as the class.
        """
        model, tokenizer = load_with_tokenizer(Path(directory), device=device)
        models = [model]
        for other in others:
            model, its_tokenizer = load_with_tokenizer(Path(other), device=device)
            if not its_tokenizer.equals(tokenizer):
                raise CheckpointError(
                    f"{other}: its tokenizer is not that of {directory}, so their models cannot be an ensemble; train"
                    " the models on the same text with the same data settings, and with different seeds"
                )
            models.append(model)
        translator = cls(models, tokenizer, weights=weights, profile=TextProfile.load(Path(directory)))
        # Files of earlier versions lack some settings; so a fingerprint from the files stays the same.
        files = [model_directory(Path(each)) / CONFIG_FILE for each in (directory, *others)]
        translator._settings = [file.read_text(encoding="utf-8") for file in files]
        return translator

    @cached_property
    def prefixer(self) -> Prefixer:
        """The object that converts ``prefixes``, texts with which translations must begin, to tokens."""
        return Prefixer(self.tokenizer, self.longest_source)

    def fingerprint(self) -> str:
        """Return 32 hexadecimal digits, a checksum of configurations, weights, the weights' dtype and tokenizer."""
        checksum = hashlib.blake2b(digest_size=16)
        for model, settings in zip(self.models, self._settings, strict=True):
            checksum.update(settings.encode())
            checksum.update(self.weights.encode())
            checksum.update(to_host(model.parameters.values).data)
        for pieces in self.tokenizer.models:
            checksum.update(pieces)
        return checksum.hexdigest()

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int = SearchConfig.beam,
        alpha: float | None = SearchConfig.alpha,
        n_threads: int | None = None,
        prefixes: Sequence[str] | None = None,
        sampling: Sampler | None = None,
        skip: Collection[Step] = (),
        terms: Mapping[str, str] | None = None,
        to_language: str | None = None,
    ) -> list[str]:
        """Return the best translation of each text; the translation of an empty text is empty.

        A text is cut into sentences.  Markup and placeholders, characters that the tokenizer lacks, and words in
        capitals are replaced before the search and restored in the translation.

        Args:
            beam: hypotheses kept for each sentence; 1 is greedy search.
            alpha: the exponent of the length penalty; None takes the model's.
            n_threads: None takes all cores, or 1 on a GPU.
            prefixes: a given beginning of each translation, "" for none; then all steps are left out.
            sampling: see ``n_best``.
            skip: steps to leave out, among "sentences", "codes", "unknown", "capitals" and "loops" (translate again if
                a translation repeats itself).
            terms: translations of terms, such as {"dog": "Hund"}.
            to_language: the target language, for a model of several, such as "fr".

        Raises: ConfigError if the model does not translate to ``to_language``, or needs it; TypeError if ``texts`` is
            one text; ValueError if the numbers of texts and prefixes differ; SearchError, see ``beam_search``.
        """
        road, config = self.road(STEPS if prefixes else skip, terms, to_language), SearchConfig(beam=beam, alpha=alpha)
        found = self.translate_texts(texts, config, road, n_threads=n_threads, prefixes=prefixes, sampling=sampling)
        return [best[0].text for best in found]

    def road(
        self, skip: Collection[Step] = (), terms: Mapping[str, str] | None = None, to_language: str | None = None
    ) -> Road:
        """Return the steps before and after a search, for ``translate_texts``; the arguments are ``translate``'s."""
        return Road(self.tokenizer, self.profile, skip, Terms(terms) if terms else None, to_language)

    def translate_texts(
        self,
        texts: Sequence[str | Parts],
        config: SearchConfig,
        road: Road | None = None,
        *,
        n_threads: int | None = None,
        advance: Callable[[float], None] = lambda n: None,
        prefixes: Sequence[str] | None = None,
        sampling: Sampler | None = None,
        n_before: int = 0,
        aligned: bool = False,
    ) -> list[list[Translation]]:
        """Return ``config.n_best`` translations of each text, best first.

        A ``Translation`` has ``text``, ``log_probability`` in nats, ``score``, and ``notes`` on the steps, such as what
        to check.

        Args:
            texts: texts, or lists of their parts: strings and inline codes (``minitransformer.text.codes.Code``).
            road: the steps before and after the search; None for ``road()``.
            advance: is called, on any thread, with the share of a text that was translated since the last call.
            prefixes: a given beginning of the translation of each text's first sentence, "" for none.
            n_before: the number of texts that come before these, so that each has its own random numbers.
            aligned: align the words of texts of one sentence with those of their translations (``alignment``).

        Raises: as ``translate``.
        """
        require_lists("translate", texts, prefixes)
        if prefixes is not None and len(prefixes) != len(texts):
            raise ValueError(f"prefixes: expected one for each of {len(texts)} lines; got {len(prefixes)}")
        counted = _Counted(len(texts), advance)

        def translate(sentences: Sentences) -> list[list[Translation]]:
            try:
                return find(sentences, [aligned or each for each in sentences.aligned])
            except AttentionError:  # of a user's layers; then codes stand at uncertain places, as their notes say
                if aligned:
                    raise
                return find(sentences, None)

        def find(sentences: Sentences, its_aligned: list[bool] | None) -> list[list[Translation]]:
            places = sentences.places
            return self.n_best(
                sentences.lines,
                dataclasses.replace(config, no_repeat=config.no_repeat or LOOP_TOKENS * sentences.no_repeat),
                n_threads=n_threads,
                advance=counted.share_of(len(places)),
                prefixes=prefixes and ["" if sentence else prefixes[text] for text, sentence in places],
                sampling=sampling,
                numbers=[n_before + text + (sentence << 40) for text, sentence in places],
                aligned=its_aligned,
            )

        found = translated((road or self.road()).steps(texts), translate)
        counted.finish()
        return found

    def n_best(
        self,
        lines: Sequence[str],
        config: SearchConfig,
        *,
        n_threads: int | None = None,
        constraint_of: Callable[[IntArray], Constraint | None] | None = None,
        advance: Advance = lambda n: None,
        prefixes: Sequence[str] | None = None,
        sampling: Sampler | None = None,
        numbers: Sequence[int] | None = None,
        aligned: Sequence[bool] | None = None,
        wanted: Wanted | None = None,
    ) -> list[list[Translation]]:
        """Return ``config.n_best`` different translations of each line, best first: the search without other steps.

        A line has fewer translations, but at least one, if a longer search finds no more; an unwanted line has none.
        Lines are translated in batches of similar length, on ``n_threads`` threads (None: all cores; 1 on a GPU).

        Args:
            constraint_of: returns the constraint of the search for the lines with the given indices; None for none.
            advance: is called, on any thread, with the number of lines that were translated since the last call.
            prefixes: a given beginning of each translation, "" for none; it replaces the constraint.  A search may
                continue the last word of a prefix, unless a blank follows the word.
            sampling: a sampler that draws ``config.n_best`` translations at random, without a beam.  They are in the
                order of the draws, and may be equal.
            numbers: the number of each line, which chooses its random numbers; None for 0, 1, 2, ….
            aligned: says for each line whether its words are linked with those of its translations.
            wanted: is called, on any thread, after each step of a search, and before the alignment of a line.  It
                returns for each line whether its translation is still wanted.  The search of an unwanted line ends,
                and the line has no translations.

        Raises: as ``translate``.
        """
        require_lists("translate", lines, prefixes)
        self.profile.require_tags(lines)
        encoded = self.tokenizer.encode_source(lines)
        sources = [ids[: self.longest_source] for ids in encoded]
        prefixes = [""] * len(lines) if prefixes is None else prefixes
        if len(prefixes) != len(lines):
            raise ValueError(f"prefixes: expected one for each of {len(lines)} lines; got {len(prefixes)}")
        given = zip(prefixes, sources, strict=True)
        beginnings = [self.prefixer(text) if text and ids else NO_PREFIX for text, ids in given]
        n_threads = n_threads or (1 if self.model.device == "cuda" else available_cores())
        search = LineSearch(self.models, self.prefixer, sources, beginnings, constraint_of, sampling, numbers, wanted)
        found = search.run(config, n_threads, advance)
        translations = [self._decode(best, prefix) for best, prefix in zip(found, beginnings, strict=True)]
        for i in self._cut(map(len, encoded)):
            translations[i] = [dataclasses.replace(each, notes=(self._cut_note,)) for each in translations[i]]
        if aligned is None or not any(aligned):
            return translations

        def align(i: int) -> list[Translation]:
            if not (sources[i] and aligned[i]):
                return translations[i]
            if wanted is not None and not wanted()[i]:
                return []
            return self._align(lines[i], sources[i], beginnings[i], found[i], translations[i])

        return list(map_in_threads(align, range(len(lines)), n_threads))

    @property
    def longest_source(self) -> int:
        """The greatest number of subword tokens of a line that are translated; the rest of the line is cut off."""
        learned = [model.config for model in self.models if model.config.positions == "learned"]
        return min([MAX_SOURCE_TOKENS, *(config.longest_sentence - 1 for config in learned)])  # and the end symbol

    def cut(self, lines: Sequence[str]) -> list[int]:
        """Return the indices of the lines whose ends are cut off because the lines are too long."""
        return self._cut(self.count_tokens(lines))

    def _cut(self, lengths: Iterable[int]) -> list[int]:
        return [i for i, n_tokens in enumerate(lengths) if n_tokens > self.longest_source]

    @property
    def _cut_note(self) -> Note:
        return Note(
            "cut", f"over {self.longest_source:,} tokens in a sentence; the rest was cut off", is_uncertain=True
        )

    def count_tokens(self, lines: Sequence[str]) -> list[int]:
        """Return the number of subword tokens of each line."""
        require_lists("count_tokens", lines)
        return [len(ids) for ids in self.tokenizer.encode_source(lines)]

    def _decode(self, hypotheses: Sequence[Hypothesis], prefix: Prefix) -> list[Translation]:
        texts = decoded_texts(self.tokenizer, hypotheses, prefix)
        return [
            Translation(text, each.log_probability, each.score, is_cut=each.is_cut)
            for text, each in zip(texts, hypotheses, strict=True)
        ]

    def _align(
        self,
        line: str,
        source: list[int],
        prefix: Prefix,
        hypotheses: Sequence[Hypothesis],
        translations: list[Translation],
    ) -> list[Translation]:
        """Return the translations of a line, with their word alignments."""
        require_wanted()
        links = align_words(self.models, self.prefixer, line, source, prefix, hypotheses)
        return [dataclasses.replace(each, alignment=its) for each, its in zip(translations, links, strict=True)]


class _Counted:
    """The count of translated texts, in shares of a text; sentences that are translated again do not count."""

    def __init__(self, n_texts: int, advance: Callable[[float], None]) -> None:
        self.n_texts, self.advance, self.has_begun = n_texts, advance, False

    def share_of(self, n_sentences: int) -> Advance:
        """Return a function that counts sentences, of which all texts together have ``n_sentences``."""
        if self.has_begun:
            return lambda n: None
        self.has_begun = True
        return lambda n: self.advance(n * self.n_texts / n_sentences)

    def finish(self) -> None:
        """Count all texts if none had a sentence to translate."""
        if not self.has_begun:
            self.advance(self.n_texts)


def load_translator(
    directory: Path, *others: Path, device: Device = "cpu", weights: WeightsChoice = "automatic"
) -> Translator:
    """Load the translator of a run, or an ensemble, as ``Translator.load`` does.

    Raises: ConfigError if the model writes trees; CheckpointError.
    """
    translator = Translator.load(directory, *others, device=device, weights=weights)
    require_no_trees(directory, translator.tokenizer)
    return translator


def require_no_trees(directory: Path, tokenizer: Tokenizer) -> None:
    """Raise ConfigError if the model of a directory is a parser, which writes trees instead of translations."""
    if makes_trees(tokenizer.target_symbols):
        raise ConfigError(f"{directory}: is a parser, which writes trees: use minitransformer-parse")


def load_with_tokenizer(directory: Path, *, device: Device = "cpu") -> tuple[Transformer, Tokenizer]:
    """Load the model and the tokenizer of a training run; before its first validation, the newest checkpoint's model.

    Raises: CheckpointError if one is missing, or if their vocabularies differ in size, so that ids do not fit.
    """
    path = model_directory(directory)
    if path != directory:
        _log.warning(
            f"{directory}: has had no validation yet, so this is the model of its newest checkpoint, {path.name}; if"
            " its training was interrupted, start it again, which goes on, for a better model"
        )
    model, tokenizer = Transformer.load(path, device=device), Tokenizer.load(directory)
    require_same_words(directory, model.config, tokenizer)
    return model, tokenizer


def require_same_words(directory: Path, config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError if a model and the tokenizer in its directory have vocabularies of different sizes."""
    expected = config.n_source_words, config.vocabulary_size
    found = tokenizer.n_source_words, tokenizer.n_target_words
    if found != expected:
        raise CheckpointError(
            f"{directory}: the model has {expected[0]:,} source and {expected[1]:,} target words, but its tokenizer"
            f" {found[0]:,} and {found[1]:,}: it belongs to another model; restore the tokenizer of this model"
        )
