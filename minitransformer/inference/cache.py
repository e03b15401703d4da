"""Keys and values that a search need not compute again: those of the sources, and of what has been generated."""

from __future__ import annotations

import numpy as np

from autograd import Blocks, KeySpans, Tensor, namespace, to_host
from autograd.array import Array
from autograd.spans import place_side_by_side
from minitransformer.model.layers import KeysValues

_FIRST_CAPACITY = 16


class LayerCache:
    """One decoder layer's self-attention keys and values, for S sentences of k hypotheses each.

    What was written stays where it is when hypotheses branch and die: ``cached_sets`` says which keys belong to whose
    past.
    Shapes: two arrays (S, capacity, k, H, K or V), of which the first ``length`` steps are filled.
    """

    def __init__(self, n_sentences: int) -> None:
        self.n_sentences = n_sentences
        self.length = self.capacity = 0
        self._arrays: list[Array] = []

    @property
    def next_capacity(self) -> int:
        """The capacity once one more step has been appended."""
        return self.capacity if self.length < self.capacity else max(_FIRST_CAPACITY, 2 * self.capacity)

    def extend(self, keys_values: KeysValues) -> KeysValues:
        """Append the newest tokens' keys and values, (S·k, H, ·) each; return all arrays packed, with their room."""
        newest = [tensor.value.reshape(self.n_sentences, -1, *tensor.shape[1:]) for tensor in keys_values]
        if self.length == self.capacity:
            self._grow(newest)
        for array, x in zip(self._arrays, newest, strict=True):
            array[:, self.length] = x
        self.length += 1
        keys, values = (Tensor(array.reshape(-1, *array.shape[3:])) for array in self._arrays)
        return keys, values

    def _grow(self, newest: list[Array]) -> None:
        self.capacity = self.next_capacity
        grown = []
        for i, x in enumerate(newest):
            array = namespace(x).zeros((len(x), self.capacity, *x.shape[1:]), x.dtype)
            if self._arrays:
                array[:, : self.length] = self._arrays[i]
            grown.append(array)
        self._arrays = grown

    def keep(self, sentences: Array) -> None:
        """Go on with these sentences."""
        self._arrays = [array[sentences] for array in self._arrays]
        self.n_sentences = len(sentences)


class Memory:
    """Every decoder layer's keys and values of S sources, laid side by side once, for k hypotheses of each.

    Shapes: ``keys_values`` (S·longest, H, K or V) for each layer, zeros behind the end of each source.
    """

    def __init__(self, keys_values: list[KeysValues], source: Blocks, n_hypotheses: int) -> None:
        self._lengths, self._longest, self._n_hypotheses = source.lengths, source.longest, n_hypotheses
        self._arrays = [[place_side_by_side(tensor.value, source) for tensor in layer] for layer in keys_values]
        self._lay_out()

    def _lay_out(self) -> None:
        packed = [[Tensor(x.reshape(-1, *x.shape[2:])) for x in layer] for layer in self._arrays]
        self.keys_values: list[KeysValues] = [(keys, values) for keys, values in packed]
        places = Blocks.of_lengths(np.full(len(self._lengths), self._longest))
        queries = Blocks.of_lengths(np.full(len(self._lengths), self._n_hypotheses))
        first = np.repeat(places.starts, self._n_hypotheses)
        self.spans = KeySpans(first, first + np.repeat(self._lengths, self._n_hypotheses), queries, places)

    def keep(self, sentences: Array) -> None:
        """Go on with these sentences."""
        self._arrays = [[x[sentences] for x in layer] for layer in self._arrays]
        self._lengths = self._lengths[to_host(sentences)]
        self._lay_out()
