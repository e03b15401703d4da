"""The log of a run, as JSON lines: one for every update that logs, whatever happened to the run in between."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minitransformer.system.files import write_text, written_whole

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """``metrics.jsonl`` of a run that goes on from update ``step``.

    Lines of later updates, which a killed process wrote, are cut off: their updates are done, and logged, again.
    A file that is damaged otherwise is kept under another name, and ``say`` gets a warning.
    Raises: CheckpointError if the file has to be cut and cannot be written.
    """

    def __init__(self, run: Path, step: int, say: Callable[[str], None] = lambda line: None) -> None:
        self._path = run / METRICS_FILE
        self._waiting = ""
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
        steps = [_step_of(line) for line in lines]
        if not _are_as_written(lines, steps):
            copy = _free_name(run)
            with written_whole(copy) as temporary:
                temporary.write_bytes(content)
            say(
                f"warning: {self._path}: is damaged: not all of its lines are as they were written; kept as {copy.name}"
            )
        kept = "".join(line for line, of in zip(lines, steps, strict=True) if of is not None and of <= step)
        if kept.encode() != content:
            write_text(self._path, kept)

    def append(self, record: dict[str, Any]) -> None:
        """Write a line, and those that could not be written before.  Raises: OSError; the line waits, too, then."""
        self._waiting += json.dumps(record) + "\n"
        with self._path.open("ab", buffering=0) as stream:
            end = stream.tell()
            try:
                line = self._waiting.encode()
                if stream.write(line) < len(line):
                    raise OSError("not all of a line could be written")
            except OSError:
                os.ftruncate(stream.fileno(), end)
                raise
        self._waiting = ""


def _step_of(line: str) -> int | None:
    """Return the update of a line; None if the line is not as ``append`` writes it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = record.get("step") if isinstance(record, dict) else None
    return step if type(step) is int and json.dumps(record) + "\n" == line else None


def _are_as_written(lines: Sequence[str], steps: Sequence[int | None]) -> bool:
    """Return whether all lines are complete and in order, but for the end of the last one, which a kill may cut off."""
    if lines and not lines[-1].endswith("\n"):
        steps = steps[:-1]
    known = [step for step in steps if step is not None]
    return len(known) == len(steps) and known == sorted(known)


def _free_name(run: Path) -> Path:
    """Return where to keep a damaged file: no earlier one is written over."""
    names = (run / f"metrics.damaged-{n}.jsonl" for n in itertools.count(1))
    return next(path for path in names if not path.exists())
