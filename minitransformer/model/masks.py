"""The attention masks of the model's three kinds of attention, as a key range for each query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autograd import CachedKeys, KeyIndices, KeyRanges, Segments
from autograd.array import Array


class BatchMasks(NamedTuple):
    """The attention masks of a batch: encoder self-attention, decoder self-attention, encoder-decoder attention."""

    encoder: KeyRanges
    decoder: KeyRanges
    source: KeyRanges


def self_attention_mask(segments: Segments, neighbourhood: int | None = None) -> KeyRanges:
    """Return the mask of encoder self-attention: a token sees its sentence, or itself and r tokens on each side.

    Source: Vaswani et al. 2017, section 3.2.3; restricted self-attention, section 4.
    Differs: in the paper r is the size of the whole neighbourhood, here the size of each side.
    """
    start = segments.starts[segments.segment_of_token]
    end = start + segments.lengths[segments.segment_of_token]
    if neighbourhood is not None:
        here = segments.tokens
        start, end = np.maximum(start, here - neighbourhood), np.minimum(end, here + neighbourhood + 1)
    return KeyRanges(start, end, segments, segments)


def causal_mask(segments: Segments, neighbourhood: int | None = None) -> KeyRanges:
    """Return the mask of decoder self-attention: a token sees itself and all tokens, or r tokens, before it.

    Source: Vaswani et al. 2017, section 3.2.3 (the look-ahead mask); restricted self-attention, section 4.
    """
    here = segments.tokens
    start = segments.starts[segments.segment_of_token]
    if neighbourhood is not None:
        start = np.maximum(start, here - neighbourhood)
    return KeyRanges(start, here + 1, segments, segments)


def cached_mask(
    cache_index: Array, n_steps: int | Array, n_slots: int, capacity: int, neighbourhood: int | None = None
) -> KeyIndices | CachedKeys:
    """Return the mask of cached decoder self-attention, for the newest token of k hypotheses of each sentence.

    The cache of a sentence holds ``capacity`` steps of ``n_slots`` keys each.  Hypotheses with a common prefix
    share the prefix's keys: ``cache_index`` (S, k, ≥ n_steps) has, for each hypothesis, the slot of each step's key.
    The mask equals ``causal_mask`` of each hypothesis.
    On a GPU ``n_steps`` is an array (S,) on the device, like ``cache_index``; neither is copied to the host.
    """
    n_sentences, k = cache_index.shape[:2]
    n_filled = n_steps if isinstance(n_steps, int) else min(capacity, cache_index.shape[2])
    queries = Segments.of_lengths(np.full(n_sentences, k))
    keys = Segments(np.arange(n_sentences) * capacity * n_slots, np.full(n_sentences, n_filled * n_slots))
    if not isinstance(n_steps, int):
        return CachedKeys(n_steps, queries, keys, cache_index, n_slots, neighbourhood)
    first = 0 if neighbourhood is None else max(0, n_steps - 1 - neighbourhood)
    indices = keys.starts[:, None, None] + np.arange(first, n_steps) * n_slots + cache_index[:, :, first:n_steps]
    return KeyIndices(indices.reshape(n_sentences * k, -1), queries, keys)


def encoder_decoder_mask(queries: Segments, keys: Segments) -> KeyRanges:
    """Return the mask of encoder-decoder attention: a target token sees the whole source sentence of its pair."""
    start = keys.starts[queries.segment_of_token]
    return KeyRanges(start, start + keys.lengths[queries.segment_of_token], queries, keys)
