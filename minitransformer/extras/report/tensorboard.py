"""Events for TensorBoard, as a callback of a training run."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from minitransformer.extras.packages import import_extra
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState

_log = logging.getLogger(__name__)


class TensorBoard(Callback):
    """A callback that writes events to the folder ``tensorboard`` of the run, in a new file for each start of the run.

    Events are written in the calling thread: if the disk is full, tensorboardX's own thread ends, and its queue then
    blocks.  A full disk does not end the training.
    Raises: MissingExtraError if tensorboardX is not installed.
    """

    def __init__(self, run: Path) -> None:
        self._open = import_extra("tensorboard", "tensorboardX.event_file_writer").EventsWriter
        self._events = import_extra("tensorboard", "tensorboardX.proto.event_pb2")
        self._summaries = import_extra("tensorboard", "tensorboardX.proto.summary_pb2")
        self._folder = run / "tensorboard"
        self._writer: Any = None

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Begin a file of events; make TensorBoard discard earlier events of updates after ``state``."""
        self.go_back(state)

    def go_back(self, state: TrainingState) -> None:
        """Make TensorBoard discard the events of updates after ``state``."""
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self._write(step=state.step + 1, session_log=start)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Write the figures of a report, by names such as "training/loss"."""
        if isinstance(report, TrainingReport):
            names = ("loss", "learning_rate", "gradient_norm", "target_tokens_per_second")
            figures = {f"training/{name}": getattr(report, name) for name in names}
        else:
            figures = {f"validation/{name}": value for name, value in report.figures.items()}
        values = [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(step=report.step, summary=self._summaries.Summary(value=values))

    def end(self) -> None:
        if self._writer is not None:
            with suppress(OSError):  # the disk is full: ``_write`` has logged it
                self._writer.close()

    def _write(self, **event: Any) -> None:
        try:
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._writer = self._open(str(self._folder / f"events.{time.time_ns()}"))  # read in the order of names
            self._writer.write_event(self._events.Event(wall_time=time.time(), **event))
            self._writer.flush()
        except OSError as error:
            _log.warning(f"{self._folder}: cannot be written ({error}); training goes on")
