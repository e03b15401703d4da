"""Key/value caches of a search: for the sources, and for the tokens generated so far."""

from __future__ import annotations

import numpy as np

from autograd import AttentionMask, CachedKeys, KeyRanges, Segments, Tensor, namespace, to_device
from autograd.array import Array, Device, device_of
from autograd.masks import pad
from minitransformer.model.layers import KeysValues


def newest_step(n_steps: int | Array) -> slice | Array:
    """Return the index of the newest step: a slice, or an array (1,) on a GPU, so that indexing keeps the axis."""
    return slice(n_steps - 1, n_steps) if isinstance(n_steps, int) else n_steps - 1


def axis_length(n_tokens: int, n_sentences: int, device: Device) -> int:
    """Return the length of an axis for ``n_tokens`` tokens of each sentence.

    For one sentence on a GPU, the length is a multiple of 128.  So most sentences have the same shapes and CUDA graphs.
    """
    return n_tokens if device == "cpu" or n_sentences > 1 else -(-n_tokens // 128) * 128


class LayerCache:
    """One decoder layer's self-attention keys and values, for S sentences of at most k hypotheses each.

    Entries do not move when hypotheses branch or end: the mask of ``cached_mask`` selects the keys of each hypothesis.
    Shapes: two arrays (S, capacity, k, H, K or V).
    """

    def __init__(self, n_sentences: int, n_hypotheses: int, first_capacity: int = 16) -> None:
        self.n_sentences, self.n_hypotheses, self.first_capacity = n_sentences, n_hypotheses, first_capacity
        self.capacity = 0
        self.newest: slice | Array = slice(0, 0)
        """The index of the step that is appended next; see ``newest_step``."""
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
        newest = [tensor.value.reshape(self.n_sentences, 1, -1, *tensor.shape[1:]) for tensor in keys_values]
        if not self._arrays:
            self._arrays = [self._with_capacity(x[:, :0]) for x in newest]
        for array, x in zip(self._arrays, newest, strict=True):
            array[:, self.newest, : x.shape[2]] = x
        keys, values = (Tensor(array.reshape(-1, *array.shape[3:])) for array in self._arrays)
        return keys, values

    def _with_capacity(self, x: Array) -> Array:
        """Return a copy of keys or values (S, steps, …) with unused entries at the end."""
        array = namespace(x).zeros((len(x), self.capacity, self.n_hypotheses, *x.shape[3:]), x.dtype)
        if x.size:
            array[:, : x.shape[1]] = x
        return array

    def select(self, sentences: Array) -> None:
        """Select these sentences, in this order."""
        self._arrays = [array[sentences] for array in self._arrays]
        self.n_sentences = len(sentences)


class Memory:
    """Every decoder layer's keys and values of S sources, padded once.

    Shapes: ``keys_values`` (S·longest, H, K or V) for each layer; ``lengths`` (S,) of the sources: later positions are
    not read.
    """

    def __init__(self, keys_values: list[KeysValues], source: Segments, lengths: Array) -> None:
        self._arrays = [[pad(tensor.value, source) for tensor in layer] for layer in keys_values]
        self._lengths = to_device(lengths, device_of(self._arrays[0][0]))
        self._masks: dict[int, AttentionMask] = {}

    def overwrite(self, keys_values: list[KeysValues]) -> None:
        """Overwrite the keys and values in place with new ones, padded to the same length."""
        for arrays, layer in zip(self._arrays, keys_values, strict=True):
            for array, new in zip(arrays, layer, strict=True):
                array[...] = new.value.reshape(array.shape)

    @property
    def keys_values(self) -> list[KeysValues]:
        """The keys and values of each decoder layer, flattened to one axis of positions."""
        packed = [[Tensor(x.reshape(-1, *x.shape[2:])) for x in layer] for layer in self._arrays]
        return [(keys, values) for keys, values in packed]

    def mask(self, n_queries: int) -> AttentionMask:
        """Return ``encoder_decoder_mask`` for ``n_queries`` queries of each sentence; computed once, then cached."""
        if n_queries not in self._masks:
            n_sentences, longest = self._arrays[0][0].shape[:2]
            keys, queries = (Segments.of_lengths(np.full(n_sentences, n)) for n in (longest, n_queries))
            if device_of(self._lengths) == "cuda":
                self._masks[n_queries] = CachedKeys(self._lengths, queries, keys)
            else:
                first = np.repeat(keys.starts, n_queries)
                self._masks[n_queries] = KeyRanges(first, first + np.repeat(self._lengths, n_queries), queries, keys)
        return self._masks[n_queries]

    def select(self, sentences: Array) -> None:
        """Select these sentences, in this order; their indices are on the model's device."""
        self._arrays = [[x[sentences] for x in layer] for layer in self._arrays]
        self._lengths, self._masks = self._lengths[sentences], {}
