"""The whole model against the textbook: padded batches, boolean masks and PyTorch's own gradients.

The oracle always computes in float64, from exactly the weights that our model holds: what differs is our rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from against_torch import torch
from torch_transformer import TorchTransformer, torch_weights

from autograd import backward
from autograd.optim import Adam
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.training.update import learning_rate

TOLERANCE = {"float64": 1e-8, "float32": 1e-4}

SMALL = {
    "vocabulary_size": 13, "n_layers": 2, "d_model": 8, "d_ff": 12, "n_heads": 2, "d_k": 6, "d_v": 5,
    "max_positions": 20, "label_smoothing": 0.1,
}  # fmt: skip
CHANGES = {
    "attention_bias": True, "softmax_bias": True, "layer_norm_eps": 1e-2, "first_position": 3, "activation": "gelu",
    "n_decoder_layers": 1,
}  # fmt: skip
SOURCES = [[5, 6, 7, 8, 9, 10, 11, 12, 3, 4, 5, 5], [], [4], [12, 11], [3, 3, 3, 7, 9]]
TARGETS = [[7], [4, 5, 6, 7, 8, 9, 10, 11, 12, 3, 3], [3, 8, 4], [], [6, 6]]


def model_with_random_weights(config: ModelConfig, dtype: str) -> Transformer:
    """Gains away from 1 and biases away from 0, so that every one of them counts."""
    model, random = Transformer(config, seed=3, dtype=dtype), np.random.default_rng(4)
    for _, parameter in model.named_parameters():
        if parameter.value.ndim == 1:
            parameter.value += 0.2 * random.standard_normal(parameter.shape)
    return model


def relative_errors(model: Transformer, weights: Mapping[str, Any]) -> dict[str, float]:
    """Of every gradient.  A key's bias adds the same to all scores of a query, which the softmax ignores: its gradient
    is 0 but for rounding, and is measured by the size of that of the query's bias."""
    expected = {name: weight.grad.numpy() for name, weight in weights.items()}
    size = {name: np.linalg.norm(expected[name.replace("key.bias", "query.bias")]) for name in expected}
    return {
        name: float(np.linalg.norm(np.asarray(parameter.grad, np.float64) - expected[name]) / size[name])
        for name, parameter in model.named_parameters()
    }


def compare_with_oracle(config: ModelConfig, dtype: str, sources: Any, targets: Any) -> None:
    model = model_with_random_weights(config, dtype)
    weights = torch_weights(model.weights())
    expected_loss = TorchTransformer(config, weights).loss(sources, targets)
    expected_loss.backward()
    loss = model.loss(Batch.from_token_ids(sources, targets))
    backward(loss)

    errors = relative_errors(model, weights)
    errors["loss"] = abs(float(loss) / expected_loss.item() - 1)
    wrong = {name: error for name, error in errors.items() if not error <= TOLERANCE[dtype]}
    assert not wrong, f"{len(wrong)} of {len(errors)} relative errors above {TOLERANCE[dtype]}: {wrong}"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("norm", "tied", "positions", "neighbourhood"),
    list(product(["post", "pre"], ["all", "target", "none"], ["interleaved", "halves", "learned"], [None, 2])),
)
def test_loss_and_every_gradient_equal_the_padded_model_in_torch(
    norm: str, tied: str, positions: str, neighbourhood: int | None, dtype: str
) -> None:
    config = ModelConfig.from_mapping(
        {**SMALL, "norm": norm, "tied": tied, "positions": positions, "neighbourhood": neighbourhood}
    )
    compare_with_oracle(config, dtype, SOURCES, TARGETS)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("over", ["V-1", "V", "V-2"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_label_smoothing_of_every_convention_equals_torch(label_smoothing: float, over: str, dtype: str) -> None:
    config = {**SMALL, "label_smoothing": label_smoothing, "label_smoothing_over": over}
    compare_with_oracle(ModelConfig.from_mapping(config), dtype, SOURCES, TARGETS)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("norm", "positions", "changes"), [
    *(("post", "interleaved", {name: value}) for name, value in CHANGES.items()),
    *(("post", "interleaved", {"activation": activation}) for activation in ("swish", "gelu_tanh")),
    ("post", "interleaved", CHANGES), ("pre", "learned", CHANGES), ("pre", "halves", CHANGES),
    *(("post", "interleaved", {"tied": tied, "vocabulary_size": 17, "source_vocabulary_size": 13})
      for tied in ("target", "none")),
])  # fmt: skip
def test_other_conventions_equal_the_padded_model_in_torch(norm: str, positions: str, changes: Any, dtype: str) -> None:
    config = ModelConfig.from_mapping({**SMALL, "norm": norm, "positions": positions, **changes})
    targets = [[config.vocabulary_size - 1, *target] for target in TARGETS]
    compare_with_oracle(config, dtype, SOURCES, targets)


def test_a_base_width_model_in_float32_equals_the_padded_model_in_torch() -> None:
    # not ReLU: in 3 of 8 draws, rounding to float32 changed the sign of an input, and gradients by 1e-4 to 3e-3
    config = ModelConfig(vocabulary_size=200, n_layers=1, activation="gelu")
    random = np.random.default_rng(5)
    sources, targets = ([random.integers(3, 200, n).tolist() for n in lengths] for lengths in ([31, 0, 9], [1, 27, 12]))
    compare_with_oracle(config, "float32", sources, targets)


def test_the_comparison_notices_a_layer_norm_that_is_off_by_a_millionth(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = TorchTransformer.layer_norm
    monkeypatch.setattr(TorchTransformer, "layer_norm", lambda self, name, x: exact(self, name, x) * (1 + 1e-6))
    with pytest.raises(
        AssertionError, match=r"errors above 1e-08: .*encoder\.layers\.0\.self_attention\.query\.weight"
    ):
        compare_with_oracle(ModelConfig.from_mapping(SMALL), "float64", SOURCES, TARGETS)


def losses_of_training(model: Transformer, weights: Mapping[str, Any], n_updates: int) -> Any:
    """Nats per token before every update, of our model and of its twin: a batch of two pairs that changes, no dropout.

    Both follow the schedule of the paper: up for six updates, down for the rest.
    """
    ours, twin = Adam(model.parameters), TorchTransformer(model.config, weights)
    adam = torch.optim.Adam(weights.values(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda done: model.config.d_model**-0.5 * min((done + 1) ** -0.5, (done + 1) * 6**-1.5)
    )
    losses = np.zeros((n_updates, 2))
    for step in range(1, n_updates + 1):
        sources, targets = [SOURCES[step % 5], SOURCES[step % 4]], [TARGETS[step % 5], TARGETS[step % 4]]
        batch = Batch.from_token_ids(sources, targets)
        our_loss = model.loss(batch) / batch.n_target_tokens
        their_loss = twin.loss(sources, targets) / batch.n_target_tokens
        backward(our_loss)
        ours.step(learning_rate(step, model.config.d_model, TrainingConfig(warmup_steps=6)), step)
        adam.zero_grad()
        their_loss.backward()
        adam.step()
        schedule.step()
        losses[step - 1] = float(our_loss), their_loss.item()
    return losses


TRAINED = {
    "the paper": {},
    "pre-norm, untied, with biases": {"norm": "pre", "tied": "none", "label_smoothing_over": "V", **CHANGES},
}


@pytest.mark.parametrize("variation", TRAINED)
def test_twenty_updates_in_float64_leave_the_parameters_that_torch_leaves(variation: str) -> None:
    """Adam divides a gradient by its own size, so what counts is its relative error: 1e-15, and a hundred times that
    where terms cancel, times twenty rates of up to 0.14.  The gradient of a key's bias is nothing but rounding, 1e-17,
    which Adam divides by its ε of 1e-9."""
    model = model_with_random_weights(ModelConfig.from_mapping({**SMALL, **TRAINED[variation]}), "float64")
    weights, before = torch_weights(model.weights()), {name: value.copy() for name, value in model.weights().items()}
    losses = losses_of_training(model, weights, n_updates=20)
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=1e-12)
    for name, value in model.weights().items():
        tolerance = 1e-7 if name.endswith("key.bias") else 1e-11
        np.testing.assert_allclose(value, weights[name].detach(), rtol=0, atol=tolerance, err_msg=name)
        assert np.abs(value - before[name]).max() > (0 if name.endswith("key.bias") else 0.1), name


@pytest.mark.parametrize("variation", TRAINED)
def test_twenty_updates_in_float32_have_the_losses_that_torch_has_in_float64(variation: str) -> None:
    model = model_with_random_weights(ModelConfig.from_mapping({**SMALL, **TRAINED[variation]}), "float32")
    losses = losses_of_training(model, torch_weights(model.weights()), n_updates=20)
    np.testing.assert_allclose(losses[:, 0], losses[:, 1], rtol=2e-6)
    assert losses[-4:].mean() < 0.9 * losses[:4].mean()
