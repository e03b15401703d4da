"""attention.cu, attention.cuh and attention_long.cuh, of one head: q (T, K), k and v (S, K).

A block has 64 queries and 64 keys: four slots each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from autograd.random import StreamId
from autograd.tiles import BLOCK_ROWS, ROWS, SLOTS, Tiles
from kernel_models.common import NEUTRAL, Floats
from kernel_models.philox import philox_block

LOG2_OF_E = np.log2(np.e)


class Slots(NamedTuple):
    """64 rows: four slots of 16 packed rows, and which of them exist."""

    rows: Floats
    exist: Floats

    def read(self, x: Floats) -> Floats:
        """Rows that do not exist count as zeros (of ranges: as empty ones)."""
        rows = np.zeros((BLOCK_ROWS, *x.shape[1:]), x.dtype)
        rows[self.exist] = x[self.rows[self.exist]]
        return rows

    def write(self, x: Floats, rows: Floats) -> None:
        """Rows that do not exist are left alone."""
        x[self.rows[self.exist]] = rows[self.exist]


def slots_of(numbers: Floats, offset: int = 0) -> Slots:
    first, end = numbers.reshape(2, SLOTS, 1)
    rows = first + offset + np.arange(ROWS)
    return Slots(rows.ravel(), (rows < end).ravel())


def moving_slots(numbers: Floats) -> Iterator[Slots]:
    """The slots, then moved by 64 rows each time, until all are behind their ends."""
    offset, (first, end) = 0, numbers.reshape(2, SLOTS)
    while (first + offset < end).any():
        yield slots_of(numbers, offset)
        offset += BLOCK_ROWS


def not_empty(*lists: Floats) -> Iterator[tuple[Floats, Floats]]:
    """The numbers of queries and of keys of every block that is not empty."""
    for block in np.concatenate(lists):
        if block.any():
            yield block[: 2 * SLOTS], block[2 * SLOTS :]


def have(ranges: Floats, keys: Slots) -> Floats:
    """(64 queries, 64 keys): which of the keys exist and lie in the ranges."""
    return np.asarray((ranges[:, :1] <= keys.rows) & (keys.rows < ranges[:, 1:]) & keys.exist)


def power_where(seen: Floats, x: Floats) -> Floats:
    """2^x, 0 where a key is not seen, whatever x is there."""
    return np.asarray(np.exp2(np.where(seen, x, -np.inf)))


def gradient_of_scores(weight: Floats, of_weight: Floats, along: Floats, ranges: Floats) -> Floats:
    """ds = p (dp − Δ), (64 queries, 64 keys); exactly 0 of a lone key's, whose weight is 1 whatever its score."""
    is_lone = ranges[:, 1] - ranges[:, 0] <= 1
    return weight * np.where(is_lone[:, None], 0, of_weight - along[:, None])


class Dropout(NamedTuple):
    """Dropout of the weights of one head: a draw below ``threshold`` drops, the others scale by ``scale``."""

    stream_id: StreamId
    threshold: int
    scale: float
    head: int
    n_heads: int

    def factors(self, tiles: Tiles, queries: Slots, keys: Slots) -> Floats:
        """(64 queries, 64 keys): 0 or the scale.

        The 16 weights of a query and a slot of keys have consecutive indices, so their draws lie in two blocks of 16
        at most (``Draws``).
        """
        draws = np.zeros((BLOCK_ROWS, SLOTS, ROWS), np.int64)
        for i in np.flatnonzero(queries.exist):
            segment, offset = tiles.weight_rows[queries.rows[i]].tolist()
            row = (segment * self.n_heads + self.head) * int(tiles.weights_of_head[0]) + offset
            for slot in np.flatnonzero(keys.exist[::ROWS]):
                first = row + int(keys.rows[ROWS * slot])
                words = philox_block(self.stream_id, first // 16) + philox_block(self.stream_id, first // 16 + 1)
                numbers = [word >> 16 * j & 0xFFFF for word in words for j in range(4)]
                draws[i, slot] = numbers[first % 16 :][:ROWS]
        return np.where(draws >= self.threshold, self.scale, 0.0).reshape(BLOCK_ROWS, BLOCK_ROWS)


class NoDropout:
    """Weights as they are."""

    def factors(self, *of_block: object) -> Floats:
        return np.ones(1)


NO_DROPOUT = NoDropout()


class Arguments(NamedTuple):
    """What every kernel reads; scores are scale · ⟨q, k⟩."""

    q: Floats
    k: Floats
    v: Floats
    tiles: Tiles
    scale: float
    dropout: Dropout | NoDropout = NO_DROPOUT

    def scores(self, queries: Slots, keys: Slots) -> Floats:
        """Scores in units of log 2, because the GPU computes powers of 2."""
        return queries.read(self.q) @ keys.read(self.k).T * np.asarray(self.scale * LOG2_OF_E, self.q.dtype)

    def factors(self, queries: Slots, keys: Slots) -> Floats:
        return self.dropout.factors(self.tiles, queries, keys).astype(self.q.dtype)


def attention_forward(of: Arguments) -> tuple[Floats, Floats]:
    """y = softmax(scale · q kᵀ) v over each query's range, 64 keys at a time; Dao et al. 2022, algorithm 1.

    With s = scale · ⟨q, k⟩ / log 2, of the keys met so far m = max s, l = Σ 2^(s − m), o = Σ 2^(s − m) v (``greatest``,
    ``total`` and ``sums``).  The next 64 make of them

        m' = max(m, max s),  c = 2^(m − m'),  l' = c l + Σ 2^(s − m'),  o' = c o + Σ 2^(s − m') v,

    and in the end y = o / l.  The backward pass is left m + log₂ l, the logarithm of softmax's denominator.  Until a
    query meets its first key m is ``NEUTRAL``, and l and o are 0.  Dropout multiplies the terms of o, not those of l:
    softmax comes before it.  No query's range is empty (``KeyRanges``); those of rows that do not exist are, and their
    0 / 0 is not stored.

    Returns y (T, K) and the logarithms (T,); NaN where nothing was stored.
    """
    y, log_normalisers = np.full_like(of.q, np.nan), np.full(len(of.q), np.nan, of.q.dtype)
    for of_queries, of_keys in not_empty(of.tiles.short, of.tiles.long_queries):
        queries = slots_of(of_queries)
        sees, sums = queries.read(of.tiles.ranges), queries.read(np.zeros_like(of.q))
        greatest, total = np.full(BLOCK_ROWS, NEUTRAL, of.q.dtype), np.zeros(BLOCK_ROWS, of.q.dtype)
        for keys in moving_slots(of_keys):
            score, seen = of.scores(queries, keys), have(sees, keys)
            greater = np.maximum(greatest, np.where(seen, score, NEUTRAL).max(1))
            weights, correction = power_where(seen, score - greater[:, None]), np.exp2(greatest - greater)
            total = total * correction + weights.sum(1)
            sums = sums * correction[:, None] + weights * of.factors(queries, keys) @ keys.read(of.v)
            greatest = greater
        with np.errstate(divide="ignore", invalid="ignore"):  # rows that do not exist
            queries.write(y, sums / total[:, None])
            queries.write(log_normalisers, greatest + np.log2(total))
    return y, log_normalisers


def weights_of(of: Arguments, queries: Slots, keys: Slots, log_normalisers: Floats) -> Floats:
    """p = 2^(s − (m + log₂ l)), computed again."""
    seen = have(queries.read(of.tiles.ranges), keys)
    return power_where(seen, of.scores(queries, keys) - queries.read(log_normalisers)[:, None])


def attention_backward_of_queries(
    of: Arguments, blocks: Iterable[Floats], y: Floats, dy: Floats, log_normalisers: Floats, dq: Floats
) -> Floats:
    """dq = scale · ds k, where ds = p (dp − Δ), dp = f ⊙ dy vᵀ, and Δ = ⟨dy, y⟩ (``along``); algorithm 4.

    The factors f of dropout are drawn again.  y = (p ⊙ f) v, so Δ is Σ p dp over all keys, and no block needs the
    others' dp.  Writes dq (T, K); returns Δ (T,), NaN where nothing was stored.
    """
    of_outputs = np.full(len(of.q), np.nan, of.q.dtype)
    for of_queries, of_keys in not_empty(np.asarray(blocks)):
        queries = slots_of(of_queries)
        of_y, sums = queries.read(dy), queries.read(np.zeros_like(of.q))
        along = (of_y * queries.read(y)).sum(1)
        queries.write(of_outputs, along)
        for keys in moving_slots(of_keys):
            weight = weights_of(of, queries, keys, log_normalisers)
            of_weight = of_y @ keys.read(of.v).T * of.factors(queries, keys)
            of_score = gradient_of_scores(weight, of_weight, along, queries.read(of.tiles.ranges))
            sums += of_score @ keys.read(of.k)
        queries.write(dq, sums * of.scale)
    return of_outputs


def attention_backward_of_keys(
    of: Arguments,
    blocks: Iterable[Floats],
    dy: Floats,
    log_normalisers: Floats,
    of_outputs: Floats,
    dk: Floats,
    dv: Floats,
) -> None:
    """dv = (p ⊙ f)ᵀ dy and dk = scale · dsᵀ q: the same with keys as rows, which meet the queries that may see them.

    Writes dk and dv (S, K), 0 of keys that nobody sees.
    """
    for of_queries, of_keys in not_empty(np.asarray(blocks)):
        keys = slots_of(of_keys)
        sums_of_keys, sums_of_values = keys.read(np.zeros_like(of.k)), keys.read(np.zeros_like(of.v))
        for queries in moving_slots(of_queries):
            weight, factors = weights_of(of, queries, keys, log_normalisers), of.factors(queries, keys)
            of_weight = queries.read(dy) @ keys.read(of.v).T * factors
            along, sees = queries.read(of_outputs), queries.read(of.tiles.ranges)
            sums_of_values += (weight * factors).T @ queries.read(dy)
            sums_of_keys += gradient_of_scores(weight, of_weight, along, sees).T @ queries.read(of.q)
        keys.write(dk, sums_of_keys * of.scale)
        keys.write(dv, sums_of_values)


def attention_backward(of: Arguments, dy: Floats, log_normalisers: Floats, dq: Floats, dk: Floats, dv: Floats) -> None:
    """All three gradients of blocks that have all keys of their queries: scores once, and Δ = Σ p dp over these keys.

    Writes dq, dk and dv.
    """
    for of_queries, of_keys in not_empty(of.tiles.short):
        queries, keys = slots_of(of_queries), slots_of(of_keys)
        weight, factors = weights_of(of, queries, keys, log_normalisers), of.factors(queries, keys)
        of_y = queries.read(dy)
        of_weight = of_y @ keys.read(of.v).T * factors
        along = (weight * of_weight).sum(1)
        of_score = gradient_of_scores(weight, of_weight, along, queries.read(of.tiles.ranges))
        queries.write(dq, of_score @ keys.read(of.k) * of.scale)
        keys.write(dk, of_score.T @ queries.read(of.q) * of.scale)
        keys.write(dv, (weight * factors).T @ of_y)
