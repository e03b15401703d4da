"""Several processes under mpirun."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpirun import IS_OPEN_MPI, PROGRAM, command_line, environment, needs_mpi, run, run_ranks, start_ranks
from summing_ranks import N_MICRO_BATCHES, N_SUMMED, NODE_GROUPS, summand
from training_ranks import MODEL, TRAINING, corpus_in, parameters_of, train
from waiting import TIME_LIMIT, wait_until

from minitransformer import Transformer
from minitransformer.model.files import load_model_files
from minitransformer.training.checkpoint import checkpoints
from parallel.agreement import checksum
from parallel.communicator import ALIGNMENT, SerialCommunicator, working_ranks


@needs_mpi
@pytest.mark.parametrize("n_ranks", [2, 3, 4, 8])
def test_all_ranks_end_with_the_sum_along_the_tree_of_the_working_ones(n_ranks: int, tmp_path: Path) -> None:
    of_ranks = run_ranks(n_ranks, "sum_summands", tmp_path)
    sums = [summand(rank) for rank in range(working_ranks(n_ranks, N_MICRO_BATCHES))]
    while len(sums) > 1:
        sums = [left + right for left, right in zip(sums[::2], sums[1::2], strict=True)]
    expected = hashlib.blake2b(sums[0]).hexdigest()
    assert of_ranks == [dict.fromkeys(NODE_GROUPS, expected)] * n_ranks


@needs_mpi
@pytest.mark.parametrize("n_ranks", [2, 3])
@pytest.mark.parametrize("program", ["sum_by_the_library", "sum_in_fast_order"])
def test_sums_in_another_order_are_those_of_all_ranks(program: str, n_ranks: int, tmp_path: Path) -> None:
    numbers = np.arange(N_SUMMED, dtype=np.float32) % 1_021
    expected = n_ranks * numbers + n_ranks * (n_ranks - 1) // 2
    assert run_ranks(n_ranks, program, tmp_path) == [checksum(expected)] * n_ranks


@needs_mpi
def test_sums_in_quick_succession_do_not_mix(tmp_path: Path) -> None:
    run_ranks(4, "sum_often", tmp_path)


@needs_mpi
def test_values_begin_as_they_were_and_lie_in_one_memory_if_they_may(tmp_path: Path) -> None:
    run_ranks(3, "begin_with_values", tmp_path)


@needs_mpi
@pytest.mark.parametrize("reason", ["no room", "another process"])
def test_a_rank_that_cannot_share_memory_makes_all_send_messages(reason: str, tmp_path: Path) -> None:
    first, *others = run_ranks(3, "share_no_memory", tmp_path, reason)
    assert re.search(
        rf" by messages of .*, because ranks cannot share memory \(.*{reason}\); added in one fixed ", first
    )
    assert others == [first] * 2


@needs_mpi
def test_every_rank_learns_the_same(tmp_path: Path) -> None:
    for rank, learnt in enumerate(run_ranks(3, "exchange_values", tmp_path)):
        assert learnt == {
            "rank": rank,
            "size": 3,
            "local_size": 3,
            "sum": 4.5,
            "any of one": True,
            "any of none": False,
            "broadcast": {"from": [0]},
            "all": [[0], [1], [2]],
        }


@needs_mpi
def test_the_barrier_opens_when_the_last_rank_has_come(tmp_path: Path) -> None:
    assert run_ranks(3, "wait_at_barrier", tmp_path) == [True] * 3


@needs_mpi
@pytest.mark.parametrize(
    ("program", "message"),
    [("raise_on_one_rank", "ValueError: on purpose"), ("exit_on_one_rank", "SystemExit: out of here")],
)
def test_an_exception_on_one_rank_ends_all_soon_with_its_traceback(program: str, message: str, tmp_path: Path) -> None:
    done = start_ranks(3, program, tmp_path)
    assert time.time() - (tmp_path / "raised").stat().st_mtime < 60, "ranks wait ten minutes for each other"
    assert done.returncode != 0
    assert f"rank 1 of 3 ({socket.gethostname()}) failed; ending all ranks" in done.stderr
    assert message in done.stderr


@needs_mpi
def test_a_rank_that_is_killed_ends_all(tmp_path: Path) -> None:
    assert start_ranks(3, "die_on_one_rank", tmp_path).returncode != 0


@needs_mpi
def test_a_rank_that_is_frozen_ends_all_after_a_set_time(tmp_path: Path) -> None:
    done = start_ranks(2, "freeze_one_rank", tmp_path)
    assert done.returncode != 0
    assert "has waited 2 s for the other ranks, in MPI_Barrier: one of them is frozen or cut off" in done.stderr


@needs_mpi
@pytest.mark.skipif(IS_OPEN_MPI, reason="the option is that of MPICH's mpirun")
def test_a_rank_that_is_frozen_is_ended_even_if_mpirun_does_not(tmp_path: Path) -> None:
    done = run(command_line(2, "freeze_one_rank", tmp_path, options=["-disable-auto-cleanup"]))
    assert done.returncode != 0
    assert "one of them is frozen or cut off" in done.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("program", "what"),
    [("freeze_rank_0_at_work", "MPI_Ibarrier, for what rank 0 does alone"), ("freeze_before_barrier", "MPI_Barrier"),
     ("freeze_before_split", "MPI_Comm_split"),
     ("freeze_before_allocation", "MPI_Allgather")],
)  # fmt: skip
def test_a_rank_that_is_frozen_while_others_wait_for_it_elsewhere_ends_all_too(
    program: str, what: str, tmp_path: Path
) -> None:
    done = start_ranks(3, program, tmp_path)
    assert done.returncode != 0
    assert f"has waited 2 s for the other ranks, in {what}: one of them is frozen or cut off" in done.stderr


@needs_mpi
def test_waiting_for_what_takes_long_is_no_freezing(tmp_path: Path) -> None:
    run_ranks(2, "wait_patiently", tmp_path)


@needs_mpi
def test_ranks_that_disagree_end_with_a_message_that_says_which_and_how(tmp_path: Path) -> None:
    done = start_ranks(3, "disagree", tmp_path)
    assert done.returncode != 0
    host = socket.gethostname()
    assert (
        f"at the start ranks disagree: code is old on rank 2 ({host}), new on rank 0 ({host}). Start anew"
        in done.stderr
    )
    assert done.stderr.count("failed; ending all ranks") == 1


@needs_mpi
def test_srun_that_speaks_otherwise_than_mpi_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    done = run([sys.executable, str(PROGRAM), "return_nothing", str(tmp_path)], SLURM_STEP_NUM_TASKS="3")
    assert done.returncode != 0
    assert "LaunchError: 3 processes were started, but mpi4py sees 1" in done.stderr
    assert "use srun --mpi=pmi2 with MPICH, srun --mpi=pmix with Open MPI" in done.stderr


@needs_mpi
def test_mpirun_of_another_mpi_library_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    """Then every process believes that it is the only one."""
    done = run([sys.executable, str(PROGRAM), "return_nothing", str(tmp_path)], OMPI_COMM_WORLD_SIZE="3")
    assert done.returncode != 0
    assert "LaunchError: 3 processes were started, but mpi4py sees 1" in done.stderr
    assert 'pip install -e ".[mpi]"' in done.stderr


@pytest.fixture(scope="module")
def trained_alone(logged_alone: dict[str, Any]) -> Any:
    """The parameters after six updates in one process on one thread."""
    return parameters_of(logged_alone["directory"])


@pytest.fixture(scope="module")
def logged_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process alone tells of six updates."""
    directory = corpus_in(tmp_path_factory.mktemp("alone"))
    return train(SerialCommunicator(), directory, "6", "1") | {"directory": directory}


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
@pytest.mark.parametrize(("n_ranks", "micro_batches"), [(1, [8]), (2, [4, 4]), (3, [4, 4, 0]), (4, [2] * 4)])
def test_training_in_processes_gives_the_same_bits_on_every_rank(
    n_ranks: int, micro_batches: list[int], trained_alone: Any, logged_alone: dict[str, Any], tmp_path: Path
) -> None:
    results = run_ranks(n_ranks, "train", corpus_in(tmp_path), 6, 1)
    assert [result["micro_batches"] for result in results] == micro_batches
    assert [result["flops"] for result in results] == [logged_alone["flops"]] * n_ranks
    assert all(result["finished"] for result in results)
    way = 'gradients travel through shared memory; added in one fixed order (training.sum = "exact")'
    assert [result["way"] for result in results] == [way if n_ranks > 1 else "gradients stay in one process"] * n_ranks
    for rank in range(n_ranks):
        assert np.array_equal(parameters_of(tmp_path, rank), trained_alone), f"rank {rank}"


@needs_mpi
@pytest.mark.parametrize("way", ["", "messages"])
def test_training_in_bfloat16_gives_the_same_bits_on_every_rank(way: str, tmp_path: Path) -> None:
    """A rank rounds anew what others have changed."""
    alone, together = corpus_in(tmp_path / "alone"), corpus_in(tmp_path / "together")
    train(SerialCommunicator(), alone, "3", "1", precision="bfloat16")
    run_ranks(2, "train", together, 3, 1, "cpu", way, "", "exact", "bfloat16")
    for rank in range(2):
        assert np.array_equal(parameters_of(together, rank), parameters_of(alone)), f"rank {rank}"


@needs_mpi
@pytest.mark.parametrize(("n_ranks", "micro_batches"), [(2, [4, 4]), (3, [2, 3, 3])])
def test_in_the_fast_order_all_processes_train_and_agree_with_each_other(
    n_ranks: int, micro_batches: list[int], trained_alone: Any, tmp_path: Path
) -> None:
    results = run_ranks(n_ranks, "train", corpus_in(tmp_path), 6, 1, "cpu", "", "", "fast")
    assert [result["micro_batches"] for result in results] == micro_batches
    for rank in range(n_ranks):
        assert np.array_equal(parameters_of(tmp_path, rank), parameters_of(tmp_path)), f"rank {rank}"
    # The learning rate reaches 0.18; rounding in another order moves a parameter by 1e-4 of that at most.
    np.testing.assert_allclose(parameters_of(tmp_path), trained_alone, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def trained_long_alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The parameters after fifty updates in one process on two threads."""
    directory = corpus_in(tmp_path_factory.mktemp("long"))
    train(SerialCommunicator(), directory, "50", "2")
    return parameters_of(directory)


@needs_mpi
@pytest.mark.parametrize("n_ranks", [2, 4, 8])
def test_processes_end_with_the_bits_of_one_after_fifty_updates(
    n_ranks: int, trained_long_alone: Any, tmp_path: Path
) -> None:
    results = run_ranks(n_ranks, "train", corpus_in(tmp_path), 50, 1)
    assert [result["micro_batches"] for result in results] == [8 // n_ranks] * n_ranks
    for rank in range(n_ranks):
        assert np.array_equal(parameters_of(tmp_path, rank), trained_long_alone), f"rank {rank}"


@needs_mpi
def test_a_process_keeps_the_moments_of_its_part_alone(tmp_path: Path) -> None:
    results = run_ranks(4, "train", corpus_in(tmp_path), 3, 1)
    n_values = len(parameters_of(tmp_path))
    assert sum(result["moments"] for result in results) == n_values
    assert max(result["moments"] for result in results) <= n_values / 4 + ALIGNMENT


@needs_mpi
def test_training_resumed_in_another_number_of_processes_gives_the_same_bits(
    trained_alone: Any, logged_alone: dict[str, Any], tmp_path: Path
) -> None:
    run_ranks(4, "train", corpus_in(tmp_path), 3, 1)
    results = run_ranks(2, "train", tmp_path, 6, 2)
    assert [result["first update"] for result in results] == [3, 3]
    assert [result["flops"] for result in results] == [logged_alone["flops"]] * 2
    assert np.array_equal(parameters_of(tmp_path), trained_alone)


@needs_mpi
def test_every_rank_reads_its_own_part_of_a_batch_and_says_how_long_all_waited(tmp_path: Path) -> None:
    of_ranks = run_ranks(2, "train_and_report", corpus_in(tmp_path))
    for update in range(2):
        first, second = (of_rank["read"][update] for of_rank in of_ranks)
        assert first
        assert second
        assert first + second == of_ranks[0]["batches"][update]
    waited = re.fullmatch(r"processes waited (\d+\.\d) % of the time for the slowest .*", of_ranks[0]["lines"][-1])
    assert waited
    assert 0 < float(waited[1]) < 100


@needs_mpi
@pytest.mark.parametrize(("n_ranks", "kind"), [(2, "messages"), (3, "messages"), (4, "messages"), (4, "pairs")])
def test_training_by_messages_gives_the_same_bits_on_every_rank(
    n_ranks: int, kind: str, trained_alone: Any, tmp_path: Path
) -> None:
    results = run_ranks(n_ranks, "train", corpus_in(tmp_path), 6, 1, "cpu", kind)
    through = {"messages": "by messages of ", "pairs": "through shared memory on a machine and by messages of "}
    assert all(result["way"].startswith(f"gradients travel {through[kind]}") for result in results)
    for rank in range(n_ranks):
        assert np.array_equal(parameters_of(tmp_path, rank), trained_alone), f"rank {rank}"


@needs_mpi
@pytest.mark.parametrize("kind", ["messages", "shared"])
def test_training_that_sends_gradients_in_bfloat16_rounds_where_there_are_messages(
    kind: str, trained_alone: Any, tmp_path: Path
) -> None:
    results = run_ranks(2, "train", corpus_in(tmp_path), 6, 1, "cpu", kind, "", "exact", "float32", "bfloat16")
    logged = {"messages": ", rounded to bfloat16; ", "shared": "shared memory, where nothing is rounded to bfloat16; "}
    assert all(logged[kind] in result["way"] for result in results)
    assert np.array_equal(parameters_of(tmp_path, 0), parameters_of(tmp_path, 1))
    assert np.array_equal(parameters_of(tmp_path), trained_alone) == (kind == "shared")
    distance = np.linalg.norm(parameters_of(tmp_path) - trained_alone)
    assert distance < 2e-3 * np.linalg.norm(trained_alone)


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_mpirun_ends_all_ranks_at_the_same_update_with_a_checkpoint(
    number: signal.Signals, tmp_path: Path
) -> None:
    command = command_line(2, "train", corpus_in(tmp_path), 1_000_000, 1)
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: checkpoints(tmp_path / "run") != [])
        process.send_signal(number)
        assert process.wait(timeout=TIME_LIMIT) == (1 if IS_OPEN_MPI else 0)  # its mpirun calls any signal a failure
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert [json.loads((tmp_path / f"{rank}.json").read_text())["finished"] for rank in range(2)] == [False, False]
    saved = load_model_files(checkpoints(tmp_path / "run")[-1])[1]
    model = Transformer(MODEL)
    model.set_weights(saved)
    for rank in range(2):
        assert np.array_equal(parameters_of(tmp_path, rank), model.parameters.values), f"rank {rank}"


@needs_mpi
def test_a_rank_whose_parameters_are_others_is_found_before_they_are_saved(tmp_path: Path) -> None:
    done = start_ranks(2, "train", corpus_in(tmp_path), 4, 1, "cpu", "messages", 1)
    assert done.returncode != 0
    assert f"after update {TRAINING.checkpoint_every} ranks disagree: parameters is " in done.stderr
    assert f"on rank 1 ({socket.gethostname()})" in done.stderr
    assert not list((tmp_path / "run").glob("*"))


@needs_mpi
def test_processes_add_up_gradients_that_lie_on_a_gpu(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    run_ranks(1, "train_on_stand_in_for_gpu", corpus_in(alone), 3)
    run_ranks(2, "train_on_stand_in_for_gpu", corpus_in(together), 3)
    for rank in range(2):
        assert np.array_equal(parameters_of(together, rank), parameters_of(alone)), f"rank {rank}"
