"""The models of a search: one, or several whose probabilities are averaged.

A search decodes one token of every hypothesis, and asks for the log-probabilities of the next one.  It does not know
how many models answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from autograd import Tensor, namespace, to_device
from autograd.array import Array, IntArray, device_of
from autograd.ops.softmax import log_softmax_values
from autograd.ops.top_k import top
from minitransformer.inference.cache import LayerCache, Memory
from minitransformer.model.batch import Ids, pack_sequences
from minitransformer.model.masks import cached_mask, cached_mask_on_device, self_attention_mask
from minitransformer.model.positions import SamePosition
from minitransformer.model.transformer import Transformer


class ModelState:
    """One model's keys and values in a search: those of the sources, and those of the tokens generated so far."""

    def __init__(self, model: Transformer, sources: Sequence[Ids], beam: int) -> None:
        self.model, self.beam = model, beam
        source_ids, source = pack_sequences(sources, end=model.config.source_end)
        mask = self_attention_mask(source, model.config.neighbourhood)
        encoded = model.encode(source_ids, source.position_in_segment, mask)
        self.memory = Memory(model.decoder.memory(encoded), source)
        self.caches = [LayerCache(len(sources), beam) for _ in model.decoder.layers]

    def decode(self, newest: Array, cache_index: Array) -> Tensor:
        """Compute the decoder's output (S·k, D) at the newest token (S·k,) of every hypothesis.

        Args:
            cache_index: see ``cached_mask``; on the host, or on the model's device.
        """
        make_mask = cached_mask if device_of(cache_index) == "cpu" else cached_mask_on_device
        mask = make_mask(cache_index, self.beam, self.caches[0].next_capacity, self.model.config.neighbourhood)
        return self.model.decode(
            newest,
            SamePosition(cache_index.shape[2] - 1, len(newest)),
            self.memory.keys_values,
            mask,
            self.memory.mask(cache_index.shape[1]),
            caches=list(self.caches),
        )

    def select(self, sentences: IntArray, on_device: Array) -> None:
        """Select these sentences, in this order; their indices are given on the host, and on the model's device."""
        self.memory.select(sentences, on_device)
        for cache in self.caches:
            cache.select(on_device)


class Predictor:
    """The models of a search with their states; they have the same target vocabulary and the same device.

    Several models are an ensemble: p(token) is the mean of the models' probabilities.  So log p is that of one
    distribution, like the log p of one model.
    Source: fairseq's ``EnsembleModel`` and Sockeye's ``ensemble-mode`` "linear", their defaults, average in this way.
    Differs: Marian adds the models' log-probabilities, each multiplied by a weight; that is no distribution.
    """

    def __init__(self, models: Sequence[Transformer], sources: Sequence[Ids], beam: int) -> None:
        self.states = [ModelState(model, sources, beam) for model in models]
        self.device = models[0].device

    def decode(self, newest: Array, cache_index: Array) -> list[Tensor]:
        """Compute each model's output (S·k, D) at the newest token (S·k,) of every hypothesis."""
        return [state.decode(newest, cache_index) for state in self.states]

    def top_k(self, decoded: Sequence[Tensor], *, n: int, forbidden: Array) -> tuple[Array, Array]:
        """Return log p (nats) and ids of the n best next tokens that are not forbidden, best first, on the device.

        Shapes: decoded, (T, D) of each model; forbidden (T, W) or (1, W); returns two (T, n), float64 and int64.
        """
        if len(self.states) == 1:
            return self.states[0].model.top_k(decoded[0], n=n, forbidden=forbidden)
        log_p = self.log_probabilities(decoded)
        namespace(log_p).copyto(log_p, -np.inf, where=to_device(forbidden, self.device))
        found: tuple[Array, Array] = top(log_p, n=n)
        return found[0].astype(np.float64), found[1]

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
            state.select(sentences, on_device)
        return on_device


def mean_probability(log_p: Sequence[Array]) -> Array:
    """Return log((p_1 + … + p_N) / N) for arrays of log p, without overflow; for one array the array itself."""
    if len(log_p) == 1:
        return log_p[0]
    xp = namespace(log_p[0])
    return reduce(xp.logaddexp, log_p) - math.log(len(log_p))
