"""Attention masks of packed tokens: a key range, or key indices, for every query.

A batch is one flat array of tokens.  With ``KeyRanges`` query i attends to the keys first_i ≤ j < last_i and to no
others.  Queries and keys are divided into segments (``Segments``, such as sentences).  The queries of a segment attend
only to the keys of the same segment, so attention can be computed segment by segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autograd.array import Array, IntArray, namespace


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of a packed axis: segment b is tokens[starts[b] : starts[b] + lengths[b]].

    There may be gaps: a cache of fixed capacity has unused rows after the end of each segment.  Segments with gradients
    must not overlap: a token of two segments would get only the gradient of one.
    Shapes: starts, lengths (B,) int64.
    """

    starts: IntArray
    lengths: IntArray

    @classmethod
    def of_lengths(cls, lengths: Any) -> Segments:
        """Return segments of these lengths that follow one another without gaps."""
        lengths = np.asarray(lengths, np.int64)
        return cls(np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    @cached_property
    def end(self) -> int:
        """The index after the last token of any segment."""
        return int((self.starts + self.lengths).max(initial=0))

    @cached_property
    def n_tokens(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def segment_of_token(self) -> IntArray:
        """(T,) the segment of each token; tokens are counted segment by segment."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def position_in_segment(self) -> IntArray:
        """(T,) the position of each token in its segment, from 0."""
        return np.arange(self.n_tokens) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)

    @cached_property
    def tokens(self) -> IntArray:
        """(T,) the index of each token on the packed axis."""
        return self.starts[self.segment_of_token] + self.position_in_segment

    @cached_property
    def rows(self) -> IntArray:
        """(T,) the row of each token after padding to (B · longest, …)."""
        return self.segment_of_token * self.longest + self.position_in_segment

    def fill(self, n_tokens: int) -> bool:
        """Return whether the segments cover a packed axis of ``n_tokens`` in order and without gaps."""
        return n_tokens == self.n_tokens and bool((self.starts == np.cumsum(self.lengths) - self.lengths).all())

    def stride_over(self, n_tokens: int) -> int | None:
        """Return the stride ``n_tokens`` / B if segments have one length and start at multiples of it, else None."""
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


class AttentionMask:
    """An attention mask: for each query, the keys of its segment to which it may attend."""

    queries: Segments
    keys: Segments
    padded_mask: Any
    """(B, longest query segment, longest key segment), True where allowed; None if all is allowed.

    Padding after the end of a query segment may attend to all keys, because its results are dropped.
    """

    @cached_property
    def _biases(self) -> dict[tuple[str, str], Array]:
        return {}

    def bias(self, xp: Any, dtype: Any) -> Array | None:
        """Return ``padded_mask`` as an array to add to scores: 0 where allowed, else −∞; None if all is allowed.

        Shapes: returns (B, 1, Q, K), an array of the module ``xp`` (numpy or cupy) and of ``dtype``.
        """
        if self.padded_mask is None:
            return None
        wanted = (xp.__name__, np.dtype(dtype).name)
        if wanted not in self._biases:
            allowed = xp.asarray(self.padded_mask[:, None])
            self._biases[wanted] = xp.where(allowed, 0, -xp.inf).astype(dtype)
        return self._biases[wanted]


@dataclass(frozen=True, eq=False)
class KeyRanges(AttentionMask):
    """A mask by key range: query i attends to the keys first[i] ≤ j < last[i], inside its segment of ``keys``.

    Shapes: first, last (T,) int64, indices into the packed keys; as many segments of queries as of keys.
    Raises: ValueError if the lengths or the numbers of segments differ, or if a query has no key or a key outside its
        segment.
    """

    first: IntArray
    last: IntArray
    queries: Segments
    keys: Segments

    def __post_init__(self) -> None:
        if len(self.queries) != len(self.keys):
            raise ValueError(
                f"KeyRanges: {len(self.queries)} segments of queries but {len(self.keys)} segments of keys"
            )
        if not len(self.first) == len(self.last) == self.queries.n_tokens:
            raise ValueError(
                f"KeyRanges: expected a range for each of {self.queries.n_tokens} queries;"
                f" got {len(self.first)} first and {len(self.last)} last keys"
            )
        start = self.keys.starts[self.queries.segment_of_token]
        end = start + self.keys.lengths[self.queries.segment_of_token]
        wrong = np.flatnonzero((self.first < start) | (self.last > end) | (self.first >= self.last))
        if len(wrong):
            i = wrong[0]
            raise ValueError(
                f"KeyRanges: query {i} must attend to at least one key, all in its segment [{start[i]}, {end[i]});"
                f" got the range [{self.first[i]}, {self.last[i]})"
            )

    def matrix(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return the mask as a boolean matrix (queries, keys): True where query i may attend to key j."""
        j = np.arange(self.keys.end)
        return np.asarray((self.first[:, None] <= j) & (j < self.last[:, None]))

    @cached_property
    def padded_mask(self) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        segment, position = self.queries.segment_of_token, self.queries.position_in_segment
        mask = np.ones((len(self.queries), self.queries.longest, self.keys.longest), np.bool_)
        j = self.keys.starts[segment][:, None] + np.arange(self.keys.longest)
        mask[segment, position] = (self.first[:, None] <= j) & (j < self.last[:, None])
        return None if mask.all() else mask


@dataclass(frozen=True, eq=False)
class KeyIndices(AttentionMask):
    """A mask by key index: query i attends to the keys indices[i], all inside its segment of ``keys``.

    It is for keys that form no range, such as those of hypotheses that share a key/value cache.
    Shapes: indices (T, n) int64, increasing in each row, indices into the packed keys; n ≥ 1; as many segments of
    queries as of keys.
    Raises: ValueError for other shapes or indices.
    """

    indices: IntArray
    queries: Segments
    keys: Segments

    def __post_init__(self) -> None:
        n_queries = self.queries.n_tokens
        if len(self.queries) != len(self.keys) or self.indices.ndim != 2 or len(self.indices) != n_queries:
            raise ValueError(
                f"KeyIndices: expected indices ({n_queries}, n) of queries in {len(self.queries)} segments;"
                f" got {self.indices.shape}, and {len(self.keys)} segments of keys"
            )
        start = self.keys.starts[self.queries.segment_of_token]
        end = start + self.keys.lengths[self.queries.segment_of_token]
        if n_queries and not (
            self.indices.shape[1]
            and (self.indices[:, 0] >= start).all()
            and (self.indices[:, -1] < end).all()
            and (self.indices[:, 1:] > self.indices[:, :-1]).all()
        ):
            raise ValueError(
                "KeyIndices: every query must attend to at least one key, all in its segment, in increasing order"
            )

    @cached_property
    def padded_mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        segment, position = self.queries.segment_of_token[:, None], self.queries.position_in_segment[:, None]
        mask = np.ones((len(self.queries), self.queries.longest, self.keys.longest), np.bool_)
        mask[segment[:, 0], position[:, 0]] = False
        mask[segment, position, self.indices - self.keys.starts[segment]] = True
        return mask


@dataclass(frozen=True, eq=False)
class CachedKeys(AttentionMask):
    """A mask over the keys of a key/value cache, as arrays on the device.

    A step is a position of the sequence that a search generates.  The keys of a segment lie step by step, ``n_slots``
    keys for each step (one for each hypothesis).  A query attends to the first ``n_steps``
    steps of its segment, or with a ``neighbourhood`` r to the last r + 1 of these steps.  Of each step it attends to
    one key: that in slot ``slots[segment, query, step]``, or in slot 0 if ``slots`` is None.
    Nothing is checked, because reading the arrays would wait for the device.  Every query must attend to a key.
    Shapes: n_steps (B,), or (1,) for all segments, int64; slots (B, queries of a segment, at least the steps of a
    segment) int64.  All segments of queries have one length; so do all segments of keys.
    """

    n_steps: Array
    queries: Segments
    keys: Segments
    slots: Array | None = None
    n_slots: int = 1
    neighbourhood: int | None = None

    @cached_property
    def padded_mask(self) -> Array:
        xp, n_steps, steps = namespace(self.n_steps), self.n_steps[:, None], self.keys.longest // self.n_slots
        allowed = xp.arange(steps) < n_steps
        if self.neighbourhood is not None:
            allowed = allowed & (xp.arange(steps) >= n_steps - 1 - self.neighbourhood)
        allowed = allowed[:, None, :, None]
        if self.slots is not None:
            allowed = allowed & (self.slots[:, :, :steps, None] == xp.arange(self.n_slots))
        shape = len(self.keys), self.queries.longest, steps, self.n_slots
        return xp.broadcast_to(allowed, shape).reshape(*shape[:2], self.keys.longest)


def pad(x: Array, segments: Segments) -> Array:
    """Pad packed (T, …) to (B, longest, …), with zeros after the end of each segment; a view where possible."""
    xp, stride = namespace(x), segments.stride_over(len(x))
    if stride is not None:
        return x.reshape(len(segments), stride, *x.shape[1:])[:, : segments.longest]
    rows = xp.zeros((len(segments) * segments.longest, *x.shape[1:]), x.dtype)
    rows[xp.asarray(segments.rows)] = x if segments.fill(len(x)) else x[xp.asarray(segments.tokens)]
    return rows.reshape(len(segments), segments.longest, *x.shape[1:])


def unpad(x: Array, segments: Segments, n_tokens: int) -> Array:
    """Unpad (B, longest, …) to packed (n_tokens, …), zeros between segments: the transpose of ``pad``."""
    xp = namespace(x)
    rows = x.reshape(len(segments) * segments.longest, *x.shape[2:])
    if segments.stride_over(n_tokens) == segments.longest:
        return rows
    if segments.fill(n_tokens):
        return rows[xp.asarray(segments.rows)]
    packed = xp.zeros((n_tokens, *x.shape[2:]), x.dtype)
    packed[xp.asarray(segments.tokens)] = rows[xp.asarray(segments.rows)]
    return packed
