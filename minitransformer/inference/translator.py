"""Translation of raw text."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np

from autograd import to_host
from autograd.array import Device, IntArray
from autograd.packed_weight import PackedDtype
from minitransformer.config import ConfigError, ModelConfig
from minitransformer.data.normalisation import BETWEEN_WORDS
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import beam_search
from minitransformer.inference.prefix import NO_PREFIX, Prefix, PrefixConstraint, Prefixer
from minitransformer.inference.search import Advance, Constraint, Hypothesis, Sampler, SearchConfig, Wanted
from minitransformer.model.files import CONFIG_FILE, model_directory
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import require_lists
from minitransformer.system.files import CheckpointError
from minitransformer.system.threads import available_cores, map_in_threads, require_wanted

BATCHES_AT_ONCE = {"cpu": 2, "cuda": 1}  # a step on a GPU takes the same time for few and for many sentences
HYPOTHESES_AT_ONCE = {"cpu": 512, "cuda": 1_024}  # live hypotheses of one batch: enough for fast matrix products
SCORES_AT_ONCE = 512 * 128**2  # of queries and keys in a batch, for each head: bounds the memory for very long lines
MOST_FINISHED = 16  # times n_best: the most finished hypotheses that are searched for different texts
FIRST_EXTRA_TOKENS = 50  # in the first search, which ends earlier; lines that reach this limit are searched again
FEW = 8  # sentences: fewer are faster in one batch, with BLAS on all cores
MAX_SOURCE_TOKENS = 1_024  # the rest of a longer line is cut off, so that memory stays bounded
CUT = "cut off at the greatest length, which max_length_factor and max_extra_tokens set"

_log = logging.getLogger(__name__)

Links: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a source word and a target word, counted from 0, in the order of target words."""
Align: TypeAlias = Callable[["Translator", str, Sequence[int], Prefix, Sequence[Hypothesis]], list[Links]]
"""A function that links the words of a line, given its source ids, with those of its translations."""


@dataclass(frozen=True)
class Translation:
    """One translation of one line: its text, log p in nats, and its score, log p divided by the length penalty.

    ``alignment`` links words of the line with words of the text, if alignments were requested.  ``is_cut`` is true if
    the translation has the greatest length, so that it may be incomplete.
    """

    text: str
    log_probability: float
    score: float
    alignment: Links = ()
    is_cut: bool = False


class Translator:
    """A trained model, or an ensemble, with its tokenizer.  Create a new one after the model's parameters change.

    Args:
        model: one model, or an ensemble of models, whose probabilities are averaged (see ``Predictor``).  The length
            penalty is that of the first model.
        weights: "bfloat16" rounds both factors of products with weights; it is faster on CPUs with instructions for
            bfloat16.  "int8" rounds both to 255 levels; it is faster still, needs a quarter of the memory, and gives
            slightly worse translations.
    """

    def __init__(
        self, model: Transformer | Sequence[Transformer], tokenizer: Tokenizer, *, weights: PackedDtype = "float32"
    ) -> None:
        if weights not in get_args(PackedDtype):
            raise ConfigError(f"weights: expected one of {get_args(PackedDtype)}; got {weights!r}")
        models = [model] if isinstance(model, Transformer) else model
        self.models = [each.for_search(dtype=weights) for each in models]
        self.model, self.tokenizer, self.weights = self.models[0], tokenizer, weights
        self._settings = [each.config.to_json() for each in models]  # identify the models, in ``fingerprint``

    @classmethod
    def load(
        cls, directory: str | Path, *others: str | Path, device: Device = "cpu", weights: PackedDtype = "float32"
    ) -> Translator:
        """Load the model of a run, or an ensemble of the models of several runs; see ``load_with_tokenizer``.

        Raises: CheckpointError if the runs have different tokenizers.
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
        translator = cls(models, tokenizer, weights=weights)
        # Files of earlier versions lack some settings; so a fingerprint from the files stays the same.
        files = [model_directory(Path(each)) / CONFIG_FILE for each in (directory, *others)]
        translator._settings = [file.read_text(encoding="utf-8") for file in files]
        return translator

    @cached_property
    def prefixer(self) -> Prefixer:
        """The converter of given beginnings of translations."""
        return Prefixer(self.tokenizer, self.longest_source)

    def fingerprint(self) -> str:
        """Return a checksum of configurations, weights, the weights' dtype and tokenizer, to identify a translator."""
        checksum = hashlib.blake2b(digest_size=16)
        for model, settings in zip(self.models, self._settings, strict=True):
            checksum.update(settings.encode())
            checksum.update(self.weights.encode())
            checksum.update(to_host(model.parameters.values).data)
        for pieces in self.tokenizer.models:
            checksum.update(pieces)
        return checksum.hexdigest()

    def model_text(self, text: str, line: str) -> str:
        """Return ``text`` in the form that the model reads; ``text`` is ``line``, or a translation of it."""
        return text

    def shown_text(self, text: str, line: str) -> str:
        """Return ``text``, the model's translation of ``line``, in the form that users see."""
        return text

    def prefix_of(self, text: str, line: str) -> Prefix:
        """Return the prefix for ``text``, the given beginning of the translation of ``line``."""
        return self.prefixer(text) if text else NO_PREFIX

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = SearchConfig.beam,
        alpha: float | None = SearchConfig.alpha,
        n_threads: int | None = None,
        prefixes: Sequence[str] | None = None,
        sampling: Sampler | None = None,
    ) -> list[str]:
        """Return the best translation of each line; the translation of an empty line is empty.

        ``alpha`` is the exponent of the length penalty; None takes the model's.  ``prefixes`` and ``sampling``: see
        ``n_best``.
        """
        config = SearchConfig(beam=beam, alpha=alpha)
        found = self.n_best(lines, config, n_threads=n_threads, prefixes=prefixes, sampling=sampling)
        return [best[0].text for best in found]

    def n_best(
        self,
        lines: Sequence[str],
        config: SearchConfig,
        *,
        n_threads: int | None = None,
        constraint_of: Callable[[IntArray], Constraint | None] = lambda numbers: None,
        advance: Advance = lambda n: None,
        prefixes: Sequence[str] | None = None,
        sampling: Sampler | None = None,
        n_before: int = 0,
        align: Align | None = None,
        wanted: Wanted | None = None,
    ) -> list[list[Translation]]:
        """Return ``config.n_best`` translations of each line with different texts, best first.

        A line has fewer translations, but at least one, if a longer search finds no more; an unwanted line has none.
        Lines are translated in batches of similar length, on ``n_threads`` threads (None: all cores; 1 on a GPU).

        Args:
            constraint_of: returns the constraint of the search for the lines with the given indices.
            advance: is called, on any thread, with the number of lines that were translated since the last call.
            prefixes: a given beginning of each translation, "" for none; it replaces the constraint.  A search may
                continue the last word of a prefix, unless a blank follows the word.
            sampling: a sampler that draws ``config.n_best`` translations at random, without a beam.  They are in the
                order of the draws, and may be equal.
            n_before: the number of lines that come before these, so that each line has its own random numbers.
            align: a function that computes the word alignments of each line's translations.
            wanted: is called, on any thread, after each step of a search.  It returns for each line whether its
                translation is still wanted.  The search of an unwanted line ends, and the line has no translations.
        """
        require_lists("translate", lines, prefixes)
        read = [self.model_text(line, line) for line in lines]
        sources = [ids[: self.longest_source] for ids in self.tokenizer.encode_source(read)]
        prefixes = [""] * len(lines) if prefixes is None else prefixes
        if len(prefixes) != len(lines):
            raise ValueError(f"prefixes: expected one for each of {len(lines)} lines; got {len(prefixes)}")
        given = zip(prefixes, lines, sources, strict=True)
        beginnings = [self.prefix_of(text, line) if ids else NO_PREFIX for text, line, ids in given]
        if sampling:
            config = dataclasses.replace(config, beam=config.n_best)

        def search(batch: IntArray, config: SearchConfig, n_finished: int, advance: Advance) -> list[list[Hypothesis]]:
            some, n_given = [sources[i] for i in batch], [beginnings[i].n_tokens for i in batch]
            some_wanted = None if wanted is None else (lambda: list(np.array(wanted())[batch]))
            constraint: Constraint | None = constraint_of(batch)
            if any(n_given):
                constraint = PrefixConstraint([beginnings[i] for i in batch], self.prefixer.pieces)
            if sampling:
                numbers = [n_before + int(i) for i in batch]
                return sampling.sample(self.models, some, config, numbers, advance, constraint, n_given, some_wanted)
            return beam_search(self.models, some, config, constraint, advance, n_given, some_wanted, n_finished)

        n_threads = n_threads or (1 if self.model.device == "cuda" else available_cores())
        found = self._find(search, sources, beginnings, config, advance, n_threads, distinct=sampling is None)
        translations = [self._decode(best, prefix) for best, prefix in zip(found, beginnings, strict=True)]
        if align is None:
            return translations
        work = list(zip(read, sources, beginnings, found, translations, strict=True))
        return list(map_in_threads(lambda line_work: self._align(align, *line_work), work, n_threads))

    @property
    def longest_source(self) -> int:
        """The greatest number of subword tokens of a line that are translated; the rest of the line is cut off."""
        learned = [model.config for model in self.models if model.config.positions == "learned"]
        return min([MAX_SOURCE_TOKENS, *(config.longest_sentence - 1 for config in learned)])  # and the end symbol

    def cut(self, lines: Sequence[str]) -> list[int]:
        """Return the indices of the lines whose ends are cut off because the lines are too long."""
        return [i for i, n_tokens in enumerate(self.count_tokens(lines)) if n_tokens > self.longest_source]

    def count_tokens(self, lines: Sequence[str]) -> list[int]:
        """Return the number of subword tokens of each line."""
        require_lists("count_tokens", lines)
        return [len(ids) for ids in self.tokenizer.encode_source([self.model_text(line, line) for line in lines])]

    def _find(
        self,
        search: Callable[..., list[list[Hypothesis]]],
        sources: Sequence[Sequence[int]],
        beginnings: Sequence[Prefix],
        config: SearchConfig,
        advance: Advance,
        n_threads: int,
        *,
        distinct: bool,
    ) -> list[list[Hypothesis]]:
        """Search all lines; then search lines again that have too few different texts or a translation that was cut.

        The first search allows only FIRST_EXTRA_TOKENS.  Longer translations are found only in the second search.
        A search for more finished hypotheses first finds the hypotheses of the search before it, in the same order.
        Without ``max_length_factor``, as for trees, translations are long, so the first search has the final limit.
        """
        found: list[list[Hypothesis]] = [[Hypothesis(0.0, 0.0, ())] for _ in sources]
        left, n_finished, settings = [i for i, source in enumerate(sources) if source], config.n_best, config
        if config.max_length_factor is not None:
            extra = min(config.max_extra_tokens, FIRST_EXTRA_TOKENS)
            settings = dataclasses.replace(config, max_extra_tokens=extra)
        advance(len(sources) - len(left))  # empty lines, which are not searched
        while left and n_finished <= MOST_FINISHED * config.n_best:
            batches, again = _batches_by_length(sources, left, config.beam, self.model.device), list[int]()
            search_batch = partial(search, config=settings, n_finished=n_finished, advance=advance)
            searches = map_in_threads(search_batch, batches, n_threads)
            for i, hypotheses in zip(itertools.chain(*batches), itertools.chain.from_iterable(searches), strict=True):
                found[i] = self._best_per_text(hypotheses, beginnings[i])[: config.n_best] if distinct else hypotheses
                is_cut = settings.max_extra_tokens < config.max_extra_tokens and any(each.is_cut for each in found[i])
                if is_cut or (len(found[i]) < config.n_best and len(hypotheses) == n_finished):
                    again.append(int(i))
            left, n_finished, settings, advance = again, n_finished * min(2, config.n_best), config, lambda n: None
        return found

    def _best_per_text(self, hypotheses: Sequence[Hypothesis], prefix: Prefix) -> list[Hypothesis]:
        """Return the best hypothesis of each text: several sequences of pieces may spell the same text."""
        if len(hypotheses) == 1:
            return list(hypotheses)
        texts = [translation.text for translation in self._decode(hypotheses, prefix)]
        return [hypothesis for i, hypothesis in enumerate(hypotheses) if texts[i] not in texts[:i]]

    def _decode(self, hypotheses: Sequence[Hypothesis], prefix: Prefix) -> list[Translation]:
        decoded = self.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
        texts = [BETWEEN_WORDS.sub(" ", prefix.completed(text)).strip(" ") for text in decoded]  # one line each
        return [
            Translation(text, each.log_probability, each.score, is_cut=each.is_cut)
            for text, each in zip(texts, hypotheses, strict=True)
        ]

    def _align(
        self,
        align: Align,
        line: str,
        source: list[int],
        prefix: Prefix,
        hypotheses: Sequence[Hypothesis],
        translations: Sequence[Translation],
    ) -> list[Translation]:
        """Return the translations of a line with their word alignments."""
        require_wanted()
        if not source:
            return list(translations)
        links = align(self, line, source, prefix, hypotheses)
        return [dataclasses.replace(each, alignment=its) for each, its in zip(translations, links, strict=True)]


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


def _batches_by_length(sources: Sequence[Sequence[int]], rows: list[int], beam: int, device: Device) -> list[IntArray]:
    """Return batches of rows of ``sources``, longest first; a batch has a bounded number of hypotheses.

    Batches of very long sources are smaller, because attention scores grow with the square of the length.  Batches that
    are formed at once take sources in turns.  Batches, and so the bits of results, do not depend on the threads.
    """
    by_length = np.array(sorted(rows, key=lambda i: -len(sources[i])), np.int64)
    n, batches, start = BATCHES_AT_ONCE[device], list[IntArray](), 0
    while start < len(by_length):
        longest = len(sources[by_length[start]]) + 1  # and the end symbol
        at_once = n * max(1, min(HYPOTHESES_AT_ONCE[device] // beam, SCORES_AT_ONCE // longest**2))
        dealt = by_length[start : start + at_once]
        batches += [dealt] if len(dealt) < FEW else [dealt[i::n] for i in range(n)]
        start += at_once
    return batches
