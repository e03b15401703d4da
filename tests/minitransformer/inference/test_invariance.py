"""What must not change a translation: the cache, and the company that a sentence is in."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from fixed_order import fixed_order
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, ids_of, log_p_of_tokens, random_model

from autograd import no_tape
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import Batch

CONFIGS = st.builds(
    SearchConfig,
    beam=st.integers(2, 4),
    alpha=st.sampled_from([0.0, 0.6]),
    n_best=st.integers(1, 2),
    max_extra_tokens=st.integers(1, 20),  # beyond 16 the cache grows
) | st.builds(SearchConfig, beam=st.just(1), max_extra_tokens=st.integers(1, 20))


def test_the_fixed_order_is_another_way_to_the_same_numbers() -> None:
    model, batch = random_model(1), Batch.from_token_ids([[3, 4, 5], [3]], [[5, 5], [3, 4, 3]])
    blas = model.log_probabilities(batch)
    with fixed_order():
        ordered = model.log_probabilities(batch)
    assert not np.array_equal(blas, ordered)
    np.testing.assert_allclose(blas, ordered, atol=1e-12)
    np.testing.assert_array_equal(blas, model.log_probabilities(batch))


@pytest.mark.parametrize("order", [fixed_order, nullcontext], ids=["fixed order", "BLAS"])
@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, sources=SOURCES, config=CONFIGS)
@settings(max_examples=6)
def test_scores_are_sums_of_teacher_forced_log_p_in_any_batch_and_alone(
    variant: int, order: Any, seed: int, sources: Any, config: SearchConfig
) -> None:
    """They have the same bits; sums in the order of BLAS are the same to rounding."""
    model, tolerance = random_model(seed, **VARIANTS[variant]), 0 if order is fixed_order else 1e-12
    with order(), no_tape():
        for source, found in zip(sources, beam_search(model, sources, config), strict=True):
            (alone,) = beam_search(model, [source], config)
            assert ids_of(found) == ids_of(alone)
            for hypothesis in [*found, *alone]:
                value = np.cumsum(log_p_of_tokens(model, source, hypothesis.ids))[-1]  # one after the other
                score = value / config.length_penalty(len(hypothesis.ids) + 1)
                scores = hypothesis.log_probability, hypothesis.score
                np.testing.assert_allclose(scores, (value, score), rtol=tolerance)
