"""Our own training, as ``minitransformer-train`` runs it, on given sentences."""

from __future__ import annotations

import tempfile
from itertools import cycle, pairwise
from pathlib import Path

import numpy as np
from gpu_card import synchronize
from workload import IdPairs

from autograd.array import namespace_of_device
from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.graph import CapturedStep
from minitransformer.training.trainer import Trainer
from parallel.communicator import SerialCommunicator


class OurTraining:
    """Updates of the model in bfloat16, one batch after the other: each a graph, or launch by launch."""

    def __init__(self, config: ModelConfig, batches: list[IdPairs], batch_tokens: int, *, in_graphs: bool) -> None:
        with tempfile.TemporaryDirectory() as name:  # what is mapped stays
            write_store(Path(name), "train", (pair for pairs in batches for pair in pairs), config.vocabulary_size)
            store = TokenStore(Path(name), "train")
        training = TrainingConfig(batch_tokens=batch_tokens, n_micro_batches=1, warmup_steps=100, precision="bfloat16")
        self.model = Transformer(config, seed=1, dtype="bfloat16", device="cuda")
        self.trainer = Trainer(self.model, store, None, training, Path(name), SerialCommunicator(), n_threads=1)
        step = self.trainer.training_step
        assert isinstance(step, CapturedStep), "this model has operations without a kernel"
        self.trainer.training_step = step if in_graphs else step.step
        self._batches = cycle(np.arange(a, b) for a, b in pairwise(np.cumsum([0, *map(len, batches)])))

    def updates(self, n: int) -> int:
        """Make that many updates; return their target tokens when the last is known to be finite."""
        results = []
        for _ in range(n):
            results.append(self.trainer.step(next(self._batches)))
            assert all(result.is_finite for result in results[-2:-1]), "a loss or a gradient is not finite"
        assert results[-1].is_finite, "a loss or a gradient is not finite"
        synchronize()
        return sum(result.n_tokens for result in results)

    def peak_mb(self) -> float:
        """Memory that CuPy's pools have taken from the card: they give nothing back, so this is the most there was."""
        pools = [namespace_of_device("cuda").get_default_memory_pool()]
        if isinstance(self.trainer.training_step, CapturedStep):
            pools.append(self.trainer.training_step.pool)
        return sum(pool.total_bytes() for pool in pools) / 1e6
