"""A run's choice of kernels is that of all its threads, and of no other run of the process."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from autograd.kernel_registry import KernelChoice
from minitransformer import train
from minitransformer.config import RunConfig
from tests.support.training import Recorder, run_of

CHOICE: ContextVar[KernelChoice] = ContextVar("choice")


@pytest.fixture(autouse=True)
def _several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.training.open_run.cores_of", lambda rank, placements: 2)


def config_of(folder: Path, kernels: KernelChoice) -> RunConfig:
    (folder / kernels).mkdir()
    return dataclasses.replace(run_of(folder / kernels, max_updates=4), kernels=kernels)


def test_a_run_of_references_takes_the_kernels_from_no_later_run(tmp_path: Path, kernels_run: list[Any]) -> None:
    train(config_of(tmp_path, "reference"), callbacks=[])
    assert kernels_run == []
    train(config_of(tmp_path, "compiled"), callbacks=[])
    assert {"MainThread", "micro-batch", "adam"} < {call.thread for call in kernels_run}  # and threads of the search


def test_runs_of_two_threads_do_not_disturb_each_other(tmp_path: Path, kernels_run: list[Any]) -> None:
    both = threading.Barrier(2, timeout=120)  # both runs make their updates at the same time

    def run(config: RunConfig) -> None:
        CHOICE.set(config.kernels)
        train(config, callbacks=[Recorder(lambda step: both.wait())])

    with ThreadPoolExecutor(2) as executor:
        list(executor.map(run, [config_of(tmp_path, "reference"), config_of(tmp_path, "compiled")]))
    assert {call.context[CHOICE] for call in kernels_run} == {"compiled"}
