"""Writing figures to files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from minitransformer.extras.report.errors import ReportError
from minitransformer.system.files import atomic_write

DOTS_PER_INCH = 150  # of PNG
MOST_PIXELS = 250_000_000  # drawing them takes a gigabyte of memory


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's suffix names: PNG, SVG or PDF.

    The same figure gives the same bytes.  Letters missing from all fonts become boxes; SVG keeps text as text.

    Raises: ReportError if a PNG would have too many pixels; CheckpointError if the file cannot be written.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind == "png":
        _check_pixels(figure, path)
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "minitransformer"}),
        boxes_for_missing_letters(),
        atomic_write(path) as temporary,
    ):
        figure.savefig(temporary, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)


@contextmanager
def boxes_for_missing_letters() -> Iterator[None]:
    """Suppress matplotlib's warnings about letters that are missing from its font."""
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
