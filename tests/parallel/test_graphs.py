"""Updates of several ranks as CUDA graphs, sums by NCCL included, on stand-ins for CuPy, NCCL and cuBLASLt."""

from pathlib import Path
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from graph_ranks import N_UPDATES, RUN, pairs_in
from mpirun import needs_mpi, run_ranks, start_ranks
from training_ranks import parameters_of

pytestmark = [
    needs_mpi,
    pytest.mark.slow,
    pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)"),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any, Path]:
    """What one rank does, the parameters that it ends with, and its directory."""
    folder = tmp_path_factory.mktemp("alone")
    (result,) = run_ranks(1, "train_in_graphs", pairs_in(folder))
    assert result["micro-batches"] == 8
    assert result["graphs"] >= 2, "several capacities"
    assert result["launched"] == N_UPDATES - result["graphs"] >= 2
    return result, parameters_of(folder), folder


@pytest.mark.parametrize(
    ("n_ranks", "n_local", "micro_batches", "n_buckets"),
    [(8, 2, [1] * 8, 15), (3, 3, [4, 4, 0], 14)],
    ids=["a micro-batch each, on four machines", "an idle rank"],
)
def test_graphs_of_several_ranks_leave_the_bits_of_one(
    n_ranks: int,
    n_local: int,
    micro_batches: list[int],
    n_buckets: int,
    alone: tuple[dict[str, Any], Any, Path],
    tmp_path: Path,
) -> None:
    """Losses, and parameters of every rank; each has as many graphs as the rank alone, and launches them as often.

    The backward pass begins the sums of all buckets of gradients, if there is one.
    """
    expected, parameters, folder = alone
    settings = "exact", "", "", N_UPDATES, n_local
    results = run_ranks(n_ranks, "train_in_graphs", pairs_in(tmp_path / "together"), *settings)
    moments = {result["moments"] for result in results}
    assert moments == {-(-expected["moments"] // (n_ranks * RUN)) * RUN}, "each rank has those of its pieces only"
    expected = expected | {"moments": moments.pop()}
    assert results == [expected | {"micro-batches": n, "begun": n_buckets * (n > 0)} for n in micro_batches]
    average = np.load(tmp_path / "together" / "average.npy")
    assert np.array_equal(average, np.load(folder / "average.npy"))
    assert np.abs(average - parameters[: len(average)]).max() > 1e-3
    for rank in range(n_ranks):
        assert np.array_equal(parameters_of(tmp_path / "together", rank), parameters), f"rank {rank}"


def test_a_run_goes_on_with_another_number_of_ranks(alone: tuple[dict[str, Any], Any, Path], tmp_path: Path) -> None:
    """A checkpoint has the values and moments that each rank has updated."""
    together = pairs_in(tmp_path / "together")
    for n_ranks, n_updates in ((4, 3), (2, 4), (1, N_UPDATES)):
        run_ranks(n_ranks, "train_in_graphs", together, "exact", "", "", n_updates)
    assert np.array_equal(parameters_of(together), alone[1])


def test_in_fast_order_graphs_of_all_ranks_leave_equal_bits(
    alone: tuple[dict[str, Any], Any, Path], tmp_path: Path
) -> None:
    expected, parameters, _ = alone
    results = run_ranks(3, "train_in_graphs", pairs_in(tmp_path / "together"), "fast")
    assert [result["micro-batches"] for result in results] == [2, 3, 3]
    assert {result["launched"] for result in results} == {expected["launched"]}
    assert results[0]["losses"] == pytest.approx(expected["losses"], rel=1e-3)
    found = [parameters_of(tmp_path / "together", rank) for rank in range(3)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert np.linalg.norm(found[0] - parameters) < 1e-3 * np.linalg.norm(parameters)


@pytest.mark.parametrize(("hangs", "call"), [("GPU", "a sum by NCCL"), ("process", "MPI_Allreduce")])
def test_ranks_that_wait_for_a_hung_one_are_ended(hangs: str, call: str, tmp_path: Path) -> None:
    """The host of a hung GPU goes on to the result of the update.  A hung process comes to no call of MPI."""
    done = start_ranks(2, "train_in_graphs", pairs_in(tmp_path), "exact", hangs)
    assert done.returncode != 0
    assert f"has waited 20 s for the other ranks, in {call}: " in done.stderr


def test_an_error_that_nccl_reports_ends_the_run(tmp_path: Path) -> None:
    reported = "NCCL_ERROR_REMOTE_ERROR: a remote process has exited"
    done = start_ranks(2, "train_in_graphs", pairs_in(tmp_path), "exact", "GPU", reported)
    assert done.returncode != 0
    assert f"NcclError: {reported}\n(NCCL reported it while this rank waited for a sum; " in done.stderr
    assert f"(in update {N_UPDATES})" in done.stderr
    assert "has waited" not in done.stderr


def test_a_launch_sums_what_is_in_memory_then(tmp_path: Path) -> None:
    assert run_ranks(2, "sum_in_a_graph", tmp_path, "none") == [[6, 6, 6, 0, 0]] * 2


@pytest.mark.parametrize("deviation", ["order", "partner", "not captured"])
def test_the_stand_in_refuses_calls_that_differ_between_ranks(deviation: str, tmp_path: Path) -> None:
    done = start_ranks(2, "sum_in_a_graph", tmp_path, deviation)
    assert done.returncode != 0
    assert "AssertionError: NCCL: [" in done.stderr
