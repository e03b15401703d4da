"""Small random models, and the searches that are too slow or too plain for anything but comparison."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.inference.search import Hypothesis, SearchConfig
from minitransformer.model.symbols import END

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


def next_log_p(model: Transformer, source: Sequence[int], prefixes: Sequence[Sequence[int]]) -> Any:
    """log p of every word after each prefix.  Shapes: returns (prefixes, W)."""
    batch = Batch.from_token_ids([source] * len(prefixes), prefixes)
    return model.log_probabilities(batch)[[*(batch.target.starts[1:] - 1), -1]]


def hypothesis_of(value: float, ids: Sequence[int], config: SearchConfig) -> Hypothesis:
    return Hypothesis(value / config.length_penalty(len(ids) + 1), value, tuple(ids))


def ids_of(hypotheses: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.ids for hypothesis in hypotheses]


def ranked(models: Any, source: list[int], sentences: list[Any], config: SearchConfig) -> list[Hypothesis]:
    """The sentences, best first, by the models' mean probability of each token."""
    batch = Batch.from_token_ids([source] * len(sentences), sentences)
    tokens = np.arange(len(batch.labels)), batch.labels
    means = np.log(np.mean([np.exp(model.log_probabilities(batch)[tokens]) for model in models], axis=0))
    values = np.add.reduceat(means, batch.target.starts)
    hypotheses = [hypothesis_of(float(value), ids, config) for value, ids in zip(values, sentences, strict=True)]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def exhaustive(models: Any, source: list[int], max_length: int, config: SearchConfig) -> list[Hypothesis]:
    """Every sentence of at most ``max_length`` tokens, its end counted, best first."""
    sentences = [ids for length in range(max_length) for ids in itertools.product(WORDS, repeat=length)]
    return ranked(models, source, sentences, config)


Live = list[tuple[tuple[int, ...], float]]


def plain_steps(model: Transformer, source: list[int], config: SearchConfig) -> Iterator[tuple[Live, list[Hypothesis]]]:
    """The same beam without cache, batch and stop rule: to the greatest length, whatever has been found.

    Each step scores all continuations of the live prefixes, and looks at the best 2k of them (greedy search at the
    best one): those that end are finished, the best k others live on.
    """
    max_length = len(source) + config.max_extra_tokens
    live: Live = [((), 0.0)]
    for length in range(1, max_length + 1):
        allowed = [END] if length == max_length else [END, *WORDS]
        rows = next_log_p(model, source, [ids for ids, _ in live]) if live else []
        grown = [
            ((*ids, word), value + float(row[word]))
            for (ids, value), row in zip(live, rows, strict=True)
            for word in allowed
        ]
        looked_at = sorted(grown, key=lambda item: -item[1])[: 2 * config.beam if config.beam > 1 else 1]
        live = [(ids, value) for ids, value in looked_at if ids[-1] != END][: config.beam]
        yield live, [hypothesis_of(value, ids[:-1], config) for ids, value in looked_at if ids[-1] == END]


def plain_beam(model: Transformer, source: list[int], config: SearchConfig) -> list[Hypothesis]:
    finished = [hypothesis for _, ended in plain_steps(model, source, config) for hypothesis in ended]
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)[: config.n_best]
