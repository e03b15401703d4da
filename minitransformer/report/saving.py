"""Figures to files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from minitransformer.files import written_whole
from minitransformer.report.errors import ReportError

DOTS_PER_INCH = 150  # of PNG
MOST_PIXELS = 250_000_000  # they take a gigabyte while they are drawn


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in: PNG, SVG or PDF.

    The same figure gives the same bytes.  Letters that no font at hand has become boxes; in SVG the text stays text.

    Raises: ReportError if it has too many pixels for a PNG; CheckpointError if it cannot be written.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind == "png":
        _check_pixels(figure, path)
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "minitransformer"}),
        boxes_for_missing_letters(),
        written_whole(path) as temporary,
    ):
        figure.savefig(temporary, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)


@contextmanager
def boxes_for_missing_letters() -> Iterator[None]:
    """Within this context nothing is said of letters that no font at hand has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def _check_pixels(figure: Figure, path: Path) -> None:
    width, height = (round(float(inches) * DOTS_PER_INCH) for inches in figure.get_size_inches())
    if width * height > MOST_PIXELS:
        raise ReportError(
            f"{path}: would have {width:,} x {height:,} pixels, more than {MOST_PIXELS:,};"
            " name fewer layers or kinds, or a file that ends in .svg or .pdf"
        )
