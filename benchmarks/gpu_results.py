"""A JSON file of results, complete after every write, from which the next call continues; a table.

Rows belong to the code and the card that made them.  Rows of other code, or of another card, stay in the file, but
count neither as results nor in the summary.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MOST_BEGUN = 2  # an item that was begun so often without a result counts as failed
LARGE, SMALL = 25_000, 3_168  # tokens of a side
Row = dict[str, Any]


class Results:
    """The rows of a file; ``machine`` describes the machine of this call."""

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
        return next((row for row in self.rows() if "begun" not in row and item.items() <= row.items()), None)

    def begin(self, item: Row) -> bool:
        """Add a row that the item begins; return False if it has begun too often without a result."""
        if sum(item.items() <= row.items() for row in self.rows()) >= MOST_BEGUN:
            return False
        self._write([*self._all_rows(), {**self.run, **item, "begun": True}])
        return True

    def end(self, item: Row, outcome: Row) -> None:
        """Replace the rows that the item has begun by a row with its result."""
        self._forget(lambda row: "begun" in row and item.items() <= row.items())
        self.add(**item, **outcome)

    def forget_begun(self) -> None:
        """Remove the rows of begun items: the end of the time stopped them, not a fault of their own."""
        self._forget(lambda row: "begun" in row)

    def forget_failures(self) -> None:
        """Remove the rows of failed items and unfinished stages, so that they are run again."""
        self._forget(lambda row: "error" in row or "begun" in row or row.get("ended", "well") != "well")

    def _forget(self, is_forgotten: Callable[[Row], bool]) -> None:
        self._write([row for row in self._all_rows() if not (self.run.items() <= row.items() and is_forgotten(row))])

    def _all_rows(self) -> list[Row]:
        return list(json.loads(self.path.read_text(encoding="utf-8"))["rows"]) if self.path.exists() else []

    def _write(self, rows: list[Row]) -> None:
        """Write a new file and rename it over the old one; a killed process leaves one of them complete."""
        of_run = [row for row in rows if self.run.items() <= row.items() and "begun" not in row]
        content = {"machine": self.machine, **summary_of(of_run), "rows": rows}
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)


def _plain(facts: Row) -> Row:
    """Convert facts to JSON's types; NaN and infinity, which it lacks, become strings."""
    text = json.dumps(facts, default=lambda x: x.item() if isinstance(x, np.generic) else str(x))
    return dict(json.loads(text, parse_constant=str))


def summary_of(rows: list[Row]) -> dict[str, Any]:
    """Return ends of stages and failed items, from the rows of one code and one card."""
    names = ("stage", "model", "batch tokens", "what", "name", "peer")
    return {
        "stages": {row["stage"]: row["ended"] for row in rows if "ended" in row},
        "failed": {", ".join(str(row[n]) for n in names if n in row): row["error"] for row in rows if "error" in row},
    }


def table(rows: list[Row], machine: Row) -> str:
    """Return a table of contests, then lines of ended stages and failed items."""
    summary = summary_of(rows)
    lines = ["", f"{machine['card']}; commit {machine['commit']}, code {machine['code']}", "",
             "| model, batch | | ms an update (quartiles) | target tokens/s | ours is … times as fast | peak MB |",
             "|-|-|-|-|-|-|"]  # fmt: skip
    if machine["device"] == "cpu":
        lines.insert(0, "\nA dry run without a GPU: no figure here means anything.")
    for row in rows:
        for one in row.get("contestants", []):
            ratio = "" if one["ours_is_times_as_fast"] is None else f"{one['ours_is_times_as_fast']:.2f}"
            times = "{:.1f} ({:.1f} to {:.1f})".format(one["ms"], *one["quartiles"])
            facts = [f"{row['model']}, {row['batch tokens']:,}", one["name"], times, f"{one['tokens/s']:,.0f}", ratio]
            lines.append(f"| {' | '.join(facts)} | {one['peak MB']:,.0f} |")
    for row in rows:
        if row["stage"] == "decoding" and "tokens/s" in row:
            speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in row["tokens/s"].items())
            lines += ["", f"{row['what']}: {speeds} tokens/s; ours is {row['ours_is_times_as_fast']:.2f} × as fast"]
        if "minutes" in row:
            lines += ["", f"Multi30k: {row['minutes']:.1f} min, {row['results']['validation']['detail']}"]
    lines += ["", *(f"{stage} ended {ended}" for stage, ended in summary["stages"].items())]
    return "\n".join([*lines, *(f"failed: {name}: {error}" for name, error in summary["failed"].items())])
