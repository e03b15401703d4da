"""Sequences and text to train a tiny model on, and a monitor that interrupts it."""

import dataclasses
import errno
import json
import resource
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.model.transformer import Transformer
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.open_run import OpenRun, open_run
from minitransformer.training.run import finish
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from parallel.communicator import SerialCommunicator

FULL_DISK = OSError(errno.ENOSPC, "No space left on device")
TINY = ModelConfig(vocabulary_size=12, n_layers=1, d_model=16, d_ff=32, n_heads=2, d_k=8, d_v=8, p_drop=0.1)


def copy_store(folder: Path, n_sequences: int) -> TokenStore:
    """Sequences of three to six tokens, each its own translation: ten make a batch of 60 tokens."""
    random = np.random.default_rng(1)
    sequences = [random.integers(3, 12, 3 + i % 4).tolist() for i in range(n_sequences)]
    write_store(folder, "train", [(sequence, sequence) for sequence in sequences], 12)
    return TokenStore(folder, "train")


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def corrupt(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """Let no file grow beyond this size: what a full disk does, in the middle of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that Python holds at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Recorder(Callback):
    """Remembers what a run tells, also states and returns to earlier ones, and does something after an update."""

    def __init__(self, after: Callable[[int], object] = lambda step: None) -> None:
        self.after = after
        self.steps: list[int] = []
        self.states: list[TrainingState] = []
        self.went_back_to: list[int] = []
        self.reports: list[Any] = []

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        self.steps.append(state.step)
        self.states.append(state)
        self.after(state.step)

    def go_back(self, state: TrainingState) -> None:
        self.states.append(state)
        self.went_back_to.append(state.step)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        self.reports.append(report)


class StoppingMonitor(Recorder):
    """Interrupts training as Ctrl-C does, or as another signal, after a given update."""

    def __init__(self, step: int, number: signal.Signals = signal.SIGINT) -> None:
        super().__init__(lambda now: signal.raise_signal(number) if now == step else None)


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


def changed(config: RunConfig, part: str = "training", **changes: Any) -> RunConfig:
    """The settings of a run with other ones in one part."""
    return dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **changes)})


def job_of(config: RunConfig) -> OpenRun:
    return open_run(config, SerialCommunicator())


def finished(config: RunConfig) -> dict[str, Any]:
    job = job_of(config)
    assert job.trainer.train(Callback())
    finish(job, Callback())
    return dict(json.loads((config.run / "results.json").read_text()))


def weights(config: RunConfig) -> Any:
    return Transformer.load(config.run).parameters.values
