"""minitransformer-score tune-length: the exponent that it stores is the best one."""

import json
import re
import shutil
from pathlib import Path

import pytest
from small_run import contents, plain, write_parallel_text

from cli.score import score
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.extras.convert.parts import Parts, write_bundle
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Evaluation, Sample, TranslationTask
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError

ALPHAS = ["0", "0.6", "1.2", "40"]  # the last one prefers the longest translations, which repeat themselves


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
    verb, alpha = re.findall(r"(stored|kept) alpha (\S+) ", plain(output.err))[0]
    assert verb == ("kept" if alpha == "0.6" else "stored")
    assert float(found[alpha]) >= float(found["0.6"])
    assert Translator.load(run_copy).model.config.alpha == float(alpha)


@pytest.mark.parametrize(
    ("alphas", "scores", "message"),
    [
        ("0 0.3 0.6", [50, 50, 50], "kept alpha 0.6 of {run}: BLEU is the same with all 3 exponents, so this text"),
        ("0.3 0.6 0.9", [50, 50, 40], "kept alpha 0.6 of {run}: the best ones, 0.3, 0.6, have the same BLEU, so"),
        ("0.3 0.6 0.9", [40, 50, 40], "kept alpha 0.6 of {run}: no other exponent is better"),
        ("0.3 0.6 0.9", [40, 50, 60], "kept alpha 0.6 of {run}: no other exponent is better, or its translations are"),
        ("0.6 1.5 0.9 1.2", [40, 50, 50, 50], "stored alpha 1.2 in {run} (before: 0.6), the middle of the best"),
    ],
)
def test_the_outcome_is_said_and_the_models_own_exponent_is_kept_unless_another_is_better(
    alphas: str,
    scores: list[float],
    message: str,
    run_copy: Path,
    text: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = iter(scores)

    def evaluation(*_: object, **__: object) -> Evaluation:
        value = next(values)
        too_long = (Sample("one", "eins", "eins eins"),) if value == 60 else ()
        return Evaluation(Score("BLEU", value, "signature", "detail"), too_long)

    monkeypatch.setattr(TranslationTask, "evaluate", evaluation)
    before = contents(run_copy)
    assert score(["tune-length", *text, "--run", str(run_copy), "--alphas", *alphas.split()]) == 0
    assert plain(capsys.readouterr().err).startswith(message.format(run=run_copy))
    assert (contents(run_copy) == before) == message.startswith("kept")


def test_without_files_the_runs_validation_text_is_taken(run_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["tune-length", "--run", str(run_copy), "--alphas", "0", "40"]) == 0
    given = capsys.readouterr()
    line = json.loads((run_copy / "results.json").read_text(encoding="utf-8"))["validation"]
    assert f"alpha 0.6: {line['detail']}  [{line['signature']}]" in given.out.splitlines()


def test_wrong_files_and_exponents_are_refused_before_the_search(
    run_copy: Path, text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TranslationTask, "evaluate", lambda *_, **__: pytest.fail("the search has begun"))
    write_bundle(Parts.load(run_copy), tmp_path / "bundle")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run_copy, unfinished)
    (unfinished / "translations.jsonl").unlink()
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
        ([text[0], *options], CorpusError, "expected a file of sources and one of references; got 1 files"),
        (["--run", str(unfinished)], CorpusError, "has no translations.jsonl, which holds the validation text of a"),
    ):
        with pytest.raises(error, match=message):
            score(["tune-length", *arguments])
    assert (run_copy / "model.json").read_bytes() == before
