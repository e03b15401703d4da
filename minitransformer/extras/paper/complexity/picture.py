"""Table 1 as a picture: time against n and d, sequential operations and path lengths against n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minitransformer.extras.paper.complexity.table import Row
from minitransformer.extras.report.colours import FAINT, head_colours

MARKERS = "osD^v"


def complexity_picture(rows: Sequence[Row]) -> Figure:
    """Draw four panels with logarithmic axes.

    In the panels of time, a dashed line through the last point of each layer type has the paper's slope.
    """
    figure = Figure(figsize=(9, 7.6), layout="constrained")
    axes = figure.subplots(2, 2)
    for row, colour, marker in zip(rows, head_colours(len(rows)), MARKERS, strict=False):
        style = {"color": colour, "marker": marker, "markersize": 5, "label": row.type.name}
        for panel, variable in ((axes[0, 0], "n"), (axes[0, 1], "d")):
            for growth in (growth for growth in row.growths if growth.variable == variable):
                panel.plot(growth.sizes, growth.seconds, linestyle="-", **style)
                _draw_claim(panel, growth.sizes, growth.seconds, row.type.powers[variable], colour)
        _draw_counts(axes[1, 0], row.chains, style)
        _draw_counts(axes[1, 1], row.paths, style)
    for panel, title, variable in (
        (axes[0, 0], "CPU seconds of a forward pass", "n"),
        (axes[0, 1], "CPU seconds of a forward pass", "d"),
        (axes[1, 0], "sequential operations", "n"),
        (axes[1, 1], "steps from the first position to the last", "n"),
    ):
        _finish(panel, title, variable)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def _draw_claim(axes: Axes, sizes: Sequence[int], costs: Sequence[float], power: int, colour: str) -> None:
    claimed = [costs[-1] * (size / sizes[-1]) ** power for size in sizes]
    axes.plot(sizes, claimed, color=colour, linestyle=(0, (3, 3)), linewidth=1, alpha=0.7)


def _draw_counts(axes: Axes, counts: Mapping[int, int], style: Mapping[str, object]) -> None:
    axes.plot(list(counts), list(counts.values()), linestyle="-", **style)  # type: ignore[arg-type]


def _finish(axes: Axes, title: str, variable: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title(title, size=10, loc="left", color=FAINT)
    axes.set_xlabel(variable)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
