"""The training loop: it learns, and its result depends on neither threads nor interruptions."""

import dataclasses
import errno
import math
import os
import re
import signal
from collections.abc import Callable, Sequence
from itertools import cycle, product
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest
from waiting import wait_until

from autograd import RandomStream, backward
from minitransformer.config import ModelConfig, TrainingConfig
from minitransformer.data.batching import plan_epoch, read_batch
from minitransformer.inference.bleu import Score
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training import interrupt
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.checkpoint import Snapshot, checkpoints
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.loop import Trainer
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from parallel.communicator import SerialCommunicator
from tests.support.training import TINY, copy_store

TRAINING = TrainingConfig(
    max_updates=8,
    batch_tokens=60,
    n_micro_batches=2,
    precision="float32",
    warmup_steps=20,
    log_every=2,
    checkpoint_every=100,
    validate_every=100,
)
SEQUENCES, BATCHES_PER_EPOCH = 30, 3
BFLOAT16: dict[str, dict[str, Any]] = {
    "bfloat16 products": {"precision": "bfloat16"},
    "stored bfloat16": {"precision": "bfloat16", "dtype": "bfloat16"},
}


class Recorder(Callback):
    """Remembers what a run tells, and does something after an update."""

    def __init__(self, after: Callable[[int], None] = lambda step: None) -> None:
        self.after, self.steps, self.reports = after, [], []

    steps: list[int]
    reports: list[Any]

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        self.steps.append(state.step)
        self.after(state.step)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        self.reports.append(report)


class FixedLosses:
    """A validation whose losses, and BLEU, are given beforehand."""

    def __init__(self, *losses: float, scores: Sequence[float] = (0.0,)) -> None:
        self._losses, self._scores = iter(losses), cycle(scores)

    def report(self, model: Transformer, step: int, callback: Callback) -> ValidationReport:
        measures = callback.validated(model, None, [], [], [])  # type: ignore[arg-type]
        loss = next(self._losses)
        score = Score("BLEU", next(self._scores), "signature", "detail")
        return ValidationReport(step, loss, math.exp(loss), score, measures=measures or {})


def trainer_of(
    folder: Path,
    *,
    n_threads: int = 1,
    validation: Any = None,
    model: ModelConfig = TINY,
    run: str = "run",
    dtype: str = "float32",
    **changes: Any,
) -> Trainer:
    config = dataclasses.replace(TRAINING, **changes)
    network = Transformer(model, seed=config.seed, dtype=dtype)
    world = SerialCommunicator()
    return Trainer(network, copy_store(folder, SEQUENCES), validation, config, folder / run, world, n_threads=n_threads)


def trained(folder: Path, **changes: Any) -> Trainer:
    trainer = trainer_of(folder, **changes)
    trainer.resume()
    assert trainer.train(Callback())
    return trainer


def everything(trainer: Trainer) -> tuple[Any, ...]:
    """All that the future of a run depends on, bit for bit."""
    arrays = (trainer.model.parameters.values, trainer.adam.m, trainer.adam.v)
    clocks = {"seconds": 0, "unlogged_seconds": 0, "device_seconds": 0}
    return (*(array.tobytes() for array in arrays), dataclasses.replace(trainer.state, **clocks))


def interrupting_at(step: int, number: signal.Signals = signal.SIGINT) -> Recorder:
    return Recorder(lambda now: signal.raise_signal(number) if now == step else None)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_a_process_left_that_was_killed_at_the_very_end_goes_when_the_run_is_taken_up(tmp_path: Path) -> None:
    trained(tmp_path)
    (tmp_path / "run" / "checkpoints" / ".step-00000004.4711.removed").mkdir()
    assert trainer_of(tmp_path).resume()
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000008"]


@pytest.mark.parametrize(
    "changes", [{}, {"seed": 2}, {"n_micro_batches": 4}, {"beta2": 0.97}, {"precision": "bfloat16"}]
)
def test_seed_micro_batches_beta_and_precision_decide_the_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    one, two = (
        everything(trained(tmp_path, run=name, **settings)) for name, settings in (("one", {}), ("two", changes))
    )
    assert (one[0] == two[0]) == (not changes)
    assert (one == two) == (not changes)


@pytest.mark.parametrize(("n_threads", "numbers"), [(2, "float32"), (3, "float32"), *product([2], BFLOAT16)])
def test_the_number_of_threads_changes_no_bit(tmp_path: Path, n_threads: int, numbers: str) -> None:
    changes = {"n_micro_batches": 4, **BFLOAT16.get(numbers, {})}
    alone = trained(tmp_path, run="one", **changes)
    more = trained(tmp_path, run="more", n_threads=n_threads, **changes)
    assert everything(more) == everything(alone)


@pytest.mark.parametrize(
    ("first", "numbers"), [(1, "float32"), (3, "float32"), (4, "float32"), (7, "float32"), *product([3], BFLOAT16)]
)
def test_resuming_equals_training_in_one_go_bit_for_bit(tmp_path: Path, first: int, numbers: str) -> None:
    changes = BFLOAT16.get(numbers, {})
    whole = trained(tmp_path, run="whole", **changes)
    trained(tmp_path, run="parts", **changes, max_updates=first)
    assert everything(trained(tmp_path, run="parts", **changes)) == everything(whole)


def test_the_state_counts_updates_epochs_and_batches(tmp_path: Path) -> None:
    assert len(plan_epoch(copy_store(tmp_path, SEQUENCES).read().lengths, 60, seed=1, epoch=0)) == BATCHES_PER_EPOCH
    state = trained(tmp_path, max_updates=BATCHES_PER_EPOCH + 1).state
    assert (state.step, state.epoch, state.next_batch, state.best) == (4, 1, 1, None)


def test_checkpoints_come_at_their_interval_and_at_the_end_and_the_last_one_is_resumed(tmp_path: Path) -> None:
    assert not trainer_of(tmp_path).resume()
    trained(tmp_path, checkpoint_every=3, max_updates=7)
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000003", "step-00000006", "step-00000007"]
    trainer = trainer_of(tmp_path)
    assert trainer.resume()
    assert trainer.state.step == 7


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    trained(tmp_path, checkpoint_every=2, keep_checkpoints=2, average_checkpoints=1)
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000006", "step-00000008"]


def test_a_finished_run_trains_no_further(tmp_path: Path) -> None:
    before = everything(trained(tmp_path))
    again = trainer_of(tmp_path)
    again.resume()
    monitor = Recorder()
    assert again.train(monitor)
    assert monitor.steps == []
    assert everything(again) == before


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_copying_is_learnt(tmp_path: Path, precision: str) -> None:
    trainer = trainer_of(
        tmp_path,
        model=dataclasses.replace(TINY, d_model=32, d_ff=64, d_k=16, d_v=16, p_drop=0.0, label_smoothing=0.0),
        max_updates=100,
        log_every=20,
        warmup_steps=30,
        learning_rate_factor=0.2,
        precision=precision,
    )
    monitor = Recorder()
    trainer.train(monitor)
    losses = [report.loss for report in monitor.reports]
    assert losses[0] > 2.0
    assert losses[-1] < 0.2 * losses[0]


def test_reports_come_at_their_interval_and_at_the_end(tmp_path: Path) -> None:
    monitor = Recorder()
    trainer_of(tmp_path, log_every=3).train(monitor)
    assert [report.step for report in monitor.reports] == [3, 6, 8]
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
    np.testing.assert_allclose(trainer.adam.m, expected, rtol=1e-3, atol=1e-7)


def test_a_report_holds_the_learning_rate_and_the_epoch_of_its_update(tmp_path: Path) -> None:
    monitor = Recorder()
    trainer_of(tmp_path, log_every=5, max_updates=5).train(monitor)
    assert monitor.reports[0].learning_rate == pytest.approx(16**-0.5 * 5 * 20**-1.5, rel=1e-12)
    assert monitor.reports[0].epoch == 1
    assert monitor.reports[0].target_tokens_per_second > 0


def test_every_update_and_micro_batch_has_its_own_randomness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[tuple[int, ...]] = []

    def noted(*key: int) -> RandomStream:
        streams.append(key)
        return RandomStream(*key)

    monkeypatch.setattr("minitransformer.training.update.RandomStream", noted)
    trained(tmp_path, seed=7, max_updates=2)
    assert streams == [(7, 1, 0), (7, 1, 1), (7, 2, 0), (7, 2, 1)]


def test_micro_batches_only_divide_the_work(tmp_path: Path) -> None:
    undropped = dataclasses.replace(TINY, p_drop=0.0)
    one, four = (trained(tmp_path, run=str(n), model=undropped, max_updates=1, n_micro_batches=n) for n in (1, 4))
    np.testing.assert_allclose(four.adam.m, one.adam.m, rtol=1e-4, atol=1e-7)


def test_more_micro_batches_than_pairs_are_no_obstacle(tmp_path: Path) -> None:
    assert np.isfinite(trained(tmp_path, n_micro_batches=64, max_updates=2).model.parameters.values).all()


def test_clipping_bounds_the_gradient_that_adam_sees(tmp_path: Path) -> None:
    free, clipped = (trained(tmp_path, run=str(norm), max_updates=1, clip_norm=norm) for norm in (None, 0.01))
    assert np.linalg.norm(clipped.adam.m) == pytest.approx(0.1 * 0.01, rel=1e-3)
    assert np.linalg.norm(free.adam.m) > np.linalg.norm(clipped.adam.m)


def test_the_best_model_so_far_is_kept_in_the_run(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, validation=FixedLosses(3.0, 1.0, 2.0, 1.5), validate_every=2)
    kept: dict[int, Any] = {}
    monitor = Recorder(lambda step: kept.update({step: trainer.model.parameters.values.copy()}))
    trainer.train(monitor)
    validations = [report for report in monitor.reports if isinstance(report, ValidationReport)]
    assert [(report.step, report.best) for report in validations] == [(2, True), (4, True), (6, False), (8, False)]
    assert np.array_equal(Transformer.load(tmp_path / "run").parameters.values, kept[4])
    assert trainer.state.best == ("loss", 1.0)


def test_the_best_loss_so_far_survives_an_interruption(tmp_path: Path) -> None:
    first = trainer_of(tmp_path, validation=FixedLosses(1.0), validate_every=4)
    first.train(interrupting_at(5))
    second, monitor = trainer_of(tmp_path, validation=FixedLosses(2.0), validate_every=4), Recorder()
    second.resume()
    second.train(monitor)
    assert [report.best for report in monitor.reports if isinstance(report, ValidationReport)] == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 3, 5])
def test_a_signal_saves_at_once_and_the_resumed_run_ends_like_an_undisturbed_one(
    tmp_path: Path, logged: list[str], step: int, number: signal.Signals
) -> None:
    interrupted, monitor = trainer_of(tmp_path, run="disturbed"), interrupting_at(step, number)
    assert not interrupted.train(monitor)
    assert [path.name for path in checkpoints(tmp_path / "disturbed")] == [f"step-{step:08d}"]
    assert monitor.steps[-1] == step
    assert logged == [f"interrupted after update {step} and saved; the same run goes on from there"]
    assert everything(trained(tmp_path, run="disturbed")) == everything(trained(tmp_path, run="whole"))


def test_signal_handlers_are_those_of_before_after_training(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    trainer_of(tmp_path).train(interrupting_at(2))
    trained(tmp_path)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_ctrl_c_announces_a_long_update(tmp_path: Path, logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "LONG_UPDATE", 0.05)
    notice = "finishing this update, then saving; Ctrl-C again ends at once, without saving"

    def in_a_long_update(step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        wait_until(lambda: notice in logged)

    assert not trainer_of(tmp_path).train(Recorder(in_a_long_update))
    assert logged[0] == notice


def test_a_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    def twice(step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trainer_of(tmp_path).train(Recorder(twice))


def test_parameters_that_are_not_numbers_are_not_saved(tmp_path: Path) -> None:
    trained(tmp_path, max_updates=2)
    trainer = trainer_of(tmp_path, max_updates=4)
    trainer.resume()
    trainer.model.parameters.values[...] = np.nan
    with pytest.raises(TrainingDivergedError, match=r"update 4: there are parameters that are not finite; .*unharmed"):
        trainer.train(Callback())
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002"]
    assert everything(trained(tmp_path)) == everything(trained(tmp_path, run="whole"))


def refuse(descriptor: int) -> Never:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_save_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    trainer = trainer_of(tmp_path, checkpoint_every=2)

    def disturb(step: int) -> None:
        if step == 3:
            trainer.checkpoints.writer.wait()  # the checkpoint after update 2
            monkeypatch.setattr(os, "fsync", refuse)
        if step == 5:
            trainer.checkpoints.writer.wait()
            monkeypatch.undo()
        if step == 6:
            assert logged, "a failure is reported after the next update, not only at the next save"

    monitor = Recorder(disturb)
    assert trainer.train(monitor)
    assert len(logged) == 1
    assert re.search("warning: .*step-00000004: cannot be written .*No space left.*; training goes on", logged[0])
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002", "step-00000006", "step-00000008"]
    assert everything(trained(tmp_path, run="whole", checkpoint_every=2)) == everything(trainer)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_run_whose_last_save_fails_says_so_and_goes_on_from_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool, logged: list[str]
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
            monkeypatch.setattr(os, "fsync", refuse)
            if interrupted:
                signal.raise_signal(signal.SIGINT)

    monitor = Recorder(disturb)
    with pytest.raises(CheckpointError, match="No space left on device"):
        trainer.train(monitor)
    monkeypatch.undo()
    assert not any("and saved" in line for line in logged)
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002", "step-00000004", "step-00000006"]
    assert everything(trained(tmp_path)) == everything(trained(tmp_path, run="whole"))
