"""What must not change a translation: the cache, and the company that a sentence is in."""

from typing import Any

import numpy as np
import pytest
from fixed_order import fixed_order
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, log_p_of_tokens, random_model, search_without_cache

from autograd import no_tape
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import Hypothesis, SearchConfig
from minitransformer.model.batch import Batch

CONFIGS = st.builds(
    SearchConfig,
    beam=st.integers(2, 4),
    alpha=st.sampled_from([0.0, 0.6]),
    n_best=st.integers(1, 2),
    max_extra_tokens=st.integers(1, 20),  # beyond 16 the cache grows
) | st.builds(SearchConfig, beam=st.just(1), max_extra_tokens=st.integers(1, 20))


def exactly(found: list[list[Hypothesis]]) -> list[list[tuple[Any, ...]]]:
    return [[(h.ids, h.log_probability.hex(), h.score.hex()) for h in hypotheses] for hypotheses in found]


def test_the_fixed_order_is_another_way_to_the_same_numbers() -> None:
    model, batch = random_model(1), Batch.from_token_ids([[3, 4, 5], [3]], [[5, 5], [3, 4, 3]])
    blas = model.log_probabilities(batch)
    with fixed_order():
        ordered = model.log_probabilities(batch)
    assert not np.array_equal(blas, ordered)
    np.testing.assert_allclose(blas, ordered, atol=1e-12)
    np.testing.assert_array_equal(blas, model.log_probabilities(batch))


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, sources=SOURCES, config=CONFIGS)
@settings(max_examples=4)
def test_with_cache_is_without_cache_bit_for_bit(variant: int, seed: int, sources: Any, config: SearchConfig) -> None:
    model = random_model(seed, **VARIANTS[variant])
    with fixed_order():
        assert exactly(beam_search(model, sources, config)) == exactly(search_without_cache(model, sources, config))


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, sources=SOURCES, config=CONFIGS)
@settings(max_examples=4)
def test_with_blas_it_is_to_rounding(variant: int, seed: int, sources: Any, config: SearchConfig) -> None:
    model = random_model(seed, **VARIANTS[variant])
    cached, uncached = beam_search(model, sources, config), search_without_cache(model, sources, config)
    for with_cache, without in zip(cached, uncached, strict=True):
        assert [h.ids for h in with_cache] == [h.ids for h in without]
        np.testing.assert_allclose([h.score for h in with_cache], [h.score for h in without], rtol=1e-12)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, sources=SOURCES, config=CONFIGS, data=st.data())
@settings(max_examples=4)
def test_a_sentence_is_translated_alike_alone_and_anywhere_in_a_batch_bit_for_bit(
    variant: int, seed: int, sources: Any, config: SearchConfig, data: Any
) -> None:
    model = random_model(seed, **VARIANTS[variant])
    order = data.draw(st.permutations(range(len(sources))))
    with fixed_order():
        alone = [beam_search(model, [source], config)[0] for source in sources]
        together = beam_search(model, [sources[i] for i in order], config)
    assert exactly(together) == exactly([alone[i] for i in order])


@given(seed=SEEDS, sources=SOURCES, config=CONFIGS, data=st.data())
@settings(max_examples=8)
def test_with_blas_the_words_are_the_same(seed: int, sources: Any, config: SearchConfig, data: Any) -> None:
    model = random_model(seed)
    order = data.draw(st.permutations(range(len(sources))))
    together = beam_search(model, [sources[i] for i in order], config)
    for i, hypotheses in zip(order, together, strict=True):
        alone = beam_search(model, [sources[i]], config)[0]
        assert [h.ids for h in alone] == [h.ids for h in hypotheses]
        np.testing.assert_allclose([h.score for h in alone], [h.score for h in hypotheses], rtol=1e-12)


@given(seed=SEEDS, sources=SOURCES, config=CONFIGS)
@settings(max_examples=10)
def test_scores_are_sums_of_teacher_forced_log_p_bit_for_bit(seed: int, sources: Any, config: SearchConfig) -> None:
    model = random_model(seed)
    with fixed_order(), no_tape():
        for source, hypotheses in zip(sources, beam_search(model, sources, config), strict=True):
            for hypothesis in hypotheses:
                value = 0.0
                for log_p in log_p_of_tokens(model, source, hypothesis.ids):
                    value += log_p
                assert hypothesis.log_probability.hex() == value.hex()
                assert hypothesis.score.hex() == (value / config.length_penalty(len(hypothesis.ids) + 1)).hex()
