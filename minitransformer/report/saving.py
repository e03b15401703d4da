"""Figures to files."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from minitransformer.files import written_whole


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in: PNG, SVG or PDF.

    The same figure gives the same bytes.  Letters that no font at hand has become boxes; in SVG the text stays text.
    """
    kind = path.suffix.removeprefix(".").lower()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "minitransformer"}),
        warnings.catch_warnings(),
        written_whole(path) as temporary,
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(temporary, format=kind, dpi=150, metadata=metadata)
