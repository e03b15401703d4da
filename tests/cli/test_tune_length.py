"""minitransformer-score tune-length: the exponent that it stores is the best one, and later searches take it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import contents, plain, write_parallel_text

from cli.score import score
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.extras.convert.parts import Parts, write_bundle
from minitransformer.extras.length_penalty import Tried, store_alpha
from minitransformer.inference.bleu import Score
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError

ALPHAS = ["0", "0.6", "40"]  # the last one prefers the longest translations, which repeat themselves


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    write_parallel_text(tmp_path, "held-out", 30, seed=3)
    return [str(tmp_path / "held-out.en"), str(tmp_path / "held-out.de")]


def test_the_best_exponent_is_stored(run_copy: Path, text: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["tune-length", *text, "--run", str(run_copy), "--alphas", *ALPHAS]) == 0
    output = capsys.readouterr()
    found = dict(re.findall(r"^alpha (\S+): BLEU = (\S+) ", output.out, flags=re.MULTILINE))
    assert list(found) == ALPHAS
    assert found["40"] != found["0.6"]
    best = max(ALPHAS, key=lambda alpha: float(found[alpha]))
    assert plain(output.err) == f"stored alpha {best} in {run_copy} (before: 0.6); searches with this model now take it"
    assert Translator.load(run_copy).model.config.alpha == float(best)


def test_a_search_takes_the_models_exponent_unless_it_is_given_one(run_copy: Path, text: list[str]) -> None:
    lines = Path(text[0]).read_text(encoding="utf-8").splitlines()
    paper = Translator.load(run_copy).translate(lines)
    store_alpha(run_copy, 40.0)
    tuned = Translator.load(run_copy)
    assert tuned.translate(lines) == tuned.translate(lines, alpha=40.0) != paper
    assert tuned.translate(lines, alpha=0.6) == paper


@pytest.mark.parametrize(
    ("alphas", "scores", "stored", "message"),
    [
        (
            "0 0.3 0.6",
            [50, 50, 50],
            0.6,
            "kept alpha 0.6 of {run}: BLEU is the same with all 3 exponents, so this text",
        ),
        ("0 0.3", [0, 0.004, 0], 0.6, "kept alpha 0.6 of {run}: BLEU is the same with all 3 exponents, so this text"),
        ("0.3 0.6 0.9", [50, 50, 40], 0.6, "kept alpha 0.6 of {run}: the best ones, 0.3, 0.6, have the same BLEU, so"),
        ("0.3 0.6 0.9", [40, 50, 40], 0.6, "kept alpha 0.6 of {run}: no other exponent is better"),
        ("0.3", [50, 50.5], 0.6, "kept alpha 0.6 of {run}: no other exponent is better"),
        ("0.6 1.5 0.9 1.2", [40, 50, 50, 50], 1.2, "stored alpha 1.2 in {run} (before: 0.6), the middle of the best"),
        ("0 0.3 0.6 0.9", [50, 50, 40, 30], 0.3, "stored alpha 0.3 in {run} (before: 0.6), the middle of the best"),
        ("0 0.6 0.9", [40, 50, 50.5], 0.9, "stored alpha 0.9 in {run} (before: 0.6); searches with this model now"),
    ],
)
def test_another_exponent_is_stored_only_if_it_is_better_than_the_models_own(
    alphas: str,
    scores: list[float],
    stored: float,
    message: str,
    run_copy: Path,
    text: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fixed_scores(*arguments: Any, language: str | None) -> Iterator[Tried]:
        for alpha, value in zip(arguments[-1], scores, strict=True):
            yield Tried(alpha, Score("BLEU", value, "signature", f"BLEU = {value}"))

    monkeypatch.setattr("cli.score.try_alphas", fixed_scores)
    before = contents(run_copy)
    assert score(["tune-length", *text, "--run", str(run_copy), "--alphas", *alphas.split()]) == 0
    assert plain(capsys.readouterr().err).startswith(message.format(run=run_copy))
    assert Translator.load(run_copy).model.config.alpha == stored
    assert (contents(run_copy) == before) == (stored == 0.6)


def test_wrong_files_and_exponents_are_refused_before_the_search(
    run_copy: Path, text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.score.try_alphas", lambda *arguments: pytest.fail("the search has begun"))
    write_bundle(Parts.load(run_copy), tmp_path / "bundle")
    before = (run_copy / "model.json").read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "empty.de").write_bytes(b"")
    empty = str(tmp_path / "empty")
    options = ["--run", str(run_copy)]
    for arguments, error, message in (
        ([empty, f"{empty}.de", *options], CorpusError, "is empty"),
        ([text[0], empty, *options], CorpusError, "held-out.en"),
        ([*text, *options, "--alphas", "-1"], ConfigError, "alpha must be at least 0 and less than 50; got -1.0"),
        ([*text, *options, "--alphas", "0", "50"], ConfigError, "alpha must be at least 0 and less than 50; got 50.0"),
        ([*text, "--run", str(tmp_path / "bundle")], CheckpointError, "is a bundle, whose files never change"),
        ([*text, "--run", str(tmp_path)], CheckpointError, "no model here"),
    ):
        with pytest.raises(error, match=message):
            score(["tune-length", *arguments])
    assert (run_copy / "model.json").read_bytes() == before
