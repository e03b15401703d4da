"""Who may attend to whom: the spans of the model's three kinds of attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autograd import Blocks, KeySets, KeySpans
from autograd.spans import IntArray


class BatchSpans(NamedTuple):
    """The spans of a batch: of encoder self-attention, decoder self-attention, and encoder-decoder attention."""

    encoder: KeySpans
    decoder: KeySpans
    source: KeySpans


def self_attention_spans(blocks: Blocks, neighbourhood: int | None = None) -> KeySpans:
    """Encoder self-attention: every token sees its whole sentence, or the r tokens on either side of it.

    Source: Vaswani et al. 2017, section 3.2.3; restricted self-attention, section 4.
    Differs: there, r is the size of the whole neighbourhood, here of each side.
    """
    start = blocks.starts[blocks.block_of_token]
    end = start + blocks.lengths[blocks.block_of_token]
    if neighbourhood is not None:
        here = blocks.tokens
        start, end = np.maximum(start, here - neighbourhood), np.minimum(end, here + neighbourhood + 1)
    return KeySpans(start, end, blocks, blocks)


def causal_spans(blocks: Blocks, neighbourhood: int | None = None) -> KeySpans:
    """Decoder self-attention: every token sees itself and what precedes it in its sentence, at most r tokens back.

    Source: Vaswani et al. 2017, section 3.2.3 (the look-ahead mask); restricted self-attention, section 4.
    """
    here = blocks.tokens
    start = blocks.starts[blocks.block_of_token]
    if neighbourhood is not None:
        start = np.maximum(start, here - neighbourhood)
    return KeySpans(start, here + 1, blocks, blocks)


def cached_sets(writers: IntArray, n_writers: int, capacity: int, neighbourhood: int | None = None) -> KeySets:
    """``causal_spans`` for the newest token of k hypotheses of each sentence, over what they and others have cached.

    A sentence's cache has room for ``capacity`` steps of ``n_writers`` keys each.  Hypotheses share the keys of their
    common past: ``writers`` (S, k, steps) says who wrote the key of each step in the past of each hypothesis.
    """
    n_sentences, k, n_steps = writers.shape
    mask = writers[:, :, :, None] == np.arange(n_writers)
    if neighbourhood is not None:
        mask[:, :, : max(0, n_steps - 1 - neighbourhood)] = False
    keys = Blocks(np.arange(n_sentences) * capacity * n_writers, np.full(n_sentences, n_steps * n_writers))
    queries = Blocks.of_lengths(np.full(n_sentences, k))
    return KeySets(queries, keys, mask.reshape(n_sentences, k, n_steps * n_writers))


def encoder_decoder_spans(queries: Blocks, keys: Blocks) -> KeySpans:
    """Encoder-decoder attention: every target token sees the whole source sentence of its block."""
    start = keys.starts[queries.block_of_token]
    return KeySpans(start, start + keys.lengths[queries.block_of_token], queries, keys)
