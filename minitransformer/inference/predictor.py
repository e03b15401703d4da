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
from autograd.array import Array, IntArray, namespace_of_device
from autograd.graphs import GraphStream, ShapedGraphs
from autograd.ops.softmax import log_softmax_values
from autograd.ops.top_k import top, without
from autograd.precision import upcast
from minitransformer.inference.cache import LayerCache, Memory, axis_length
from minitransformer.model.batch import Ids, pack_sequences
from minitransformer.model.layers import KeysValues
from minitransformer.model.masks import cached_mask, self_attention_mask
from minitransformer.model.positions import SamePosition
from minitransformer.model.symbols import END
from minitransformer.model.transformer import Transformer

FIRST_CAPACITY = {"cpu": 16, "cuda": 64}  # steps for which memory is reserved first; a GPU reads only used ones


class ModelState:
    """One model's keys and values in a search, of the sources in ``n_slots`` slots and of the tokens generated so far.

    The state has only a weak reference to the model: a search that is kept for later sentences must not keep the model.

    Args:
        longest: the greatest number of tokens of a source.
        stream: a stream that can be captured; with a single slot, the encoder is a CUDA graph for a padded source.
    """

    def __init__(self, model: Transformer, n_slots: int, longest: int, beam: int, stream: GraphStream | None) -> None:
        self._model, self.beam = ref(model), beam
        self.memory = Memory(n_slots, axis_length(longest, n_slots, model.device), model.device)
        self.caches = [LayerCache(n_slots, beam, FIRST_CAPACITY[model.device]) for _ in model.decoder.layers]
        self._encoded: tuple[list[KeysValues], IntArray] | None = None
        self._graphs: ShapedGraphs | None = None
        if (
            stream is not None
            and n_slots == 1
            and type(model) is Transformer  # layers of other classes may read the padding
            and model.config.neighbourhood is None
            and model.config.positions != "learned"  # a table without rows for the padding
        ):
            self._graphs = ShapedGraphs(stream, "the encoder")
            self._ids = namespace_of_device(model.device).empty(self.memory.longest, np.int64)

    @property
    def model(self) -> Transformer:
        """The model, which the caller of the search owns."""
        model = self._model()
        assert model is not None
        return model

    def is_of(self, model: Transformer) -> bool:
        """Return whether this is the state of the object ``model``."""
        return self._model() is model

    def encode(self, sources: Sequence[Ids]) -> None:
        """Compute the keys and values of sources, which ``load`` stores in slots."""
        model = self.model
        ids, source = pack_sequences(sources, end=model.config.source_end)
        if self._graphs is not None:
            padded = np.pad(ids, (0, self.memory.longest - len(ids)), constant_values=END)
            for array, new in (self._ids, padded), (self.memory.lengths, source.lengths):
                array[...] = to_device(new, model.device)
            if not self._graphs.launch(self._ids.shape, self._encode_padded):
                self._encode_padded()
            return
        mask = self_attention_mask(source, model.config.neighbourhood)
        encoded = model.encode(ids, source.position_in_segment, mask)
        self._encoded = model.decoder.memory(encoded), source.lengths

    def _encode_padded(self) -> None:
        """Compute keys and values of the padded source in the only slot; a CUDA graph can capture this."""
        segments, positions = Segments.of_lengths([len(self._ids)]), namespace(self._ids).arange(len(self._ids))
        encoded = self.model.encode(self._ids, positions, CachedKeys(self.memory.lengths, segments, segments))
        self.memory.overwrite(slice(None), self.model.decoder.memory(encoded))

    def load(self, slots: IntArray) -> None:
        """Store the next encoded sources in these slots."""
        if self._encoded is None:
            return
        keys_values, lengths = self._encoded
        now, later = lengths[: len(slots)], lengths[len(slots) :]
        n = int(now.sum())
        self.memory.store(slots, [(Tensor(k.value[:n]), Tensor(v.value[:n])) for k, v in keys_values], now)
        left = [(Tensor(k.value[n:]), Tensor(v.value[n:])) for k, v in keys_values]
        self._encoded = (left, later) if len(later) else None

    def decode(self, newest: Array, cache_index: Array, n_steps: int | Array) -> Tensor:
        """Compute the decoder's output (S·k, D) at the newest token (S·k,) of every hypothesis; see ``Predictor``."""
        capacity = self.caches[0].capacity
        for cache in self.caches:
            cache.n_steps = n_steps
        return self.model.decode(
            newest,
            SamePosition(n_steps - 1, len(newest), farthest=cache_index.shape[2] - 1),
            self.memory.keys_values,
            cached_mask(cache_index, n_steps, self.beam, capacity, self.model.config.neighbourhood),
            self.memory.mask(cache_index.shape[1]),
            caches=list(self.caches),
        )

    def select(self, sentences: Array) -> None:
        """Keep the states of these sentences only, in this order; their indices are on the model's device."""
        self.memory.select(sentences)
        for cache in self.caches:
            cache.select(sentences)


class Predictor:
    """The models of a search with their states; they have the same vocabularies and the same device.

    Several models are an ensemble: p(token) is the mean of the models' probabilities.  So p is a distribution, like the
    p of one model.
    Source: fairseq (``EnsembleModel``) and Sockeye (``ensemble-mode`` "linear") average in this way by default.
    Differs: Marian adds the models' log-probabilities, each multiplied by a weight; the sum is no distribution.

    Args:
        longest, stream: see ``ModelState``; the end symbol of a source counts, too.
    """

    def __init__(
        self, models: Sequence[Transformer], n_slots: int, longest: int, beam: int, stream: GraphStream | None = None
    ) -> None:
        sizes = {(model.config.n_source_words, model.config.vocabulary_size) for model in models}
        if len(sizes) > 1:
            raise ValueError(f"an ensemble needs models of the same tokenizer; got vocabularies of {sorted(sizes)}")
        self.states = [ModelState(model, n_slots, longest, beam, stream) for model in models]
        self.device = models[0].device

    def fits(self, models: Sequence[Transformer], longest: int) -> bool:
        """Return whether these are the models, and slots for sources of ``longest`` tokens have the same length."""
        are_same = len(models) == len(self.states) and all(map(ModelState.is_of, self.states, models))
        memory = self.states[0].memory
        return are_same and axis_length(longest, memory.n_slots, self.device) == memory.longest

    def encode(self, sources: Sequence[Ids]) -> None:
        """Compute the keys and values of sources, of which ``load`` stores the first ones in slots, then the next."""
        for state in self.states:
            state.encode(sources)

    def load(self, slots: IntArray) -> None:
        """Store as many encoded sources as ``slots`` in these slots, in place of others."""
        for state in self.states:
            state.load(slots)

    def reserve(self, n_steps: int) -> int:
        """Reserve memory for the keys and values of ``n_steps`` steps; return the number of steps reserved."""
        return max(cache.reserve(n_steps) for state in self.states for cache in state.caches)

    def decode(self, newest: Array, cache_index: Array, n_steps: int | Array) -> list[Tensor]:
        """Compute each model's output (S·k, D) at the newest token (S·k,) of every hypothesis.

        Args:
            cache_index, n_steps: see ``cached_mask``; ``reserve`` was called for the number of steps.
        """
        return [state.decode(newest, cache_index, n_steps) for state in self.states]

    def top_k(self, decoded: Sequence[Tensor], *, n: int, forbidden: Array, rule: Array | None) -> tuple[Array, Array]:
        """Return log p (nats) and ids of the n best next tokens that are not forbidden, best first, on the device.

        Shapes: decoded (T, D) for each model; for the rest see ``Transformer.top_k``.
        """
        if len(self.states) == 1:
            return self.states[0].model.top_k(decoded[0], n=n, forbidden=forbidden, rule=rule)
        values, ids = top(without(self.log_probabilities(decoded), forbidden, rule), n=n)
        return values.astype(np.float64), ids

    def log_probabilities(self, decoded: Sequence[Tensor]) -> Array:
        """Compute log p (nats) of every token of the vocabulary, on the device.  Shapes: returns (T, W)."""
        model_log_p = [
            log_softmax_values(upcast(state.model.project(each).value))
            for state, each in zip(self.states, decoded, strict=True)
        ]
        return mean_probability(model_log_p)

    def select(self, sentences: IntArray) -> Array:
        """Keep only these sentences in all states, in this order; return their indices on the device."""
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
