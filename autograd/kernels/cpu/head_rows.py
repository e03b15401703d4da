"""Pad packed tokens to one matrix per sentence and head, and unpad them."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.ops.attention import heads_first, heads_last
from autograd.spans import Blocks, pack, place_side_by_side


class HeadRows:
    """A conversion of packed (T, H, ·) to padded (B, H, longest, ·), zeros after the end of each block, and back.

    For blocks of one length it returns a view, so that a cache is never copied.  For different lengths it gathers each
    row of a head once, and BLAS gets contiguous matrices.
    """

    def __init__(self, blocks: Blocks, n_heads: int, n_tokens: int) -> None:
        self.blocks, self.n_heads, self.n_tokens = blocks, n_heads, n_tokens
        self._views = blocks.stride_over(n_tokens) is not None

    def of(self, x: Array) -> Array:
        """Pad (T, H, ·) → (B, H, longest, ·)."""
        if self._views:
            return heads_first(place_side_by_side(x, self.blocks))
        index, width = self.blocks.head_index(self.n_heads), x.shape[2]
        rows = np.take(x.reshape(-1, width), index.sources, axis=0)
        rows[index.empty] = 0
        return rows.reshape(len(self.blocks), self.n_heads, self.blocks.longest, width)

    def packed(self, rows: Array) -> Array:
        """Unpad (B, H, longest, ·) → (T, H, ·): the transpose of ``of``."""
        if self._views or not self.blocks.fill(self.n_tokens):
            return pack(heads_last(rows), self.blocks, self.n_tokens)
        width = rows.shape[3]
        packed = np.take(rows.reshape(-1, width), self.blocks.head_index(self.n_heads).wanted, axis=0)
        return packed.reshape(self.n_tokens, self.n_heads, width)
