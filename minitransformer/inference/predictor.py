"""The models of a search: one, or several whose probabilities are averaged.

A search decodes one token of every hypothesis, and asks for the log-probabilities of the next token.  The search is the
same for any number of models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from weakref import ref

import numpy as np

from autograd import CachedKeys, Segments, Tensor, namespace, to_device
from autograd.array import Array, IntArray
from autograd.ops.softmax import log_softmax_values
from minitransformer.inference.cache import LayerCache, Memory, axis_length, newest_step
from minitransformer.model.batch import Ids, pack_sequences
from minitransformer.model.layers import KeysValues
from minitransformer.model.masks import cached_mask, self_attention_mask
from minitransformer.model.positions import SamePosition
from minitransformer.model.symbols import END
from minitransformer.model.transformer import Transformer, top_k_of

FIRST_CAPACITY = {"cpu": 16, "cuda": 64}  # steps for which memory is reserved first; a GPU reads only used ones


class ModelState:
    """One model's keys and values in a search, of the sources and of the tokens generated so far.

    A single source on a GPU is padded to ``axis_length``, so that later sources have the same shapes (``take``).
    The state has only a weak reference to the model: a search that is kept for later sentences must not keep the model.
    """

    def __init__(self, model: Transformer, sources: Sequence[Ids], beam: int) -> None:
        self._model, self.beam = ref(model), beam
        source_ids, source = pack_sequences(sources, end=model.config.source_end)
        self.is_padded = (
            model.device == "cuda"
            and len(sources) == 1
            and type(model) is Transformer  # layers of other classes may read the padding
            and model.config.neighbourhood is None
            and model.config.positions != "learned"  # a table without rows for the padding
        )
        if self.is_padded:
            self._lengths = to_device(source.lengths, model.device)
            self._ids = to_device(_pad(source_ids), model.device)
            self.memory = Memory(self._encode(), Segments.of_lengths([len(self._ids)]), self._lengths)
        else:
            mask = self_attention_mask(source, model.config.neighbourhood)
            encoded = model.encode(source_ids, source.position_in_segment, mask)
            self.memory = Memory(model.decoder.memory(encoded), source, source.lengths)
        first = FIRST_CAPACITY[model.device]
        self.caches = [LayerCache(len(sources), beam, first) for _ in model.decoder.layers]

    @property
    def model(self) -> Transformer:
        """The model, which the caller of the search owns."""
        model = self._model()
        assert model is not None
        return model

    def is_of(self, model: Transformer) -> bool:
        """Return whether this is the state of the object ``model``."""
        return self._model() is model

    def take(self, source: Ids) -> bool:
        """Replace the padded source; return False if this state is not padded, or padded lengths differ.

        Call ``encode`` next.
        """
        ids, segments = pack_sequences([source], end=self.model.config.source_end)
        padded = _pad(ids)
        if not self.is_padded or len(padded) != len(self._ids):
            return False
        for array, new in (self._ids, padded), (self._lengths, segments.lengths):
            array[...] = to_device(new, self.model.device)
        return True

    def encode(self) -> None:
        """Compute keys and values of the padded source again, in place; a CUDA graph can capture this."""
        self.memory.overwrite(self._encode())

    def _encode(self) -> list[KeysValues]:
        segments, positions = Segments.of_lengths([len(self._ids)]), namespace(self._ids).arange(len(self._ids))
        encoded = self.model.encode(self._ids, positions, CachedKeys(self._lengths, segments, segments))
        return self.model.decoder.memory(encoded)

    def decode(self, newest: Array, cache_index: Array, n_steps: int | Array) -> Tensor:
        """Compute the decoder's output (S·k, D) at the newest token (S·k,) of every hypothesis; see ``Predictor``."""
        newest_index, capacity = newest_step(n_steps), self.caches[0].capacity
        for cache in self.caches:
            cache.newest = newest_index
        return self.model.decode(
            newest,
            SamePosition(n_steps - 1, len(newest), farthest=cache_index.shape[2] - 1),
            self.memory.keys_values,
            cached_mask(cache_index, n_steps, self.beam, capacity, self.model.config.neighbourhood),
            self.memory.mask(cache_index.shape[1]),
            caches=list(self.caches),
        )

    def select(self, sentences: Array) -> None:
        """Select these sentences, in this order; their indices are on the model's device."""
        self.memory.select(sentences)
        for cache in self.caches:
            cache.select(sentences)


def _pad(ids: IntArray) -> IntArray:
    """Return the ids of one source, padded with END to ``axis_length``."""
    n = len(ids)
    return np.pad(ids, (0, axis_length(n, 1, "cuda") - n), constant_values=END)


class Predictor:
    """The models of a search with their states; they have the same vocabularies and the same device.

    Several models are an ensemble: p(token) is the mean of the models' probabilities.  So p is a distribution, like the
    p of one model.
    Source: fairseq (``EnsembleModel``) and Sockeye (``ensemble-mode`` "linear") average in this way by default.
    Differs: Marian adds the models' log-probabilities, each multiplied by a weight; the sum is no distribution.
    """

    def __init__(self, models: Sequence[Transformer], sources: Sequence[Ids], beam: int) -> None:
        sizes = {(model.config.n_source_words, model.config.vocabulary_size) for model in models}
        if len(sizes) > 1:
            raise ValueError(f"an ensemble needs models of the same tokenizer; got vocabularies of {sorted(sizes)}")
        self.states = [ModelState(model, sources, beam) for model in models]
        self.device = models[0].device

    @property
    def is_padded(self) -> bool:
        """True if there is a single padded source, which ``take`` can replace."""
        return all(state.is_padded for state in self.states)

    def take(self, models: Sequence[Transformer], source: Ids) -> bool:
        """Replace the padded source; return False for other models, another padded length, or without padding.

        Call ``encode`` next.
        """
        are_same = len(models) == len(self.states) and all(map(ModelState.is_of, self.states, models))
        return are_same and all(state.take(source) for state in self.states)

    def encode(self) -> None:
        """Compute the keys and values of the single source again; a CUDA graph can capture this."""
        for state in self.states:
            state.encode()

    def reserve(self, n_steps: int) -> int:
        """Reserve memory for the keys and values of ``n_steps`` steps; return the number of steps reserved."""
        return max(cache.reserve(n_steps) for state in self.states for cache in state.caches)

    def decode(self, newest: Array, cache_index: Array, n_steps: int | Array) -> list[Tensor]:
        """Compute each model's output (S·k, D) at the newest token (S·k,) of every hypothesis.

        Args:
            cache_index, n_steps: see ``cached_mask``; ``reserve`` was called for the number of steps.
        """
        return [state.decode(newest, cache_index, n_steps) for state in self.states]

    def top_k(self, decoded: Sequence[Tensor], *, n: int, forbidden: Array) -> tuple[Array, Array]:
        """Return log p (nats) and ids of the n best next tokens that are not forbidden, best first, on the device.

        Shapes: decoded (T, D) for each model; forbidden (T, W) or (1, W); returns two (T, n), float64 and int64.
        """
        if len(self.states) == 1:
            return self.states[0].model.top_k(decoded[0], n=n, forbidden=forbidden)
        return top_k_of(self.log_probabilities(decoded), n=n, forbidden=forbidden)

    def log_probabilities(self, decoded: Sequence[Tensor]) -> Array:
        """Compute log p (nats) of every token of the vocabulary, on the device.  Shapes: returns (T, W)."""
        model_log_p = [
            log_softmax_values(state.model.project(each).value)
            for state, each in zip(self.states, decoded, strict=True)
        ]
        return mean_probability(model_log_p)

    def select(self, sentences: IntArray) -> Array:
        """Select these sentences in all states, and return their indices on the device."""
        on_device = to_device(sentences, self.device)
        for state in self.states:
            state.select(on_device)
        return on_device


def mean_probability(log_p: Sequence[Array]) -> Array:
    """Return log((p_1 + … + p_N) / N) for arrays of log p, without overflow; for one array the array itself."""
    if len(log_p) == 1:
        return log_p[0]
    xp = namespace(log_p[0])
    return reduce(xp.logaddexp, log_p) - math.log(len(log_p))
