"""Who may attend to whom among packed tokens: a span, or any set, of keys for every query.

A batch is one flat array of tokens; with ``KeySpans`` query i attends to the keys first_i ≤ j < last_i and to no other.
Queries come in blocks (sentences), and a block's queries look only into the block's keys; so attention can be computed
block by block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autograd.array import Array, namespace

IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Stretches of a packed axis: block b is tokens[starts[b] : starts[b] + lengths[b]].

    Blocks need not touch: a cache of fixed capacity is a row of blocks with free room behind each.
    """

    starts: IntArray
    lengths: IntArray

    @classmethod
    def of_lengths(cls, lengths: Any) -> Blocks:
        """Blocks that follow one another without gaps."""
        lengths = np.asarray(lengths, np.int64)
        return cls(np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    @cached_property
    def end(self) -> int:
        """The place behind the last token of any block."""
        return int((self.starts + self.lengths).max(initial=0))

    @cached_property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def block_of_token(self) -> IntArray:
        """(T,) the block that each token belongs to, tokens counted through the blocks."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def place_in_block(self) -> IntArray:
        """(T,) 0 for the first token of each block."""
        return np.arange(self.n_tokens) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)

    @cached_property
    def tokens(self) -> IntArray:
        """(T,) where on the packed axis each token stands."""
        return self.starts[self.block_of_token] + self.place_in_block

    @cached_property
    def rows(self) -> IntArray:
        """(T,) where each token stands once the blocks lie side by side, all as wide as the longest."""
        return self.block_of_token * self.longest + self.place_in_block

    def head_index(self, n_heads: int) -> HeadIndex:
        """Where the rows of heads lie and stand; every layer asks the same again."""
        if n_heads not in self._head_indices:
            self._head_indices[n_heads] = HeadIndex.of(self, n_heads)
        return self._head_indices[n_heads]

    @cached_property
    def _head_indices(self) -> dict[int, HeadIndex]:
        return {}

    def fill(self, n_tokens: int) -> bool:
        """Whether the blocks are a whole packed axis of ``n_tokens``, in order and without gaps."""
        return n_tokens == self.n_tokens and bool((self.starts == np.cumsum(self.lengths) - self.lengths).all())

    def stride_over(self, n_tokens: int) -> int | None:
        """The distance between blocks of one length that divide ``n_tokens`` evenly; None if they do not."""
        if n_tokens not in self._strides:  # every layer asks the same again
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
    """Rows of packed heads (T, H) and rows of blocks of heads (B, H, longest), as indices from one to the other."""

    wanted: IntArray
    """(T · H,) the row among the blocks at which each packed row belongs."""

    sources: IntArray
    """(B · H · longest,) the packed row that belongs there; any, where none does."""

    empty: IntArray
    """The rows behind the ends of blocks, to which none belongs."""

    @classmethod
    def of(cls, blocks: Blocks, n_heads: int) -> HeadIndex:
        heads, block, place = np.arange(n_heads), blocks.block_of_token[:, None], blocks.place_in_block[:, None]
        wanted = ((block * n_heads + heads) * blocks.longest + place).reshape(-1)
        sources = np.full(len(blocks) * n_heads * blocks.longest, -1)
        sources[wanted] = (blocks.tokens[:, None] * n_heads + heads).reshape(-1)
        return cls(wanted, sources, np.flatnonzero(sources < 0))


class BlockMask:
    """Which keys of its block each query of a block may attend to."""

    queries: Blocks
    keys: Blocks
    block_mask: Any
    """(B, longest query block, longest key block), True where allowed; None if all is allowed.

    Places behind the end of a query block are allowed everything: what they compute is dropped.
    """
    lone: tuple[IntArray, IntArray]
    """Block and place (n,) of each query that may attend to one key only: its weight is 1, whatever its score."""

    @cached_property
    def _biases(self) -> dict[tuple[str, str], Array]:
        return {}

    def bias(self, xp: Any, dtype: Any) -> Array | None:
        """``block_mask`` as numbers to add to scores, (B, 1, Q, K): 0 where allowed, else −∞; None if all is 0."""
        if self.block_mask is None:
            return None
        wanted = (xp.__name__, np.dtype(dtype).name)
        if wanted not in self._biases:
            allowed = xp.asarray(self.block_mask[:, None])
            self._biases[wanted] = xp.where(allowed, 0, -xp.inf).astype(dtype)
        return self._biases[wanted]


@dataclass(frozen=True, eq=False)
class KeySpans(BlockMask):
    """Query i of ``queries`` attends to the keys first[i] ≤ j < last[i], inside its block of ``keys``.

    Shapes: first, last (T,) int64, indices into the packed keys; as many blocks of queries as of keys.
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
        """The textbook's boolean mask (queries, keys): True where query i may attend to key j."""
        j = np.arange(self.keys.end)
        return np.asarray((self.first[:, None] <= j) & (j < self.last[:, None]))

    @cached_property
    def block_mask(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        """See ``BlockMask``."""
        block, place = self.queries.block_of_token, self.queries.place_in_block
        mask = np.ones((len(self.queries), self.queries.longest, self.keys.longest), np.bool_)
        j = self.keys.starts[block][:, None] + np.arange(self.keys.longest)
        mask[block, place] = (self.first[:, None] <= j) & (j < self.last[:, None])
        return None if mask.all() else mask

    @cached_property
    def lone(self) -> tuple[IntArray, IntArray]:  # type: ignore[override]
        """See ``BlockMask``."""
        lone = np.flatnonzero(self.last - self.first == 1)
        return self.queries.block_of_token[lone], self.queries.place_in_block[lone]


@dataclass(frozen=True, eq=False)
class KeySets(BlockMask):
    """Query i of ``queries`` attends to those keys of its block that its row of ``block_mask`` names.

    For what is no span: hypotheses that share a past.
    Raises: ValueError if the mask has another shape, or a query has no key, or one behind the end of its block.
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
        """See ``BlockMask``."""
        blocks, places = np.nonzero(self.block_mask.sum(2) == 1)
        return blocks, places


def place_side_by_side(x: Array, blocks: Blocks) -> Array:
    """Packed (T, …) → (B, longest, …): blocks side by side, zeros behind the end of each; a view where possible."""
    xp, stride = namespace(x), blocks.stride_over(len(x))
    if stride is not None:
        return x.reshape(len(blocks), stride, *x.shape[1:])[:, : blocks.longest]
    rows = xp.zeros((len(blocks) * blocks.longest, *x.shape[1:]), x.dtype)
    rows[xp.asarray(blocks.rows)] = x if blocks.fill(len(x)) else x[xp.asarray(blocks.tokens)]
    return rows.reshape(len(blocks), blocks.longest, *x.shape[1:])


def pack(x: Array, blocks: Blocks, n_tokens: int) -> Array:
    """(B, longest, …) → packed (n_tokens, …), zeros between blocks: the transpose of ``place_side_by_side``."""
    xp = namespace(x)
    rows = x.reshape(len(blocks) * blocks.longest, *x.shape[2:])
    if blocks.stride_over(n_tokens) == blocks.longest:
        return rows
    if blocks.fill(n_tokens):
        return rows[xp.asarray(blocks.rows)]
    packed = xp.zeros((n_tokens, *x.shape[2:]), x.dtype)
    packed[xp.asarray(blocks.tokens)] = rows[xp.asarray(blocks.rows)]
    return packed
