"""The metrics of a run as JSON lines: one line for every report, however often the run was interrupted."""

from __future__ import annotations

import itertools
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minitransformer.config.run import METRICS_FILE
from minitransformer.system.files import atomic_write, write_text
from minitransformer.system.memory import peak_memory
from minitransformer.training.callbacks.callback import Callback, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState

_log = logging.getLogger(__name__)


class MetricsFile(Callback):
    """The file ``metrics.jsonl`` in the run's directory.

    A full disk does not end the training: a line that cannot be written is written with the next one.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / METRICS_FILE
        self._waiting = ""  # lines that could not be written

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Cut off the lines of updates that will be repeated.  Raises: CheckpointError if that is impossible."""
        self.go_back(state)

    def go_back(self, state: TrainingState) -> None:
        """Cut off the lines of updates after ``state``, and of a validation that ``state`` repeats.

        If the file is corrupt, keep a copy under another name.
        """
        self._waiting = ""
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
        steps = [_step_of(line) for line in lines]
        if not _are_as_written(lines, steps):
            copy = _free_name(self._path.parent)
            with atomic_write(copy) as temporary:
                temporary.write_bytes(content)
            _log.warning(f"{self._path}: is corrupt: not all lines are as they were written; kept as {copy.name}")
        kept = "".join(line for line, step in zip(lines, steps, strict=True) if _is_of(state, line, step))
        if kept.encode() != content:
            write_text(self._path, kept)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Append a line."""
        kind = "training" if isinstance(report, TrainingReport) else "validation"
        of_process = {"time": time.time(), "peak_memory": peak_memory()}
        self._waiting += json.dumps({"kind": kind} | of_process | _figures_of(report)) + "\n"
        try:
            self._append(self._waiting.encode())
        except OSError as error:
            _log.warning(f"{self._path}: cannot be written ({error}); tried again with the next line")
        else:
            self._waiting = ""

    def _append(self, content: bytes) -> None:
        """Append all of the bytes or none of them.  Raises: OSError."""
        with self._path.open("ab", buffering=0) as stream:
            end = stream.tell()
            try:
                if stream.write(content) < len(content):
                    raise OSError("not all of a line could be written")
            except OSError:
                os.ftruncate(stream.fileno(), end)
                raise


def _figures_of(report: TrainingReport | ValidationReport) -> dict[str, Any]:
    """Return the fields of a report; the field of a score has the name of its metric."""
    figures = asdict(report)
    if isinstance(report, ValidationReport):
        del figures["score"]
        figures |= {report.score.name.lower(): report.score.value, "signature": report.score.signature}
    return figures


def _step_of(line: str) -> int | None:
    """Return the number of the update in a line; None if ``report`` cannot have written the line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return step if type(step) is int and json.dumps(record) + "\n" == line else None


def _is_of(state: TrainingState, line: str, step: int | None) -> bool:
    """Return whether a line is of an update up to ``state``, and not of the validation that is repeated there."""
    if step is None or step > state.step:
        return False
    return not (state.validation_is_due and step == state.step and json.loads(line).get("kind") == "validation")


def _are_as_written(lines: Sequence[str], steps: Sequence[int | None]) -> bool:
    """Return whether all lines are complete and in order.

    The last line may be incomplete, because a killed process may have been writing it.
    """
    if lines and not lines[-1].endswith("\n"):
        steps = steps[:-1]
    known = [step for step in steps if step is not None]
    return len(known) == len(steps) and known == sorted(known)


def _free_name(run: Path) -> Path:
    """Return a new path for a copy of a corrupt file; earlier copies are not overwritten."""
    names = (run / f"metrics.corrupt-{n}.jsonl" for n in itertools.count(1))
    return next(path for path in names if not path.exists())
