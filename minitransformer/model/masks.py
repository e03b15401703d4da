"""The attention masks of the model's three kinds of attention, as a key range for each query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autograd import KeyIndices, KeyRanges, PaddedMask, Segments, namespace
from autograd.array import Array, IntArray


class BatchMasks(NamedTuple):
    """The attention masks of a batch: encoder self-attention, decoder self-attention, encoder-decoder attention."""

    encoder: KeyRanges
    decoder: KeyRanges
    source: KeyRanges


def self_attention_mask(segments: Segments, neighbourhood: int | None = None) -> KeyRanges:
    """Return the mask of encoder self-attention: a token sees its whole sentence, or r tokens on either side.

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
    """Return the mask of decoder self-attention: a token sees itself and all tokens before it, or at most r of them.

    Source: Vaswani et al. 2017, section 3.2.3 (the look-ahead mask); restricted self-attention, section 4.
    """
    here = segments.tokens
    start = segments.starts[segments.segment_of_token]
    if neighbourhood is not None:
        start = np.maximum(start, here - neighbourhood)
    return KeyRanges(start, here + 1, segments, segments)


def cached_mask(cache_index: IntArray, n_slots: int, capacity: int, neighbourhood: int | None = None) -> KeyIndices:
    """Return the mask of cached decoder self-attention, for the newest token of k hypotheses of each sentence.

    The cache of a sentence holds ``capacity`` steps of ``n_slots`` keys each.  Hypotheses with a common prefix
    share its keys: ``cache_index`` (S, k, steps) is the slot of each step's key, for each hypothesis.
    The mask equals ``causal_mask`` of each hypothesis.
    """
    n_sentences, k, n_steps = cache_index.shape
    first_step = _first_step(n_steps, neighbourhood)
    queries, keys = _cached_segments(cache_index, n_slots, capacity)
    indices = keys.starts[:, None, None] + np.arange(n_steps) * n_slots + cache_index
    return KeyIndices(indices[:, :, first_step:].reshape(n_sentences * k, -1), queries, keys)


def cached_mask_on_device(
    cache_index: Array, n_slots: int, capacity: int, neighbourhood: int | None = None
) -> PaddedMask:
    """Return ``cached_mask`` as an array on the device of ``cache_index``, made there without waiting for it."""
    xp, (n_sentences, k, n_steps) = namespace(cache_index), cache_index.shape
    allowed = cache_index[..., None] == xp.arange(n_slots)
    first_step = _first_step(n_steps, neighbourhood)
    if first_step:
        allowed[:, :, :first_step] = False
    queries, keys = _cached_segments(cache_index, n_slots, capacity)
    return PaddedMask(allowed.reshape(n_sentences, k, n_steps * n_slots), queries, keys)


def _first_step(n_steps: int, neighbourhood: int | None) -> int:
    """Return the first step to which the newest token attends."""
    return 0 if neighbourhood is None else max(0, n_steps - 1 - neighbourhood)


def _cached_segments(cache_index: Array, n_slots: int, capacity: int) -> tuple[Segments, Segments]:
    """Return the queries of each sentence, and the keys of its cache that are filled."""
    n_sentences, k, n_steps = cache_index.shape
    keys = Segments(np.arange(n_sentences) * capacity * n_slots, np.full(n_sentences, n_steps * n_slots))
    return Segments.of_lengths(np.full(n_sentences, k)), keys


def encoder_decoder_mask(queries: Segments, keys: Segments) -> KeyRanges:
    """Return the mask of encoder-decoder attention: a target token sees the whole source sentence of its pair."""
    start = keys.starts[queries.segment_of_token]
    return KeyRanges(start, start + keys.lengths[queries.segment_of_token], queries, keys)
