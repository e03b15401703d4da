"""The arrays of a beam search: a step's choice of hypotheses, and the keys and values of their newest tokens."""

from __future__ import annotations

from typing import cast

import numpy as np

from autograd.array import Array, IntArray, namespace
from autograd.op import Dispatch
from autograd.ops.top_k import top


@Dispatch
def extend_beams(
    log_p: Array,
    newest: Array,
    ids: Array,
    cache_index: Array,
    finished_scores: Array,
    finished_log_p: Array,
    finished_ids: Array,
    done: Array,
    n_steps: Array,
    limits: Array,
    greatest_penalties: Array,
    token_log_p: Array,
    token: Array,
    penalties: Array,
    /,
    *,
    beam: int,
    n_ranked: int,
    end: int,
) -> tuple[Array, ...]:
    """Rank the best continuations: finish those that end, and keep the best k of the rest as live hypotheses.

    If the only continuation of greedy search (``n_ranked`` 1) ends, no hypothesis is live.

    Args:
        log_p, …, greatest_penalties: the state of S sentences with up to ``beam`` live hypotheses each, before step
            ``n_steps`` (S,) of each sentence.  A kernel may overwrite these arrays, and return them.
        token_log_p, token: the best tokens of each hypothesis (S·k, n) and their log p, float64 and int64.
        penalties: the length penalties (L,) of 1, 2, … tokens.
        n_ranked: the number of continuations of a sentence that are ranked.
        end: the end symbol.

    Returns the state after the step, and the parent (S, beam) of each live hypothesis, int64.  Of equal numbers, the
    earlier hypothesis and the smaller token come first.  A hypothesis that does not exist has log p −∞.
    """
    xp, (n_sentences, k), n_tokens = namespace(log_p), log_p.shape, token.shape[1]
    rows, step = xp.arange(n_sentences), n_steps - 1  # as indices
    total = (token_log_p.reshape(n_sentences, k, n_tokens) + log_p[:, :, None]).reshape(n_sentences, k * n_tokens)
    ranked, choice = _best(total, n_ranked)
    token, parent = _take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
    ends, exists = token == end, ranked > -np.inf  # False for log p NaN
    ended = xp.where(ends & exists & ~done[:, None], ranked, -np.inf)
    finished = finished_scores, finished_log_p, finished_ids
    if xp is not np or (ended > -np.inf).any():  # on a GPU, reading this would wait
        finished = _finish(finished, ended, ended / penalties[step][:, None], ids, parent)
    log_p, best = _best(xp.where(exists & ~ends, ranked, -np.inf), beam)
    parent, token = _take(parent, best), _take(token, best)
    ids, cache_index = _take(ids, parent), _take(cache_index, parent)
    ids[rows, :, step] = token
    bound, last_score = log_p.max(axis=1) / greatest_penalties, finished[0][:, -1]
    done = done | ~((bound > last_score) & (limits > n_steps))  # no better hypothesis can be found
    n_steps = n_steps + ~done  # sentences that are done stay within the arrays
    cache_index[rows, :, n_steps - 1] = xp.arange(parent.shape[1])
    return log_p, token, ids, cache_index, *finished, done, n_steps, limits, greatest_penalties, parent


def _finish(
    finished: tuple[Array, Array, Array], log_p: Array, scores: Array, ids: Array, parent: Array
) -> tuple[Array, Array, Array]:
    """Return scores, log p and ids of the n best of the old and new finished hypotheses, older ones first if equal.

    Shapes: log_p and scores (S, candidates), −∞ for a candidate that does not end; parent (S, candidates), the
    hypothesis in ``ids`` (S, k, L) that the candidate continues.
    """
    (old_scores, old_log_p, old_ids), xp = finished, namespace(ids)
    n_best = old_scores.shape[1]
    scores, choice = _best(xp.concatenate([old_scores, scores], axis=1), n_best)
    old_rows = xp.broadcast_to(xp.arange(n_best), old_scores.shape)
    rows = _take(xp.concatenate([old_rows, n_best + parent], axis=1), choice)
    log_p = _take(xp.concatenate([old_log_p, log_p], axis=1), choice)
    return scores, log_p, _take(xp.concatenate([old_ids, ids], axis=1), rows)


def _best(x: Array, n: int) -> tuple[Array, Array]:
    """Return the n greatest numbers of each row and their columns, greatest first, ties by column, NaN last."""
    if namespace(x) is not np:
        return cast(tuple[Array, Array], top(x, n=n))  # does not wait, unlike CuPy's sorts
    columns: IntArray = np.argsort(-x, axis=1, kind="stable")[:, :n]
    return _take(x, columns), columns


def _take(x: Array, index: Array) -> Array:
    """Return x[s, index[s, i]] for every sentence s.  Shapes: x (S, m, …), index (S, n); returns (S, n, …)."""
    n_sentences, m = x.shape[:2]
    rows = index + namespace(x).arange(0, n_sentences * m, m)[:, None]
    return x.reshape(n_sentences * m, *x.shape[2:])[rows]


@Dispatch
def append_to_cache(keys: Array, values: Array, new_keys: Array, new_values: Array, n_steps: int | Array) -> None:
    """Write the keys and values of the newest token of k hypotheses of S sentences into a cache, at step ``n_steps``.

    Shapes: keys and values (S, capacity, n_slots, H, K or V), which are changed in place; new keys and values
    (S·k, H, K or V), k ≤ n_slots; n_steps from 1 on, a number or (S,) int64 on the device.
    """
    if isinstance(n_steps, int):
        sentences, step = slice(None), n_steps - 1
    else:
        sentences, step = namespace(keys).arange(len(keys)), n_steps - 1
    for cache, new in (keys, new_keys), (values, new_values):
        k = len(new) // len(cache)
        cache[sentences, step, :k] = new.reshape(len(cache), k, *new.shape[1:])
