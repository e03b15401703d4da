"""minitransformer-score tune-length: the exponent that it stores is the best one, and later searches take it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from small_run import Trained, plain, write_parallel_text

from cli.score import score
from minitransformer.config import ConfigError
from minitransformer.convert.bundle import write_bundle
from minitransformer.convert.parts import Parts
from minitransformer.data.survey import CorpusError
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError

ALPHAS = ["0", "0.6", "40"]  # the last one prefers the longest translations, which repeat themselves


@pytest.fixture
def run(trained: Trained, tmp_path: Path) -> Path:
    """A copy of the model, which may be changed."""
    shutil.copytree(trained.run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def text(tmp_path: Path) -> list[str]:
    write_parallel_text(tmp_path, "held-out", 30, seed=3)
    return [str(tmp_path / "held-out.en"), str(tmp_path / "held-out.de")]


def test_the_best_exponent_is_stored(run: Path, text: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["tune-length", *text, "--run", str(run), "--alphas", *ALPHAS]) == 0
    output = capsys.readouterr()
    found = dict(re.findall(r"^alpha (\S+): BLEU = (\S+) ", output.out, flags=re.MULTILINE))
    assert list(found) == ALPHAS
    assert found["40"] != found["0.6"]
    best = max(ALPHAS, key=lambda alpha: float(found[alpha]))
    assert plain(output.err) == f"stored alpha {best} in {run} (before: 0.6); searches with this model now take it"
    assert Translator.load(run).model.config.alpha == float(best)


def test_a_search_takes_the_models_exponent_unless_it_is_given_one(run: Path, text: list[str]) -> None:
    lines = Path(text[0]).read_text(encoding="utf-8").splitlines()
    paper = Translator.load(run).translate(lines)
    assert score(["tune-length", *text, "--run", str(run), "--alphas", "40"]) == 0
    tuned = Translator.load(run)
    assert tuned.translate(lines) == tuned.translate(lines, alpha=40.0) != paper
    assert tuned.translate(lines, alpha=0.6) == paper


def test_wrong_files_and_exponents_are_refused_before_the_search(
    run: Path, text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.score.try_alphas", lambda *arguments: pytest.fail("the search has begun"))
    write_bundle(Parts.load(run), tmp_path / "bundle")
    before = (run / "model.json").read_bytes()
    (tmp_path / "empty").write_bytes(b"")
    empty = str(tmp_path / "empty")
    of_run = ["--run", str(run)]
    for arguments, error, message in (
        ([empty, empty, *of_run], CorpusError, "is empty"),
        ([text[0], empty, *of_run], CorpusError, "held-out.en"),
        ([*text, *of_run, "--alphas", "-1"], ConfigError, "alpha must be at least 0 and less than 50; got -1.0"),
        ([*text, *of_run, "--alphas", "0", "50"], ConfigError, "alpha must be at least 0 and less than 50; got 50.0"),
        ([*text, "--run", str(tmp_path / "bundle")], CheckpointError, "is a bundle, whose files never change"),
        ([*text, "--run", str(tmp_path)], CheckpointError, "no model here"),
    ):
        with pytest.raises(error, match=message):
            score(["tune-length", *arguments])
    assert (run / "model.json").read_bytes() == before
