"""Attention masks of packed tokens: a key range, or any set of keys, for every query.

A batch is one flat array of tokens.  With ``KeySpans`` query i attends to the keys first_i ≤ j < last_i and to no
others.  Queries and keys are divided into segments (``Blocks``, such as sentences).  The queries of a segment attend
only to the keys of the same segment, so attention can be computed segment by segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autograd.array import Array, IntArray, namespace


@dataclass(frozen=True, eq=False)
class Blocks:
    """Segments of a packed axis: block b is tokens[starts[b] : starts[b] + lengths[b]].

    There may be gaps: a cache of fixed capacity has unused rows after the end of each block.
    """

    starts: IntArray
    lengths: IntArray

    @classmethod
    def of_lengths(cls, lengths: Any) -> Blocks:
        """Return blocks of these lengths that follow one another without gaps."""
        lengths = np.asarray(lengths, np.int64)
        return cls(np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    @cached_property
    def end(self) -> int:
        """The index after the last token of any block."""
        return int((self.starts + self.lengths).max(initial=0))

    @cached_property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def block_of_token(self) -> IntArray:
        """(T,) the block of each token; tokens are counted block by block."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def place_in_block(self) -> IntArray:
        """(T,) the position of each token in its block, from 0."""
        return np.arange(self.n_tokens) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)

    @cached_property
    def tokens(self) -> IntArray:
        """(T,) the index of each token on the packed axis."""
        return self.starts[self.block_of_token] + self.place_in_block

    @cached_property
    def rows(self) -> IntArray:
        """(T,) the row of each token after padding to (B · longest, …)."""
        return self.block_of_token * self.longest + self.place_in_block

    def head_index(self, n_heads: int) -> HeadIndex:
        """Return the ``HeadIndex`` of these blocks, cached because every layer uses the same one."""
        if n_heads not in self._head_indices:
            self._head_indices[n_heads] = HeadIndex.of(self, n_heads)
        return self._head_indices[n_heads]

    @cached_property
    def _head_indices(self) -> dict[int, HeadIndex]:
        return {}

    def fill(self, n_tokens: int) -> bool:
        """Return whether the blocks cover a packed axis of ``n_tokens`` in order and without gaps."""
        return n_tokens == self.n_tokens and bool((self.starts == np.cumsum(self.lengths) - self.lengths).all())

    def stride_over(self, n_tokens: int) -> int | None:
        """Return the distance between blocks if they have one length and divide ``n_tokens`` evenly, else None."""
        if n_tokens not in self._strides:  # cached: every layer asks for it
            self._strides[n_tokens] = self._find_stride(n_tokens)
        return self._strides[n_tokens]

    @cached_property
    def _strides(self) -> dict[int, int | None]:
        return {}

    def _find_stride(self, n_tokens: int) -> int | None:
        if not len(self) or n_tokens % len(self) or (self.lengths != self.longest).any():
            return None
        stride = n_tokens // len(self)
        return stride if (self.starts == stride * np.arange(len(self))).all() else None


@dataclass(frozen=True, eq=False)
class HeadIndex:
    """Indices between packed rows (T · H) and padded rows (B · H · longest) of heads."""

    wanted: IntArray
    """(T · H,) the padded row of each packed row."""

    sources: IntArray
    """(B · H · longest,) the packed row of each padded row; −1 for padding."""

    empty: IntArray
    """The padded rows that are padding."""

    @classmethod
    def of(cls, blocks: Blocks, n_heads: int) -> HeadIndex:
        heads, block, place = np.arange(n_heads), blocks.block_of_token[:, None], blocks.place_in_block[:, None]
        wanted = ((block * n_heads + heads) * blocks.longest + place).reshape(-1)
        sources = np.full(len(blocks) * n_heads * blocks.longest, -1)
        sources[wanted] = (blocks.tokens[:, None] * n_heads + heads).reshape(-1)
        return cls(wanted, sources, np.flatnonzero(sources < 0))


class BlockMask:
    """An attention mask: the keys of its block that each query may attend to."""

    queries: Blocks
    keys: Blocks
    block_mask: Any
    """(B, longest query block, longest key block), True where allowed; None if all is allowed.

    Padding after the end of a query block may attend to all keys: its results are dropped.
    """
    lone: tuple[IntArray, IntArray]
    """Block and position (n,) of each query with one key only: that weight is 1 for any score."""

    @cached_property
    def _biases(self) -> dict[tuple[str, str], Array]:
        return {}

    def bias(self, xp: Any, dtype: Any) -> Array | None:
        """Return ``block_mask`` as (B, 1, Q, K) to add to scores: 0 where allowed, else −∞; None if all are allowed."""
        if self.block_mask is None:
            return None
        wanted = (xp.__name__, np.dtype(dtype).name)
        if wanted not in self._biases:
            allowed = xp.asarray(self.block_mask[:, None])
            self._biases[wanted] = xp.where(allowed, 0, -xp.inf).astype(dtype)
        return self._biases[wanted]


@dataclass(frozen=True, eq=False)
class KeySpans(BlockMask):
    """A mask by key range: query i attends to the keys first[i] ≤ j < last[i], inside its block of ``keys``.

    Shapes: first, last (T,) int64, indices into the packed keys; equally many blocks of queries and keys.
    Raises: ValueError if a query has no key, or one outside its block.
    """

    first: IntArray
    last: IntArray
    queries: Blocks
    keys: Blocks

    def __post_init__(self) -> None:
        if len(self.queries) != len(self.keys):
            raise ValueError(f"KeySpans: {len(self.queries)} blocks of queries but {len(self.keys)} blocks of keys")
        if not len(self.first) == len(self.last) == self.queries.n_tokens:
            raise ValueError(
                f"KeySpans: expected a span for each of {self.queries.n_tokens} queries;"
                f" got {len(self.first)} first and {len(self.last)} last keys"
            )
        start = self.keys.starts[self.queries.block_of_token]
        end = start + self.keys.lengths[self.queries.block_of_token]
        wrong = np.flatnonzero((self.first < start) | (self.last > end) | (self.first >= self.last))
        if len(wrong):
            i = wrong[0]
            raise ValueError(
                f"KeySpans: query {i} must attend to at least one key, all in its block [{start[i]}, {end[i]});"
                f" got the span [{self.first[i]}, {self.last[i]})"
            )

    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return the boolean mask (queries, keys) of the textbooks: True where query i may attend to key j."""
        j = np.arange(self.keys.end)
        return np.asarray((self.first[:, None] <= j) & (j < self.last[:, None]))

    @cached_property
    def block_mask(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """Implement ``BlockMask``."""
        block, place = self.queries.block_of_token, self.queries.place_in_block
        mask = np.ones((len(self.queries), self.queries.longest, self.keys.longest), np.bool_)
        j = self.keys.starts[block][:, None] + np.arange(self.keys.longest)
        mask[block, place] = (self.first[:, None] <= j) & (j < self.last[:, None])
        return None if mask.all() else mask

    @cached_property
    def lone(self) -> tuple[IntArray, IntArray]:  # type: ignore[override]
        """Implement ``BlockMask``."""
        lone = np.flatnonzero(self.last - self.first == 1)
        return self.queries.block_of_token[lone], self.queries.place_in_block[lone]


@dataclass(frozen=True, eq=False)
class KeySets(BlockMask):
    """A mask by key index: query i attends to the keys of its block where its row of ``block_mask`` is True.

    Used where keys form no range: hypotheses that share a key/value cache.
    Raises: ValueError if the mask has another shape, or a query has no key, or a key after the end of its block.
    """

    queries: Blocks
    keys: Blocks
    block_mask: np.ndarray[Any, np.dtype[np.bool_]]

    def __post_init__(self) -> None:
        expected = len(self.queries), self.queries.longest, self.keys.longest
        if len(self.queries) != len(self.keys) or self.block_mask.shape != expected:
            raise ValueError(
                f"KeySets: expected a mask {expected} for {len(self.keys)} blocks of keys; got {self.block_mask.shape}"
            )
        behind = np.arange(self.keys.longest) >= self.keys.lengths[:, None, None]
        of_queries = self.block_mask[self.queries.block_of_token, self.queries.place_in_block]
        if (self.block_mask & behind).any() or not of_queries.any(1).all():
            raise ValueError("KeySets: every query must attend to at least one key, all in its block")

    @cached_property
    def lone(self) -> tuple[IntArray, IntArray]:  # type: ignore[override]
        """Implement ``BlockMask``."""
        blocks, places = np.nonzero(self.block_mask.sum(2) == 1)
        return blocks, places


def place_side_by_side(x: Array, blocks: Blocks) -> Array:
    """Pad packed (T, …) to (B, longest, …), with zeros after the end of each block; a view where possible."""
    xp, stride = namespace(x), blocks.stride_over(len(x))
    if stride is not None:
        return x.reshape(len(blocks), stride, *x.shape[1:])[:, : blocks.longest]
    rows = xp.zeros((len(blocks) * blocks.longest, *x.shape[1:]), x.dtype)
    rows[xp.asarray(blocks.rows)] = x if blocks.fill(len(x)) else x[xp.asarray(blocks.tokens)]
    return rows.reshape(len(blocks), blocks.longest, *x.shape[1:])


def pack(x: Array, blocks: Blocks, n_tokens: int) -> Array:
    """Unpad (B, longest, …) to packed (n_tokens, …), zeros between blocks: the transpose of ``place_side_by_side``."""
    xp = namespace(x)
    rows = x.reshape(len(blocks) * blocks.longest, *x.shape[2:])
    if blocks.stride_over(n_tokens) == blocks.longest:
        return rows
    if blocks.fill(n_tokens):
        return rows[xp.asarray(blocks.rows)]
    packed = xp.zeros((n_tokens, *x.shape[2:]), x.dtype)
    packed[xp.asarray(blocks.tokens)] = rows[xp.asarray(blocks.rows)]
    return packed
