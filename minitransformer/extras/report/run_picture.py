"""The curves of training runs as a picture, for print."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from minitransformer.extras.report.colours import FAINT, head_colours
from minitransformer.extras.report.curves import shown_panels
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.run_record import RunRecord

COLUMNS, WIDTH, HEIGHT = 2, 4.6, 2.7  # panels in a row; inches of a panel
STYLES = {"training": "-", "validation": "--"}


def run_picture(runs: Sequence[RunRecord]) -> Figure:
    """Draw a panel for every logged figure, plotted against updates; each run has its own colour.

    Raises: ReportError if no run has logged a figure.
    """
    panels = list(shown_panels(runs))
    if not panels:
        raise ReportError(f"{', '.join(run.name for run in runs)}: the log has no figures yet; wait for the first ones")
    n_rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * WIDTH, n_rows * HEIGHT + 0.5), layout="constrained")
    colours = head_colours(len(runs))
    for i, (panel, curves) in enumerate(panels):
        axes = figure.add_subplot(n_rows, COLUMNS, i + 1)
        for run, colour, run_curves in zip(runs, colours, curves, strict=True):
            for series, points in zip(panel.series, run_curves, strict=True):
                label = f"{run.name}, {series.kind}" if len(panel.series) > 1 else run.name
                marker = "o" if series.kind == "validation" else None
                axes.plot(
                    points.steps,
                    points.values,
                    STYLES[series.kind],
                    marker=marker,
                    markersize=3,
                    color=colour,
                    linewidth=1.2,
                    label=label,
                )
        values = [value for run_curves in curves for points in run_curves for value in points.values]
        if panel.scale == "log" and min(values) > 0:
            axes.set_yscale("log")
            factors = (1, 1.5, 2, 3, 5, 7) if max(values) < 10 * min(values) else (1, 2, 5)
            axes.yaxis.set_major_locator(LogLocator(subs=factors))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        elif panel.from_zero:
            axes.set_ylim(bottom=0)
        axes.set_title(panel.title, fontsize=10, loc="left")
        axes.set_ylabel(panel.unit, fontsize=8, color=FAINT)
        axes.set_xlabel("updates", fontsize=8, color=FAINT)
        axes.tick_params(labelsize=8)
        axes.grid(visible=True, linewidth=0.4)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), fontsize=8, frameon=False)
    return figure
