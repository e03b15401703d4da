"""The models of PyTorch in the benchmarks compute the loss and gradients of ours: contests compare the same work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from against_torch import torch

from autograd import backward
from minitransformer import Batch, ModelConfig, Transformer

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import translation_peers
from torch_packed import packed_training
from torch_peer import TorchTraining
from workload import Workload

CONFIG = ModelConfig(61, n_layers=2, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, p_drop=0.0, label_smoothing_over="V")


def padded(config: ModelConfig, batches: list[Any], *, packed: bool = False) -> TorchTraining:
    return TorchTraining.padded(config, batches, packed=packed, compiled=False, bf16=False)


PEERS = {
    "padded": padded,
    "packed by gathering": lambda config, batches: padded(config, batches, packed=True),
    "packed": lambda config, batches: packed_training(config, batches, bf16=False, device="cpu", compilation=None),
}


@pytest.mark.parametrize("name", PEERS)
def test_loss_and_gradients_are_ours(name: str) -> None:
    config = CONFIG
    (pairs,) = Workload(config, 300, 1, zipf=True).batches()
    model = Transformer(config, seed=1)
    loss = model.loss(Batch.from_token_ids(*zip(*pairs, strict=True)))
    backward(loss)
    gradients = {of: np.array(parameter.grad) for of, parameter in model.named_parameters()}
    expected = translation_peers.fused(gradients, config.n_layers)
    training = PEERS[name](config, [pairs])
    parameters = dict(training.model.named_parameters())
    with torch.no_grad():
        for of, values in translation_peers.fused(model.weights(), config.n_layers).items():
            parameters[of].copy_(torch.from_numpy(np.ascontiguousarray(values)))
    peer_loss = training.loss(training.batches[0])
    peer_loss.backward()
    assert peer_loss.item() == pytest.approx(float(loss.value), rel=1e-5)
    assert parameters.keys() == expected.keys()
    for of, parameter in parameters.items():
        np.testing.assert_allclose(parameter.grad.numpy(), expected[of], rtol=1e-3, atol=1e-4)
