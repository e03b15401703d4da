"""Attention weights: those that the model's own attention uses."""

from typing import Any

import numpy as np
import pytest

from autograd import KeyRanges, ops
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.extras.attention import AttentionWeights, attention_weights
from minitransformer.extras.report.merging import without_key
from minitransformer.model.layers import MultiHeadAttention

SIZES = {"vocabulary_size": 30, "n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 4, "d_v": 5}
CONFIGS = {
    "post-norm": ModelConfig(**SIZES),
    "pre-norm": ModelConfig(**SIZES, norm="pre"),
    "restricted": ModelConfig(**SIZES, neighbourhood=2),
    "with dropout of weights": ModelConfig(**SIZES, p_drop_attention=0.5),
}
SOURCE, TARGET = [4, 9, 9, 7, 11, 3, 5], [8, 6, 12, 3]


def model_of(name: str) -> Transformer:
    model = Transformer(CONFIGS[name], seed=3, dtype="float64")
    model.parameters.values[...] *= 3  # so that some keys matter more than others
    return model


def kinds_of(weights: AttentionWeights) -> list[Any]:
    return [weights.encoder, weights.decoder, weights.encoder_decoder]


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_the_softmax_of_queries_and_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, computed = model_of(name), []

    def listening(q: Any, k: Any, v: Any, *, mask: KeyRanges, **dropout: Any) -> Any:
        scores = np.einsum("thk,shk->hts", q.value, k.value) / np.sqrt(q.shape[2])
        exponentials = np.where(mask.matrix(), np.exp(scores), 0)
        computed.append(exponentials / exponentials.sum(-1, keepdims=True))
        return attention(q, k, v, mask=mask, **dropout)

    attention = ops.attention
    with monkeypatch.context() as patch:
        patch.setattr(ops, "attention", listening)
        model.log_probabilities(Batch.from_token_ids([SOURCE], [TARGET]))
    weights = attention_weights(model, SOURCE, TARGET)
    decoder, encoder_decoder = computed[2::2], computed[3::2]
    for got, expected in zip(kinds_of(weights), (computed[:2], decoder, encoder_decoder), strict=True):
        np.testing.assert_allclose(got, np.stack(expected), atol=1e-14)
        np.testing.assert_allclose(got.sum(-1), 1, atol=1e-14)


def test_the_decoder_never_looks_ahead_and_restricted_attention_not_beyond_its_neighbourhood() -> None:
    assert (np.triu(attention_weights(model_of("post-norm"), SOURCE, TARGET).decoder, k=1) == 0).all()
    encoder = attention_weights(model_of("restricted"), SOURCE, TARGET).encoder
    positions = np.arange(8)
    assert ((encoder > 0) == (abs(positions[:, None] - positions) <= 2)).all()


def test_recording_leaves_the_model_as_it_was_and_gives_layers_heads_queries_keys() -> None:
    model, batch = model_of("post-norm"), Batch.from_token_ids([SOURCE], [TARGET])
    before = model.log_probabilities(batch)
    weights = attention_weights(model, SOURCE, TARGET)
    assert [w.shape for w in kinds_of(weights)] == [(2, 3, 8, 8), (2, 3, 5, 5), (2, 3, 5, 8)]
    assert {type(layer.self_attention) for layer in model.encoder.layers} == {MultiHeadAttention}
    np.testing.assert_array_equal(model.log_probabilities(batch), before)


def test_without_a_key_the_others_share_its_weight() -> None:
    weights = np.array([[[0.25, 0.25, 0.5], [0.0, 0.0, 1.0]]])
    np.testing.assert_array_equal(without_key(weights, 2), [[[0.5, 0.5], [0, 0]]])
    np.testing.assert_array_equal(without_key(weights, 0), [[[1 / 3, 2 / 3], [0, 1]]])
