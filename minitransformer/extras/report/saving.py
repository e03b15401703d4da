"""Writing figures to files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

from minitransformer.extras.report.errors import ReportError
from minitransformer.system.files import atomic_write

_log = logging.getLogger(__name__)
MOST_NAMED = 10  # greatest number of letters without a font that a message lists
DOTS_PER_INCH = 150  # resolution of PNG
MOST_PIXELS = 250_000_000  # drawing 250 million pixels takes a gigabyte of memory


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's suffix names: PNG, SVG or PDF.

    Letters that the usual font lacks come from other installed fonts.  Letters that no font has become boxes, and
    the log names them; SVG keeps text as text.  With the same fonts, the same figure gives the same bytes.

    Raises: ReportError if a PNG would have too many pixels; CheckpointError if the file cannot be written.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind == "png":
        _check_pixels(figure, path)
    if kind != "svg":
        _choose_fonts(figure, path)
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "minitransformer"}),
        boxes_for_missing_letters(),
        atomic_write(path) as temporary,
    ):
        figure.savefig(temporary, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)


def _choose_fonts(figure: Figure, path: Path) -> None:
    """Give all texts of a figure the fonts that together have its letters; warn of letters that no font has."""
    texts = figure.findobj(Text)
    missing = {ord(letter) for text in texts for letter in text.get_text() if letter.isprintable()}
    families = list[str]()
    usual = font_manager.findfont(font_manager.FontProperties())
    others = sorted(
        (entry.fname, entry.name)
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and not entry.name.startswith("Last Resort")
    )
    for file, name in [(usual, ""), *others]:
        if not missing:
            break
        if found := missing & font_manager.get_font(file).get_charmap().keys():
            missing -= found
            families.append(name)
    if missing:
        letters = " ".join(map(chr, sorted(missing)[:MOST_NAMED]))
        _log.warning(
            f"{path}: no installed font has the letters {letters}, which become boxes: install a font for the script,"
            f" for example one of Noto, and remove {mpl.get_cachedir()}; or choose a file that ends in .svg"
        )
    for text in texts if len(families) > 1 else ():
        text.set_fontfamily([*mpl.rcParams["font.family"], *filter(None, families)])


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
