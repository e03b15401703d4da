"""A model under another order of its features computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.extras.convert.layers import sines_between, sines_first, with_features
from minitransformer.model.positions import sinusoids

BATCH = Batch.from_token_ids([[3, 4, 5, 6], [7]], [[5, 3], [8, 4, 3]])
SMALL: dict[str, Any] = {
    "vocabulary_size": 9, "n_layers": 2, "d_model": 8, "d_ff": 12, "n_heads": 2, "d_k": 3, "d_v": 5,
    "attention_bias": True, "softmax_bias": True,
}  # fmt: skip


def model_with_random_weights(config: ModelConfig) -> Transformer:
    model, random = Transformer(config, seed=3, dtype="float64"), np.random.default_rng(4)
    for _, parameter in model.named_parameters():
        parameter.value[...] += 0.2 * random.standard_normal(parameter.shape)
    return model


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_another_order_of_the_features_changes_no_probability(norm: Any, tied: Any) -> None:
    """With learned positions, whose tables are weights, too."""
    model = model_with_random_weights(ModelConfig(**SMALL, norm=norm, tied=tied, positions="learned", max_positions=9))
    reordered = Transformer(model.config, seed=None, dtype="float64")
    before, order = model.weights(), np.random.default_rng(5).permutation(8)
    after = with_features(before, order)
    np.testing.assert_array_equal(after["source_embedding.weight"], before["source_embedding.weight"][:, order])
    reordered.set_weights(after)
    np.testing.assert_allclose(reordered.log_probabilities(BATCH), model.log_probabilities(BATCH), atol=1e-12)


def test_interleaved_sinusoids_become_sines_then_cosines() -> None:
    angles = np.arange(20)[:, None] / 10_000 ** (np.arange(4) / 4)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    table = sinusoids(20, 8)
    np.testing.assert_allclose(table[:, sines_first(8)], expected, atol=1e-12)
    np.testing.assert_array_equal(table[:, sines_first(8)][:, sines_between(8)], table)
