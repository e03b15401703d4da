"""The training loop beside its updates: threads and their kernels, time, the end after an error, other ranks."""

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from autograd.array import Array
from autograd.kernel_registry import KernelChoice
from autograd.op import Operation, Run, observed
from autograd.tensor import Backward
from minitransformer import train
from minitransformer.config import RunConfig
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks import Callback, ValidationReport
from minitransformer.training.checkpoint import require_same_parameters
from minitransformer.training.interrupt import Interrupt
from minitransformer.training.loop import Trainer
from minitransformer.training.validation import keep_best
from parallel.communicator import SerialCommunicator
from tests.minitransformer.training.test_trainer import FixedLosses, everything, trained, trainer_of
from tests.support.training import FULL_DISK, TINY, Recorder, StoppingMonitor, names_in, run_of


def test_products_are_computed_on_one_thread_each_because_micro_batches_have_threads(tmp_path: Path) -> None:
    used, between = set[int](), set[int]()

    def note(numbers: set[int]) -> None:
        numbers.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")

    def observe(operation: Operation, run: Run, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        note(used)
        return run(*arguments, **static)

    with threadpool_limits(2, user_api="blas"), observed(observe):
        trainer_of(tmp_path, max_updates=1).train(Recorder(lambda step: note(between)))
    assert (used, between) == ({1}, {2})


@pytest.mark.parametrize("automatic", [{"n_micro_batches": 0}, {"precision": "automatic"}])
def test_a_trainer_refuses_automatic_settings(automatic: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Trainer: n_micro_batches or precision is automatic"):
        trainer_of(tmp_path, **automatic)


def test_time_before_training_and_of_validation_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def take(seconds: float) -> None:
        now[0] += seconds

    slow = FixedLosses(2.0, 1.0, meanwhile=lambda step: take(50))
    trainer = trainer_of(tmp_path, validation=slow, validate_every=4, log_every=5)
    take(50)
    assert trainer.train(Recorder(lambda step: take(0.5)))
    seconds = 7 * 0.5  # the callback's time after the last update is not training
    assert (trainer.state.best, trainer.state.seconds) == (("loss", 1.0), seconds)
    assert trainer.state.device_seconds == seconds


def test_an_interruption_counts_the_update_not_yet_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = trainer_of(tmp_path, run="parts", log_every=8)
    monkeypatch.setattr(interrupted.training_step, "lag", 1)  # as with graphs of a GPU
    assert not interrupted.train(StoppingMonitor(3))
    assert everything(interrupted)[:3] == everything(trained(tmp_path, run="three", max_updates=3, log_every=8))[:3]
    assert everything(trained(tmp_path, run="parts")) == everything(trained(tmp_path, run="whole"))


def test_a_thread_reads_the_next_batch_of_the_same_epoch_and_changes_no_bit(tmp_path: Path) -> None:
    """A batch is read exactly once; the first one, also after a resumption, by the loop itself."""
    threads = list[str]()

    def note_thread(trainer: Trainer) -> Trainer:
        prepare = trainer.training_step.prepare

        def noted(*arguments: Any) -> Any:
            threads.append(threading.current_thread().name.split("_")[0])
            return prepare(*arguments)

        trainer.training_step.prepare = noted  # type: ignore[method-assign]
        return trainer

    first = note_thread(trainer_of(tmp_path, run="parts"))
    assert not first.train(StoppingMonitor(2))
    assert threads == ["MainThread", "read-ahead", "read-ahead"]  # the third was read for the update after the stop
    threads.clear()
    second = note_thread(trainer_of(tmp_path, run="parts"))
    assert second.resume()
    assert second.train(Callback())
    assert len(threads) == second.state.step - 2
    assert threads[0] == "MainThread"
    alone = trainer_of(tmp_path, run="alone")
    alone._following_batch = lambda: None  # type: ignore[method-assign]
    assert alone.train(Callback())
    assert everything(second) == everything(alone)


def test_an_error_on_the_thread_that_reads_ends_the_update_of_its_batch(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, checkpoint_every=1)
    prepare = trainer.training_step.prepare

    def fail_on_thread(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise OSError("the disk is gone")
        return prepare(*arguments)

    trainer.training_step.prepare = fail_on_thread  # type: ignore[method-assign]
    with pytest.raises(OSError, match="the disk is gone") as caught:
        trainer.train(Callback())
    assert caught.value.__notes__ == ["(in update 2)"]
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000001"]


def test_an_error_waits_for_the_checkpoint_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(step: int) -> None:
        if step == 3:
            raise SystemExit("on purpose")

    slowly = Mock(wraps=os.fsync, side_effect=lambda descriptor: time.sleep(0.02) or DEFAULT)
    monkeypatch.setattr(os, "fsync", slowly)
    with pytest.raises(SystemExit, match="on purpose"):
        trainer_of(tmp_path, checkpoint_every=2).train(Recorder(fail))
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002"]


def test_a_save_failing_late_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    sync, calls = os.fsync, []

    def fail_first(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            time.sleep(0.3)  # much longer than an update
            raise FULL_DISK
        sync(descriptor)

    trainer = trainer_of(tmp_path, checkpoint_every=1, max_updates=3)
    monkeypatch.setattr(os, "fsync", fail_first)
    assert trainer.train(Callback())
    assert len(logged) == 1
    assert "step-00000001: cannot be written" in logged[0]


def test_ranks_must_see_the_same_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path)
    monkeypatch.setattr(trainer.checkpoints.world, "bcast", lambda step: 8)  # what rank 0 has found
    with pytest.raises(CheckpointError, match="not all processes see the same checkpoints: share the directory"):
        trainer.resume()
    trained(tmp_path)
    assert trainer.resume()


@pytest.mark.parametrize("is_requested", [True, False])
def test_a_rank_stops_when_any_rank_was_interrupted(is_requested: bool) -> None:
    """So none waits for a rank that has stopped."""
    others = Mock(any=Mock(return_value=is_requested))
    assert Interrupt(others).is_requested() == is_requested


def interrupt_at(step: int | None) -> Callable[[int], None]:
    return lambda now: signal.raise_signal(signal.SIGINT) if now == step else None


@pytest.mark.parametrize("step", [4, 8])
def test_an_interrupted_validation_is_repeated_to_the_same_end(tmp_path: Path, step: int, logged: list[str]) -> None:
    changes, losses = {"validate_every": 4, "checkpoint_every": 3}, (2.0, 1.0)
    validation = FixedLosses(*losses, meanwhile=interrupt_at(step))
    interrupted = trainer_of(tmp_path, run="parts", validation=validation, **changes)
    assert not interrupted.train(Callback())
    assert interrupted.state.step == step
    assert logged == [f"interrupted after update {step} and saved; the same run goes on from there"]
    left = losses[:] if step == 4 else losses[1:]
    resumed, recorder = trainer_of(tmp_path, run="parts", validation=FixedLosses(*left), **changes), Recorder()
    assert resumed.resume()
    assert resumed.train(recorder)
    validated = [report.step for report in recorder.reports if isinstance(report, ValidationReport)]
    assert validated == ([4, 8] if step == 4 else [8])
    whole = trained(tmp_path, run="whole", validation=FixedLosses(*losses), **changes)
    assert everything(resumed) == everything(whole)
    again = trainer_of(tmp_path, run="parts", **changes)
    assert again.resume()
    assert everything(again) == everything(whole)


@pytest.mark.parametrize(
    ("losses", "scores", "changes", "last"),
    [
        ([3.0, 2.0, 2.5, 2.4], [0.0], {"patience": 1}, 6),
        ([3.0, 2.0, 2.5, 1.0], [0.0], {"patience": 2}, 8),
        ([3.0, 3.5, 3.1, 1.0], [0.0], {"patience": 2}, 6),
        ([3.0, 2.0, 1.0, 0.5], [5.0, 4.0, 3.0, 9.0], {"patience": 2, "patience_for": "bleu"}, 6),
        ([3.0, 4.0, 5.0, 6.0], [5.0, 6.0, 7.0, 8.0], {"patience": 1, "patience_for": "bleu"}, 8),
        ([3.0, 3.0, 3.0, 1.0], [5.0, 6.0, 7.0, 8.0], {"patience": 2}, 6),
        ([3.0, 2.0, 1.0, 2.0], [0.0], {"patience": 2, "patience_for": "bleu"}, 8),
        ([3.0, 4.0, 3.5, 1.0], [0.0, 0.004], {"patience": 2, "patience_for": "bleu"}, 6),
    ],
)
def test_without_progress_for_too_long_the_training_ends(
    losses: list[float], scores: list[float], changes: dict[str, Any], last: int, tmp_path: Path, logged: list[str]
) -> None:
    changes = {"validate_every": 2, **changes}
    trainer = trainer_of(tmp_path, validation=FixedLosses(*losses, scores=scores), **changes)
    assert trainer.train(Callback())
    assert (trainer.state.step, trainer.is_complete) == (last, True)
    figure = "bleu" if max(scores) > 1 and "patience_for" in changes else "loss"
    ends = [line for line in logged if "validations without a better" in line]
    assert len(ends) == (last < 8)
    assert all(f" better {figure} (" in line for line in ends)
    again = trainer_of(tmp_path, **changes)
    again.resume()
    assert (again.state.step, again.is_complete) == (last, True)
    patient = trainer_of(tmp_path, **changes | {"patience": 9})
    patient.resume()
    assert (patient.state.step, patient.is_complete) == (last, last == 8)


@pytest.mark.parametrize("interrupted_at", [None, 6])
def test_the_last_interval_is_reported_when_patience_ends(tmp_path: Path, interrupted_at: int | None) -> None:
    """The report precedes a validation that may end it, so that a repeated validation repeats no report."""
    changes: dict[str, Any] = {"log_every": 5, "validate_every": 2, "patience": 2}
    recorder, losses = Recorder(), (3.0, 3.5, 3.1, 1.0)
    validation = FixedLosses(*losses, meanwhile=interrupt_at(interrupted_at))
    trainer_of(tmp_path, validation=validation, **changes).train(recorder)
    if interrupted_at:
        trainer = trainer_of(tmp_path, validation=FixedLosses(losses[2]), **changes)
        assert trainer.resume()
        trainer.train(recorder)
    reports = [(report.step, isinstance(report, ValidationReport)) for report in recorder.reports]
    assert reports == [(2, True), (4, True), (5, False), (6, False), (6, True)]


@pytest.mark.parametrize(
    ("scores", "changes", "n_without_progress", "n_warnings"),
    [
        ([1.0, 1.0, 1.0, 1.0], {"patience": 3, "patience_for": "bleu"}, 3, 1),
        ([0.0, 0.0, 0.0, 0.0], {"patience": 3, "patience_for": "bleu"}, 0, 1),
        ([0.0, 1.0, 1.0, 1.0], {"patience": 3, "patience_for": "bleu"}, 2, 0),
        ([0.0, 0.0, 0.0, 0.0], {"patience": 3, "patience_for": "loss"}, 0, 0),
        ([1.0, 1.0, 1.0, 1.0], {"patience_for": "bleu"}, 3, 0),
    ],
)
def test_a_watched_score_that_does_not_move_is_no_progress_and_is_reported_once(
    scores: list[float], changes: Any, n_without_progress: int, n_warnings: int, tmp_path: Path, logged: list[str]
) -> None:
    validation = FixedLosses(4.0, 3.0, 2.0, 1.0, scores=scores)
    trainer = trainer_of(tmp_path, validation=validation, validate_every=2, **changes)
    assert trainer.train(Callback())
    assert trainer.state.n_without_progress == n_without_progress
    warnings = [line for line in logged if "as in the first validation" in line]
    assert len(warnings) == n_warnings
    consequence = "after 3 validations" if any(scores) else "patience is for the loss"
    assert all(line.startswith(f"warning: bleu is {scores[0]:.2f}") and consequence in line for line in warnings)


@pytest.mark.parametrize("failing", [None, "best", "run"])
def test_the_best_model_is_kept_where_nothing_else_is(failing: str | None, tmp_path: Path, logged: list[str]) -> None:
    """The model in the run's directory is a second copy: training goes on without it."""
    errors = [CheckpointError("cannot be written") if name == failing else None for name in ("best", "run")]
    model = Mock(save=Mock(side_effect=errors))
    assert keep_best(tmp_path / "run", model) == (failing != "best")
    written = [call.args[0].name for call in model.save.call_args_list]
    assert written == (["best"] if failing == "best" else ["best", "run"])
    assert len(logged) == (failing is not None)


def test_one_process_computes_no_checksum_of_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    checksums: list[Any] = []
    monkeypatch.setattr("minitransformer.training.checkpoint.checksum", checksums.append)
    require_same_parameters(SerialCommunicator(), Transformer(TINY, seed=1), "now", "remedy")
    assert checksums == []


CHOICE: ContextVar[KernelChoice] = ContextVar("choice")


@pytest.fixture
def run_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[KernelChoice], RunConfig]:
    """Settings of runs with two threads, and with these kernels."""
    monkeypatch.setattr("minitransformer.training.open_run.cores_of", lambda rank, placements: 2)

    def config_of(kernels: KernelChoice) -> RunConfig:
        (tmp_path / kernels).mkdir()
        return dataclasses.replace(run_of(tmp_path / kernels, max_updates=4), kernels=kernels)

    return config_of


def test_a_run_of_references_takes_the_kernels_from_no_later_run(run_with: Any, kernels_run: list[Any]) -> None:
    train(run_with("reference"), callbacks=[])
    assert kernels_run == []
    train(run_with("compiled"), callbacks=[])
    assert {"MainThread", "micro-batch", "optimizer"} < {
        call.thread for call in kernels_run
    }  # and threads of the search


def test_runs_of_two_threads_do_not_disturb_each_other(run_with: Any, kernels_run: list[Any]) -> None:
    both = threading.Barrier(2, timeout=120)  # both runs make their updates at the same time

    def run(config: RunConfig) -> None:
        CHOICE.set(config.kernels)
        train(config, callbacks=[Recorder(lambda step: both.wait())])

    with ThreadPoolExecutor(2) as executor:
        list(executor.map(run, [run_with("reference"), run_with("compiled")]))
    assert {call.context[CHOICE] for call in kernels_run} == {"compiled"}
