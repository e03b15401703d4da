"""The account of a run: the products that its updates really compute, however often it stops."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from metered import Meter, flops, watched

from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.loop import Stopwatch, Trainer
from minitransformer.training.state import TrainingState
from parallel.communicator import SerialCommunicator

MODEL = ModelConfig(vocabulary_size=12, n_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7)
TRAINING = TrainingConfig(
    precision="float32", max_updates=6, batch_tokens=80, n_micro_batches=2, log_every=2, checkpoint_every=3
)


class Recorder(Callback):
    """Remembers reports."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def report(self, report: TrainingReport | ValidationReport) -> None:
        self.reports.append(report)


def trainer_of(
    folder: Path, run: str = "run", *, world: Any = None, lengths: tuple[int, int] = (2, 9), **changes: Any
) -> Trainer:
    """Of pairs of random lengths, two to eight tokens a side."""
    ids = np.random.default_rng(1)
    pairs = [tuple(ids.integers(3, 12, n).tolist() for n in ids.integers(*lengths, 2)) for _ in range(40)]
    write_store(folder, "train", pairs, 12)
    config, store = dataclasses.replace(TRAINING, **changes), TokenStore(folder, "train")
    return Trainer(
        Transformer(MODEL, seed=1), store, None, config, folder / run, world or SerialCommunicator(), n_threads=1
    )


def trained(trainer: Trainer) -> Trainer:
    trainer.resume()
    assert trainer.train(Callback())
    return trainer


@pytest.mark.parametrize("n_micro_batches", [1, 4])
def test_it_counts_the_matrix_products_that_were_computed(tmp_path: Path, meter: Meter, n_micro_batches: int) -> None:
    """The sentences have one length, so attention's reference computes no padding."""
    trainer = trainer_of(tmp_path, n_micro_batches=n_micro_batches, lengths=(6, 7))
    watched(trainer.model)
    assert trained(trainer).state.flops == flops(meter) > 0


@pytest.mark.parametrize("first", [1, 3, 4])
def test_a_resumed_run_has_the_account_of_one_in_one_go(tmp_path: Path, first: int) -> None:
    whole, recorder = trainer_of(tmp_path, "whole"), Recorder()
    assert whole.train(recorder)
    flops = [report.flops for report in recorder.reports]
    assert 0 < flops[0] < flops[1] < flops[2] == whole.state.flops
    part = trained(trainer_of(tmp_path, "parts", max_updates=first))
    assert 0 < part.state.flops < whole.state.flops
    assert trained(trainer_of(tmp_path, "parts")).state.flops == whole.state.flops


def test_a_stopwatch_counts_laps_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    stopwatch = Stopwatch()
    now[0] += 3
    assert stopwatch.lap() == 3
    now[0] += 1
    with stopwatch.pause():
        now[0] += 7
    now[0] += 0.5
    assert stopwatch.lap() == 1.5
    assert stopwatch.lap() == 0


def test_device_time_is_that_of_all_devices_that_there_were() -> None:
    """One device for 3 seconds; then four for 1.5."""
    state = TrainingState().with_time(3, n_devices=1).with_new_interval().with_time(1.5, n_devices=4)
    assert (state.device_seconds, state.seconds, state.unlogged_seconds) == (3 + 4 * 1.5, 4.5, 1.5)


def test_a_trainer_puts_its_time_on_the_account(tmp_path: Path) -> None:
    """A little more than its log lines tell: what came behind the last of them is on it, too."""
    state = trained(trainer_of(tmp_path, log_every=4)).state
    assert state.device_seconds > 0.5 * state.seconds > 0
