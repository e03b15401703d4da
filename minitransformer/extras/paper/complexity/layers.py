"""The layer types that Table 1 compares, each built from the operations of ``autograd``.

Inputs are B sentences of n positions and d features: (B, n, d).  Outputs are packed, (B·n, d); the recurrent layer
returns only its last state, (B, d).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from autograd import KeyRanges, Layer, Parameter, Segments, Tensor, ops
from autograd.array import Array, IntArray
from autograd.parameters import glorot_uniform, zeros
from minitransformer.model.masks import self_attention_mask


class SequenceLayer(Protocol):
    """A layer that can be measured.  Shapes: x (B, n, d)."""

    def forward(self, x: Array) -> Tensor:
        """Compute the layer's output for a batch of sentences; a recurrent layer computes only its last state."""

    def after(self, steps: int, x: Tensor) -> Tensor:
        """Compute the state of one sentence (n, d) after ``steps`` steps; each step updates all positions at once."""


class SelfAttention(Layer):
    """Attention(X, X, X), equation 1: each position attends to all positions of the sentence.

    Table 1 leaves out the projections of queries, keys, values and results; together they cost as much as a convolution
    with k = 4.
    """

    def forward(self, x: Array) -> Tensor:
        return self._attend(Tensor(x.reshape(-1, x.shape[2])), Segments.of_lengths(np.full(len(x), x.shape[1])))

    def after(self, steps: int, x: Tensor) -> Tensor:
        for _ in range(steps):
            x = self._attend(x, Segments.of_lengths([len(x)]))
        return x

    def _attend(self, x: Tensor, sentences: Segments) -> Tensor:
        heads = ops.reshape(x, shape=(len(x), 1, -1))
        return ops.reshape(ops.attention(heads, heads, heads, mask=self_attention_mask(sentences)), shape=x.shape)


class RestrictedSelfAttention(SelfAttention):
    """Self-attention of each position over the r positions on either side of it: section 4.

    Queries are grouped into blocks of r; the keys of a block are in the block and in its two neighbours.  So 3 r scores
    are computed for each query, and 2 r + 1 of them count.
    """

    def __init__(self, r: int) -> None:
        self.r = r

    def _attend(self, x: Tensor, sentences: Segments) -> Tensor:
        positions, mask = windows(sentences, self.r)
        queries = ops.reshape(x, shape=(len(x), 1, -1))
        keys = ops.reshape(ops.embedding(x, positions), shape=(len(positions), 1, -1))
        return ops.reshape(ops.attention(queries, keys, keys, mask=mask), shape=x.shape)


def windows(sentences: Segments, r: int) -> tuple[IntArray, KeyRanges]:
    """Return the positions of the keys of each block of r queries, and the attention mask over these keys.

    Positions are concatenated block by block; a position that several blocks need is repeated.
    """
    query_blocks, key_positions = [], []
    for start, length in zip(sentences.starts.tolist(), sentences.lengths.tolist(), strict=True):
        for first in range(start, start + length, r):
            last = min(first + r, start + length)
            query_blocks.append(last - first)
            key_positions.append(np.arange(max(start, first - r), min(start + length, last + r)))
    keys, queries = (
        Segments.of_lengths([len(positions) for positions in key_positions]),
        Segments.of_lengths(query_blocks),
    )
    positions = np.concatenate(key_positions)
    wanted = self_attention_mask(sentences, r)
    # from a position to its index among the keys
    shift = (keys.starts - positions[keys.starts])[queries.segment_of_token]
    return positions, KeyRanges(wanted.first + shift, wanted.last + shift, queries, keys)


class Recurrent(Layer):
    """A long short-term memory: h_t = σ(o) tanh(c_t),  c_t = σ(f) c_{t−1} + σ(i) tanh(g),
    [i f g o] = x_t W + h_{t−1} U + b.

    Source: Hochreiter & Schmidhuber 1997; the forget gate, Gers et al. 2000.
    Shapes: W, U (d, 4 d), b (4 d,).
    """

    def __init__(self, d: int) -> None:
        self.d = d
        self.input = Parameter((d, 4 * d), glorot_uniform)
        self.recurrent = Parameter((d, 4 * d), glorot_uniform)
        self.bias = Parameter((4 * d,), zeros)

    def cell(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step of every row.  Shapes: x, h and c (rows, d); returns h and c."""
        gates = ops.linear(x, self.input, self.bias) + ops.linear(h, self.recurrent, None)
        i, f, g, o = (gates[:, part * self.d : (part + 1) * self.d] for part in range(4))
        c = _logistic(f) * c + _logistic(i) * ops.tanh(g)
        return _logistic(o) * ops.tanh(c), c

    def forward(self, x: Array) -> Tensor:
        """Compute the last h, position by position: each step needs the previous one."""
        h = c = Tensor(np.zeros_like(x[:, 0]))
        for t in range(x.shape[1]):
            h, c = self.cell(Tensor(x[:, t]), h, c)
        return h

    def after(self, steps: int, x: Tensor) -> Tensor:
        """Update all positions at once, ``steps`` times.

        Each position reads the previous state of its left neighbour.  After n steps, the states are those of the LSTM.
        """
        neighbour, is_inside = np.maximum(np.arange(len(x)) - 1, 0), (np.arange(len(x)) > 0)[:, None]
        h = c = Tensor(np.zeros_like(x.value))
        for _ in range(steps):
            h, c = self.cell(x, ops.embedding(h, neighbour) * is_inside, ops.embedding(c, neighbour) * is_inside)
        return h


def _logistic(x: Tensor) -> Tensor:
    """Compute σ(x) = 1 / (1 + e^−x) by tanh, which never overflows."""
    return ops.tanh(x * 0.5) * 0.5 + 0.5


class Convolutional(Layer):
    """A convolution over k positions, y_t = Σ_j x_{t − j·dilation} W_j for j < k; x is 0 before the sentence's start.

    In a stack, layer l has the dilation ``growth``^l.  ``growth`` 1 gives contiguous kernels; ``growth`` k gives
    dilated kernels whose receptive fields cover every position once.
    Source: van den Oord et al. 2016 (WaveNet), section 2.1; Kalchbrenner et al. 2017, whose dilated kernels have the
    path length log_k(n) of Table 1.
    Shapes: W (k·d, d).
    """

    def __init__(self, d: int, k: int, *, growth: int = 1) -> None:
        self.k, self.growth = k, growth
        self.weight = Parameter((k * d, d), glorot_uniform)

    def forward(self, x: Array) -> Tensor:
        return self._convolve(Tensor(x.reshape(-1, x.shape[2])), Segments.of_lengths(np.full(len(x), x.shape[1])), 1)

    def after(self, steps: int, x: Tensor) -> Tensor:
        for layer in range(steps):
            x = self._convolve(x, Segments.of_lengths([len(x)]), self.growth**layer)
        return x

    def _convolve(self, x: Tensor, sentences: Segments, dilation: int) -> Tensor:
        back = np.arange(self.k) * dilation
        is_inside = sentences.position_in_segment[:, None] >= back
        wanted = np.where(is_inside, sentences.tokens[:, None] - back, 0)
        rows = ops.embedding(x, wanted.reshape(-1)) * is_inside.reshape(-1, 1)
        return ops.linear(ops.reshape(rows, shape=(len(x), -1)), self.weight, None)
