"""Attention as a picture for print: words in two columns, a line for every weight, a colour for every head.

Source: the figures in the appendix of Vaswani et al. 2017.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from minitransformer.extras.report.attended import AttendedPair, Kind
from minitransformer.extras.report.colours import FAINT, head_colours
from minitransformer.extras.report.saving import boxes_for_missing_letters

ROW, MARGIN, GAP, TITLE = 0.21, 0.35, 0.35, 0.45  # inches: height of a word, margins, gaps, height of a title
HEADS, HEAD = 0.45, 0.25  # inches: width before the heads' numbers, width of each number
WORD_SIZE, HEADING_SIZE = 9, 11  # points
# Replacements of characters that XML forbids: "␁" … for controls, "\ufffd" for the two noncharacters.
CONTROLS = {number: 0x2400 + number for number in range(32)} | dict.fromkeys((0xFFFE, 0xFFFF), 0xFFFD)
INVISIBLE = 0.002  # lines of smaller weights cannot be seen


def attention_picture(
    pair: AttendedPair,
    kinds: Sequence[Kind],
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    least_weight: float = INVISIBLE,
) -> Figure:
    """Draw a panel for every kind (rows) and layer (columns), with these heads; layers and heads are counted from 0.

    Leave out panels of layers that a kind's stack lacks, and rows without panels.  Weights smaller than
    ``least_weight`` have no line.
    """
    panels = [_Panel(pair, kind, least_weight) for kind in kinds]
    panels = [panel for panel in panels if min(layers) < len(panel.weights)]
    panel_width = max(panel.width for panel in panels)
    width = max(6.0, 2 * MARGIN + len(layers) * (panel_width + GAP) - GAP, 2 * MARGIN + HEADS + HEAD * len(heads))
    heading = textwrap.wrap(f"{pair.sentence} → {pair.translation}", max(20, int(width / 0.1)))
    if least_weight > INVISIBLE:
        heading.append(f"Lines show weights from {100 * least_weight:g}%.")
    width = max(width, 2 * MARGIN + _widest(heading, HEADING_SIZE))
    height_of_heading = MARGIN + ROW * (len(heading) + 1)
    figure = Figure(figsize=(width, height_of_heading + sum(panel.height + TITLE for panel in panels) + MARGIN))
    _write_heading(figure, heading, heads)
    top = figure.get_figheight() - height_of_heading
    for panel in panels:
        top -= TITLE
        existing = (layer for layer in layers if layer < len(panel.weights))
        for column, layer in enumerate(existing):
            panel.draw(figure, MARGIN + column * (panel_width + GAP), top, layer, heads)
        top -= panel.height
    return figure


class _Panel:
    """A panel for one kind of attention, drawn for any layer; sizes are in inches."""

    def __init__(self, pair: AttendedPair, kind: Kind, least_weight: float) -> None:
        self.kind, self.least_weight = kind, max(least_weight, INVISIBLE)
        self.queries, self.keys, self.weights = pair.of_kind(kind)
        self.lines = min(6.0, max(1.7, 0.08 * len(self.queries)))  # wider for longer sentences, whose lines are steeper
        self.left, self.right = (_widest(words, WORD_SIZE) + 0.1 for words in (self.queries, self.keys))

    @property
    def width(self) -> float:
        return self.left + self.lines + self.right

    @property
    def height(self) -> float:
        return ROW * max(len(self.queries), len(self.keys))

    def draw(self, figure: Figure, left: float, top: float, layer: int, heads: Sequence[int]) -> None:
        """Draw the panel for one layer into ``figure``: a line for each weight of at least ``least_weight``.

        ``left`` and ``top`` locate the panel's upper left corner, measured from the figure's lower left corner.  The
        heads are offset, so that no line hides another.
        """
        page = figure.get_size_inches()
        x, y = left + self.left, top - self.height
        axes = figure.add_axes((x / page[0], y / page[1], self.lines / page[0], self.height / page[1]))
        axes.set_axis_off()
        figure.text(left / page[0], (top + 0.12) / page[1], f"{self.kind}, layer {layer + 1}", size=9, color=FAINT)
        weights, colours = self.weights[layer, list(heads)], head_colours(self.weights.shape[1])
        axes.set_xlim(0, 1)
        axes.set_ylim(max(len(self.queries), len(self.keys)) - 0.5, -0.5)
        for words, x, side in ((self.queries, -0.03, "right"), (self.keys, 1.03, "left")):
            for row, word in enumerate(words):
                axes.text(x, row, word.translate(CONTROLS), size=WORD_SIZE, ha=side, va="center", parse_math=False)
        for number, (head_weights, colour) in enumerate(zip(weights, (colours[head] for head in heads), strict=True)):
            offset = (number - (len(heads) - 1) / 2) * min(0.1, 0.5 / len(heads))
            query, key = np.nonzero(head_weights >= self.least_weight)
            ends = np.stack(
                [np.stack([np.zeros(len(query)), query + offset], 1), np.stack([np.ones(len(key)), key + offset], 1)], 1
            )
            opacity = np.clip(head_weights[query, key], 0, 1)
            colour_of_line = np.column_stack([np.tile(to_rgb(colour), (len(query), 1)), opacity])
            axes.add_collection(LineCollection(list(ends), colors=colour_of_line, linewidths=1.3, capstyle="butt"))


def _widest(texts: Iterable[str], size: float) -> float:
    """Return the width of the widest text in inches."""
    font = FontProperties(size=size)
    with boxes_for_missing_letters():
        sizes = [text_to_path.get_text_width_height_descent(text.translate(CONTROLS), font, False) for text in texts]
    return max(width for width, _, _ in sizes) / 72


def _write_heading(figure: Figure, lines: Sequence[str], heads: Sequence[int]) -> None:
    """Write ``lines``, and the numbers of the heads in their colours."""
    width, height = figure.get_size_inches()
    for number, line in enumerate(lines):
        y = 1 - (MARGIN + ROW * number) / height
        figure.text(MARGIN / width, y, line.translate(CONTROLS), size=HEADING_SIZE, va="center", parse_math=False)
    y = 1 - (MARGIN + ROW * len(lines) + 0.04) / height
    figure.text(MARGIN / width, y, "head", size=9, color=FAINT, va="center")
    colours = head_colours(max(heads) + 1)
    for number, head in enumerate(heads):
        x = (MARGIN + HEADS + HEAD * number) / width
        figure.text(x, y, str(head + 1), size=9, weight="bold", color=colours[head], va="center")
