"""Numbers that go wrong: never in the parameters, skipped, gone back from, logged, and at last in a repro bundle."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from minitransformer.config import TrainingConfig
from minitransformer.extras.doctor.check import replay_repro_bundle
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training import divergence
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import checkpoints
from minitransformer.training.divergence import DivergenceGuard, Results, TrainingDivergedError, UpdateFacts
from minitransformer.training.loop import Trainer
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from tests.minitransformer.training.test_trainer import trainer_of as any_trainer
from tests.support.training import TINY, Recorder, copy_store

STATE = TrainingState(step=4, epoch=2, next_batch=3)
IsBad = Callable[[int, int], bool]  # of epoch and index of the batch


def sound(norm: float) -> divergence.Update:
    return divergence.Update(STATE, np.arange(2), StepResult(9, lambda: np.array([1.0, norm, 0.1]), flops=5))


def read(guard: DivergenceGuard, norms: list[float]) -> None:
    for norm in norms:
        guard.add(sound(norm))
        guard.read()


@pytest.mark.parametrize("value", [STATE, sound(1.0), divergence.Rollback((), "")], ids=lambda x: type(x).__name__)
def test_what_callbacks_and_the_guard_receive_cannot_be_changed_in_place(value: Any) -> None:
    """A rollback returns to an earlier state."""
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, getattr(value, name))


@pytest.mark.parametrize(
    ("before", "norm", "n_warnings"),  # the usual norm is the median of the last hundred, if there are ten
    [
        ([1.0] * 9, 50.0, 0),
        ([1.0] * 10, 50.0, 1),
        ([1.0] * 10, 10.0, 0),
        ([0.001, 5.0], 900.0, 0),  # the first of a run are no spikes
        ([100.0] * 50 + [1.0] * 50, 20.0, 0),  # the median is 50.5
        ([100.0] * 50 + [1.0] * 51, 20.0, 1),  # the first norm is older than the last hundred
    ],
)
def test_a_spike_is_ten_times_a_usual_norm(
    before: list[float], norm: float, n_warnings: int, logged: list[str]
) -> None:
    read(DivergenceGuard(), [*before, norm])
    usual = f"{np.median(before[-100:]):.3g}"
    message = (
        f"warning: update 4: the gradient's norm is {norm:.3g}, usually about {usual} (training.clip_norm bounds it)"
    )
    assert logged == [message] * n_warnings


def test_results_of_the_last_updates_are_left_until_one_is_not_finite() -> None:
    guard = DivergenceGuard()
    for norm in (1.0, math.nan, 1.0, math.nan):
        guard.add(sound(norm))
    assert guard.read(but=3) == Results(flops=5, loss=1.0, n_tokens=9)
    assert guard.is_sound
    assert guard.read(but=2) == Results(10, 1.0, 9)  # of the third update, because the second was skipped
    assert guard.is_sound
    assert guard.read(but=1) == Results(0, 0.0, 0)
    assert guard.is_sound


def test_after_going_back_norms_are_compared_with_new_ones_alone(logged: list[str]) -> None:
    guard = DivergenceGuard()
    read(guard, [1.0] * 19 + [2.0] + [math.nan] * divergence.PATIENCE)
    assert guard.norm == 2  # of the last gradient that changed parameters
    assert guard.rollback()
    assert guard.is_sound
    assert guard.norm == 0
    logged.clear()
    read(guard, [50.0])
    assert logged == []


def test_other_ranks_wait_until_the_repro_bundle_is_written_before_they_end(tmp_path: Path) -> None:
    model, store = Transformer(TINY, seed=1), copy_store(tmp_path / "data", 3)
    facts = UpdateFacts.of(STATE, np.arange(2), TrainingConfig(), 0.1, "the loss is not finite")
    second_rank = Mock(rank=1, size=2)
    with pytest.raises(TrainingDivergedError):
        divergence.give_up(tmp_path / "run", model, store, facts, np.zeros(3), second_rank)
    second_rank.barrier.assert_called_once_with()
    assert not (tmp_path / "run").exists()


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "PATIENCE", 2)


def trainer_of(folder: Path, is_bad: IsBad = lambda *_: False, value: float = np.nan, **changes: Any) -> Trainer:
    """One whose gradients have a number that is none, for batches that are bad."""
    folder.mkdir(exist_ok=True)
    trainer = any_trainer(folder, store=copy_store(folder, 60), **{"max_updates": 20, "checkpoint_every": 4} | changes)
    compute = trainer.gradient.compute

    def computing(*arguments: Any) -> Any:
        loss = compute(*arguments)
        if is_bad(trainer.state.epoch, trainer.state.next_batch - 1):
            trainer.model.parameters.gradients[5] = value
        return loss

    trainer.gradient.compute = computing  # type: ignore[method-assign]
    return trainer


def bits(trainer: Trainer) -> tuple[bytes, ...]:
    return tuple(
        array.tobytes() for array in (trainer.model.parameters.values, trainer.optimizer.m, trainer.optimizer.v)
    )


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_training_goes_on_unchanged_by_an_infinite_gradient(tmp_path: Path, logged: list[str], value: float) -> None:
    trainer, before = trainer_of(tmp_path, lambda epoch, index: (epoch, index) == (0, 2), value), list[Any]()
    assert trainer.train(Recorder(lambda step: before.append(bits(trainer))))
    assert before[1] == before[2]  # the third update
    assert len({one[0] for one in before}) == len(before) - 1
    assert trainer.state.step == 20
    assert [line for line in logged if "skipped" in line] == [
        f"warning: update 3: the gradient's norm is {'inf' if np.isinf(value) else 'nan'}; it is skipped, 1 in a row"
        " (at 2 training goes back)"
    ]


def test_a_loss_that_is_not_finite_is_enough(tmp_path: Path, logged: list[str]) -> None:
    trainer = trainer_of(tmp_path, max_updates=3)
    compute = trainer.gradient.compute
    trainer.gradient.compute = (  # type: ignore[method-assign]
        lambda *arguments: compute(*arguments) * (np.inf if trainer.state.step == 2 else 1)
    )
    assert trainer.train(Callback())
    assert any("update 2: the loss is not finite; it is skipped" in line for line in logged)


def test_skipped_updates_that_are_not_in_a_row_do_not_add_up(tmp_path: Path, logged: list[str]) -> None:
    monitor = Recorder()
    assert trainer_of(tmp_path, lambda epoch, index: index % 2 == 1).train(monitor)
    assert monitor.went_back_to == []
    assert sum("1 in a row" in line for line in logged) == 10


def bad_pair(epoch: int, index: int) -> bool:
    return epoch == 1 and index in (4, 5)  # updates 11 and 12


def test_after_a_few_in_a_row_training_goes_back_and_avoids_their_batches(tmp_path: Path, logged: list[str]) -> None:
    """Updates that were undone, here the ninth and tenth, stay on the account."""
    trainer, monitor = trainer_of(tmp_path / "went back", bad_pair, checkpoint_every=8), Recorder()
    assert trainer.train(monitor)
    assert monitor.went_back_to == [8]
    assert logged[-1] == "going on from update 8, without 2 batches"
    assert trainer.state.avoided == ((1, 0, 4), (1, 0, 5))
    assert trainer.state.step == 20
    assert (trainer.state.epoch, trainer.state.next_batch) == (3, 4)  # two batches further than without
    other = trainer_of(tmp_path / "never met them", checkpoint_every=8)
    other.state = dataclasses.replace(other.state, avoided=trainer.state.avoided)
    assert other.train(Callback())
    assert bits(trainer) == bits(other)
    at_checkpoint, before, back = monitor.states[7], monitor.states[10], monitor.states[11]
    assert (at_checkpoint.step, before.step, back.step) == (8, 11, 8)
    assert at_checkpoint.flops < before.flops < back.flops
    assert trainer.state.flops == other.state.flops + back.flops - at_checkpoint.flops
    assert back.device_seconds > before.device_seconds > 0
    assert trainer_of(tmp_path / "parts", bad_pair, checkpoint_every=8, max_updates=13).train(Callback())
    parts = trainer_of(tmp_path / "parts", bad_pair, checkpoint_every=8)
    assert parts.resume()
    assert parts.state.avoided == trainer.state.avoided
    assert parts.train(Callback())
    assert bits(parts) == bits(trainer)


def test_the_best_model_stays_the_best_after_going_back() -> None:
    checkpoint = TrainingState(step=8, epoch=1, next_batch=2, best=("loss", 3.0), seconds=1.5, flops=80)
    undone = TrainingState(step=12, next_batch=6, best=("loss", 2.5), seconds=2.5, flops=120, device_seconds=3.0)
    assert checkpoint.after_rollback(undone, ((1, 0, 4),)) == dataclasses.replace(
        checkpoint, best=("loss", 2.5), flops=120, device_seconds=3.0, avoided=((1, 0, 4),)
    )


def test_a_rollback_to_an_interrupted_validation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has repeated the validation since."""
    trainer = trainer_of(tmp_path, bad_pair)
    resume = trainer.resume

    def resume_at_an_interrupted_validation() -> bool:
        found = resume()
        trainer.state = dataclasses.replace(trainer.state, validation_is_due=True)
        return found

    monkeypatch.setattr(trainer, "resume", resume_at_an_interrupted_validation)
    assert trainer.train(Callback())
    assert trainer.state.step == 20


def test_checkpoints_are_not_written_while_updates_are_skipped(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, lambda epoch, index: epoch == 1 and index == 1, max_updates=9)  # update 8
    assert trainer.train(Callback())
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-00000004", "step-00000009"]


def test_the_second_time_it_gives_up_and_leaves_a_repro_bundle(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, lambda epoch, index: epoch == 1 and index >= 2)
    directory = tmp_path / "run" / "divergence" / "step-00000010"
    message = (
        f"update 10: the gradient's norm is nan, as in 2 updates in a row; .* replay it from {directory} .*; lower"
    )
    with pytest.raises(TrainingDivergedError, match=message):
        trainer.train(Callback())
    assert np.isfinite(trainer.model.parameters.values).all()
    facts = json.loads((directory / "update.json").read_text())
    norms, n_tokens = facts["norms"], (trainer.pairs.lengths[facts["pairs"], 1] + 1).sum()
    for name, parameter in trainer.model.named_parameters():
        norm = np.linalg.norm(parameter.grad) / n_tokens
        assert norms[name]["gradient"] == ("nan" if np.isnan(norm) else pytest.approx(norm, rel=1e-6))
    replay = replay_repro_bundle(directory, "float32")
    assert replay.found is None  # the number was put in by hand, after the model had computed its own
    model = Transformer.load(directory)
    assert np.array_equal(model.parameters.values, trainer.model.parameters.values)
    assert 0 < replay.mean_loss < 10


def test_a_full_disk_does_not_hide_why_training_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = CheckpointError("model.json: cannot be written (No space left on device)")
    monkeypatch.setattr(divergence, "write_repro_bundle", Mock(side_effect=error))
    with pytest.raises(TrainingDivergedError) as raised:
        trainer_of(tmp_path, lambda epoch, index: True).train(Callback())
    assert str(raised.value) == (
        "update 2: the gradient's norm is nan, as in 2 updates in a row; checkpoints are unharmed. No repro bundle"
        " of it could be written (model.json: cannot be written (No space left on device)); lower"
        " training.learning_rate_factor, or set training.clip_norm"
    )


def two_in_a_row(epoch: int, index: int) -> bool:
    return epoch == 0 and index in (4, 5)  # updates 5 and 6: the second is under way when the first is read


@pytest.mark.parametrize(
    "is_bad", [bad_pair, two_in_a_row, lambda epoch, index: index == 2, lambda epoch, index: epoch == 2 and index > 1]
)
def test_an_outcome_that_is_reported_later_changes_neither_what_is_done_nor_what_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str], is_bad: IsBad
) -> None:
    found: list[Any] = []
    for lag in (0, 1):  # 1 as with graphs of a GPU: results are read when the next update has been made
        folder, monitor, end = tmp_path / str(lag), Recorder(), ""
        logged.clear()
        trainer = trainer_of(folder, is_bad, log_every=10)
        monkeypatch.setattr(trainer.training_step, "lag", lag)
        try:
            trainer.train(monitor)
        except TrainingDivergedError as error:
            end = str(error).replace(str(folder), "")
        whole = {path.name: path.read_bytes() for path in (folder / "run").rglob("divergence/*/*")}
        account = dataclasses.replace(trainer.state, seconds=0, unlogged_seconds=0, device_seconds=0)
        steps = [(report.step, report.loss, report.flops) for report in monitor.reports]
        saved = [path.name for path in checkpoints(folder / "run")]
        found.append((end, bits(trainer), [*logged], monitor.went_back_to, account, steps, saved, whole))
    assert found[0] == found[1]
