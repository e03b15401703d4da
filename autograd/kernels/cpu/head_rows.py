"""Pad packed tokens to one matrix per sentence and head, and unpad them."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.masks import Segments, pad, unpad
from autograd.ops.attention import heads_first, heads_last


class HeadRows:
    """A conversion of packed (T, H, ·) to padded (B, H, longest, ·), zeros after the end of each segment, and back.

    For segments of one length it returns a view, so that a cache is never copied.  For different lengths it gathers
    each row of a head once, and BLAS gets contiguous matrices.
    """

    def __init__(self, segments: Segments, n_heads: int, n_tokens: int) -> None:
        self.segments, self.n_heads, self.n_tokens = segments, n_heads, n_tokens
        self._views = segments.stride_over(n_tokens) is not None

    def of(self, x: Array) -> Array:
        """Pad (T, H, ·) → (B, H, longest, ·)."""
        if self._views:
            return heads_first(pad(x, self.segments))
        index, width = self.segments.head_index(self.n_heads), x.shape[2]
        rows = np.take(x.reshape(-1, width), index.sources, axis=0)
        rows[index.empty] = 0
        return rows.reshape(len(self.segments), self.n_heads, self.segments.longest, width)

    def packed(self, rows: Array) -> Array:
        """Unpad (B, H, longest, ·) → (T, H, ·): the transpose of ``of``."""
        if self._views or not self.segments.fill(self.n_tokens):
            return unpad(heads_last(rows), self.segments, self.n_tokens)
        width = rows.shape[3]
        packed = np.take(rows.reshape(-1, width), self.segments.head_index(self.n_heads).wanted, axis=0)
        return packed.reshape(self.n_tokens, self.n_heads, width)
