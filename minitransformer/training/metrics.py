"""The log of a run, as JSON lines: one for every update that logs, whatever happened to the run in between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from minitransformer.files import write_text

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """``metrics.jsonl`` of a run that goes on from update ``step``.

    Lines of later updates, which a killed process wrote, are cut off: their updates are done, and logged, again.
    Raises: CheckpointError if the file has to be cut and cannot be written.
    """

    def __init__(self, run: Path, step: int) -> None:
        self._path = run / METRICS_FILE
        self._waiting = ""
        text = self._path.read_text(encoding="utf-8", errors="replace") if self._path.exists() else ""
        kept = "".join(line for line in text.splitlines(keepends=True) if _is_of_update(line, step))
        if kept != text:
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


def _is_of_update(line: str, last: int) -> bool:
    """Whether a line is whole and tells of an update up to the last."""
    try:
        record = json.loads(line) if line.endswith("\n") else None
    except (ValueError, RecursionError):
        return False
    step = record.get("step") if isinstance(record, dict) else None
    return type(step) is int and step <= last
