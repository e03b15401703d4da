"""report.html in a run's directory: written after validations and at the end, and never the end of a run."""

import json
import shutil
from pathlib import Path
from typing import Any

from logged_runs import LOG, finish, training_line, write_logged_run

from minitransformer.extras.report.run_page import ReportPage
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Sample
from minitransformer.training.callbacks import MetricsFile, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState
from tests.minitransformer.extras.report.test_page import Structure
from tests.support.training import file_size_limit, names_in

TRAINING = TrainingReport(50, 3, 0.125, 1e-3, 0.25, 4_000.0, 12.5, 10**9)
VALIDATION = ValidationReport(
    50, 0.0625, 1.5, Score("BLEU", 87.5, "signature", "detail"), True, 0.5, (Sample("one", "eins", "zwei"),)
)


def data_in(run: Path) -> dict[str, Any]:
    page = (run / "report.html").read_text(encoding="utf-8")
    return dict(json.loads(Structure(page).of("script")[0]))


def test_the_page_is_written_after_a_validation_with_its_figures_and_not_after_every_log_line(tmp_path: Path) -> None:
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


def test_at_the_end_the_page_has_the_final_scores(tmp_path: Path) -> None:
    run = finish(write_logged_run(tmp_path / "run"), ["x"] * 4)
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


def test_a_full_disk_and_a_corrupt_file_end_no_training_and_leave_the_page_as_it_was(
    tmp_path: Path, logged: list[str]
) -> None:
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


def test_a_long_log_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    run = write_logged_run(tmp_path / "run", [training_line(step) for step in range(1, 10_001)])
    ReportPage(run).end()
    assert (run / "report.html").stat().st_size < 1_000_000
