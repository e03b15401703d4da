"""Runs, prepared data and translations of earlier versions go on; an archive of each version is never rewritten.

An archive in tests/versions/ has the name of the day of its version.  It holds a finished run of 400 updates without
its text, eight lines, their translations, and a translation of these lines that was interrupted after four lines.
"""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from small_run import contents, output_of

from cli.report import report
from cli.train import train
from cli.translate import translate
from minitransformer import Translator
from minitransformer.config import RunConfig
from minitransformer.config.run import saved_settings
from minitransformer.text.road import STEPS
from minitransformer.training.checkpoint import checkpoints, read_checkpoint

VERSIONS = sorted((Path(__file__).parents[1] / "versions").glob("*.tar.xz"))
OPTIONS = """--preset tiny --data.train-source t.en --data.train-target t.de --data.vocabulary-size 60
    --data.held-out 12 --model.n-layers 1 --model.d-model 8 --model.d-ff 8 --model.n-heads 1 --model.d-k 4
    --model.d-v 4 --training.batch-tokens 200 --training.warmup-steps 100 --training.validate-every 200
    --training.checkpoint-every 200 --training.keep-checkpoints 1 --training.average-checkpoints 1
    --training.log-every 100"""  # of the trainings in the archives
SEARCH = {"2026-11-25": ["--max-extra-tokens", "50", "--max-length-factor", "None"]}  # the search of that version


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name.partition(".")[0])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def version_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.id)


def test_there_are_archives_of_three_versions() -> None:
    assert {path.name for path in VERSIONS} >= {f"2026-11-{day}.tar.xz" for day in (25, 26, 29)}


def test_a_run_of_an_earlier_version_goes_on(folder: Path) -> None:
    run = folder / "run"
    before, best = saved_settings(run), read_checkpoint(checkpoints(run)[-1]).state.best
    assert best is not None
    log = output_of(lambda: train([*OPTIONS.split(), "--run", str(run), "--training.max-updates", "405"]))
    assert "going on from update 400 of 405" in log
    after = json.loads((run / "run.json").read_text())
    assert {part: after[part] for part in ("model", "data")} == {part: before[part] for part in ("model", "data")}
    assert json.loads((run / "results.json").read_text())["updates"] == 405
    state = read_checkpoint(checkpoints(run)[-1]).state
    assert state.best is not None
    assert state.best[0] == "loss"
    assert state.best[1] <= best[1]


def test_settings_that_the_run_lacks_have_the_value_of_its_day(folder: Path, request: pytest.FixtureRequest) -> None:
    found = saved_settings(folder / "run")
    rule, alpha = {"2026-11-25": ("nmt_nfkc", 0.6), "2026-11-26": ("keep", 0.6)}.get(
        version_of(request), ("keep", None)
    )
    assert (found["data"]["normalisation"], found["model"]["alpha"]) == (rule, alpha)
    assert (found["model"]["implementation"], found["training"]["best_by"]) == (None, "loss")


def test_prepared_data_of_an_earlier_version_is_read(folder: Path) -> None:
    new, data = folder / "new", folder / "run" / "data"
    before = contents(data)
    options = [*OPTIONS.split(), "--run", str(new), "--data.directory", str(data), "--training.max-updates", "2"]
    for _ in range(2):  # then the new run is opened again
        output_of(lambda: train(options))
    assert contents(data) == before
    assert Translator.load(new).tokenizer.equals(Translator.load(folder / "run").tokenizer)


def test_a_model_of_an_earlier_version_translates_as_then_and_is_a_beginning(folder: Path) -> None:
    lines, expected = ((folder / name).read_text().splitlines() for name in ("lines.en", "expected.de"))
    assert Translator.load(folder / "run").translate(lines, skip=STEPS) == expected
    (folder / "t.en").write_text("a dog sees.\n" * 20)
    (folder / "t.de").write_text("eine Hund sieht.\n" * 20)
    new, text = (
        folder / "new",
        ["--data.raw", str(folder), "--data.train-source", "t.en", "--data.train-target", "t.de"],
    )
    begun = ["--init-from", str(folder / "run"), "--init-optimizer", "--training.max-updates", "2"]
    output_of(lambda: train(["--run", str(new), *begun, *text]))
    shutil.rmtree(folder / "run")  # then its settings are in the new run
    output_of(lambda: train(["--run", str(new), *begun[:3], "--training.max-updates", "3", *text]))


def test_a_translation_that_an_earlier_version_began_goes_on(folder: Path, request: pytest.FixtureRequest) -> None:
    files = ["--input", str(folder / "lines.en"), "--output", str(folder / "lines.de"), "--resume"]
    search = SEARCH.get(version_of(request), [])
    log = output_of(
        lambda: translate(["--run", str(folder / "run"), *files, *search, "--as-is"], io.BytesIO(), io.BytesIO())
    )
    assert "going on after line 4" in log
    assert (folder / "lines.de").read_text() == (folder / "expected.de").read_text()


def test_the_page_of_an_earlier_run_is_written(folder: Path) -> None:
    output_of(lambda: report(["training", str(folder / "run"), "--output", str(folder / "page.html")]))
    assert "1,232" in (folder / "page.html").read_text()  # parameters


def test_a_setting_of_another_version_that_this_one_does_not_know_is_named(tmp_path: Path) -> None:
    config = RunConfig(run=tmp_path)
    config.claim_directory({"later": 1})
    assert config.differences(()) == []
    settings = json.loads((tmp_path / "run.json").read_text())
    settings["training"]["wings"] = "two"
    (tmp_path / "run.json").write_text(json.dumps(settings))
    assert config.differences(()) == ["training.wings is 'two' there, unknown here"]
