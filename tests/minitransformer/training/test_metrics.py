"""metrics.jsonl: one line for every logged update, whatever happened to the run and to the disk."""

import json
from pathlib import Path

import pytest

from minitransformer.training.callbacks import MetricsFile, TrainingReport
from minitransformer.training.state import TrainingState
from tests.support.training import file_size_limit


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


def test_lines_of_updates_that_are_done_again_are_not_doubled_and_without_such_the_log_is_not_touched(
    tmp_path: Path,
) -> None:
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
