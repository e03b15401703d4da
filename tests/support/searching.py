"""Small random models, and the searches that are too slow or too plain for anything but comparison."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autograd import KeyRanges, Segments, Tensor, no_tape
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.inference.beam import Hypothesis, SearchConfig, _Search
from minitransformer.model.masks import causal_mask
from minitransformer.model.symbols import END, START

W = 6  # unknown, start, end and three words
WORDS = range(3, W)
TINY = ModelConfig(vocabulary_size=W, n_layers=2, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
SOURCES = st.lists(st.lists(st.integers(3, W - 1), min_size=1, max_size=4), min_size=1, max_size=4)
SEEDS = st.integers(0, 10_000)
VARIANTS: list[dict[str, Any]] = [
    {}, {"norm": "pre", "neighbourhood": 1}, {"positions": "learned"}, {"softmax_bias": True, "attention_bias": True},
    {"start": "zero"}, {"start": "end", "tied": "none"}, {"n_decoder_layers": 1, "activation": "swish"},
    {"n_layers": 1, "n_decoder_layers": 3, "activation": "gelu"},
]  # fmt: skip


def random_model(seed: int, **changes: Any) -> Transformer:
    """A model whose distributions are far from uniform."""
    model = Transformer(dataclasses.replace(TINY, **changes), seed=seed, dtype="float64")
    model.parameters.values *= 2.5
    return model


def log_p_of_tokens(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Any:
    """log p of every token of a target and of its end, by teacher forcing: the prefix given, all tokens at once."""
    batch = Batch.from_token_ids([source], [target])
    return model.log_probabilities(batch)[np.arange(len(batch.labels)), batch.labels]


def log_p(model: Transformer, source: Sequence[int], target: Sequence[int]) -> float:
    return float(log_p_of_tokens(model, source, target).sum())


def hypothesis_of(model: Transformer, source: Sequence[int], ids: Sequence[int], config: SearchConfig) -> Hypothesis:
    value = log_p(model, source, ids)
    return Hypothesis(value / config.length_penalty(len(ids) + 1), value, tuple(ids))


def exhaustive(model: Transformer, source: list[int], max_length: int, config: SearchConfig) -> list[Hypothesis]:
    """Every sentence of at most ``max_length`` tokens, its end counted, best first."""
    sentences = itertools.chain.from_iterable(itertools.product(WORDS, repeat=length) for length in range(max_length))
    hypotheses = [hypothesis_of(model, source, ids, config) for ids in sentences]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def plain_beam(model: Transformer, source: list[int], config: SearchConfig) -> list[Hypothesis]:
    """The same beam without cache, batch and stop rule: to the greatest length, whatever has been found.

    Each step scores all continuations of the live prefixes, and looks at the best 2k of them (greedy search at the
    best one): those that end are finished, the best k others live on.
    """
    max_length = len(source) + config.max_extra_tokens
    live, finished = [((), 0.0)], []
    for length in range(1, max_length + 1):
        allowed = [END] if length == max_length else [END, *WORDS]
        continuations = [
            ((*ids, word), value + float(next_log_p(model, source, ids)[word]))
            for ids, value in live
            for word in allowed
        ]
        continuations.sort(key=lambda continuation: -continuation[1])
        looked_at = continuations[: 2 * config.beam if config.beam > 1 else 1]
        finished += [
            Hypothesis(value / config.length_penalty(length), value, ids[:-1])
            for ids, value in looked_at
            if ids[-1] == END
        ]
        live = [(ids, value) for ids, value in looked_at if ids[-1] != END][: config.beam]
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[: config.n_best]


def next_log_p(model: Transformer, source: Sequence[int], prefix: Sequence[int]) -> Any:
    """log p of every word after a prefix.  Shapes: returns (W,)."""
    return model.log_probabilities(Batch.from_token_ids([source], [prefix]))[-1]


class SearchWithoutCache(_Search):
    """Decodes the whole prefix of every hypothesis again for every token."""

    def _decode(self, length: int) -> Any:
        (state,), k = self.predictor.states, self.log_p.shape[1]
        of_source = state.memory.mask(k)
        start = np.full((len(self.sentences) * k, 1), START)
        ids = np.concatenate([start, self.ids[:, :, : length - 1].reshape(len(start), -1)], axis=1)
        segments = Segments.of_lengths(np.full(len(start), length))
        queries = Segments.of_lengths(np.full(len(self.sentences), k * length))
        first, last = (np.repeat(ends[::k], k * length) for ends in (of_source.first, of_source.last))
        decoded = state.model.decode(
            ids.reshape(-1),
            segments.position_in_segment,
            state.memory.keys_values,
            causal_mask(segments, state.model.config.neighbourhood),
            KeyRanges(first, last, queries, of_source.keys),
        )
        return [Tensor(decoded.value[length - 1 :: length].copy())]

    def _remove(self, done: Any) -> None:
        self.predictor.states[0].caches.clear()
        super()._remove(done)


def search_without_cache(
    model: Transformer, sources: Sequence[Sequence[int]], config: SearchConfig
) -> list[list[Hypothesis]]:
    with no_tape():
        return SearchWithoutCache([model], sources, config, None, lambda n: None, None, None).run()
