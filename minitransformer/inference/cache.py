"""Keys and values of what has been generated: each step computes the newest token's only."""

from __future__ import annotations

from autograd import Tensor, namespace
from autograd.array import Array
from minitransformer.model.layers import KeysValues

_FIRST_CAPACITY = 16


class LayerCache:
    """One decoder layer's self-attention keys and values, for N sequences of one length.

    Shapes: two arrays (N, capacity, H, K or V), of which the first ``length`` steps are filled.
    """

    def __init__(self) -> None:
        self.length = self.capacity = 0
        self._arrays: list[Array] = []

    @property
    def n_sequences(self) -> int:
        """How many sequences the cache follows."""
        return len(self._arrays[0])

    @property
    def next_capacity(self) -> int:
        """The capacity once one more step has been appended."""
        return self.capacity if self.length < self.capacity else max(_FIRST_CAPACITY, 2 * self.capacity)

    def extend(self, keys_values: KeysValues) -> KeysValues:
        """Append the newest token's keys and values, (N, H, ·) each; return the whole arrays, packed, with their room.

        ``cached_spans`` says which keys of them are filled.
        """
        newest = [tensor.value for tensor in keys_values]
        if self.length == self.capacity:
            self._grow(newest)
        for array, x in zip(self._arrays, newest, strict=True):
            array[:, self.length] = x
        self.length += 1
        keys, values = (Tensor(array.reshape(len(array) * self.capacity, *array.shape[2:])) for array in self._arrays)
        return keys, values

    def _grow(self, newest: list[Array]) -> None:
        self.capacity = self.next_capacity
        grown = []
        for i, x in enumerate(newest):
            array = namespace(x).zeros((len(x), self.capacity, *x.shape[1:]), x.dtype)
            if self._arrays:
                array[:, : self.length] = self._arrays[i][:, : self.length]
            grown.append(array)
        self._arrays = grown

    def select(self, rows: Array) -> None:
        """Continue with these sequences, in this order; a sequence may be taken more than once."""
        selected = []
        for array in self._arrays:
            chosen = namespace(array).zeros((len(rows), *array.shape[1:]), array.dtype)
            chosen[:, : self.length] = array[rows, : self.length]
            selected.append(chosen)
        self._arrays = selected
