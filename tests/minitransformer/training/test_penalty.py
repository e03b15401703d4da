"""A penalty is added once for each update, for any number of micro-batches, threads and ranks."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autograd import Tensor, backward
from autograd.optim import Adam
from minitransformer import Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import read_batch
from minitransformer.training.loop import Trainer
from parallel.communicator import SerialCommunicator
from tests.support.training import TINY, Recorder, copy_store

CONFIG = TrainingConfig(max_updates=5, batch_tokens=60, precision="float32", warmup_steps=3, log_every=1)
MODEL = dataclasses.replace(TINY, p_drop=0.0)


class Decaying(Transformer):
    """A model with weight decay on one matrix, which counts its calls."""

    calls = 0

    def penalty(self) -> Tensor:
        Decaying.calls += 1
        weight = self.encoder.layers[0].feed_forward.hidden.weight
        return (weight * weight).sum() * 0.3


def trained(folder: Path, kind: type[Transformer] = Decaying, **changes: Any) -> tuple[Any, list[float]]:
    """Return the parameters after training, and the loss of each update."""
    n_threads, dtype = changes.pop("n_threads", 1), changes.pop("dtype", "float64")
    config = dataclasses.replace(CONFIG, **changes)
    model, recorder = kind(MODEL, dtype=dtype), Recorder()
    store = copy_store(folder, 30)
    trainer = Trainer(
        model, store, None, config, folder / str(len(list(folder.iterdir()))), SerialCommunicator(), n_threads=n_threads
    )
    assert trainer.train(recorder)
    return model.parameters.values.copy(), [report.loss for report in recorder.reports]


@pytest.mark.parametrize("n_micro_batches", [1, 2, 8, 32])
def test_the_number_of_micro_batches_changes_nothing_but_rounding(n_micro_batches: int, tmp_path: Path) -> None:
    """With 32, most micro-batches are empty; the expected parameters are those of a loop written by hand."""
    Decaying.calls = 0
    found, losses = trained(tmp_path, n_micro_batches=n_micro_batches)
    assert Decaying.calls == CONFIG.max_updates
    expected, expected_losses = trained_by_hand(tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert losses == pytest.approx(expected_losses, rel=1e-10)
    without, _ = trained(tmp_path, Transformer, n_micro_batches=n_micro_batches)
    assert np.abs(found - without).max() > 1e-3


def trained_by_hand(folder: Path) -> tuple[Any, list[float]]:
    """Train with the gradient of loss / tokens + penalty, without the training loop."""
    model = Decaying(MODEL, dtype="float64")
    trainer = Trainer(
        model,
        copy_store(folder, 30),
        None,
        dataclasses.replace(CONFIG, n_micro_batches=1),
        folder / "by hand",
        SerialCommunicator(),
        n_threads=1,
    )
    adam, losses = Adam(model.parameters), []
    for step in range(1, CONFIG.max_updates + 1):
        batch = read_batch(trainer.pairs, trainer._next_batch())
        mean = model.loss(batch) * (1 / batch.n_target_tokens) + model.penalty()
        backward(mean)
        adam.step(trainer.learning_rate(step), step)
        losses.append(float(mean))
    return model.parameters.values, losses


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_a_bit(n_threads: int, tmp_path: Path) -> None:
    found, expected = (trained(tmp_path, n_micro_batches=4, n_threads=n, dtype="float32")[0] for n in (n_threads, 1))
    assert np.array_equal(found, expected)


def test_no_penalty_is_the_default() -> None:
    assert Transformer(MODEL).penalty() is None


class Infinite(Transformer):
    def penalty(self) -> Tensor:
        return (self.encoder.layers[0].feed_forward.hidden.weight * np.inf).sum()


def test_an_update_with_an_infinite_penalty_is_skipped(tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        found, _ = trained(tmp_path, Infinite, n_micro_batches=2, max_updates=2)
    assert np.array_equal(found, Infinite(MODEL, dtype="float64").parameters.values)
