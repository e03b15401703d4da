"""The curves of training runs, panel by panel, for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from minitransformer.extras.report.run_record import Line, RunRecord, number

MOST_POINTS = 2_000  # points of a curve; more points look the same, and a page of a long run would take megabytes

Kind = Literal["training", "validation"]
Scale = Literal["linear", "log"]


class Series(NamedTuple):
    """A figure of the log: the kind of its lines, its key, and the factor to the panel's unit."""

    kind: Kind
    key: str
    factor: float = 1.0


@dataclass(frozen=True)
class Panel:
    """A plot of one or two figures; if ``from_zero``, a linear axis begins at 0."""

    title: str
    unit: str
    scale: Scale
    series: tuple[Series, ...]
    note: str = ""
    from_zero: bool = True


PANELS = (
    Panel(
        "Loss", "nats per target token", "linear", (Series("training", "loss"), Series("validation", "loss")),
        "Training has dropout and label smoothing, which raise its loss; validation has neither. So its curve may lie"
        " below. What counts is that it falls.", from_zero=False,
    ),
    Panel("Perplexity", "validation", "log", (Series("validation", "perplexity"),), "exp(validation loss)."),
    Panel(
        "BLEU", "validation, greedy", "linear", (Series("validation", "bleu"),),
        "Of the first sentences of the validation set. The final score is of all of them, with beam search.",
    ),
    Panel("F1 of brackets", "validation, greedy", "linear", (Series("validation", "f1"),)),
    Panel("Learning rate", "", "linear", (Series("training", "learning_rate"),)),
    Panel(
        "Norm of the gradient", "", "log", (Series("training", "gradient_norm"),),
        "Of the last update before each point, before clipping.",
    ),
    Panel("Speed", "target tokens per second", "linear", (Series("training", "target_tokens_per_second"),)),
    Panel(
        "Peak memory", "GB", "linear", (Series("training", "peak_memory", 1e-9),),
        "The most main memory that the first process has had so far.",
    ),
)  # fmt: skip


class Curve(NamedTuple):
    """A curve of a run: updates, training time in seconds (None if it is not known), and values in the panel's unit."""

    steps: list[int]
    seconds: list[float] | None
    values: list[float]


def curve(run: RunRecord, series: Series) -> Curve:
    """Return the curve of the finite values of a figure; for a long run, take evenly spaced points and the last one."""
    lines = run.training if series.kind == "training" else run.validation
    points = [(line["step"], value) for line in lines if (value := number(line, series.key)) is not None]
    every = -(-len(points) // MOST_POINTS)
    points = [*points[: -1 : every or 1], *points[-1:]]
    steps = [step for step, _ in points]
    return Curve(steps, _seconds(run, steps), [_round(value * series.factor) for _, value in points])


def shown_panels(runs: Sequence[RunRecord]) -> Iterator[tuple[Panel, list[list[Curve]]]]:
    """Yield each panel for which a run has points, and curves[run][series].

    Panels for figures that callbacks have measured follow PANELS.
    """
    names = dict.fromkeys(name for run in runs for name in run.measures)
    measured = [Panel(name, "validation", "linear", (Series("validation", name),), from_zero=False) for name in names]
    for panel in (*PANELS, *measured):
        curves = [[curve(run, series) for series in panel.series] for run in runs]
        if any(each.steps for run_curves in curves for each in run_curves):
            yield panel, curves


def _seconds(run: RunRecord, steps: Sequence[int]) -> list[float] | None:
    """Return the training time at these updates, interpolated between lines of training; None if no line has a time."""
    known = [(line["step"], seconds) for line in run.training if (seconds := number(line, "seconds")) is not None]
    if not known:
        return None
    at, times = zip((0, 0.0), *known, strict=True)
    return [_round(float(value)) for value in np.interp(steps, at, times)]


def _round(value: float) -> float:
    """Round to six digits, so that pages are smaller."""
    return float(f"{value:.6g}")


def best(lines: Sequence[Line], key: str, *, greatest: bool) -> tuple[float, int] | None:
    """Return the best value of a figure and its update; None if there is no value."""
    values = ((number(line, key), line["step"]) for line in lines)
    found: list[tuple[float, int]] = [(value, step) for value, step in values if value is not None]
    return (max if greatest else min)(found, key=lambda pair: pair[0], default=None)
