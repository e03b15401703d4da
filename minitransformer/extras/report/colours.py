"""Colours of heads and of runs, which are distinguishable on white and on near-black."""

from __future__ import annotations

_COLOURS = (
    "#4878d0", "#e4572e", "#2f9e5f", "#a064c8", "#c99700", "#1899b0", "#d6508f", "#8a6f4d",
    "#6f9a1f", "#7575dd", "#c04a4a", "#2fa08f", "#d6804f", "#8f5fb8", "#77859b", "#4f9f3a",
)  # fmt: skip


def head_colours(n_heads: int) -> list[str]:
    """Return a colour for each head as "#rrggbb"; after sixteen heads the colours repeat."""
    return [_COLOURS[i % len(_COLOURS)] for i in range(n_heads)]
