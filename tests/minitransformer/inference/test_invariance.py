"""Cache, threads and the other sentences of a batch change no translation and no score."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from fixed_order import fixed_order
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, ids_of, log_p, log_p_of_tokens, random_model

from autograd import no_tape
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import TargetScore, score_pairs
from minitransformer.inference.search import SearchConfig

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


# Given pairs


@given(seed=SEEDS, sources=SOURCES, n_threads=st.integers(1, 3))
@settings(max_examples=10)
def test_scores_of_pairs_come_in_order(seed: int, sources: Any, n_threads: int) -> None:
    model = random_model(seed)
    pairs = list(zip(sources, sources[::-1], strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.inference.scoring.TOKENS_AT_ONCE", 7)
        scores = score_pairs(model, pairs, n_threads=n_threads)
    expected = [log_p(model, source, target) for source, target in pairs]
    np.testing.assert_allclose([score.log_probability for score in scores], expected, rtol=1e-10)
    assert [score.n_tokens for score in scores] == [len(target) + 1 for _, target in pairs]
    total = TargetScore.sum(scores)
    assert total.loss == pytest.approx(-sum(expected) / total.n_tokens)
    assert total.perplexity == pytest.approx(np.exp(total.loss))


def test_scores_do_not_depend_on_the_number_of_threads() -> None:
    config = ModelConfig(vocabulary_size=64, n_layers=1, d_model=128, d_ff=600, n_heads=2, d_k=8, d_v=8)
    model = Transformer(config, seed=1)  # OpenBLAS cuts sums of over 448 products, and threads cut them elsewhere
    ids = np.random.default_rng(1).integers(4, 64, (12, 2, 20)).tolist()
    pairs = [(source, target) for source, target in ids]
    for few in (pairs, pairs[:1]):
        alone = score_pairs(model, few, n_threads=1)
        assert all(score_pairs(model, few, n_threads=n) == alone for n in (2, 3, 4))


def test_of_nothing_the_loss_is_zero_and_a_hopeless_model_has_a_perplexity_that_can_be_printed() -> None:
    assert score_pairs(random_model(1), []) == beam_search(random_model(1), []) == []
    assert (TargetScore.sum([]).loss, TargetScore.sum([]).perplexity) == (0, 1)
    assert np.isfinite(TargetScore(-1e6, 10).perplexity)
