"""Our own training, as ``minitransformer-train`` runs it, on given sentences."""

from __future__ import annotations

import tempfile
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gpu_card import synchronize
from workload import IdPairs

from autograd.array import namespace_of_device
from autograd.optim import Adam
from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.checkpoint import TrainingState
from minitransformer.training.gradient import ShardedGradient
from minitransformer.training.update import UpdateParts, Updates, UpdatesAsGraphs, UpdatesInTurn
from parallel.communicator import SerialCommunicator
from parallel.reducer import LocalReducer


class OurTraining:
    """Updates of the model in bfloat16, one batch after the other: each a graph, or launch by launch."""

    def __init__(self, config: ModelConfig, batches: list[IdPairs], batch_tokens: int, *, in_graphs: bool) -> None:
        with tempfile.TemporaryDirectory() as name:  # what is mapped stays
            write_store(Path(name), "train", (pair for pairs in batches for pair in pairs), config.vocabulary_size)
            store = TokenStore(Path(name), "train")
        training = TrainingConfig(batch_tokens=batch_tokens, n_shards=1, warmup_steps=100, precision="bfloat16")
        self.model = Transformer(config, seed=1, dtype="bfloat16", device="cuda")
        world = SerialCommunicator()
        self.parts = UpdateParts(
            store, training, world, LocalReducer(),
            Adam(self.model.parameters), ShardedGradient(self.model, n_threads=1), [0],
        )  # fmt: skip
        self._updates: Updates = UpdatesAsGraphs(self.parts) if in_graphs else UpdatesInTurn(self.parts)
        self._batches = cycle(np.arange(a, b) for a, b in pairwise(np.cumsum([0, *map(len, batches)])))
        self._step = 0

    def updates(self, n: int) -> int:
        """That many updates, until the last is known to be sound; returns their target tokens."""
        outcomes: list[Any] = []
        for _ in range(n):
            self._step += 1
            outcomes += self._updates.run(next(self._batches), TrainingState(step=self._step))
        outcomes += self._updates.finish()
        synchronize()
        assert len(outcomes) == n
        assert all(outcome.is_sound for outcome in outcomes), "a loss or a gradient is not finite"
        return sum(outcome.n_tokens for outcome in outcomes)

    def peak_mb(self) -> float:
        """Memory that CuPy's pools have taken from the card: they give nothing back, so this is the most there was."""
        pools = [namespace_of_device("cuda").get_default_memory_pool()]
        if isinstance(self._updates, UpdatesAsGraphs):
            pools.append(self._updates._graphs._pool)
        return sum(pool.total_bytes() for pool in pools) / 1e6
