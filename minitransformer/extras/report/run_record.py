"""The record of a training run, read from its directory: settings, log, scores and translations."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitransformer.config.run import METRICS_FILE, RESULTS_FILE, RUN_FILE, TRANSLATIONS_FILE
from minitransformer.data.store import MANIFEST
from minitransformer.extras.report.errors import ReportError
from minitransformer.system.files import CorruptFileError
from minitransformer.system.records import as_object, read_object
from minitransformer.training.callbacks import KEYS, SCORES

_log = logging.getLogger(__name__)

Line = dict[str, Any]


@dataclass(frozen=True)
class RunRecord:
    """The contents of a run's files; the fields of a file that does not exist yet are empty.

    Values are not checked: runs of earlier versions lack some keys, and a file may have been edited.  Read single
    figures with ``number``.
    """

    name: str
    settings: Line
    training: list[Line]
    validation: list[Line]
    results: Line
    data: Line
    """Counts of the prepared data; empty if they are unknown."""
    translations: list[Line]
    """Translations of the validation set by the final model."""

    @property
    def step(self) -> int:
        """The update of the last line of training or validation."""
        return max(int(line["step"]) for line in (*self.training[-1:], *self.validation[-1:]))

    @property
    def is_finished(self) -> bool:
        """True if the final scores are those of the last update."""
        return number(self.results, "updates") == self.step

    @property
    def score_key(self) -> str:
        """The key of the score in lines of validation: "bleu", or "f1" if the model is a parser."""
        return next((key for key in SCORES if any(key in line for line in self.validation)), SCORES[0])

    @property
    def measures(self) -> list[str]:
        """The names of figures that callbacks have added to lines of validation."""
        return [*dict.fromkeys(name for line in self.validation for name in line if name not in KEYS)]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the (source, reference) pairs of ``translations``."""
        return [(line["source"], line["reference"]) for line in self.translations]


def number(record: Line, key: str) -> float | None:
    """Return the number under ``key``; None if it is missing, not a number, or not finite."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def read_runs(directories: Sequence[Path]) -> list[RunRecord]:
    """Read runs.  A run's name is the end of its directory's path, as short as possible but unique.

    Raises: ReportError if a directory has no run, is given twice, or has logged nothing; CorruptFileError for a file
        that cannot be read or is not JSON.  Corrupt lines of a log are left out.
    """
    resolved = [directory.resolve() for directory in directories]
    if twice := [str(path) for i, path in enumerate(resolved) if path in resolved[:i]]:
        raise ReportError(f"{twice[0]}: is named twice; name each run once")
    n, names = 1, [path.name for path in resolved]
    while len(set(names)) < len(names):
        n += 1
        names = [str(Path(*path.parts[-n:])) for path in resolved]
    shown = [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name in names]
    return [read_run(directory, name) for directory, name in zip(directories, shown, strict=True)]


def read_run(directory: Path, name: str = "") -> RunRecord:
    """Read the record of a run, finished or not.

    Raises: ReportError if there is no run, or if it has logged nothing; CorruptFileError, see ``read_runs``.
    """
    if not (directory / METRICS_FILE).exists() and not (directory / RUN_FILE).exists():
        raise ReportError(
            f"{directory}: holds no training run (neither {RUN_FILE} nor {METRICS_FILE}); name the directory that"
            " training has as its run"
        )
    lines_by_kind: dict[str, list[Line]] = {"training": [], "validation": []}
    for line in _lines(directory / METRICS_FILE):
        if _is_step(line.get("step")) and isinstance(line.get("kind"), str):
            lines_by_kind.setdefault(line["kind"], []).append(line)
    if not lines_by_kind["training"] + lines_by_kind["validation"]:
        raise ReportError(f"{directory}: has logged nothing yet; the first line comes after training.log_every updates")
    results = read_object(directory / RESULTS_FILE)
    return RunRecord(
        name=name or directory.resolve().name,
        settings=read_object(directory / RUN_FILE),
        training=lines_by_kind["training"],
        validation=lines_by_kind["validation"],
        results=results,
        data=as_object(results.get("data")) or read_object(directory / "data" / MANIFEST),
        translations=[
            line
            for line in _lines(directory / TRANSLATIONS_FILE)
            if line.get("split") == "validation" and is_sample(line)
        ],
    )


def _is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def is_sample(line: Any) -> bool:
    """Return whether a line has a source, a reference and a translation."""
    texts = ("source", "reference", "translation")
    return all(isinstance(as_object(line).get(name), str) for name in texts)


def _lines(path: Path) -> Iterator[Line]:
    """Yield the JSON objects in the lines of a file, if it exists; leave out corrupt lines, with a warning.

    Text after the last line end is ignored, because training may be writing the line.
    Raises: CorruptFileError if the file cannot be read.
    """
    try:
        content = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise CorruptFileError(f"{path}: cannot be read ({error})") from error
    *complete, _ = content.split("\n")
    n_corrupt = 0
    for text in complete:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict):
            yield line
        else:
            n_corrupt += 1
    if n_corrupt:
        _log.warning(f"{path}: {n_corrupt:,} lines are corrupt and left out")
