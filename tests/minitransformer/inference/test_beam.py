"""Beam search against exhaustive search, and what must not change its result."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.inference.beam import Hypothesis, SearchConfig, beam_search
from minitransformer.inference.scoring import CorpusScore, score_pairs

W = 6  # unknown, start, end and three words
TINY = ModelConfig(vocabulary_size=W, n_layers=2, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
SOURCES = st.lists(st.lists(st.integers(3, W - 1), min_size=1, max_size=4), min_size=1, max_size=4)


def random_model(seed: int, **changes: Any) -> Transformer:
    """A model whose distributions are far from uniform."""
    model = Transformer(dataclasses.replace(TINY, **changes), seed=seed, dtype="float64")
    model.parameters.values *= 2.5
    return model


def log_p(model: Transformer, source: Any, target: Any) -> float:
    batch = Batch.from_token_ids([source], [target])
    return float(model.log_probabilities(batch)[np.arange(len(batch.labels)), batch.labels].sum())


def exhaustive(model: Transformer, source: list[int], max_length: int, alpha: float) -> list[Hypothesis]:
    """Every sentence of at most ``max_length`` tokens, its end counted, best first."""
    sentences = itertools.chain.from_iterable(
        itertools.product(range(3, W), repeat=length) for length in range(max_length)
    )
    scored = [(log_p(model, source, ids), ids) for ids in sentences]
    hypotheses = [Hypothesis(p / ((5 + len(ids) + 1) / 6) ** alpha, p, ids) for p, ids in scored]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([0.0, 0.6, 1.5]), source=SOURCES)
@settings(max_examples=15, deadline=None)
def test_a_wide_beam_finds_what_exhaustive_search_finds(seed: int, alpha: float, source: Any) -> None:
    model, source = random_model(seed), source[0][:2]
    config = SearchConfig(beam=27, alpha=alpha, n_best=5, max_extra_tokens=4 - len(source))
    found = beam_search(model, [source], config)[0]
    best = exhaustive(model, source, max_length=4, alpha=alpha)[:5]
    assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in best]
    np.testing.assert_allclose([h.score for h in found], [h.score for h in best], rtol=1e-10)


@given(seed=st.integers(0, 10_000), sources=SOURCES, beam=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_scores_are_those_of_the_model(seed: int, sources: Any, beam: int) -> None:
    model = random_model(seed)
    for source, hypotheses in zip(sources, beam_search(model, sources, SearchConfig(beam=beam)), strict=True):
        for hypothesis in hypotheses:
            assert hypothesis.log_probability == pytest.approx(log_p(model, source, hypothesis.ids), rel=1e-10)
            penalty = SearchConfig().length_penalty(len(hypothesis.ids) + 1)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty, rel=1e-12)


def greedy(model: Transformer, source: list[int], max_length: int) -> list[int]:
    """Without a cache: the whole prefix again for every token."""
    ids: list[int] = []
    while len(ids) < max_length - 1:
        row = model.log_probabilities(Batch.from_token_ids([source], [ids]))[-1]
        best = 2 + int(np.argmax(row[2:]))
        if best == 2:
            break
        ids.append(best)
    return ids


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "neighbourhood": 1}, {"positions": "learned"}])
@given(seed=st.integers(0, 10_000), sources=SOURCES)
@settings(max_examples=15, deadline=None)
def test_a_beam_of_one_is_greedy_search_without_cache(changes: Any, seed: int, sources: Any) -> None:
    model = random_model(seed, **changes)
    found = beam_search(model, sources, SearchConfig(beam=1, max_extra_tokens=6))
    assert [list(h[0].ids) for h in found] == [greedy(model, s, len(s) + 6) for s in sources]


@given(seed=st.integers(0, 10_000), sources=SOURCES, data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_sentence_is_translated_alike_alone_and_anywhere_in_a_batch(seed: int, sources: Any, data: Any) -> None:
    model, config = random_model(seed), SearchConfig(beam=3, n_best=2, max_extra_tokens=8)
    order = data.draw(st.permutations(range(len(sources))))
    together = beam_search(model, [sources[i] for i in order], config)
    for i, hypotheses in zip(order, together, strict=True):
        alone = beam_search(model, [sources[i]], config)[0]
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]


@given(seed=st.integers(0, 10_000), sources=SOURCES, beam=st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_the_stop_rule_loses_nothing(seed: int, sources: Any, beam: int) -> None:
    """Searching on to the greatest length, whatever has been found, gives the same translations."""
    model, config = random_model(seed), SearchConfig(beam=beam, n_best=2, max_extra_tokens=6)
    stopped = beam_search(model, sources, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.inference.beam._Search._worst_kept", lambda search, sentence: -np.inf)
        exhausted = beam_search(model, sources, config)
    assert [[h.ids for h in hs] for hs in stopped] == [[h.ids for h in hs] for hs in exhausted]


def test_a_translation_has_at_most_the_allowed_tokens_and_an_end() -> None:
    model = random_model(3)
    model.projection.weight.value[2] = 0  # nothing speaks for the end symbol
    model.projection.weight.value[3] *= 10
    (hypotheses,) = beam_search(model, [[3, 4]], SearchConfig(beam=2, max_extra_tokens=5))
    assert len(hypotheses[0].ids) <= 2 + 5 - 1
    assert hypotheses[0].log_probability == pytest.approx(log_p(model, [3, 4], hypotheses[0].ids), rel=1e-10)


def test_no_sources_no_translations() -> None:
    assert beam_search(random_model(1), []) == []


def test_length_penalty_is_that_of_gnmt() -> None:
    assert SearchConfig(alpha=0.6).length_penalty(1) == 1
    assert SearchConfig(alpha=1.0).length_penalty(7) == 2
    assert SearchConfig(alpha=0.0).length_penalty(100) == 1


def test_or_the_length_itself() -> None:
    assert SearchConfig(alpha=2.0, normalisation="length").length_penalty(7) == 49
    assert SearchConfig(alpha=0.0, normalisation="length").length_penalty(7) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beam": 0}, "beam ≥ n_best ≥ 1; got beam 0"),
        ({"beam": 2, "n_best": 3}, "got beam 2, n_best 3"),
        ({"alpha": -0.1}, "alpha ≥ 0"),
        ({"normalisation": "none"}, r"normalisation must be one of \('gnmt', 'length'\); got 'none'"),
    ],
)
def test_searches_that_are_none(fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchConfig(**fields)


@given(seed=st.integers(0, 100), sources=SOURCES, n_threads=st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_scores_of_pairs_come_in_order(seed: int, sources: Any, n_threads: int) -> None:
    model = random_model(seed)
    pairs = list(zip(sources, sources[::-1], strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.inference.scoring.TOKENS_AT_ONCE", 7)
        scores = score_pairs(model, pairs, n_threads=n_threads)
    expected = [log_p(model, source, target) for source, target in pairs]
    np.testing.assert_allclose([score.log_probability for score in scores], expected, rtol=1e-10)
    assert [score.n_tokens for score in scores] == [len(target) + 1 for _, target in pairs]
    total = CorpusScore.of(scores)
    assert total.loss == pytest.approx(-sum(expected) / total.n_tokens)
    assert total.perplexity == pytest.approx(np.exp(total.loss))
