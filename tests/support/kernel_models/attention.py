"""attention.cu, of one head: q (T, K), k and v (S, K), of which a warp has 16 rows, and meets 16 others at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autograd.random import StreamId
from autograd.tiles import ROWS, Tiles
from kernel_models.common import NEUTRAL, Floats
from kernel_models.philox import philox_block


def rows_from(x: Floats, row: int, end: int) -> Floats:
    """``Rows``: 16 rows from ``row`` on; those from ``end`` on count as zeros (of ranges: as empty ones)."""
    rows, there = np.zeros((ROWS, *x.shape[1:]), x.dtype), x[row:end][:ROWS]
    rows[: len(there)] = there
    return rows


def store_rows(x: Floats, row: int, end: int, rows: Floats) -> None:
    """16 rows from ``row`` on; those from ``end`` on are left alone."""
    there = x[row:end][:ROWS]
    there[...] = rows[: len(there)]


def has(ranges: Floats, key: int) -> Floats:
    """(16 queries, 16 keys from ``key`` on): which of them lie in the ranges."""
    keys = key + np.arange(ROWS)
    return np.asarray((ranges[:, :1] <= keys) & (keys < ranges[:, 1:]))


def exp_where(seen: Floats, x: Floats) -> Floats:
    """exp(x), 0 where a key is not seen, whatever x is there."""
    return np.asarray(np.exp(np.where(seen, x, -np.inf)))


def gradient_of_scores(weight: Floats, of_weight: Floats, along: Floats, ranges: Floats) -> Floats:
    """ds = p (dp − Δ), (16 queries, 16 keys); exactly 0 of a lone key's, whose weight is 1 whatever its score."""
    is_lone = ranges[:, 1] - ranges[:, 0] <= 1
    return weight * np.where(is_lone[:, None], 0, of_weight - along[:, None])


class Dropout(NamedTuple):
    """Dropout of the weights of one head: a draw below ``threshold`` drops, the others scale by ``scale``."""

    stream_id: StreamId
    threshold: int
    scale: float
    head: int
    n_heads: int

    def factors(self, tiles: Tiles, query: int, end: int, key: int) -> Floats:
        """(16 queries, 16 keys from ``key`` on): 0 or the scale.

        A query's 16 weights have consecutive indices, so their draws lie in two blocks of 16 at most (``Draws``).
        """
        draws = np.zeros((ROWS, ROWS), np.int64)
        for row, (segment, offset) in enumerate(tiles.weight_rows[query:end].tolist()[:ROWS]):
            first = (segment * self.n_heads + self.head) * int(tiles.weights_of_head[0]) + offset + int(key)
            words = philox_block(self.stream_id, first // 16) + philox_block(self.stream_id, first // 16 + 1)
            numbers = [word >> 16 * i & 0xFFFF for word in words for i in range(4)]
            draws[row] = numbers[first % 16 :][:ROWS]
        return np.where(draws >= self.threshold, self.scale, 0.0)


class NoDropout:
    """Weights as they are."""

    def factors(self, *tile: object) -> Floats:
        return np.ones(1)


NO_DROPOUT = NoDropout()


def attention_forward(
    q: Floats, k: Floats, v: Floats, tiles: Tiles, scale: float, dropout: Dropout | NoDropout = NO_DROPOUT
) -> tuple[Floats, Floats]:
    """y = softmax(scale · q kᵀ) v over each query's range, 16 keys at a time; Dao et al. 2022, algorithm 1.

    With s = scale · ⟨q, k⟩, of the keys met so far m = max s, l = Σ exp(s − m), o = Σ exp(s − m) v (``greatest``,
    ``total`` and ``sums``).  The next 16 make of them

        m' = max(m, max s),  c = exp(m − m'),  l' = c l + Σ exp(s − m'),  o' = c o + Σ exp(s − m') v,

    and in the end y = o / l.  The backward pass is left m + log l, the logarithm of softmax's denominator.  Until a
    query meets its first key m is ``NEUTRAL``, c is 1, and l and o are 0.  Dropout multiplies the terms of o, not those
    of l: softmax comes before it.  Keys before and behind all ranges of the 16 queries are not met.  No query's range
    is empty (``KeyRanges``); those of rows behind the sentence's end are, and their 0 / 0 is not stored.

    Returns y (T, K) and the logarithms (T,); NaN where nothing was stored.
    """
    y, log_normalisers = np.full_like(q, np.nan), np.full(len(q), np.nan, q.dtype)
    for first, end, first_other, end_other in tiles.of_queries:
        queries, sees = rows_from(q, first, end), rows_from(tiles.ranges, first, end)
        greatest, total, sums = np.full(ROWS, NEUTRAL, q.dtype), np.zeros(ROWS, q.dtype), np.zeros_like(queries)
        for key in range(first_other, end_other, ROWS):
            score, seen = queries @ rows_from(k, key, end_other).T * scale, has(sees, key)
            greater = np.maximum(greatest, np.where(seen, score, NEUTRAL).max(1))
            weights, correction = exp_where(seen, score - greater[:, None]), np.exp(greatest - greater)
            total = total * correction + weights.sum(1)
            kept = weights * dropout.factors(tiles, first, end, key)
            sums = sums * correction[:, None] + kept @ rows_from(v, key, end_other)
            greatest = greater
        with np.errstate(divide="ignore", invalid="ignore"):  # rows behind the end
            store_rows(y, first, end, sums / total[:, None])
            store_rows(log_normalisers, first, end, greatest + np.log(total))
    return y, log_normalisers


def attention_backward_of_queries(
    q: Floats,
    k: Floats,
    v: Floats,
    y: Floats,
    dy: Floats,
    tiles: Tiles,
    log_normalisers: Floats,
    scale: float,
    dropout: Dropout | NoDropout = NO_DROPOUT,
) -> tuple[Floats, Floats]:
    """dq = scale · ds k, where ds = p (dp − Δ), dp = f ⊙ dy vᵀ, and Δ = ⟨dy, y⟩ (``along``); algorithm 4.

    Weights p = exp(s − (m + log l)), and the factors f of dropout, are computed again.  y = (p ⊙ f) v, so Δ is Σ p dp
    over all keys, and no tile needs the others' dp.
    Returns dq (T, K) and Δ (T,).
    """
    dq, of_outputs = np.full_like(q, np.nan), np.full(len(q), np.nan, q.dtype)
    for first, end, first_other, end_other in tiles.of_queries:
        queries, outputs, of_y, log_normaliser = (rows_from(x, first, end) for x in (q, y, dy, log_normalisers))
        sees, along, sums = rows_from(tiles.ranges, first, end), (of_y * outputs).sum(1), np.zeros_like(queries)
        store_rows(of_outputs, first, end, along)
        for key in range(first_other, end_other, ROWS):
            keys, values = rows_from(k, key, end_other), rows_from(v, key, end_other)
            weight = exp_where(has(sees, key), queries @ keys.T * scale - log_normaliser[:, None])
            of_weight = of_y @ values.T * dropout.factors(tiles, first, end, key)
            sums += gradient_of_scores(weight, of_weight, along, sees) @ keys
        store_rows(dq, first, end, sums * scale)
    return dq, of_outputs


def attention_backward_of_keys(
    q: Floats,
    k: Floats,
    v: Floats,
    dy: Floats,
    tiles: Tiles,
    log_normalisers: Floats,
    of_outputs: Floats,
    scale: float,
    dropout: Dropout | NoDropout = NO_DROPOUT,
) -> tuple[Floats, Floats]:
    """dv = (p ⊙ f)ᵀ dy and dk = scale · dsᵀ q: the same with keys as rows, which meet the queries that may see them.

    Returns dk and dv (S, K), 0 of keys that nobody sees.
    """
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for first, end, first_other, end_other in tiles.of_keys:
        keys, values = rows_from(k, first, end), rows_from(v, first, end)
        of_keys, of_values = np.zeros_like(keys), np.zeros_like(values)
        for query in range(first_other, end_other, ROWS):
            queries, of_y, log_normaliser, along, sees = (
                rows_from(x, query, end_other) for x in (q, dy, log_normalisers, of_outputs, tiles.ranges)
            )
            weight = exp_where(has(sees, first), queries @ keys.T * scale - log_normaliser[:, None])
            factors = dropout.factors(tiles, query, end_other, first)
            of_values += (weight * factors).T @ of_y
            of_keys += gradient_of_scores(weight, of_y @ values.T * factors, along, sees).T @ queries
        store_rows(dk, first, end, of_keys * scale)
        store_rows(dv, first, end, of_values)
    return dk, dv
