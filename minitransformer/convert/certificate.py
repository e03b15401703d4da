"""A certificate of a conversion: both programs translate the same sentences, and the file says how much they differ."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from minitransformer.convert.parts import ConversionError, Parts
from minitransformer.data.survey import CorpusError, read_lines
from minitransformer.inference.beam import SearchConfig, beam_search
from minitransformer.model.batch import Batch
from minitransformer.model.transformer import Transformer
from minitransformer.system.checksums import checksums_of
from minitransformer.system.files import write_text

CERTIFICATE_FILE = "certificate.json"
GREEDY, BEAM = 1, 4
AT_ONCE = 32  # sentences that are searched together
_WEIGHTS = (".safetensors", ".bin", ".onnx")

UNKNOWN_WORD = "ꙮ"  # a rare letter, U+A66E: hardly any vocabulary has it
MOST_UNKNOWN = 3  # unknown words in a row
Sentence = Sequence[int]  # our ids, without start and end symbols
Tokens = Sequence[Any]  # of a line, as the other program reads them: words or ids, without an end symbol


class OtherSide(Protocol):
    """A model in another program, which receives text, and returns our ids."""

    @property
    def package(self) -> str:
        """The distribution that runs the model."""

    @property
    def beams(self) -> tuple[int, ...]:
        """The beams with which ``translate`` can search: GREEDY, or also BEAM."""

    def tokens(self, line: str) -> Tokens:
        """Return the tokens of a line, as users of the program split it."""

    def are_same(self, tokens: Tokens, source: Sentence) -> bool:
        """Return whether these tokens are the words of our ids; words that the program lacks are its unknown word."""

    def log_probabilities(self, tokens: Tokens, target: Sentence) -> list[float]:
        """Return log p in nats of each target token, and of the end symbol, after the ones before it."""

    def translate(self, tokens: Tokens, config: SearchConfig) -> list[int]:
        """Return the best translation; unknown words and the start symbol are not generated."""


@dataclass(frozen=True)
class Certificate:
    """The differences between a converted model in our program and in another."""

    versions: dict[str, str]
    """Distributions and their versions: minitransformer, and the other program."""
    sentences: int
    """Number of source sentences, those with added unknown words included."""
    target_tokens: int
    """Number of target tokens whose log-probabilities were compared, end symbols included."""
    largest_difference_in_nats: float
    """Greatest |Δ log p| of these tokens, in nats.  The targets are our greedy translations."""
    equal_sources: float
    """Share of the sentences that both programs split into the same tokens."""
    equal_greedy: float
    """Share of the sentences with the same greedy translation."""
    equal_beam_4: float | None
    """Share of the sentences with the same translation by beam search; null if the other program has no such search."""
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
    """Translate the lines with our model and with the other program, and compare.

    Each program splits the text itself.  The first line is also translated with one to three unknown words in a row
    after its first word.

    Both beam searches divide log p by length^α, the only length penalty that all programs have; α is the model's, or 1
    if the model has another penalty.  Sentences are computed one by one, on one thread: several would wait for each
    other longer than they compute.
    """
    with threadpool_limits(1, user_api="blas"):
        return _certificate(parts, other, [*lines, *_with_unknown_words(lines[0])])


def _with_unknown_words(line: str) -> list[str]:
    first, *rest = line.split(" ")
    return [" ".join([first, *[UNKNOWN_WORD] * n, *rest]) for n in range(1, MOST_UNKNOWN + 1)]


def _certificate(parts: Parts, other: OtherSide, lines: Sequence[str]) -> Certificate:
    model = Transformer(parts.config, seed=None)
    model.set_weights(parts.weights)
    sources = parts.tokenizer.encode_source(lines)
    alpha = parts.config.alpha if parts.config.normalisation == "length" else 1.0
    greedy, beam = (SearchConfig(beam=size, alpha=alpha, normalisation="length") for size in (GREEDY, BEAM))
    targets = _translations(model, sources, greedy)
    tokens = [other.tokens(line) for line in lines]
    differences = [
        np.abs(_log_probabilities(model, source, target) - other.log_probabilities(line_tokens, target))
        for source, line_tokens, target in zip(sources, tokens, targets, strict=True)
    ]
    theirs = [other.translate(line_tokens, greedy) for line_tokens in tokens]
    of_beam = BEAM in other.beams and [other.translate(line_tokens, beam) for line_tokens in tokens]
    n_same = sum(other.are_same(line_tokens, source) for line_tokens, source in zip(tokens, sources, strict=True))
    return Certificate(
        versions={name: version(name) for name in ("minitransformer", other.package)},
        sentences=len(lines),
        target_tokens=sum(map(len, differences)),
        largest_difference_in_nats=float(np.concatenate(differences).max()),
        equal_sources=n_same / len(lines),
        equal_greedy=_share_of_equal(targets, theirs),
        equal_beam_4=_share_of_equal(_translations(model, sources, beam), of_beam) if of_beam else None,
        normalisation="length",
        alpha=alpha,
    )


def write_certificate(certificate: Certificate, directory: Path) -> None:
    """Write the certificate beside the weights, with their sizes and SHA-256.  Raises: CheckpointError."""
    names = [path.name for path in directory.iterdir() if path.suffix in _WEIGHTS]
    fields = {**dataclasses.asdict(certificate), "weights": checksums_of(directory, names)}
    write_text(directory / CERTIFICATE_FILE, json.dumps(fields, indent=2) + "\n")


def read_sentences(path: Path) -> list[str]:
    """Return the lines of a text that are not empty.  Raises: ConversionError if there are none."""
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
