"""Sequences to train a tiny model on, and a monitor that interrupts it."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.callbacks import Callback
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult

TINY = ModelConfig(vocabulary_size=12, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, p_drop=0.1)


def copy_store(folder: Path, n_sequences: int) -> TokenStore:
    """Sequences of three to six tokens, each its own translation: ten make a batch of 60 tokens."""
    random = np.random.default_rng(1)
    sequences = [random.integers(3, 12, 3 + i % 4).tolist() for i in range(n_sequences)]
    write_store(folder, "train", [(sequence, sequence) for sequence in sequences], 12)
    return TokenStore(folder, "train")


class StoppingMonitor(Callback):
    """Interrupts training as Ctrl-C does, after a given update."""

    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        if state.step == self.step:
            signal.raise_signal(signal.SIGINT)
