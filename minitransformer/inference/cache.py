"""Key/value caches of a search: for the sources, and for the tokens generated so far."""

from __future__ import annotations

import numpy as np

from autograd import AttentionMask, CachedKeys, KeyRanges, Segments, Tensor, namespace, to_device
from autograd.array import Array, Device, IntArray, device_of, namespace_of_device
from autograd.ops.beam import append_to_cache
from minitransformer.model.layers import KeysValues

FEW_SLOTS = 16
"""The most sentences that are searched together by a search that is kept on a GPU for later sentences."""


def axis_length(n_tokens: int, n_slots: int, device: Device) -> int:
    """Return the length of an axis for ``n_tokens`` tokens of each of ``n_slots`` sentences.

    For few sentences on a GPU, the length is a multiple of 128.  So most sentences have the same shapes and graphs.
    """
    return n_tokens if device == "cpu" or n_slots > FEW_SLOTS else -(-n_tokens // 128) * 128


class LayerCache:
    """One decoder layer's self-attention keys and values, for S sentences of at most k hypotheses each.

    Entries do not move when hypotheses branch or end: the mask of ``cached_mask`` selects the keys of each hypothesis.
    Shapes: two arrays (S, capacity, k, H, K or V).
    """

    def __init__(self, n_slots: int, n_hypotheses: int, first_capacity: int = 16) -> None:
        self.n_slots, self.n_hypotheses, self.first_capacity = n_slots, n_hypotheses, first_capacity
        self.capacity = 0
        self.n_steps: int | Array = 0
        """The number of the step whose keys and values are appended next: of all sentences, or (S,) on a GPU."""
        self._arrays: list[Array] = []

    def reserve(self, n_steps: int) -> int:
        """Raise the capacity to ``n_steps`` or more, and at least double it if it grows; return the capacity."""
        if n_steps > self.capacity:
            self.capacity = max(n_steps, self.first_capacity, 2 * self.capacity)
            self._arrays = [self._with_capacity(array) for array in self._arrays]
        return self.capacity

    def extend(self, keys_values: KeysValues) -> KeysValues:
        """Append keys and values (S·k, H, ·) of the newest tokens; return all entries, also unused ones, flattened.

        A step may have fewer than k hypotheses; the first step has one.
        """
        newest = [tensor.value for tensor in keys_values]
        if not self._arrays:
            self._arrays = [self._with_capacity(x.reshape(self.n_slots, -1, 1, *x.shape[1:])[:, :0]) for x in newest]
        append_to_cache(*self._arrays, *newest, self.n_steps)
        keys, values = (Tensor(array.reshape(-1, *array.shape[3:])) for array in self._arrays)
        return keys, values

    def _with_capacity(self, x: Array) -> Array:
        """Return a copy of keys or values (S, steps, …) with unused entries at the end."""
        array = namespace(x).zeros((len(x), self.capacity, self.n_hypotheses, *x.shape[3:]), x.dtype)
        if x.size:
            array[:, : x.shape[1]] = x
        return array

    def select(self, sentences: Array) -> None:
        """Keep the keys and values of these sentences only, in this order."""
        self._arrays = [array[sentences] for array in self._arrays]
        self.n_slots = len(sentences)


class Memory:
    """Every decoder layer's keys and values of one source in each of S slots.

    Shapes: arrays (S·longest, H, K or V) for each layer; ``lengths`` (S,) of the sources: later positions are not read.
    """

    def __init__(self, n_slots: int, longest: int, device: Device) -> None:
        self.n_slots, self.longest = n_slots, longest
        self.lengths = namespace_of_device(device).ones(n_slots, np.int64)  # a query must attend to a key
        self._arrays: list[list[Array]] = []
        self._masks: dict[int, AttentionMask] = {}

    def store(self, slots: IntArray, keys_values: list[KeysValues], lengths: IntArray) -> None:
        """Store the keys and values of packed sources of these lengths, each in its slot."""
        source = Segments.of_lengths(lengths)
        rows = slots[source.segment_of_token] * self.longest + source.position_in_segment
        self.overwrite(to_device(rows, device_of(self.lengths)), keys_values)
        self.lengths[to_device(slots, device_of(self.lengths))] = to_device(lengths, device_of(self.lengths))
        self._masks = {}

    def overwrite(self, rows: Array | slice, keys_values: list[KeysValues]) -> None:
        """Store keys and values in these rows."""
        if not self._arrays:
            n_rows = self.n_slots * self.longest
            self._arrays = [
                [namespace(x.value).zeros((n_rows, *x.shape[1:]), x.dtype) for x in kv] for kv in keys_values
            ]
        for arrays, layer in zip(self._arrays, keys_values, strict=True):
            for array, new in zip(arrays, layer, strict=True):
                array[rows] = new.value

    @property
    def keys_values(self) -> list[KeysValues]:
        """The keys and values of each decoder layer, on one axis of slots and positions."""
        return [(Tensor(keys), Tensor(values)) for keys, values in self._arrays]

    def mask(self, n_queries: int) -> AttentionMask:
        """Return ``encoder_decoder_mask`` for ``n_queries`` queries of each sentence; computed once, then cached."""
        if n_queries not in self._masks:
            keys, queries = (Segments.of_lengths(np.full(self.n_slots, n)) for n in (self.longest, n_queries))
            if device_of(self.lengths) == "cuda":
                self._masks[n_queries] = CachedKeys(self.lengths, queries, keys)
            else:
                first = np.repeat(keys.starts, n_queries)
                self._masks[n_queries] = KeyRanges(first, first + np.repeat(self.lengths, n_queries), queries, keys)
        return self._masks[n_queries]

    def select(self, sentences: Array) -> None:
        """Keep these slots only, in this order; their indices are on the model's device."""
        for layer in self._arrays:
            layer[:] = [x.reshape(self.n_slots, -1, *x.shape[1:])[sentences].reshape(-1, *x.shape[1:]) for x in layer]
        self.n_slots, self.lengths, self._masks = len(sentences), self.lengths[sentences], {}
