"""The goals, as ratios and limits within one run, each with what was measured and whether it is reached."""

from __future__ import annotations

from typing import Any, NamedTuple

Row = dict[str, Any]

LARGE, SMALL = 25_000, 3_168  # tokens of a side
H200_MILLISECONDS = 20.5  # of an update of the base model on an H200


class Goal(NamedTuple):
    """How many times as fast as a contestant of PyTorch we want to be; ``stretch`` is None if there is no more."""

    model: str
    tokens: int
    than: str
    least: float
    stretch: float | None


GOALS = (
    Goal("base", LARGE, "PyTorch, eager", 2.3, 3.0),
    Goal("base", LARGE, "PyTorch, compiled", 1.4, 1.7),
    Goal("big", LARGE, "PyTorch, eager", 1.8, None),
    Goal("big", LARGE, "PyTorch, compiled", 1.3, None),
    Goal("base", SMALL, "PyTorch, eager", 5.0, None),
)


def goals_of(rows: list[Row], card: str) -> list[Row]:
    """Return all goals; those without a measurement are neither reached nor missed (None)."""
    contests = {
        (row["model"], row["batch tokens"]): {one["name"]: one for one in row["contestants"]}
        for row in rows if "contestants" in row
    }  # fmt: skip
    return [
        *(_of_ratio(goal, contests.get((goal.model, goal.tokens), {})) for goal in GOALS),
        _of_time(contests.get(("base", LARGE), {}), card),
        *(_of_memory(*key, of_names) for key, of_names in contests.items()),
    ]


def _of_ratio(goal: Goal, contest: dict[str, Row]) -> Row:
    ratio = contest.get(goal.than, {}).get("ours_is_times_as_fast")
    facts = {
        "goal": f"{goal.model}, {goal.tokens:,} tokens: at least {goal.least} × as fast as {goal.than}",
        "measured": ratio,
        "reached": _compared(ratio, lambda value: value >= goal.least),
    }
    if goal.stretch:
        facts["stretch"] = f"{goal.stretch} ×"
        facts["stretch reached"] = _compared(ratio, lambda value: value >= goal.stretch)
    return facts


def _of_time(contest: dict[str, Row], card: str) -> Row:
    """Judge the time on an H200 only: it is a number of milliseconds, no ratio."""
    milliseconds = contest.get("ours", {}).get("ms")
    return {
        "goal": f"base, {LARGE:,} tokens: at most {H200_MILLISECONDS} ms on an H200",
        "measured": milliseconds,
        "reached": _compared(milliseconds if "H200" in card else None, lambda value: value <= H200_MILLISECONDS),
    }


def _of_memory(model: str, tokens: int, contest: dict[str, Row]) -> Row:
    """Compare our peak with the smallest of PyTorch's."""
    ours = contest.get("ours", {}).get("peak MB")
    theirs = [one["peak MB"] for name, one in contest.items() if name.startswith("PyTorch")]
    ratio = ours / min(theirs) if ours and theirs and min(theirs) > 0 else None
    return {
        "goal": f"{model}, {tokens:,} tokens: peak memory at most that of every PyTorch",
        "measured": ratio,
        "reached": _compared(ratio, lambda value: value <= 1),
    }


def _compared(value: float | None, is_reached: Any) -> bool | None:
    return None if value is None else bool(is_reached(value))
