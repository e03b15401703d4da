"""Log-probabilities of given pairs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, log_p, random_model

from minitransformer.config import ModelConfig
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import TargetScore, score_pairs
from minitransformer.model.transformer import Transformer


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
