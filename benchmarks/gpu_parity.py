"""Do PyTorch, in every way in which it is timed, and we compute the same loss and gradients from the same weights?"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from gpu_card import Card
from gpu_contestants import batches_of
from torch_packed import PackedTransformer, packed_training
from torch_peer import TorchTraining
from translation_peers import fused
from workload import IdPairs

from autograd import backward
from autograd.array import to_host
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import Precision

MOST_OFF = {"float32": 1e-5, "bfloat16": 2e-3}  # of the loss
LEAST_COSINE = {"float32": 0.99999, "bfloat16": 0.999}  # of all gradients together
LEAST_COSINE_OF_ONE = {"float32": 0.9999, "bfloat16": 0.98}  # of a parameter's


def run(card: Card) -> bool:
    """In both precisions, without dropout."""
    tokens = card.sizes.tokens[-1]
    config, batches = batches_of(card, next(iter(card.sizes.models)), tokens)
    config = dataclasses.replace(config, p_drop=0.0, label_smoothing_over="V")
    works = []
    for precision in ("float32", "bfloat16"):
        ours = of_ours(config, batches[0], precision)
        for name in ("padded", "packed by gathering", "packed, varlen"):
            works.append(
                card.attempt(
                    f"{name}, {precision}",
                    lambda ours=ours, name=name, precision=precision: compare(
                        card, config, batches[:1], name, precision, ours
                    ),
                )
            )
    return all(works)


def of_ours(config: ModelConfig, pairs: IdPairs, precision: Precision) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Loss, gradients and weights, under the names of PyTorch's model."""
    model = Transformer(config, seed=1, dtype=precision, device="cuda")
    loss = model.loss(Batch.from_token_ids(*zip(*pairs, strict=True)))
    backward(loss)
    gradients = {name: to_host(parameter.grad) for name, parameter in model.named_parameters()}
    return float(loss), fused(gradients, config.n_layers), fused(model.weights(), config.n_layers)


def compare(
    card: Card, config: ModelConfig, batches: list[IdPairs], name: str, precision: Precision,
    ours: tuple[float, dict[str, Any], dict[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """Of one kind of peer.  Raises: AssertionError if they are not near enough."""
    how: dict[str, Any] = {"bf16": precision == "bfloat16", "device": card.name}
    if name == "packed, varlen":
        if card.name == "cuda" and precision == "float32":
            return {"not compared": "FlashAttention has no float32"}
        training = packed_training(config, batches, compilation=None, **how)
        assert isinstance(training.model, PackedTransformer)
    else:
        packed = name == "packed by gathering"
        training = TorchTraining.padded(config, batches, packed=packed, compiled=False, **how)
    our_loss, our_gradients, weights = ours
    with torch.no_grad():
        parameters = dict(training.model.named_parameters())
        assert parameters.keys() == weights.keys()
        for of, values in weights.items():
            parameters[of].copy_(torch.from_numpy(np.ascontiguousarray(values)))
    loss = training.loss(training.batches[0])
    loss.backward()
    return differences(our_loss, loss.item(), our_gradients, {of: p.grad for of, p in parameters.items()}, precision)


def differences(
    our_loss: float, loss: float, ours: dict[str, Any], theirs: dict[str, Any], precision: Precision
) -> dict[str, Any]:
    """How far apart they are."""
    pairs = {
        name: (ours[name].astype(np.float64).ravel(), theirs[name].double().cpu().numpy().ravel()) for name in ours
    }
    of_each = {name: cosine(*pair) for name, pair in pairs.items()}
    least = min(of_each, key=of_each.__getitem__)
    of_all = cosine(*(np.concatenate(side) for side in zip(*pairs.values(), strict=True)))
    facts = {"loss, ours": our_loss, "loss, PyTorch": loss, "loss off by": abs(our_loss / loss - 1),
             "cosine of gradients": of_all, "least cosine": of_each[least], "least of": least}  # fmt: skip
    assert facts["loss off by"] <= MOST_OFF[precision], facts
    assert of_all >= LEAST_COSINE[precision], facts
    assert of_each[least] >= LEAST_COSINE_OF_ONE[precision], facts
    return facts


def cosine(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """Of the angle between two vectors."""
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))
