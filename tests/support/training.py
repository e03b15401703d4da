"""Sequences and text to train a tiny model on, and a monitor that interrupts it."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.model.transformer import Transformer
from minitransformer.training.callbacks import Callback
from minitransformer.training.open_run import OpenRun, open_run
from minitransformer.training.run import finish
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from parallel.communicator import SerialCommunicator

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

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        if state.step == self.step:
            signal.raise_signal(signal.SIGINT)


WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
TRAINING: dict[str, Any] = {
    "max_updates": 20, "batch_tokens": 150, "n_micro_batches": 2, "warmup_steps": 10, "log_every": 5,
    "validate_every": 10, "checkpoint_every": 4, "keep_checkpoints": 3, "average_checkpoints": 3,
    "precision": "float32",
}  # fmt: skip


def pairs_of(words: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"{a} {b} {c}", f"{words[a]} {words[b]} {words[c]}") for a in words for b in words for c in words]


PAIRS = pairs_of(WORDS)


def write_text(folder: Path, words: dict[str, str] = WORDS) -> DataConfig:
    """Write all sentences of three words, and return the settings of their data."""
    folder.mkdir(exist_ok=True)
    for side, name in enumerate(("t.en", "t.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs_of(words)), encoding="utf-8")
    return DataConfig(raw=folder, train_source=("t.en",), train_target=("t.de",), vocabulary_size=50, held_out=10)


def run_of(folder: Path, **training: Any) -> RunConfig:
    model = ModelConfig(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8, alpha=0.6)
    return RunConfig(folder / "run", write_text(folder), model, TrainingConfig(**TRAINING | training))


def job_of(config: RunConfig) -> OpenRun:
    return open_run(config, SerialCommunicator())


def finished(config: RunConfig) -> dict[str, Any]:
    job = job_of(config)
    assert job.trainer.train(Callback())
    finish(job, Callback())
    return dict(json.loads((config.run / "results.json").read_text()))


def weights(config: RunConfig) -> Any:
    return Transformer.load(config.run).parameters.values
