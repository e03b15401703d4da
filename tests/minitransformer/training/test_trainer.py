"""The training loop: it learns, and its result depends on neither threads nor interruptions."""

import dataclasses
import math
import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import Mock

import numpy as np
import pytest
from waiting import wait_until

from autograd import RandomStream, backward
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import plan_epoch, read_batch
from minitransformer.inference.bleu import Score
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training import interrupt
from minitransformer.training.callbacks import Callback, ValidationReport
from minitransformer.training.checkpoint import Snapshot
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.loop import Trainer
from parallel.communicator import SerialCommunicator
from tests.support.training import FULL_DISK, TINY, Recorder, StoppingMonitor, copy_store, file_size_limit, names_in

TRAINING = TrainingConfig(
    max_updates=8, batch_tokens=60, n_micro_batches=2, precision="float32", warmup_steps=20, log_every=2
)
SEQUENCES = 30  # three batches an epoch


class FixedLosses:
    """A validation whose losses, and BLEU, are given beforehand; before it reports, ``meanwhile`` gets the update."""

    def __init__(
        self, *losses: float, scores: Sequence[float] = (0.0,), meanwhile: Callable[[int], object] = lambda step: None
    ) -> None:
        self._losses, self._scores, self._meanwhile = iter(losses), cycle(scores), meanwhile

    def report(self, model: Transformer, step: int, callback: Callback) -> ValidationReport:
        callback.validating(0, 1)
        self._meanwhile(step)
        measures = callback.validated(model, None, [], [], [])  # type: ignore[arg-type]
        loss = next(self._losses)
        score = Score("BLEU", next(self._scores), "signature", "detail")
        return ValidationReport(step, loss, math.exp(loss), score, measures=measures or {})


def trainer_of(
    folder: Path, *, run: str = "run", n_threads: int = 1, validation: Any = None, store: Any = None, **changes: Any
) -> Trainer:
    """``changes`` are settings of the training; and ``model``, its configuration, and ``dtype``."""
    model, dtype = changes.pop("model", TINY), changes.pop("dtype", "float32")
    config = dataclasses.replace(TRAINING, **changes)
    network, store = Transformer(model, seed=config.seed, dtype=dtype), store or copy_store(folder, SEQUENCES)
    return Trainer(network, store, validation, config, folder / run, SerialCommunicator(), n_threads=n_threads)


def trained(folder: Path, **changes: Any) -> Trainer:
    trainer = trainer_of(folder, **changes)
    trainer.resume()
    assert trainer.train(Callback())
    return trainer


def everything(trainer: Trainer) -> tuple[Any, ...]:
    """All that the future of a run depends on, bit for bit."""
    arrays = (trainer.model.parameters.values, trainer.optimizer.m, trainer.optimizer.v)
    clocks = {"seconds": 0, "unlogged_seconds": 0, "device_seconds": 0}
    return (*(array.tobytes() for array in arrays), dataclasses.replace(trainer.state, **clocks))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """All that a run of these settings ends with."""
    return everything(trained(tmp_path_factory.mktemp("whole")))


def test_seed_micro_batches_beta_and_precision_decide_the_bits(tmp_path: Path, whole: tuple[Any, ...]) -> None:
    changes: Any = ({}, {"seed": 2}, {"n_micro_batches": 4}, {"beta2": 0.97}, {"precision": "bfloat16"})
    found = [everything(trained(tmp_path, run=str(i), **change)) for i, change in enumerate(changes)]
    assert len({parameters for parameters, *_ in found}) == len(changes)
    assert found[0] == whole


@pytest.mark.parametrize(
    "numbers", [{}, {"precision": "bfloat16"}, {"precision": "bfloat16", "dtype": "bfloat16"}], ids=str
)
def test_neither_the_number_of_threads_nor_resuming_changes_a_bit(tmp_path: Path, numbers: dict[str, Any]) -> None:
    changes = {"n_micro_batches": 4, **numbers}
    whole = everything(trained(tmp_path, run="whole", **changes))
    for n_threads in (2,) if numbers else (2, 3):
        assert everything(trained(tmp_path, run=f"{n_threads} threads", n_threads=n_threads, **changes)) == whole
    for first in (3,) if numbers else (1, 3, 4, 7):
        trained(tmp_path, run=f"from {first}", **changes, max_updates=first)
        assert everything(trained(tmp_path, run=f"from {first}", **changes)) == whole, first


def test_checkpoints_come_at_their_interval_and_the_end_and_those_of_interruptions_go(tmp_path: Path) -> None:
    changes = {"checkpoint_every": 2, "keep_checkpoints": 3, "average_checkpoints": 1}

    def saved() -> list[str]:
        return [name.removeprefix("step-0000000") for name in names_in(tmp_path / "run" / "checkpoints")]

    trainer = trainer_of(tmp_path, **changes)
    assert not trainer.resume()
    assert not trainer.train(StoppingMonitor(3))
    assert saved() == ["2", "3"]
    trained(tmp_path, **changes, max_updates=7)
    assert saved() == ["4", "6", "7"]
    before = everything(trained(tmp_path, **changes))
    assert saved() == ["4", "6", "8"]
    again, monitor = trainer_of(tmp_path, **changes), Recorder()
    assert again.resume()
    assert again.train(monitor)
    assert monitor.steps == [], "a finished run trains no further"
    assert everything(again) == before


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_copying_is_learnt(tmp_path: Path, precision: str) -> None:
    model = dataclasses.replace(TINY, d_model=32, d_ff=64, d_k=16, d_v=16, p_drop=0.0, label_smoothing=0.0)
    rate = {"warmup_steps": 30, "learning_rate_factor": 0.2}
    trainer = trainer_of(tmp_path, model=model, max_updates=100, log_every=20, precision=precision, **rate)
    trainer.train(monitor := Recorder())
    losses = [report.loss for report in monitor.reports]
    assert losses[0] > 2.0
    assert losses[-1] < 0.2 * losses[0]


def test_reports_come_at_their_interval_and_at_the_end_with_learning_rate_and_epoch(tmp_path: Path) -> None:
    monitor = Recorder()
    trainer_of(tmp_path, log_every=3).train(monitor)
    assert [(report.step, report.epoch) for report in monitor.reports] == [(3, 0), (6, 1), (8, 2)]
    assert monitor.reports[-1].learning_rate == pytest.approx(16**-0.5 * 8 * 20**-1.5, rel=1e-12)
    assert monitor.reports[-1].target_tokens_per_second > 0
    assert monitor.steps == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_first_update_is_that_of_the_mean_loss_per_target_token(tmp_path: Path) -> None:
    undropped = dataclasses.replace(TINY, p_drop=0.0)
    trainer, monitor = trainer_of(tmp_path, model=undropped, log_every=1, max_updates=1), Recorder()
    alone = Transformer(undropped, seed=1)
    batch = read_batch(trainer.pairs, plan_epoch(trainer.pairs.lengths, 60, seed=1, epoch=0)[0])
    loss = alone.loss(batch)
    backward(loss, into=alone.parameters.gradients)
    trainer.train(monitor)
    assert monitor.reports[0].loss == pytest.approx(float(loss) / batch.n_target_tokens, rel=1e-5)
    expected = 0.1 * alone.parameters.gradients / batch.n_target_tokens
    np.testing.assert_allclose(trainer.optimizer.m, expected, rtol=1e-3, atol=1e-7)


def test_every_update_and_micro_batch_has_its_own_randomness(tmp_path: Path) -> None:
    with mock.patch("minitransformer.training.update.RandomStream", wraps=RandomStream) as streams:
        trained(tmp_path, seed=7, max_updates=2)
    assert [call.args for call in streams.call_args_list] == [(7, 1, 0), (7, 1, 1), (7, 2, 0), (7, 2, 1)]


def test_micro_batches_even_more_than_pairs_only_divide_the_work(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"model": dataclasses.replace(TINY, p_drop=0.0), "max_updates": 1}
    one, *others = (trained(tmp_path, run=str(n), n_micro_batches=n, **changes) for n in (1, 4, 64))
    for other in others:
        np.testing.assert_allclose(other.optimizer.m, one.optimizer.m, rtol=1e-4, atol=1e-7)


def test_clipping_bounds_the_gradient_that_adam_sees(tmp_path: Path) -> None:
    free, clipped = (trained(tmp_path, run=str(norm), max_updates=1, clip_norm=norm) for norm in (None, 0.01))
    assert np.linalg.norm(clipped.optimizer.m) == pytest.approx(0.1 * 0.01, rel=1e-3)
    assert np.linalg.norm(free.optimizer.m) > np.linalg.norm(clipped.optimizer.m)


def test_the_best_model_so_far_is_kept_in_the_run(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, validation=FixedLosses(3.0, 1.0, 2.0, 1.5), validate_every=2)
    kept: dict[int, Any] = {}
    monitor = Recorder(lambda step: kept.update({step: trainer.model.parameters.values.copy()}))
    trainer.train(monitor)
    validations = [report for report in monitor.reports if isinstance(report, ValidationReport)]
    assert [(report.step, report.best) for report in validations] == [(2, True), (4, True), (6, False), (8, False)]
    assert np.array_equal(Transformer.load(tmp_path / "run").parameters.values, kept[4])
    assert trainer.state.best == ("loss", 1.0)


def test_a_signal_saves_at_once_and_the_run_goes_on(tmp_path: Path, logged: list[str], whole: tuple[Any, ...]) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    for step, number in zip((1, 3, 5), (signal.SIGINT, signal.SIGTERM, signal.SIGINT), strict=True):
        interrupted, monitor = trainer_of(tmp_path, run="disturbed"), StoppingMonitor(step, number)
        interrupted.resume()
        assert not interrupted.train(monitor)
        assert names_in(tmp_path / "disturbed" / "checkpoints") == [f"step-{step:08d}"]
        assert monitor.steps[-1] == step
        assert logged.pop() == f"interrupted after update {step} and saved; the same run goes on from there"
        assert [signal.getsignal(number) for number in numbers] == handlers
    assert logged == []
    assert everything(trained(tmp_path, run="disturbed")) == whole
    assert [signal.getsignal(number) for number in numbers] == handlers


def test_ctrl_c_twice_ends_a_long_update(tmp_path: Path, logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "LONG_UPDATE", 0.05)
    notice = "finishing this update, then saving; Ctrl-C again ends at once, without saving"

    def in_a_long_update(step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        wait_until(lambda: notice in logged)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trainer_of(tmp_path).train(Recorder(in_a_long_update))
    assert logged == [notice]


def test_parameters_that_are_not_numbers_are_not_saved(tmp_path: Path, whole: tuple[Any, ...]) -> None:
    trained(tmp_path, max_updates=2)
    trainer = trainer_of(tmp_path, max_updates=4)
    trainer.resume()
    trainer.model.parameters.values[...] = np.nan
    with pytest.raises(TrainingDivergedError, match=r"update 4: there are parameters that are not finite; .*unharmed"):
        trainer.train(Callback())
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002"]
    assert everything(trained(tmp_path)) == whole


def test_a_full_disk_is_reported_once_and_a_failed_save_tried_again(tmp_path: Path, logged: list[str]) -> None:
    trainer = trainer_of(tmp_path, checkpoint_every=2)

    def disturb(step: int) -> None:
        if step == 3:
            trainer.checkpoints.writer.wait()  # the checkpoint after update 2
            limit.enter_context(file_size_limit(4_000))
        if step == 5:
            trainer.checkpoints.writer.wait()
            limit.close()
        if step == 6:
            assert logged, "a failure is reported after the next update, not only at the next save"

    with ExitStack() as limit:
        assert trainer.train(Recorder(disturb))
    assert len(logged) == 1
    assert re.search("warning: .*step-00000004.*cannot be written .*; training goes on", logged[0])
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002", "step-00000006", "step-00000008"]
    assert everything(trained(tmp_path, run="whole", checkpoint_every=2)) == everything(trainer)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_run_whose_last_save_fails_says_so_and_goes_on_from_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool, logged: list[str], whole: tuple[Any, ...]
) -> None:
    trainer = trainer_of(tmp_path, checkpoint_every=2)
    begin_saving = trainer.checkpoints.writer.save

    def save_and_wait(snapshot: Snapshot) -> None:
        begin_saving(snapshot)
        trainer.checkpoints.writer.wait()  # the failure is there before anybody asks for it

    def disturb(step: int) -> None:
        if step == 7:
            trainer.checkpoints.writer.wait()
            monkeypatch.setattr(trainer.checkpoints.writer, "save", save_and_wait)
            monkeypatch.setattr(os, "fsync", Mock(side_effect=FULL_DISK))
            if interrupted:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(CheckpointError, match="No space left on device"):
        trainer.train(Recorder(disturb))
    monkeypatch.undo()
    assert not any("and saved" in line for line in logged)
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002", "step-00000004", "step-00000006"]
    assert everything(trained(tmp_path)) == whole
