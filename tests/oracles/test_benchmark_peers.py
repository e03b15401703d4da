"""The models of PyTorch in the benchmarks compute the loss and gradients of ours: contests compare the same work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from against_torch import torch
from benchmark_runs import SMALL_CONFIG, benchmark

from autograd import backward
from minitransformer import Batch, ModelConfig, Transformer

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import translation_peers
from torch_packed import packed_training
from torch_peer import TorchTraining
from workload import Workload

CONFIG = ModelConfig(61, n_layers=2, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, p_drop=0.0, label_smoothing_over="V")


padded = partial(TorchTraining.padded, compiled=False, bf16=False)
PEERS: dict[str, Callable[..., TorchTraining]] = {
    "padded": partial(padded, packed=False),
    "packed by gathering": partial(padded, packed=True),
    "packed": partial(packed_training, bf16=False, device="cpu", compilation=None),
}


@pytest.mark.parametrize("name", PEERS)
def test_loss_and_gradients_are_ours(name: str) -> None:
    (pairs,) = Workload(CONFIG, 300, 1, zipf=True).batches()
    model = Transformer(CONFIG, seed=1)
    loss = model.loss(Batch.from_token_ids(*zip(*pairs, strict=True)))
    backward(loss)
    gradients = {of: np.array(parameter.grad) for of, parameter in model.named_parameters()}
    expected = translation_peers.fused(gradients, CONFIG.n_layers)
    training = PEERS[name](CONFIG, [pairs])
    parameters = dict(training.model.named_parameters())
    with torch.no_grad():
        for of, values in translation_peers.fused(model.weights(), CONFIG.n_layers).items():
            parameters[of].copy_(torch.from_numpy(np.ascontiguousarray(values)))
    peer_loss = training.loss(training.batches[0])
    peer_loss.backward()
    assert peer_loss.item() == pytest.approx(float(loss.value), rel=1e-5)
    assert parameters.keys() == expected.keys()
    for of, parameter in parameters.items():
        np.testing.assert_allclose(parameter.grad.numpy(), expected[of], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_training_competes_with_pytorch() -> None:
    eager = "training.PEERS = {'PyTorch, eager': training.PEERS['PyTorch, eager']}"
    shown = benchmark("training.py", "tiny", "--rounds", 1, change=eager)
    assert [row for row in ("| ours |", "| PyTorch, eager |") if row not in shown] == []


@pytest.mark.slow
def test_translation_competes_with_ctranslate2_and_pytorch() -> None:
    pytest.importorskip("ctranslate2")
    shown = benchmark("translation.py", 1, "--rounds", 1, change=f"translation.CONFIG = {SMALL_CONFIG}")
    for name in ("CTranslate2 float32, one worker", "PyTorch, eager"):
        assert f"{name}: the same 4 translations as ours for 1 of 1 sentences" in shown
