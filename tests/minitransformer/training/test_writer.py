"""The background writer: training goes on while it writes, waits for its end, and survives what it cannot write."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import TIME_LIMIT

from autograd.optim import Adam
from minitransformer import Transformer
from minitransformer.config import ModelConfig
from minitransformer.system.files import CheckpointError
from minitransformer.training import checkpoint as writer_module
from minitransformer.training.checkpoint import (
    CheckpointWriter,
    Snapshot,
    checkpoint_path,
    checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from minitransformer.training.state import TrainingState

CONFIG = ModelConfig(vocabulary_size=50, n_layers=1, d_model=16, d_ff=16, n_heads=1, d_k=4, d_v=4)


@contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """The kernel refuses to let any file grow beyond this: what a full disk does, in the middle of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def model() -> Transformer:
    return Transformer(CONFIG, seed=1)


def snapshot_of(model: Transformer, step: int) -> Snapshot:
    return Snapshot.of(model, Adam(model.parameters), TrainingState(step))


def saved_values(run: Path, step: int) -> Any:
    loaded = Transformer(CONFIG, seed=None)
    load_checkpoint(checkpoint_path(run, step), loaded, Adam(loaded.parameters))
    return loaded.parameters.values


def test_no_update_changes_a_running_save(tmp_path: Path, model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def held_back(*arguments: Any, **keywords: Any) -> Path:
        assert go_on.wait(TIME_LIMIT)
        return save_checkpoint(*arguments, **keywords)

    monkeypatch.setattr(writer_module, "save_checkpoint", held_back)
    writer, before = CheckpointWriter(tmp_path, keep=2), model.parameters.values.copy()
    writer.save(snapshot_of(model, 1))
    model.parameters.values *= 1.5  # the next update, before a byte is written
    assert checkpoints(tmp_path) == []
    go_on.set()
    writer.wait()
    assert writer.failure() is None
    assert np.array_equal(saved_values(tmp_path, 1), before)


def test_the_next_save_waits_for_the_one_before(tmp_path: Path, model: Transformer) -> None:
    writer = CheckpointWriter(tmp_path, keep=9)
    values = {}
    for step in range(1, 6):
        model.parameters.values *= 1.5
        values[step] = model.parameters.values.copy()
        writer.save(snapshot_of(model, step))
    writer.wait()
    for step, expected in values.items():
        assert np.array_equal(saved_values(tmp_path, step), expected)


def test_a_file_without_room_on_disk_is_a_failure_reported_once(tmp_path: Path, model: Transformer) -> None:
    writer = CheckpointWriter(tmp_path, keep=9)
    writer.save(snapshot_of(model, 1))
    writer.wait()
    with file_size_limit(4_000):
        writer.save(snapshot_of(model, 2))
        writer.wait()
    failure = writer.failure()
    assert isinstance(failure, CheckpointError)
    assert "step-00000002" in str(failure)
    assert "cannot be written" in str(failure)
    assert writer.failure() is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    assert np.array_equal(saved_values(tmp_path, 1), model.parameters.values)
    writer.save(snapshot_of(model, 3))
    writer.wait()
    assert writer.failure() is None
    assert np.array_equal(saved_values(tmp_path, 3), model.parameters.values)


def test_other_errors_are_raised(tmp_path: Path, model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **keywords: Any) -> Path:
        raise ZeroDivisionError

    monkeypatch.setattr(writer_module, "save_checkpoint", fail)
    writer = CheckpointWriter(tmp_path, keep=2)
    writer.save(snapshot_of(model, 1))
    writer.wait()
    with pytest.raises(ZeroDivisionError):
        writer.failure()


def test_a_failure_in_the_moment_of_asking_is_reported_at_the_next(tmp_path: Path) -> None:
    class FailingMeanwhile(CheckpointWriter):
        """Its thread fails right after the first look."""

        _seen: Exception | None = None

        @property
        def _failure(self) -> Exception | None:
            seen, self._seen = self._seen, CheckpointError("step-00000001: cannot be written")
            return seen

        @_failure.setter
        def _failure(self, error: Exception | None) -> None:
            self._seen = error

    writer = FailingMeanwhile(tmp_path, keep=2)
    assert writer.failure() is None
    assert isinstance(writer.failure(), CheckpointError)


def test_the_copy_is_made_in_the_same_memory_every_time(tmp_path: Path, model: Transformer) -> None:
    writer = CheckpointWriter(tmp_path, keep=2)
    writer.save(snapshot_of(model, 1))
    first = {name: array.ctypes.data for name, array in (writer._weights | writer._moments).items()}
    writer.save(snapshot_of(model, 2))
    writer.wait()
    assert {name: array.ctypes.data for name, array in (writer._weights | writer._moments).items()} == first
    assert sum(a.nbytes for a in (writer._weights | writer._moments).values()) == 12 * model.n_parameters
