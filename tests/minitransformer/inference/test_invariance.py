"""What must not change a translation: the cache, and the company that a sentence is in."""

from contextlib import nullcontext
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


BLAS = pytest.mark.parametrize("order", [fixed_order, nullcontext], ids=["fixed order", "BLAS"])


def require_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], order: Any) -> None:
    """Require the same words, and scores of the same bits; of sums in the order of BLAS the same to rounding."""
    for some, others in zip(found, expected, strict=True):
        assert [h.ids for h in some] == [h.ids for h in others]
        tolerance = 0 if order is fixed_order else 1e-12
        for name in ("score", "log_probability"):
            values = [[getattr(h, name) for h in hypotheses] for hypotheses in (some, others)]
            np.testing.assert_allclose(*values, rtol=tolerance)


def test_the_fixed_order_is_another_way_to_the_same_numbers() -> None:
    model, batch = random_model(1), Batch.from_token_ids([[3, 4, 5], [3]], [[5, 5], [3, 4, 3]])
    blas = model.log_probabilities(batch)
    with fixed_order():
        ordered = model.log_probabilities(batch)
    assert not np.array_equal(blas, ordered)
    np.testing.assert_allclose(blas, ordered, atol=1e-12)
    np.testing.assert_array_equal(blas, model.log_probabilities(batch))


@BLAS
@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, sources=SOURCES, config=CONFIGS)
@settings(max_examples=4)
def test_with_cache_is_without_cache(variant: int, order: Any, seed: int, sources: Any, config: SearchConfig) -> None:
    model = random_model(seed, **VARIANTS[variant])
    with order():
        require_same(beam_search(model, sources, config), search_without_cache(model, sources, config), order)


@BLAS
@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, sources=SOURCES, config=CONFIGS, data=st.data())
@settings(max_examples=4)
def test_a_sentence_is_translated_alike_alone_and_anywhere_in_a_batch(
    variant: int, order: Any, seed: int, sources: Any, config: SearchConfig, data: Any
) -> None:
    model = random_model(seed, **VARIANTS[variant])
    indices = data.draw(st.permutations(range(len(sources))))
    with order():
        alone = [beam_search(model, [source], config)[0] for source in sources]
        together = beam_search(model, [sources[i] for i in indices], config)
    require_same(together, [alone[i] for i in indices], order)


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
