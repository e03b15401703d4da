"""Certificates of two programs that differ in known ways."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from number_words import sentences, trained_parts

from minitransformer import Batch, Transformer
from minitransformer.extras.convert import certificate as certificate_module
from minitransformer.extras.convert.certificate import (
    UNKNOWN_WORD,
    Certificate,
    certify,
    read_sentences,
    require_side,
    write_certificate,
)
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig

LINES = sentences(6, seed=3)


class Ourselves:
    """Our own model, but for what a test changes."""

    package = "numpy"
    beams: tuple[int, ...] = (1, 4)

    def __init__(self) -> None:
        parts = trained_parts()
        self.tokenizer, self.model = parts.tokenizer, Transformer(parts.config, seed=None)
        self.model.set_weights(parts.weights)
        self.searches: list[SearchConfig] = []

    def tokens(self, line: str) -> Sequence[int]:
        return self.tokenizer.encode_source([line])[0]

    def are_same(self, tokens: Sequence[int], source: Sequence[int]) -> bool:
        return tokens == source

    def log_probabilities(self, tokens: Sequence[int], target: Sequence[int]) -> list[float]:
        log_p = self.model.log_probabilities(Batch.from_token_ids([tokens], [target]))
        return [float(row[i]) for row, i in zip(log_p, [*target, 2], strict=True)]

    def translate(self, tokens: Sequence[int], config: SearchConfig) -> list[int]:
        self.searches.append(config)
        return list(beam_search(self.model, [tokens], config)[0][0].ids)


class Different(Ourselves):
    """It splits the first sentence otherwise.  One log-probability is off, and some translations lack a word."""

    def tokens(self, line: str) -> Sequence[int]:
        return super().tokens(line)[: -1 if line == LINES[0] else None]

    def log_probabilities(self, tokens: Sequence[int], target: Sequence[int]) -> list[float]:
        tokens = self.tokenizer.encode_source(LINES[:1])[0] if tokens == self.tokens(LINES[0]) else tokens
        exact = super().log_probabilities(tokens, target)
        return [*exact[:-1], exact[-1] - (0.25 if tokens == self.tokens(LINES[5]) else 0)]

    def translate(self, tokens: Sequence[int], config: SearchConfig) -> list[int]:
        wrong = LINES[:1] if config.beam == 1 else LINES[:3]
        tokens_of_wrong = [self.tokens(line) for line in wrong]
        found = super().translate(tokens, config)
        return found[:-1] if tokens in tokens_of_wrong else found


class MergesUnknown(Ourselves):
    """It makes one token of several unknown words in a row."""

    def tokens(self, line: str) -> Sequence[int]:
        return super().tokens(re.sub(rf"{UNKNOWN_WORD}( {UNKNOWN_WORD})+", UNKNOWN_WORD, line))


def test_of_the_same_model_everything_is_equal() -> None:
    other = Ourselves()
    certificate = certify(trained_parts(), other, LINES)
    first, *rest = LINES[0].split()
    more = [" ".join([first, *["ꙮ"] * n, *rest]) for n in (1, 2, 3)]
    sources = other.tokenizer.encode_source(LINES + more)
    n_tokens = sum(len(other.translate(ids, SearchConfig(beam=1))) + 1 for ids in sources)
    assert (certificate.sentences, certificate.target_tokens) == (9, n_tokens)
    assert certificate.largest_difference_in_nats < 1e-5  # rounding of sums in another order
    assert (certificate.equal_sources, certificate.equal_greedy, certificate.equal_beam_4) == (1, 1, 1)
    assert certificate.versions == {"minitransformer": "1.0.0", "numpy": np.__version__}


def test_differences_are_measured() -> None:
    certificate = certify(trained_parts(), Different(), LINES)
    assert certificate.largest_difference_in_nats == pytest.approx(0.25, abs=1e-5)
    assert (certificate.equal_sources, certificate.equal_greedy, certificate.equal_beam_4) == (8 / 9, 8 / 9, 6 / 9)
    for part in ("0.25 nats", "greedy 88.9%", "beam 4 66.7%", "source tokens 88.9%"):
        assert part in certificate.description


def test_what_the_other_program_lacks_is_not_compared_and_merged_unknown_words_are_seen() -> None:
    """The given lines have no unknown word."""
    other, merging = Ourselves(), MergesUnknown()
    other.beams = merging.beams = (1,)
    certificate = certify(trained_parts(), other, LINES)
    assert certificate.equal_beam_4 is None
    assert {config.beam for config in other.searches} == {1}
    assert "beam" not in certificate.description
    assert certify(trained_parts(), merging, LINES).equal_sources == pytest.approx(7 / 9)


@pytest.mark.parametrize(
    ("changes", "alpha"), [({}, 1.0), ({"normalisation": "length", "alpha": 0.6}, 0.6), ({"alpha": 0.3}, 1.0)]
)
def test_both_searches_have_the_same_length_penalty(changes: dict[str, Any], alpha: float) -> None:
    other = Ourselves()
    parts = trained_parts()
    certificate = certify(replace(parts, config=replace(parts.config, **changes)), other, LINES[:1])
    assert {(each.normalisation, each.alpha) for each in other.searches} == {("length", alpha)}
    assert (certificate.normalisation, certificate.alpha) == ("length", alpha)


def test_a_certificate_lies_beside_the_weights_with_their_checksums(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "model.json").write_bytes(b"{}")
    certificate = certify(trained_parts(), Ourselves(), LINES[:1])
    write_certificate(certificate, tmp_path)
    found = json.loads((tmp_path / "certificate.json").read_text())
    weights = {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
    assert found.pop("weights") == {"model.safetensors": weights}
    assert Certificate(**found) == certificate


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff"])
def test_sentences_are_the_nonempty_lines_and_a_file_without_is_refused(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "some").write_text("one two\n\n  six \r\nfünf", encoding="utf-8")
    assert read_sentences(tmp_path / "some") == ["one two", "six", "fünf"]
    if content is not None:
        (tmp_path / "lines").write_bytes(content)
    with pytest.raises(ConversionError, match=rf"{tmp_path}/lines[:,] .*; give source sentences, one a line"):
        read_sentences(tmp_path / "lines")


@pytest.mark.parametrize(("name", "missing", "message"), [
    ("marian", "torch", "torch is not installed: pip install transformers torch"),
    ("ctranslate2", "ctranslate2", "ctranslate2 is not installed: pip install ctranslate2"),
    ("onnx", "onnxruntime", "onnxruntime is not installed: pip install onnxruntime"),
    ("fairseq", "", "fairseq models are not run by another program; possible: marian, ctranslate2, argos, onnx"),
])  # fmt: skip
def test_a_missing_program_is_named(name: str, missing: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_module, "find_spec", lambda package: None if package == missing else package)
    with pytest.raises(ConversionError, match=message):
        require_side(name)
