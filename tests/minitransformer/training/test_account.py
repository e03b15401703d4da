"""The account of a run: the products that its updates really compute, however often it stops."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import metered as metered_arrays
import numpy as np
import pytest
from metered import Meter, flops, watched

from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.system.checksums import write_checksums
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.checkpoint import CHECKPOINT_FILES, checkpoint_path
from minitransformer.training.interval import Interval
from minitransformer.training.state import TrainingState
from minitransformer.training.trainer import Trainer
from parallel.communicator import SerialCommunicator

MODEL = ModelConfig(vocabulary_size=12, n_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7)
TRAINING = TrainingConfig(max_updates=6, batch_tokens=80, n_shards=2, log_every=2, checkpoint_every=3)


class Recorder(Callback):
    """Remembers reports."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def report(self, report: TrainingReport | ValidationReport) -> None:
        self.reports.append(report)


def trainer_of(folder: Path, run: str = "run", *, world: Any = None, **changes: Any) -> Trainer:
    """Of pairs with two to nine tokens a side, so that sentences side by side are padded."""
    ids = np.random.default_rng(1)
    pairs = [tuple(ids.integers(3, 12, n).tolist() for n in ids.integers(2, 9, 2)) for _ in range(40)]
    write_store(folder, "train", pairs, 12)
    config, store = dataclasses.replace(TRAINING, **changes), TokenStore(folder, "train")
    return Trainer(
        Transformer(MODEL, seed=1), store, None, config, folder / run, world or SerialCommunicator(), n_threads=1
    )


def trained(trainer: Trainer) -> Trainer:
    trainer.resume()
    assert trainer.train(Callback())
    return trainer


@pytest.mark.parametrize("n_shards", [1, 4])
def test_it_counts_the_matrix_products_that_were_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_shards: int
) -> None:
    """Padding of attention, masked weights and all; the sentences are of unequal lengths."""
    meter = Meter()
    monkeypatch.setattr(metered_arrays, "METER", meter)
    trainer = trainer_of(tmp_path, n_shards=n_shards)
    watched(trainer.model)
    assert trained(trainer).state.flops == flops(meter) > 0


def test_log_lines_tell_how_much_it_was_so_far(tmp_path: Path) -> None:
    trainer, monitor = trainer_of(tmp_path), Recorder()
    assert trainer.train(monitor)
    told = [report.flops for report in monitor.reports]
    assert 0 < told[0] < told[1] < told[2] == trainer.state.flops


@pytest.mark.parametrize("first", range(1, 6))
def test_a_resumed_run_has_the_account_of_one_in_one_go(tmp_path: Path, first: int) -> None:
    whole = trained(trainer_of(tmp_path, "whole"))
    part = trained(trainer_of(tmp_path, "parts", max_updates=first))
    assert 0 < (part.state.flops or 0) < (whole.state.flops or 0)
    assert trained(trainer_of(tmp_path, "parts")).state.flops == whole.state.flops


def test_device_time_is_that_of_all_devices_that_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for 3 seconds up to a checkpoint; then four for 2, a half of which went into something else."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    interval = Interval(TrainingState(), SerialCommunicator())
    now[0] += 3
    saved = dataclasses.replace(interval.to_account(TrainingState()), unlogged_seconds=interval.seconds)
    assert saved.device_seconds == 3
    four: Any = SimpleNamespace(size=4, rank=0)
    now[0] += 1_000
    interval = Interval(saved, four)
    now[0] += 2
    interval.leave_out(0.5)
    state = interval.to_account(saved)
    assert (interval.seconds, state.device_seconds) == (4.5, 3 + 4 * 1.5)
    assert interval.to_account(state) == state


def test_a_trainer_puts_its_time_on_the_account(tmp_path: Path) -> None:
    """A little more than its log lines tell: what came behind the last of them is on it, too."""
    state = trained(trainer_of(tmp_path, log_every=4)).state
    assert (state.device_seconds or 0) > 0.5 * state.seconds > 0


def test_a_run_that_was_begun_without_an_account_goes_on_without_one(tmp_path: Path) -> None:
    trained(trainer_of(tmp_path, max_updates=3))
    checkpoint = checkpoint_path(tmp_path / "run", 3)
    state = json.loads((checkpoint / "state.json").read_text())
    del state["flops"], state["device_seconds"], state["between_intervals"]
    (checkpoint / "state.json").write_text(json.dumps(state))
    write_checksums(checkpoint, CHECKPOINT_FILES)
    state_at_end = trained(trainer_of(tmp_path)).state
    assert state_at_end.step == 6
    assert (state_at_end.flops, state_at_end.device_seconds) == (None, None)
