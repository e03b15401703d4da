"""What the results say, in a few lines for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def summary(results: Path) -> str:
    """Tables of the contests, then what failed; of all that the file holds."""
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    lines = ["", "| model, batch | | ms an update (quartiles) | target tokens/s | ours is … times as fast | peak MB |",
             "|-|-|-|-|-|-|"]  # fmt: skip
    if any(row.get("device") == "cpu" for row in rows):
        lines.insert(0, "\nRehearsed without a GPU: no figure here means anything.")
    lines += [_of_contest(row) for row in rows if "tokens/s" in row]
    lines += ["", *(_of_stage(row) for row in rows if "ended" in row)]
    lines += [f"failed: {_named(row)}: {row['error']}" for row in rows if "error" in row]
    return "\n".join(lines)


def _of_contest(row: dict[str, Any]) -> str:
    low, high = row["quartiles"]
    return (
        f"| {row['model']}, {row['batch tokens']:,} | {row['name']} | {row['ms']:.1f} ({low:.1f} to {high:.1f})"
        f" | {row['tokens/s']:,.0f} | {row['ours_is_times_as_fast']:.2f} | {row['peak MB']:,.0f} |"
    )


def _of_stage(row: dict[str, Any]) -> str:
    return f"{row['stage']} ended {row['ended']} after {row['seconds']} s"


def _named(row: dict[str, Any]) -> str:
    names = ("stage", "model", "batch tokens", "name", "what", "dtype", "of")
    return ", ".join(str(row[name]) for name in names if name in row)
