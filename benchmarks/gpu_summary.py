"""What the results say, in a few lines for people."""

from __future__ import annotations

from typing import Any

from gpu_goals import goals_of

Row = dict[str, Any]
OUTCOME = {True: "reached", False: "MISSED", None: "not measured"}


def summary_of(rows: list[Row]) -> dict[str, Any]:
    """Return goals, the stages' ends and what failed, of the rows of one code and one card."""
    card = rows[0]["card"] if rows else ""
    return {
        "goals": goals_of(rows, card),
        "stages": {row["stage"]: row["ended"] for row in rows if "ended" in row},
        "failed": {_named(row): row["error"] for row in rows if "error" in row},
    }


def shown(rows: list[Row], machine: Row) -> str:
    """Return tables of the contests and of the goals, then how stages ended and what failed."""
    summary = summary_of(rows)
    lines = ["", f"{machine['card']}; commit {machine['commit']}, code {machine['code']}", "",
             "| model, batch | | ms an update (quartiles) | target tokens/s | ours is … times as fast | peak MB |",
             "|-|-|-|-|-|-|"]  # fmt: skip
    if machine["device"] == "cpu":
        lines.insert(0, "\nA dry run without a GPU: no figure here means anything.")
    lines += [_of_contestant(row, one) for row in rows for one in row.get("contestants", [])]
    lines += ["", *(_of_decoding(row) for row in rows if row["stage"] == "decoding" and "tokens/s" in row)]
    lines += [
        f"Multi30k: {row['minutes']:.1f} min, {row['results']['validation']['detail']}"
        for row in rows
        if "minutes" in row
    ]
    lines += ["", "| goal | measured | |", "|-|-|-|", *map(_of_goal, summary["goals"]), ""]
    lines += [f"{stage} ended {ended}" for stage, ended in summary["stages"].items()]
    lines += [f"failed: {name}: {error}" for name, error in summary["failed"].items()]
    return "\n".join(lines)


def _of_contestant(row: Row, one: Row) -> str:
    low, high = one["quartiles"]
    ratio = "" if one["ours_is_times_as_fast"] is None else f"{one['ours_is_times_as_fast']:.2f}"
    return (
        f"| {row['model']}, {row['batch tokens']:,} | {one['name']} | {one['ms']:.1f} ({low:.1f} to {high:.1f})"
        f" | {one['tokens/s']:,.0f} | {ratio} | {one['peak MB']:,.0f} |"
    )


def _of_decoding(row: Row) -> str:
    speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in row["tokens/s"].items())
    return (
        f"{row['what']}, beam {row['beam']}, tokens/s: {speeds}; ours is {row['ours_is_times_as_fast']:.2f} × as fast"
    )


def _of_goal(goal: Row) -> str:
    measured = "" if goal["measured"] is None else f"{goal['measured']:.2f}"
    outcome = OUTCOME[goal["reached"]]
    if goal.get("stretch reached") is not None:
        outcome += f"; stretch ({goal['stretch']}) {OUTCOME[goal['stretch reached']]}"
    return f"| {goal['goal']} | {measured} | {outcome} |"


def _named(row: Row) -> str:
    names = ("stage", "model", "batch tokens", "what", "name", "dtype", "of")
    return ", ".join(str(row[name]) for name in names if name in row)
