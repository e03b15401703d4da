"""Events for TensorBoard, read as TFRecords: the length, a checksum, the message, a checksum."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from minitransformer.extras.packages import MissingExtraError
from minitransformer.extras.report.tensorboard import TensorBoard
from minitransformer.inference.bleu import Score
from minitransformer.training.callbacks import TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState
from tests.support.training import file_size_limit


@pytest.fixture
def event_type() -> Any:
    return pytest.importorskip("tensorboardX.proto.event_pb2", reason="no tensorboardX here").Event


def events_in(run: Path, event_type: Any) -> list[Any]:
    found = []
    for path in sorted((run / "tensorboard").iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(event_type.FromString(content[12 : 12 + length]))
            content = content[12 + length + 4 :]
    return found


def figures_of(event: Any) -> dict[str, float]:
    return {value.tag: value.simple_value for value in event.summary.value}


def training_report(step: int) -> TrainingReport:
    return TrainingReport(step, 0, 1.5, 0.25, 0.75, 4_096.0, 2.0, 10**9)


def test_events_hold_the_figures_of_reports_by_name_and_update(event_type: Any, tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.begin(TrainingState(), 10)
    board.report(training_report(5))
    board.report(ValidationReport(5, 1.25, 3.5, Score("BLEU", 17.5, "signature", "detail"), True, 0.5))
    board.end()
    *_, training, validation = events_in(tmp_path, event_type)
    assert (training.step, validation.step) == (5, 5)
    learning = {"loss": 1.5, "learning_rate": 0.25, "gradient_norm": 0.75, "target_tokens_per_second": 4_096.0}
    assert figures_of(training) == {f"training/{name}": figure for name, figure in learning.items()}
    assert figures_of(validation) == {"validation/loss": 1.25, "validation/perplexity": 3.5, "validation/bleu": 17.5}


def test_a_resumed_run_and_a_rollback_mark_the_updates_that_are_repeated(event_type: Any, tmp_path: Path) -> None:
    for begins_after in (0, 4):
        board = TensorBoard(tmp_path)
        board.begin(TrainingState(step=begins_after), 10)
        board.report(training_report(6))
        board.go_back(TrainingState(step=2))
        board.end()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    events = events_in(tmp_path, event_type)
    starts = [event.step for event in events if event.session_log.status == event.session_log.START]
    assert starts == [1, 3, 5, 3]


def test_a_full_disk_ends_no_training_and_events_come_later(event_type: Any, tmp_path: Path, logged: list[str]) -> None:
    board = TensorBoard(tmp_path)
    board.begin(TrainingState(), 10)
    with file_size_limit(100):
        board.report(training_report(1))
        board.report(training_report(2))
    board.end()
    assert [event.step for event in events_in(tmp_path, event_type)[-2:]] == [1, 2]
    assert len(logged) == 2
    assert all("tensorboard: cannot be written" in line and "training goes on" in line for line in logged)


def test_without_tensorboardx_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    with pytest.raises(MissingExtraError, match=r'pip install -e "/.*\[tensorboard\]"'):
        TensorBoard(tmp_path)
