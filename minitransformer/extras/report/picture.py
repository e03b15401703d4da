"""Attention as a picture for print: words in two columns, a line for every weight, a colour for every head.

Source: the figures in the appendix of Vaswani et al. 2017.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from autograd.array import FloatArray
from minitransformer.extras.report.attended import AttendedPair, PictureKind
from minitransformer.extras.report.colours import FAINT, head_colours
from minitransformer.extras.report.merging import without_key
from minitransformer.extras.report.saving import boxes_for_missing_letters

ROW, MARGIN, GAP, TITLE = 0.21, 0.35, 0.35, 0.45  # inches: height of a word, margins, gaps, height of a title
HEADS, HEAD = 0.45, 0.25  # inches: width before the heads' numbers, width of each number
WORD_SIZE, HEADING_SIZE = 9, 11  # points
# Replacements of characters that XML forbids: "␁" … for controls, "\ufffd" for the two noncharacters.
CONTROLS = {number: 0x2400 + number for number in range(32)} | dict.fromkeys((0xFFFE, 0xFFFF), 0xFFFD)
INVISIBLE = 0.002  # lines of smaller weights cannot be seen


def attention_picture(
    pair: AttendedPair,
    kinds: Sequence[PictureKind],
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    end: bool = True,
    least_weight: float = INVISIBLE,
) -> Figure:
    """Draw a panel for every kind (rows) and layer (columns), with these heads; layers and heads are counted from 0.

    Leave out panels of layers that a kind's stack lacks, and rows without panels.

    Args:
        end: whether to show the source's end symbol; if not, each row of the other weights is divided by its sum.
        least_weight: smaller weights have no line.
    """
    panels = [_Panel(pair, kind, end=end, least_weight=least_weight) for kind in kinds]
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

    def __init__(self, pair: AttendedPair, kind: PictureKind, *, end: bool, least_weight: float) -> None:
        self.kind, self.least_weight = kind, max(least_weight, INVISIBLE)
        self.queries, self.keys, self.weights = pair.of_kind("encoder-decoder" if kind == "alignment" else kind)
        if not end and kind != "decoder":
            self.keys, self.weights = self.keys[:-1], without_key(self.weights, len(self.keys) - 1)
        self.lines = min(6.0, max(1.7, 0.08 * len(self.queries)))  # wider for longer sentences, whose lines are steeper
        self.left, self.right = (_widest(words, WORD_SIZE) + 0.1 for words in (self.queries, self.keys))

    @property
    def width(self) -> float:
        if self.kind == "alignment":
            return self.left + ROW * len(self.keys)
        return self.left + self.lines + self.right

    @property
    def height(self) -> float:
        if self.kind == "alignment":
            return self.right + ROW * len(self.queries)
        return ROW * max(len(self.queries), len(self.keys))

    def draw(self, figure: Figure, left: float, top: float, layer: int, heads: Sequence[int]) -> None:
        """Draw the panel for one layer into ``figure``.

        ``left`` and ``top`` locate the panel's upper left corner, measured from the figure's lower left corner.
        """
        is_table = self.kind == "alignment"
        width, height = (ROW * len(self.keys), ROW * len(self.queries)) if is_table else (self.lines, self.height)
        x, y = left + self.left, top - self.height
        page = figure.get_size_inches()
        axes = figure.add_axes((x / page[0], y / page[1], width / page[0], height / page[1]))
        axes.set_axis_off()
        figure.text(left / page[0], (top + 0.12) / page[1], f"{self.kind}, layer {layer + 1}", size=9, color=FAINT)
        weights = self.weights[layer, list(heads)]
        if is_table:
            self._draw_table(axes, weights.mean(0))
        else:
            self._draw_lines(axes, weights, [head_colours(self.weights.shape[1])[head] for head in heads])

    def _draw_lines(self, axes: Axes, weights: FloatArray, colours: Sequence[str]) -> None:
        """Draw a line for each weight of at least ``least_weight``; offset the heads, so that no line hides another."""
        axes.set_xlim(0, 1)
        axes.set_ylim(max(len(self.queries), len(self.keys)) - 0.5, -0.5)
        for words, x, side in ((self.queries, -0.03, "right"), (self.keys, 1.03, "left")):
            for row, word in enumerate(words):
                axes.text(x, row, word.translate(CONTROLS), size=WORD_SIZE, ha=side, va="center", parse_math=False)
        for number, (head_weights, colour) in enumerate(zip(weights, colours, strict=True)):
            offset = (number - (len(colours) - 1) / 2) * min(0.1, 0.5 / len(colours))
            query, key = np.nonzero(head_weights >= self.least_weight)
            ends = np.stack(
                [np.stack([np.zeros(len(query)), query + offset], 1), np.stack([np.ones(len(key)), key + offset], 1)], 1
            )
            opacity = np.clip(head_weights[query, key], 0, 1)
            colour_of_line = np.column_stack([np.tile(to_rgb(colour), (len(query), 1)), opacity])
            axes.add_collection(LineCollection(list(ends), colors=colour_of_line, linewidths=1.3, capstyle="butt"))

    def _draw_table(self, axes: Axes, weights: FloatArray) -> None:
        axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for row, word in enumerate(self.queries):
            axes.text(-0.7, row, word.translate(CONTROLS), size=WORD_SIZE, ha="right", va="center", parse_math=False)
        for column, word in enumerate(self.keys):
            shown = word.translate(CONTROLS)
            axes.text(column, -0.7, shown, size=WORD_SIZE, ha="center", va="bottom", rotation=90, parse_math=False)


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
