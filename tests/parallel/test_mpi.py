"""Several processes under mpirun.  Each rank runs this very file as a program: see the end."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autograd import to_host
from autograd.array import Device
from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.monitor import SilentMonitor
from minitransformer.training.trainer import Trainer
from parallel.agreement import check_agreement
from parallel.communicator import Communicator, SerialCommunicator, working_ranks
from parallel.launch import LaunchError, all_or_none, communicator, n_launched

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120  # far more than any program here takes: a hang fails, and does not stop the tests
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")

N_SUMMED = (4 << 20) + 5  # more than is sent at once
N_SHARDS = 8
MODEL = ModelConfig(
    vocabulary_size=23, n_layers=1, d_model=8, d_ff=16, n_heads=2, d_k=4, d_v=4, p_drop=0.1, p_drop_attention=0.1,
)  # fmt: skip
TRAINING = TrainingConfig(
    max_updates=6, batch_tokens=60, n_shards=N_SHARDS, warmup_steps=4, clip_norm=1.0, log_every=2, checkpoint_every=3,
)  # fmt: skip


def find_mpirun() -> str | None:
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


MPIRUN = find_mpirun()
needs_mpi = pytest.mark.skipif(
    MPIRUN is None or importlib.util.find_spec("mpi4py") is None,
    reason='mpirun or mpi4py is not installed: pip install "minitransformer[mpi]"',
)


def environment(**variables: str) -> dict[str, str]:
    outside_mpi = {name: value for name, value in os.environ.items() if name not in SIZE_VARIABLES}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return outside_mpi | {"PYTHONPATH": path} | variables


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; after SECONDS the whole process group is killed and the test fails."""
    process = subprocess.Popen(
        command, env=environment(**variables), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"{' '.join(command)}: still running after {SECONDS} s")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def start_ranks(n_ranks: int, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    assert MPIRUN is not None
    return run([MPIRUN, "-n", str(n_ranks), sys.executable, __file__, program, *map(str, arguments)])


def run_ranks(n_ranks: int, program: str, directory: Path, *arguments: object) -> list[Any]:
    """Run a program on all ranks; return what each rank returned."""
    done = start_ranks(n_ranks, program, directory, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads((directory / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(n_ranks)]


def summand(rank: int) -> Any:
    return np.random.default_rng(rank).standard_normal(N_SUMMED, np.float32)


def sum_summands(world: Any, directory: Path) -> None:
    for name, add_up in {"shared": world.sum_in_tree, "messages": world.sum_by_messages}.items():
        array = summand(world.rank)
        add_up(array, working_ranks(world.size, N_SHARDS))
        np.save(directory / f"{name}-{world.rank}.npy", array)
    numbers = np.arange(7.0) + world.rank
    world.sum_in_tree(numbers, 2)
    assert (numbers == 2 * np.arange(7.0) + 1).all()
    nothing = np.empty(0)
    world.sum_in_tree(nothing, 2)


@needs_mpi
@pytest.mark.parametrize("n_ranks", [2, 3, 4, 8])
def test_all_ranks_end_with_the_sum_along_the_tree_of_the_working_ones(n_ranks: int, tmp_path: Path) -> None:
    run_ranks(n_ranks, "sum_summands", tmp_path)
    sums = [summand(rank) for rank in range(working_ranks(n_ranks, N_SHARDS))]
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    (expected,) = sums
    for rank in range(n_ranks):
        for way in ("shared", "messages"):
            assert np.array_equal(np.load(tmp_path / f"{way}-{rank}.npy"), expected), f"rank {rank}, {way}"


def count_pieces(world: Communicator, directory: Path) -> int:
    from parallel import mpi

    return -(-N_SUMMED // mpi.PIECE)


@needs_mpi
def test_the_array_that_is_summed_here_is_sent_in_several_pieces(tmp_path: Path) -> None:
    assert run_ranks(2, "count_pieces", tmp_path) == [2, 2]


def exchange_values(world: Communicator, directory: Path) -> dict[str, Any]:
    matrix = np.full((2, 3), world.rank + 1.0)
    world.sum_in_tree(matrix, working_ranks(world.size, N_SHARDS))
    world.barrier()
    return {
        "rank": world.rank,
        "size": world.size,
        "node_size": world.node_size,
        "matrix": matrix.tolist(),
        "sum": world.sum_of_numbers(world.rank + 0.5),
        "any of one": world.any(world.rank == world.size - 1),
        "any of none": world.any(False),
        "broadcast": world.broadcast({"from": [world.rank]}),
        "all": world.all_of([world.rank]),
    }


@needs_mpi
def test_every_rank_learns_the_same(tmp_path: Path) -> None:
    for rank, learnt in enumerate(run_ranks(3, "exchange_values", tmp_path)):
        assert learnt == {
            "rank": rank, "size": 3, "node_size": 3, "matrix": [[3.0] * 3] * 2, "sum": 4.5,
            "any of one": True, "any of none": False, "broadcast": {"from": [0]},
            "all": [[0], [1], [2]],
        }  # fmt: skip


def meet_at_barrier(world: Communicator, directory: Path) -> bool:
    if world.rank == 1:
        time.sleep(0.3)
        (directory / "rank 1 has come").touch()
    world.barrier()
    return (directory / "rank 1 has come").exists()


@needs_mpi
def test_the_barrier_opens_when_the_last_rank_has_come(tmp_path: Path) -> None:
    assert run_ranks(3, "meet_at_barrier", tmp_path) == [True] * 3


def raise_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        raise ValueError("on purpose")
    world.barrier()


def freeze_one_rank(world: Communicator, directory: Path) -> None:
    from parallel.mpi import MpiCommunicator

    impatient = MpiCommunicator(patience=2)
    impatient.sum_in_tree(np.zeros(3), 2)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    impatient.sum_in_tree(np.zeros(3), 2)


def wait_patiently(world: Communicator, directory: Path) -> None:
    """At a barrier, and between calls, nobody is impatient."""
    from parallel.mpi import MpiCommunicator

    impatient = MpiCommunicator(patience=0.5)
    time.sleep(1.0 + world.rank)
    impatient.barrier()
    assert impatient.any(world.rank == 1)


def disagree(world: Communicator, directory: Path) -> None:
    check_agreement(world, {"code": "new", "data": "same"}, "before")
    check_agreement(world, {"code": "old" if world.rank == 2 else "new", "data": "same"}, "at the start")


def exit_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        sys.exit("out of here")
    world.sum_in_tree(np.zeros(3), 2)


def die_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.barrier()


@needs_mpi
@pytest.mark.parametrize(
    ("program", "told"),
    [("raise_on_one_rank", "ValueError: on purpose"), ("exit_on_one_rank", "SystemExit: out of here")],
)
def test_an_exception_on_one_rank_ends_all_with_its_traceback(program: str, told: str, tmp_path: Path) -> None:
    done = start_ranks(3, program, tmp_path)
    assert done.returncode != 0
    assert f"rank 1 of 3 ({socket.gethostname()}) failed; ending all ranks" in done.stderr
    assert told in done.stderr


@needs_mpi
def test_a_rank_that_is_killed_ends_all(tmp_path: Path) -> None:
    assert start_ranks(3, "die_on_one_rank", tmp_path).returncode != 0


@needs_mpi
def test_a_rank_that_is_frozen_ends_all_after_a_set_time(tmp_path: Path) -> None:
    done = start_ranks(2, "freeze_one_rank", tmp_path)
    assert done.returncode != 0
    assert "has waited 2 s for the other ranks, in a sum over ranks: one of them is frozen or cut off" in done.stderr


@needs_mpi
def test_waiting_for_what_takes_long_is_no_freezing(tmp_path: Path) -> None:
    run_ranks(2, "wait_patiently", tmp_path)


@needs_mpi
def test_ranks_that_disagree_end_with_a_message_that_says_which_and_how(tmp_path: Path) -> None:
    done = start_ranks(3, "disagree", tmp_path)
    assert done.returncode != 0
    host = socket.gethostname()
    assert f"at the start ranks disagree: code is old on rank 2 ({host}), new on rank 0 ({host})." in done.stderr
    assert done.stderr.count("failed; ending all ranks") == 1


def test_an_exception_of_a_single_process_passes_through_silently(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="on purpose"), all_or_none(SerialCommunicator()):
        raise ValueError("on purpose")
    assert capsys.readouterr().err == ""


@pytest.fixture
def outside_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("outside_mpi")
def test_without_mpirun_a_process_is_alone() -> None:
    assert n_launched() == 1
    assert isinstance(communicator(), SerialCommunicator)


@pytest.mark.usefixtures("outside_mpi")
@pytest.mark.parametrize("variable", SIZE_VARIABLES)
def test_under_mpirun_of_one_process_it_is_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert isinstance(communicator(), SerialCommunicator)


@pytest.mark.usefixtures("outside_mpi")
@pytest.mark.parametrize("variable", SIZE_VARIABLES)
def test_mpirun_without_mpi4py_is_an_error_that_names_the_remedy(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "parallel.mpi", raising=False)
    with pytest.raises(
        LaunchError, match=r'mpirun started 2 processes, but mpi4py .*pip install "minitransformer\[mpi\]"'
    ):
        communicator()


def return_nothing(world: Communicator, directory: Path) -> None:
    pass


@needs_mpi
def test_mpirun_of_another_mpi_library_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    """Then every process believes that it is the only one."""
    done = run([sys.executable, __file__, "return_nothing", str(tmp_path)], OMPI_COMM_WORLD_SIZE="3")
    assert done.returncode != 0
    assert "LaunchError: mpirun started 3 processes, but mpi4py sees 1" in done.stderr
    assert 'pip install "minitransformer[mpi]"' in done.stderr


def train(
    world: Communicator, directory: Path, n_updates: str, n_threads: str, device: Device = "cpu", deviant: str = ""
) -> dict[str, Any]:
    """Train up to an update, going on from the last checkpoint, and save every rank's own parameters.

    A ``deviant`` rank begins with another parameter than the others.
    """
    model = Transformer(MODEL, seed=TRAINING.seed, device=device)
    config = dataclasses.replace(TRAINING, max_updates=int(n_updates))
    store = TokenStore(directory / "data", "train")
    trainer = Trainer(model, store, None, config, directory / "run", world, n_threads=int(n_threads))
    if deviant and world.rank == int(deviant):
        model.parameters.values[0] += 1e-3
    first_update = trainer.resume() and trainer.state.step
    finished = trainer.train(SilentMonitor())
    np.save(directory / f"parameters-{world.rank}.npy", to_host(model.parameters.values))
    return {
        "first update": first_update,
        "finished": finished,
        "shards": len(trainer.shards),
        "epoch": trainer.state.epoch,
    }


def parameters_of(directory: Path, rank: int = 0) -> Any:
    return np.load(directory / f"parameters-{rank}.npy")


def corpus_in(directory: Path) -> Path:
    """36 pairs of random sentences, some empty: few batches an epoch, so that six updates reach into the second."""
    random = np.random.default_rng(9)

    def sentence() -> list[int]:
        return random.integers(3, MODEL.vocabulary_size, random.integers(0, 9)).tolist()

    write_store(directory / "data", "train", [(sentence(), sentence()) for _ in range(36)], MODEL.vocabulary_size)
    return directory


@pytest.fixture(scope="module")
def trained_alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The parameters after six updates in one process on one thread."""
    directory = corpus_in(tmp_path_factory.mktemp("alone"))
    train(SerialCommunicator(), directory, "6", "1")
    return parameters_of(directory)


def test_every_update_of_the_training_below_changes_the_parameters(trained_alone: Any, tmp_path: Path) -> None:
    train(SerialCommunicator(), corpus_in(tmp_path), "5", "1")
    assert not np.array_equal(parameters_of(tmp_path), trained_alone)


def test_the_training_below_reaches_a_second_epoch(tmp_path: Path) -> None:
    result = train(SerialCommunicator(), corpus_in(tmp_path), "6", "1")
    assert result["epoch"] == 1


@pytest.mark.parametrize("n_threads", [2, 3, 4])
def test_training_on_threads_gives_the_same_bits(n_threads: int, trained_alone: Any, tmp_path: Path) -> None:
    train(SerialCommunicator(), corpus_in(tmp_path), "6", str(n_threads))
    assert np.array_equal(parameters_of(tmp_path), trained_alone)


@needs_mpi
@pytest.mark.parametrize(("n_ranks", "shards"), [(1, [8]), (2, [4, 4]), (3, [4, 4, 0]), (4, [2] * 4)])
def test_training_in_processes_gives_the_same_bits_on_every_rank(
    n_ranks: int, shards: list[int], trained_alone: Any, tmp_path: Path
) -> None:
    results = run_ranks(n_ranks, "train", corpus_in(tmp_path), 6, 1)
    assert [result["shards"] for result in results] == shards
    assert all(result["finished"] for result in results)
    for rank in range(n_ranks):
        assert np.array_equal(parameters_of(tmp_path, rank), trained_alone), f"rank {rank}"


@needs_mpi
def test_eight_processes_end_with_the_bits_of_one_after_fifty_updates(tmp_path: Path) -> None:
    alone, together = corpus_in(tmp_path / "alone"), corpus_in(tmp_path / "together")
    train(SerialCommunicator(), alone, "50", "2")
    results = run_ranks(8, "train", together, 50, 1)
    assert [result["shards"] for result in results] == [1] * 8
    for rank in range(8):
        assert np.array_equal(parameters_of(together, rank), parameters_of(alone)), f"rank {rank}"


@needs_mpi
def test_training_resumed_in_another_number_of_processes_gives_the_same_bits(
    trained_alone: Any, tmp_path: Path
) -> None:
    run_ranks(4, "train", corpus_in(tmp_path), 3, 1)
    results = run_ranks(2, "train", tmp_path, 6, 2)
    assert [result["first update"] for result in results] == [3, 3]
    assert np.array_equal(parameters_of(tmp_path), trained_alone)


@needs_mpi
def test_a_rank_whose_parameters_are_others_is_found_before_they_are_saved(tmp_path: Path) -> None:
    done = start_ranks(2, "train", corpus_in(tmp_path), 4, 1, "cpu", 1)
    assert done.returncode != 0
    assert f"after update {TRAINING.checkpoint_every} ranks disagree: parameters is " in done.stderr
    assert f"on rank 1 ({socket.gethostname()})" in done.stderr
    assert not list((tmp_path / "run").glob("*"))


def train_on_stand_in_for_gpu(world: Communicator, directory: Path, n_updates: str) -> dict[str, Any]:
    path = ROOT / "tests" / "autograd" / "fake_cupy.py"
    spec = importlib.util.spec_from_file_location("cupy", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["cupy"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["cupy"])
    return train(world, directory, n_updates, "1", "cuda")


@needs_mpi
def test_processes_add_up_gradients_that_lie_on_a_gpu(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    run_ranks(1, "train_on_stand_in_for_gpu", corpus_in(alone), 3)
    run_ranks(2, "train_on_stand_in_for_gpu", corpus_in(together), 3)
    for rank in range(2):
        assert np.array_equal(parameters_of(together, rank), parameters_of(alone)), f"rank {rank}"


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (
        sum_summands, count_pieces, exchange_values, meet_at_barrier, raise_on_one_rank, exit_on_one_rank,
        die_on_one_rank, freeze_one_rank, wait_patiently, disagree, return_nothing, train, train_on_stand_in_for_gpu,
    )
}  # fmt: skip


def run_as_rank(program: str, directory: str, *arguments: str) -> None:
    world = communicator()
    with all_or_none(world):
        result = PROGRAMS[program](world, Path(directory), *arguments)
        (Path(directory) / f"{world.rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    run_as_rank(*sys.argv[1:])
