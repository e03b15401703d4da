"""The parts of the loop by themselves: reports, the reading of results, rollbacks, the best model."""

import dataclasses
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from minitransformer.config import TrainingConfig
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training import divergence
from minitransformer.training.callbacks import TrainingReport
from minitransformer.training.checkpoint import require_same_parameters
from minitransformer.training.divergence import (
    DivergenceGuard,
    Results,
    Rollback,
    TrainingDivergedError,
    Update,
    UpdateFacts,
    give_up,
)
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from minitransformer.training.validation import keep_best
from parallel.communicator import SerialCommunicator
from tests.support.training import TINY, copy_store

STATE = TrainingState(
    step=4, epoch=2, unlogged_loss=6.0, unlogged_tokens=3, unlogged_seconds=0.5, seconds=9.0, flops=70
)


def sound(norm: float) -> Update:
    return Update(STATE, np.arange(2), StepResult(9, lambda: np.array([1.0, norm, 0.1]), flops=5))


def read(guard: DivergenceGuard, norms: list[float]) -> None:
    for norm in norms:
        guard.add(sound(norm))
        guard.read()


def test_a_report_holds_the_means_of_its_interval_and_the_totals_of_the_run() -> None:
    assert TrainingReport.of(STATE, 0.5, 0.75) == TrainingReport(4, 2, 2.0, 0.5, 0.75, 6.0, 9.0, 70)
    assert STATE.with_new_interval() == dataclasses.replace(
        STATE, unlogged_loss=0.0, unlogged_tokens=0, unlogged_seconds=0.0
    )
    without_time = TrainingReport.of(dataclasses.replace(STATE, unlogged_seconds=0.0), 0.5, 0.75)
    assert without_time.target_tokens_per_second == pytest.approx(3e9)


def test_one_process_computes_no_checksum_of_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    checksums: list[Any] = []
    monkeypatch.setattr("minitransformer.training.checkpoint.checksum", checksums.append)
    require_same_parameters(SerialCommunicator(), Transformer(TINY, seed=1), "now", "remedy")
    assert checksums == []


@pytest.mark.parametrize("value", [STATE, sound(1.0), Rollback((), "")], ids=lambda x: type(x).__name__)
def test_what_callbacks_and_the_guard_receive_cannot_be_changed_in_place(value: Any) -> None:
    """A rollback returns to an earlier state."""
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, getattr(value, name))


@pytest.mark.parametrize(
    ("before", "norm", "n_warnings"),
    [
        ([1.0] * 9, 50.0, 0),
        ([1.0] * 10, 50.0, 1),
        ([1.0] * 10, 10.0, 0),
        ([0.001, 5.0], 900.0, 0),  # the first of a run are no spikes
        ([100.0] * 50 + [1.0] * 50, 20.0, 0),  # the median is 50.5
        ([100.0] * 50 + [1.0] * 51, 20.0, 1),  # the first norm is older than the last hundred
    ],
)
def test_a_spike_is_more_than_ten_times_the_median_of_at_least_ten_norms_before(
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
        give_up(tmp_path / "run", model, store, facts, np.zeros(3), second_rank)
    second_rank.barrier.assert_called_once_with()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("failing", [None, "best", "run"])
def test_the_best_model_is_kept_first_where_nothing_else_is_written(
    failing: str | None, tmp_path: Path, logged: list[str]
) -> None:
    """The model in the run's directory is a second copy: training goes on without it."""
    errors = [CheckpointError("cannot be written") if name == failing else None for name in ("best", "run")]
    model = Mock(save=Mock(side_effect=errors))
    assert keep_best(tmp_path / "run", model) == (failing != "best")
    written = [call.args[0].name for call in model.save.call_args_list]
    assert written == (["best"] if failing == "best" else ["best", "run"])
    assert len(logged) == (failing is not None)
