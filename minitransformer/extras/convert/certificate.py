"""A certificate of a conversion: the differences between our results and another program's on the same sentences.

The other program is MarianMT of transformers, CTranslate2, or onnxruntime.  The classes ``MarianSide``,
``CTranslate2Side`` and ``OnnxSide`` split text as users of these programs do.  ``MarianSide`` and ``CTranslate2Side``
convert between their ids and ours by ``OtherModel.vocabularies``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sentencepiece import SentencePieceProcessor

from autograd.blas import product_threads
from minitransformer.data.survey import CorpusError, read_lines
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.argos import MODEL, TOKENIZER, unpacked
from minitransformer.extras.convert.ctranslate2 import SETTINGS_FILE
from minitransformer.extras.convert.foreign_files import SettingsFile, sentencepiece_models
from minitransformer.extras.convert.parts import ConversionError, Parts, Vocabulary
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import Batch
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.model.transformer import Transformer
from minitransformer.system.checksums import checksums_of
from minitransformer.system.files import write_text

CERTIFICATE_FILE = "certificate.json"
GREEDY, BEAM = 1, 4
EXTRA_TOKENS = 50  # a translation has at most 50 tokens more than its source, as in the paper
AT_ONCE = 32  # number of sentences in one beam search
_WEIGHTS = (".safetensors", ".bin", ".onnx", ".argosmodel")

UNKNOWN_WORD = "ꙮ"  # a rare letter, U+A66E: hardly any vocabulary has it
MOST_UNKNOWN = 3  # unknown words in a row
Sentence = Sequence[int]  # our ids, without start and end symbols
Tokens = Sequence[Any]  # the tokens of a line in the other program: words or ids, without an end symbol


class OtherSide(Protocol):
    """A model that another program runs.

    ``package`` is the Python distribution that runs the model.  ``beams`` are the beam sizes of ``translate``, with or
    without BEAM.  ``tokens`` splits a line as users of the program do; the other methods receive the tokens.
    """

    package: str
    beams: tuple[int, ...]

    def tokens(self, line: str) -> Tokens: ...

    def are_same(self, tokens: Tokens, source: Sentence) -> bool:
        """Return whether the program's tokens and our ids ``source`` stand for the same words.

        A word that the program lacks is its unknown word.
        """

    def log_probabilities(self, tokens: Tokens, target: Sentence) -> list[float]:
        """Return log p in nats of each target token and of the end symbol, given the source and earlier tokens."""

    def translate(self, tokens: Tokens, config: SearchConfig) -> list[int]:
        """Return our ids of the best translation; unknown words and the start symbol are not generated."""


@dataclass(frozen=True)
class Certificate:
    """The differences between the results of our program and of another program for a converted model."""

    versions: dict[str, str]
    """Versions of two distributions: minitransformer, and the other program."""
    sentences: int
    """Number of source sentences, including the three sentences with added unknown words."""
    target_tokens: int
    """Number of target tokens whose log-probabilities were compared, end symbols included."""
    largest_difference_in_nats: float
    """Greatest |Δ log p| of a target token, in nats.  The targets are our greedy translations."""
    equal_sources: float
    """Share of the sentences that both programs split into the same tokens."""
    equal_greedy: float
    """Share of the sentences with the same greedy translation."""
    equal_beam_4: float | None
    """Share of the sentences with the same translation by beam search; None if the other program has no beam search."""
    normalisation: str
    """Length penalty of both beam searches."""
    alpha: float
    """Exponent of the length penalty of both beam searches."""

    @property
    def description(self) -> str:
        """The certificate in a sentence."""
        beam = "" if self.equal_beam_4 is None else f", beam {BEAM} {self.equal_beam_4:.1%}"
        programs = " and ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"{programs} on {self.sentences:,} sentences: largest difference of log p"
            f" {self.largest_difference_in_nats:.2g} nats; equal translations: greedy {self.equal_greedy:.1%}{beam}"
            f"; equal source tokens {self.equal_sources:.1%}"
        )


def certify(parts: Parts, other: OtherSide, lines: Sequence[str]) -> Certificate:
    """Translate the lines with our model and with the other program, and return the differences.

    Each program splits the text itself.  Three more sentences are the first line with one, two and three unknown words
    in a row after its first word.

    Both beam searches divide log p by length^α, the only length penalty that all programs have.  α is the exponent of
    the model's penalty, or 1 if the model has another kind of penalty.  Our model computes on one thread: with few
    sentences, several threads would wait longer than they compute.
    """
    with product_threads(1):
        return _certificate(parts, other, [*lines, *_with_unknown_words(lines[0])])


def _with_unknown_words(line: str) -> list[str]:
    first, *rest = line.split(" ")
    return [" ".join([first, *[UNKNOWN_WORD] * n, *rest]) for n in range(1, MOST_UNKNOWN + 1)]


def _certificate(parts: Parts, other: OtherSide, lines: Sequence[str]) -> Certificate:
    model = Transformer(parts.config, seed=None)
    model.set_weights(parts.weights)
    sources = parts.tokenizer.encode_source(lines)
    alpha = parts.config.own_alpha if parts.config.normalisation == "length" else 1.0
    search = SearchConfig(alpha=alpha, normalisation="length", max_extra_tokens=EXTRA_TOKENS, max_length_factor=None)
    greedy, beam = (dataclasses.replace(search, beam=size) for size in (GREEDY, BEAM))
    targets = _translations(model, sources, greedy)
    tokens = [other.tokens(line) for line in lines]
    differences = [
        np.abs(_log_probabilities(model, source, target) - other.log_probabilities(line_tokens, target))
        for source, line_tokens, target in zip(sources, tokens, targets, strict=True)
    ]
    theirs = [other.translate(line_tokens, greedy) for line_tokens in tokens]
    their_beams = BEAM in other.beams and [other.translate(line_tokens, beam) for line_tokens in tokens]
    n_same = sum(other.are_same(line_tokens, source) for line_tokens, source in zip(tokens, sources, strict=True))
    return Certificate(
        versions={name: version(name) for name in ("minitransformer", other.package)},
        sentences=len(lines),
        target_tokens=sum(map(len, differences)),
        largest_difference_in_nats=float(np.concatenate(differences).max()),
        equal_sources=n_same / len(lines),
        equal_greedy=_share_of_equal(targets, theirs),
        equal_beam_4=_share_of_equal(_translations(model, sources, beam), their_beams) if their_beams else None,
        normalisation="length",
        alpha=alpha,
    )


def write_certificate(certificate: Certificate, directory: Path) -> None:
    """Write ``certificate.json``, which also has the size and the SHA-256 of each file of weights in the directory.

    Raises: CheckpointError if the file cannot be written.
    """
    names = [path.name for path in directory.iterdir() if path.suffix in _WEIGHTS]
    fields = {**dataclasses.asdict(certificate), "weights": checksums_of(directory, names)}
    write_text(directory / CERTIFICATE_FILE, json.dumps(fields, indent=2) + "\n")


def read_sentences(path: Path) -> list[str]:
    """Return the lines of a file that are not empty, without blanks at both ends.

    Raises: ConversionError if the file cannot be read as text, or if all lines are empty.
    """
    try:
        lines = [line.strip() for line in read_lines(path)]
    except CorpusError as error:
        raise ConversionError(f"{error}; give source sentences, one a line") from error
    if not any(lines):
        raise ConversionError(f"{path}: has no sentence; give source sentences, one a line")
    return [line for line in lines if line]


def _translations(model: Transformer, sources: Sequence[Sentence], config: SearchConfig) -> list[list[int]]:
    searching, found = model.for_search(), list[list[int]]()
    for start in range(0, len(sources), AT_ONCE):
        results = beam_search(searching, sources[start : start + AT_ONCE], config)
        found += [list(hypotheses[0].ids) for hypotheses in results]
    return found


def _log_probabilities(model: Transformer, source: Sentence, target: Sentence) -> Any:
    """Return log p in nats of each target token and of the end symbol."""
    batch = Batch.from_token_ids([source], [target], source_end=model.config.source_end)
    return model.log_probabilities(batch)[np.arange(len(batch.labels)), batch.labels]


def _share_of_equal(ours: Sequence[Sentence], theirs: Sequence[Sentence]) -> float:
    return sum(list(a) == list(b) for a, b in zip(ours, theirs, strict=True)) / len(ours)


@dataclass(frozen=True)
class OtherModel:
    """A model of another program: its directory, its ``Parts``, and the paths of its sentencepiece models, if given.

    ``parts`` was read from the directory.  An ONNX model cannot be read: ``parts`` is the model that was written.
    """

    directory: Path
    parts: Parts
    source_spm: Path | None = None
    target_spm: Path | None = None

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of source and target, which map our ids to the other program's.

        Raises: ConversionError if the model is in our own format, which has no such vocabularies.
        """
        if self.parts.vocabularies is None:
            raise ConversionError(f"{self.directory}: is a model of ours; give one of another program")
        return self.parts.vocabularies


class MarianSide:
    """A model of MarianMT in the package transformers; needs PyTorch, whose products then use one thread."""

    package = "transformers"
    beams: tuple[int, ...] = (GREEDY, BEAM)

    def __init__(self, model: OtherModel) -> None:
        import_module("torch").set_num_threads(1)  # one sentence: threads would wait longer than they compute
        transformers = import_module("transformers")

        self._model = transformers.MarianMTModel.from_pretrained(model.directory).eval()
        self._tokenizer = transformers.MarianTokenizer.from_pretrained(model.directory)
        self._source, self._target = model.vocabularies

    def tokens(self, line: str) -> Sequence[int]:
        ids: list[int] = self._tokenizer(line, add_special_tokens=False)["input_ids"]
        return ids

    def are_same(self, tokens: Sequence[int], source: Sentence) -> bool:
        return list(tokens) == [self._source.foreign_ids[i] for i in source]

    def log_probabilities(self, tokens: Sequence[int], target: Sentence) -> list[float]:
        torch = import_module("torch")

        labels = [self._target.foreign_ids[i] for i in (*target, END)]
        inputs = torch.tensor([[self._model.config.decoder_start_token_id, *labels[:-1]]])
        with torch.no_grad():
            logits = self._model(input_ids=self._inputs(tokens), decoder_input_ids=inputs).logits[0]
        return [row[i].item() for row, i in zip(logits.double().log_softmax(-1), labels, strict=True)]

    def translate(self, tokens: Sequence[int], config: SearchConfig) -> list[int]:
        input_ids, ids = self._inputs(tokens), self._target.foreign_ids
        found = self._model.generate(
            input_ids=input_ids,
            attention_mask=input_ids.new_ones(input_ids.shape),
            do_sample=False,
            num_beams=config.beam,
            length_penalty=config.alpha if config.beam > 1 else None,
            early_stopping="never" if config.beam > 1 else None,
            max_new_tokens=_greatest_length(tokens, config),
            max_length=None,
            renormalize_logits=False,
            bad_words_ids=[[i] for i in {ids[UNKNOWN], ids[START], self._model.config.pad_token_id}],
        )
        ours = self._target.ids_of_foreign
        return _before_end([ours.get(i, UNKNOWN) for i in found[0, 1:].tolist()])

    def _inputs(self, tokens: Sequence[int]) -> Any:
        torch = import_module("torch")

        return torch.tensor([[*tokens, self._source.foreign_ids[END]]])


class CTranslate2Side:
    """A model in CTranslate2, which computes in the number type of the stored weights."""

    package = "ctranslate2"
    beams: tuple[int, ...] = (GREEDY, BEAM)

    def __init__(self, model: OtherModel) -> None:
        ctranslate2 = import_module("ctranslate2")

        directory = model.directory
        self._translator = ctranslate2.Translator(str(directory), intra_threads=1)
        self._source, self._target = model.vocabularies
        subwords, _ = sentencepiece_models(directory, model.source_spm, model.target_spm)
        self._subwords = None if subwords is None else SentencePieceProcessor(model_proto=subwords)
        appends_end = SettingsFile.load_if_there(directory / SETTINGS_FILE).of("add_source_eos", bool, False)
        is_marian = model.parts.config.start == "zero"  # users of Marian models append the end: see ``read_settings``
        self._source_ids = dict(zip(self._source.words, self._source.foreign_ids, strict=True))
        self._target_ids = {word: i for i, word in enumerate(self._target.words)}
        self._end = [self._source.words[END]] if is_marian and not appends_end else []

    def tokens(self, line: str) -> Sequence[str]:
        """Return the pieces of the sentencepiece model; without such a model, the words between blanks."""
        if self._subwords is None:
            return [word for word in line.split(" ") if word]
        pieces: list[str] = self._subwords.encode(line, out_type=str)
        return pieces

    def are_same(self, tokens: Sequence[str], source: Sentence) -> bool:
        ids = self._source.foreign_ids
        return [self._source_ids.get(token, ids[UNKNOWN]) for token in tokens] == [ids[i] for i in source]

    def log_probabilities(self, tokens: Sequence[str], target: Sentence) -> list[float]:
        words = [self._target.foreign_words[i] for i in target]
        (scored,) = self._translator.score_batch([[*tokens, *self._end]], [words], max_input_length=0)
        return list(scored.log_probs)

    def translate(self, tokens: Sequence[str], config: SearchConfig) -> list[int]:
        has_start = self._target.rows[START] is not None
        (result,) = self._translator.translate_batch(
            [[*tokens, *self._end]],
            beam_size=config.beam,
            patience=2,  # search on after the first finished translations, as we do
            length_penalty=config.alpha,
            disable_unk=True,
            suppress_sequences=[[self._target.words[START]]] if has_start else None,
            min_decoding_length=0,  # a translation may be empty, as in our search
            max_decoding_length=_greatest_length(tokens, config) - 1,  # without the end symbol
            max_input_length=0,
        )
        return [self._target_ids.get(word, UNKNOWN) for word in result.hypotheses[0]]


class ArgosSide(CTranslate2Side):
    """A package of Argos Translate in CTranslate2, with which Argos Translate computes."""

    def __init__(self, model: OtherModel) -> None:
        with unpacked(model.directory) as directory:
            super().__init__(OtherModel(directory / MODEL, model.parts, directory / TOKENIZER))


class OnnxSide:
    """A model in onnxruntime: the two graphs that ``write_onnx`` writes."""

    package = "onnxruntime"
    beams: tuple[int, ...] = (GREEDY,)

    def __init__(self, model: OtherModel) -> None:
        onnxruntime = import_module("onnxruntime")

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(model.directory / name, options)
            for name in ("encoder.onnx", "decoder_step.onnx")
        )
        self._tokenizer = Tokenizer.load(model.directory)

    def tokens(self, line: str) -> Sequence[int]:
        """Return the token ids of a line; the tokenizer is in the directory of the graphs."""
        return self._tokenizer.encode_source([line])[0]

    def are_same(self, tokens: Sequence[int], source: Sentence) -> bool:
        return list(tokens) == list(source)

    def log_probabilities(self, tokens: Sequence[int], target: Sentence) -> list[float]:
        log_p = self._step(self._inputs(tokens), [START, *target])
        return [float(row[i]) for row, i in zip(log_p, (*target, END), strict=True)]

    def translate(self, tokens: Sequence[int], config: SearchConfig) -> list[int]:
        inputs, ids = self._inputs(tokens), [START]
        longest = int(self._decoder.get_modelmeta().custom_metadata_map["longest_sentence"])
        while len(ids) < min(_greatest_length(tokens, config), longest) and ids[-1] != END:
            log_p = self._step(inputs, ids[-1:])[-1]
            log_p[[UNKNOWN, START]] = -np.inf
            ids.append(int(log_p.argmax()))
        return _before_end(ids[1:])

    def _inputs(self, source: Sentence) -> dict[str, Any]:
        """Run the encoder, and return the decoder's inputs for its first step, except ``ids``."""
        has_end = int(self._decoder.get_modelmeta().custom_metadata_map["source_end"])
        ids = np.array([[*source, *[END] * has_end]])
        lengths = np.array([ids.shape[1]])
        names = [output.name for output in self._encoder.get_outputs()]
        outputs = self._encoder.run(None, {"source_ids": ids, "source_lengths": lengths})
        past = [each for each in self._decoder.get_inputs() if each.name.startswith("past_")]
        empty = {each.name: np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32) for each in past}
        return {**dict(zip(names, outputs, strict=True)), "source_lengths": lengths, **empty}

    def _step(self, inputs: dict[str, Any], ids: Sentence) -> Any:
        """Return the log-probabilities (T, W) after the newest ids (T,), and update the caches in ``inputs``."""
        names = [output.name for output in self._decoder.get_outputs()]
        outputs = dict(zip(names, self._decoder.run(None, {**inputs, "ids": np.array([ids])}), strict=True))
        log_p = outputs.pop("log_probabilities")[0]
        inputs.update({f"past_{name}": cache for name, cache in outputs.items()})
        return log_p


SIDES: dict[str, tuple[Callable[[OtherModel], OtherSide], tuple[str, ...]]] = {
    "marian": (MarianSide, ("transformers", "torch")),
    "ctranslate2": (CTranslate2Side, ("ctranslate2",)),
    "argos": (ArgosSide, ("ctranslate2",)),
    "onnx": (OnnxSide, ("onnxruntime",)),
}


def require_side(name: str) -> None:
    """Raise ConversionError if no other program runs the format ``name``, or if the program is not installed."""
    if name not in SIDES:
        raise ConversionError(
            f"certificate: {name} models are not run by another program; possible: {', '.join(SIDES)}"
        )
    packages = SIDES[name][1]
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ConversionError(f"certificate: {missing[0]} is not installed: pip install {' '.join(packages)}")


def other_side(name: str, model: OtherModel) -> OtherSide:
    """Load a model into the program that runs the format ``name``.

    Raises: ConversionError if there is no such program, or if the program is not installed.
    """
    require_side(name)
    return SIDES[name][0](model)


def _greatest_length(tokens: Sequence[Any], config: SearchConfig) -> int:
    return int(config.greatest_lengths(np.array(len(tokens))))


def _before_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END)] if END in ids else ids
