"""One JSON file of results: complete after every write, and what the next call goes on from.

Rows belong to the code and the card that made them.  Rows of other code, or of another card, stay in the file, but
count neither as results nor in the summary.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from gpu_summary import summary_of

ROOT = Path(__file__).resolve().parent.parent
CODE = ("autograd", "benchmarks", "cli", "minitransformer", "parallel", "recipes")
MOST_BEGUN = 2  # times that an item is begun without a result: then the item itself is at fault

Row = dict[str, Any]


class Results:
    """The rows of a file; ``machine`` describes what computes now."""

    def __init__(self, path: Path, machine: Row) -> None:
        self.path, self.machine = path, machine
        self.run = {"code": machine["code"], "card": machine["card"]}

    def rows(self) -> list[Row]:
        """Return the rows of this code and this card, oldest first."""
        return [row for row in self._all_rows() if self.run.items() <= row.items()]

    def add(self, **facts: Any) -> None:
        """Append a row, print it, and write the file with a new summary."""
        plain = _plain(facts)
        self._write([*self._all_rows(), {**self.run, **plain}])
        print(json.dumps(plain, ensure_ascii=False), flush=True)

    def result_of(self, item: Row) -> Row | None:
        """Return the row with the result of this item, or None if there is none."""
        with_result = (row for row in self.rows() if "begun" not in row and item.items() <= row.items())
        return next(with_result, None)

    def begin(self, item: Row) -> bool:
        """Note that the item begins; return False if it has begun too often without a result."""
        if sum(item.items() <= row.items() for row in self.rows()) >= MOST_BEGUN:
            return False
        self._write([*self._all_rows(), {**self.run, **item, "begun": True}])
        return True

    def end(self, item: Row, outcome: Row) -> None:
        """Replace the notes that the item has begun by its result."""
        self._forget(lambda row: "begun" in row and item.items() <= row.items())
        self.add(**item, **outcome)

    def forget_begun(self) -> None:
        """Forget which items have begun: they were stopped through no fault of their own."""
        self._forget(lambda row: "begun" in row)

    def forget_failures(self) -> None:
        """Forget failed items and unfinished stages, so that they are run again."""
        self._forget(lambda row: "error" in row or "begun" in row or row.get("ended", "well") != "well")

    def _forget(self, is_forgotten: Any) -> None:
        rows = self._all_rows()
        kept = [row for row in rows if not (self.run.items() <= row.items() and is_forgotten(row))]
        if len(kept) < len(rows):
            self._write(kept)

    def _all_rows(self) -> list[Row]:
        if not self.path.exists():
            return []
        return list(json.loads(self.path.read_text(encoding="utf-8"))["rows"])

    def _write(self, rows: list[Row]) -> None:
        """Rename a complete file over the old one: a process that is killed leaves one of the two."""
        of_run = [row for row in rows if self.run.items() <= row.items() and "begun" not in row]
        content = {"machine": self.machine, **summary_of(of_run), "rows": rows}
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)


def _plain(value: Any) -> Any:
    """Return what JSON can hold; it has no NaN and no infinity."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


def hash_of_code() -> str:
    """Return a hash of everything that may change a result; a copied tree has no commit, and may differ from it."""
    total = hashlib.blake2b(digest_size=8)
    files = (path for folder in CODE for path in (ROOT / folder).rglob("*"))
    for path in sorted(path for path in files if path.suffix in (".py", ".cu", ".cuh", ".toml")):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()
