"""metrics.jsonl and report.html: every logged update, whatever happened to the run; they never end it."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from logged_runs import LOG, finish, training_line, write_logged_run

from minitransformer.extras.report.run_page import ReportPage
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Sample
from minitransformer.training.callbacks import MetricsFile, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState
from tests.minitransformer.extras.report.test_page import Structure
from tests.support.training import file_size_limit, names_in


def steps_in(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def opened(run: Path, since: int) -> MetricsFile:
    metrics = MetricsFile(run)
    metrics.begin(TrainingState(step=since), 1_000)
    return metrics


def report_of(step: int) -> TrainingReport:
    return TrainingReport(step, 0, 1.5, 1e-3, 0.25, 4_000.0, 2.0, 10**9)


def log_of(run: Path, steps: range, since: int = 0) -> MetricsFile:
    metrics = opened(run, since)
    for step in steps:
        metrics.report(report_of(step))
    return metrics


def test_lines_of_updates_done_again_are_not_doubled_and_else_the_log_is_not_touched(tmp_path: Path) -> None:
    log_of(tmp_path, range(1, 8))
    log_of(tmp_path, range(5, 10), since=4)
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    before = (tmp_path / "metrics.jsonl").stat()
    opened(tmp_path, since=9)
    assert (tmp_path / "metrics.jsonl").stat() == before


@pytest.mark.parametrize(("is_due", "kinds"), [(True, ["training"] * 4), (False, ["training"] * 4 + ["validation"])])
def test_the_line_of_a_repeated_validation_is_not_doubled(tmp_path: Path, kinds: list[str], *, is_due: bool) -> None:
    log_of(tmp_path, range(1, 5))
    path = tmp_path / "metrics.jsonl"
    with path.open("a") as stream:
        stream.write('{"kind": "validation", "step": 4}\n')
    MetricsFile(tmp_path).begin(TrainingState(step=4, validation_is_due=is_due), 1_000)
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == kinds


@pytest.mark.parametrize(
    "torn", ["", '{"step": 8, "lo', '{"step": 3}', "\0\0\0\0", '[1]\n"x"\n', '{"step": "1"}\n', "[" * 9_999 + "\n"]
)
def test_a_partial_last_line_is_cut_off_a_complete_one_is_damage(tmp_path: Path, torn: str, logged: list[str]) -> None:
    log_of(tmp_path, range(1, 5))
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 4, "kind": "validation"}\n' + torn)
    log_of(tmp_path, range(4, 6), since=3)
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5]
    assert len(logged) == len(list(tmp_path.glob("metrics.corrupt-*"))) == torn.endswith("\n")


@pytest.mark.parametrize(
    ("line", "corrupt"),
    [(0, '{"step": 1'), (1, '{"stfp": 2}\n'), (2, '{"step": 7}\n'), (2, '{"step":03}\n'), (1, '{"step"\x0c2}\n')],
)
def test_a_corrupt_log_is_kept_under_another_name(tmp_path: Path, logged: list[str], line: int, corrupt: str) -> None:
    kept = range(1 if corrupt.endswith("\n") else 3, 6)  # a line without its end takes the next one with it
    log_of(tmp_path, range(1, 6))
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line] = corrupt
    path.write_text("".join(lines))
    content = path.read_bytes()
    opened(tmp_path, 5).report(report_of(6))
    assert steps_in(tmp_path) == [step for step in kept if step != line + 1] + [6]
    opened(tmp_path, 6)
    assert logged == [
        f"warning: {path}: is corrupt: not all lines are as they were written; kept as metrics.corrupt-1.jsonl"
    ]
    assert (tmp_path / "metrics.corrupt-1.jsonl").read_bytes() == content
    path.write_bytes(content)
    opened(tmp_path, 5)
    assert logged[-1].endswith("kept as metrics.corrupt-2.jsonl")


def test_a_line_that_the_disk_has_no_room_for_is_written_with_the_next_one(tmp_path: Path, logged: list[str]) -> None:
    log = log_of(tmp_path, range(1, 4))
    size = (tmp_path / "metrics.jsonl").stat().st_size
    with file_size_limit(size + 5):
        log.report(report_of(4))
    assert steps_in(tmp_path) == [1, 2, 3]
    assert "cannot be written" in logged[0]
    log.report(report_of(5))
    assert steps_in(tmp_path) == [1, 2, 3, 4, 5]


STATE = TrainingState(step=4, epoch=2, unlogged_loss=6.0, unlogged_tokens=3, unlogged_seconds=0.5, seconds=9.0, flops=7)


def test_a_report_holds_the_means_of_its_interval_and_the_totals_of_the_run() -> None:
    assert TrainingReport.of(STATE, 0.5, 0.75) == TrainingReport(4, 2, 2.0, 0.5, 0.75, 6.0, 9.0, 7)
    assert STATE.with_new_interval() == dataclasses.replace(
        STATE, unlogged_loss=0.0, unlogged_tokens=0, unlogged_seconds=0.0
    )
    without_time = TrainingReport.of(dataclasses.replace(STATE, unlogged_seconds=0.0), 0.5, 0.75)
    assert without_time.target_tokens_per_second == pytest.approx(3e9)


# report.html

TRAINING = TrainingReport(50, 3, 0.125, 1e-3, 0.25, 4_000.0, 12.5, 10**9)
VALIDATION = ValidationReport(
    50, 0.0625, 1.5, Score("BLEU", 87.5, "signature", "detail"), True, 0.5, (Sample("one", "eins", "zwei"),)
)


def data_in(run: Path) -> dict[str, Any]:
    page = (run / "report.html").read_text(encoding="utf-8")
    return dict(json.loads(Structure(page).of("script")[0]))


def test_the_page_is_written_after_validations_and_at_the_end_and_not_after_every_log_line(tmp_path: Path) -> None:
    run = write_logged_run(tmp_path / "run")
    callbacks = [MetricsFile(run), ReportPage(run)]
    for callback in callbacks:
        callback.begin(TrainingState(step=40), 60)
        callback.report(TRAINING)
    assert not (run / "report.html").exists()
    for callback in callbacks:
        callback.report(VALIDATION)
    data = data_in(run)
    assert data["panels"][0]["curves"][0][0]["values"][-1] == 0.125
    assert data["panels"][0]["curves"][0][1]["values"][-1] == 0.0625
    assert data["isTraining"]  # so it loads itself again
    assert data["samples"][-1] == {"source": "one", "reference": "eins", "final": [None], "history": [[[50, "zwei"]]]}
    run = finish(write_logged_run(tmp_path / "finished"), ["x"] * 4)
    ReportPage(run).end()
    assert data_in(run)["runs"][0]["state"].startswith("finished after 40 updates: BLEU ")
    assert not data_in(run)["isTraining"]


def test_without_a_log_or_a_directory_there_is_no_page_and_no_warning(tmp_path: Path, logged: list[str]) -> None:
    run = write_logged_run(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    ReportPage(run).end()
    assert names_in(run) == ["run.json"]
    shutil.rmtree(run)
    ReportPage(run).report(VALIDATION)
    assert not run.exists()
    assert logged == []


def test_a_full_disk_and_a_corrupt_file_end_no_training_and_leave_the_page(tmp_path: Path, logged: list[str]) -> None:
    run = write_logged_run(tmp_path / "run")
    page = ReportPage(run)
    page.end()
    before = (run / "report.html").read_bytes()
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*LOG, training_line(50)]))
    with file_size_limit(1_000):
        page.report(VALIDATION)
    assert len(logged) == 1
    assert "report.html: not written" in logged[0]
    assert logged[0].endswith("training goes on")
    assert (run / "report.html").read_bytes() == before
    assert names_in(run) == ["metrics.jsonl", "report.html", "run.json"]
    (run / "results.json").write_text("{")
    page.end()
    assert "results.json: cannot be read" in logged[1]
    (run / "results.json").unlink()
    page.end()
    assert (run / "report.html").read_bytes() != before
