"""Who may attend to whom: the spans of the model's three kinds of attention."""

from __future__ import annotations

import numpy as np

from autograd import Blocks, KeySpans


def self_attention_spans(blocks: Blocks, neighbourhood: int | None = None) -> KeySpans:
    """Encoder self-attention: every token sees its whole sentence, or the r tokens on either side of it.

    Source: Vaswani et al. 2017, section 3.2.3; restricted self-attention, section 4.
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


def cached_spans(n_sequences: int, length: int, capacity: int, neighbourhood: int | None = None) -> KeySpans:
    """``causal_spans`` for the newest token of each sequence, over a cache of ``capacity`` keys a sequence.

    ``length`` counts the keys in the cache, the newest token's included.
    """
    starts = np.arange(n_sequences) * capacity
    reach = length if neighbourhood is None else min(length, neighbourhood + 1)
    keys = Blocks(starts, np.full(n_sequences, length))
    return KeySpans(starts + length - reach, starts + length, Blocks.of_lengths(np.ones(n_sequences, int)), keys)


def encoder_decoder_spans(queries: Blocks, keys: Blocks) -> KeySpans:
    """Encoder-decoder attention: every target token sees the whole source sentence of its block."""
    start = keys.starts[queries.block_of_token]
    return KeySpans(start, start + keys.lengths[queries.block_of_token], queries, keys)
