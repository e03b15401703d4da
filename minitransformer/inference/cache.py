"""Key/value caches of a search: for the sources, and for the tokens generated so far."""

from __future__ import annotations

import numpy as np

from autograd import KeyRanges, Segments, Tensor, namespace
from autograd.array import Array, IntArray
from autograd.masks import pad
from minitransformer.model.layers import KeysValues

_FIRST_CAPACITY = 16


class LayerCache:
    """One decoder layer's self-attention keys and values, for S sentences of at most k hypotheses each.

    Entries do not move when hypotheses branch or end: the mask of ``cached_mask`` selects the keys of each hypothesis.
    Shapes: two arrays (S, capacity, k, H, K or V), of which the first ``length`` steps are filled.
    """

    def __init__(self, n_sentences: int, n_hypotheses: int) -> None:
        self.n_sentences, self.n_hypotheses = n_sentences, n_hypotheses
        self.length = self.capacity = 0
        self._arrays: list[Array] = []

    @property
    def next_capacity(self) -> int:
        """The capacity after one more step is appended."""
        return self.capacity if self.length < self.capacity else max(_FIRST_CAPACITY, 2 * self.capacity)

    def extend(self, keys_values: KeysValues) -> KeysValues:
        """Append the newest tokens' keys and values, (S·k, H, ·) each; return all, flattened, unused entries included.

        A step may have fewer hypotheses than k, as the first one has.
        """
        newest = [tensor.value.reshape(self.n_sentences, -1, *tensor.shape[1:]) for tensor in keys_values]
        if self.length == self.capacity:
            self._grow(newest)
        for array, x in zip(self._arrays, newest, strict=True):
            array[:, self.length, : x.shape[1]] = x
        self.length += 1
        keys, values = (Tensor(array.reshape(-1, *array.shape[3:])) for array in self._arrays)
        return keys, values

    def _grow(self, newest: list[Array]) -> None:
        self.capacity = self.next_capacity
        grown = []
        for i, x in enumerate(newest):
            array = namespace(x).zeros((len(x), self.capacity, self.n_hypotheses, *x.shape[2:]), x.dtype)
            if self._arrays:
                array[:, : self.length] = self._arrays[i]
            grown.append(array)
        self._arrays = grown

    def select(self, sentences: Array) -> None:
        """Select these sentences, in this order."""
        self._arrays = [array[sentences] for array in self._arrays]
        self.n_sentences = len(sentences)


class Memory:
    """Every decoder layer's keys and values of S sources, padded once.

    Shapes: ``keys_values`` (S·longest, H, K or V) for each layer, zeros after the end of each source.
    """

    def __init__(self, keys_values: list[KeysValues], source: Segments) -> None:
        self._lengths, self._longest = source.lengths, source.longest
        self._arrays = [[pad(tensor.value, source) for tensor in layer] for layer in keys_values]
        self._masks: dict[int, KeyRanges] = {}

    @property
    def keys_values(self) -> list[KeysValues]:
        """The keys and values of each decoder layer, flattened to one axis of positions."""
        packed = [[Tensor(x.reshape(-1, *x.shape[2:])) for x in layer] for layer in self._arrays]
        return [(keys, values) for keys, values in packed]

    def mask(self, n_queries: int) -> KeyRanges:
        """Return ``encoder_decoder_mask`` for ``n_queries`` queries of each sentence; computed once, then cached."""
        if n_queries not in self._masks:
            positions = Segments.of_lengths(np.full(len(self._lengths), self._longest))
            queries = Segments.of_lengths(np.full(len(self._lengths), n_queries))
            first = np.repeat(positions.starts, n_queries)
            self._masks[n_queries] = KeyRanges(first, first + np.repeat(self._lengths, n_queries), queries, positions)
        return self._masks[n_queries]

    def select(self, sentences: IntArray, on_device: Array) -> None:
        """Select these sentences, in this order; their indices are given on the host, and on the model's device."""
        self._arrays = [[x[on_device] for x in layer] for layer in self._arrays]
        self._lengths, self._masks = self._lengths[sentences], {}
