"""Several processes under mpirun."""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_cuda
import numpy as np
import pytest
from mpirun import IS_OPEN_MPI, MPIRUN, PROGRAM, command_line, environment, needs_mpi, run, run_in_turn, start_ranks
from small_run import SMALL_MODEL, changed, contents, write_parallel_text
from summing_ranks import GPU_ELEMENTS_AT_ONCE, N_MICRO_BATCHES, N_SUMMED, NODE_GROUPS, PINNED_BYTES, summand
from training_ranks import (
    MODEL,
    SPOILT_PARAMETER,
    TRAINING,
    corpus_in,
    parameters_of,
    prepare_together,
    train,
    train_with_faults,
)
from waiting import TIME_LIMIT, wait_until

from minitransformer import Transformer
from minitransformer.model.files import load_model_files
from minitransformer.training.checkpoint import checkpoints
from parallel.agreement import checksum
from parallel.communicator import ALIGNMENT, SerialCommunicator, shard_of_rank, working_ranks
from tests.parallel.test_machines import rounded, sum_along_tree

pytestmark = needs_mpi


@dataclass(frozen=True)
class Run:
    """A program that ranks have run: its arguments, its directory, and what each rank returned."""

    arguments: tuple[Any, ...]
    directory: Path
    results: list[Any]

    @property
    def n_ranks(self) -> int:
        return len(self.results)

    def parameters(self) -> list[Any]:
        return [parameters_of(self.directory, rank) for rank in range(self.n_ranks)]

    def check_parameters(self, expected: Any) -> None:
        for rank, parameters in enumerate(self.parameters()):
            assert np.array_equal(parameters, expected), f"rank {rank}"


Check = Callable[[Run, "Alone"], None]
CHECKS: dict[int, list[tuple[tuple[Any, ...], Check]]] = defaultdict(list)


def ranks_run(program: str | tuple[str, ...], *arguments: object, on: tuple[int, ...]) -> Callable[[Check], Check]:
    """Let these numbers of ranks run a program, and a function check what has come out; of a tuple, each word."""

    def decorate(check: Check) -> Check:
        choices = [word if isinstance(word, tuple) else (word,) for word in (program, *arguments)]
        for n_ranks, job in itertools.product(on, itertools.product(*choices)):
            CHECKS[n_ranks].append((job, check))
        return check

    return decorate


class Alone:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @functools.cache  # noqa: B019
    def trained(
        self,
        n_updates: int,
        precision: str = "float32",
        optimizer: str = "adam",
        weights: str = "",
        ema: str = "0",
        freeze: str = "",
    ) -> tuple[dict[str, Any], Any]:
        directory = corpus_in(self.directory / f"{n_updates} {precision} {optimizer} {weights} {ema} {freeze}")
        named = {"precision": precision, "optimizer": optimizer, "weights": weights, "ema": ema, "freeze": freeze}
        result = train(SerialCommunicator(), directory, str(n_updates), "1", **named)  # type: ignore[arg-type]
        return result, parameters_of(directory)

    @functools.cache  # noqa: B019
    def faulty(self, fault: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the events of a training with faults, and its repro bundle."""
        directory = corpus_in(self.directory / fault)
        events = train_with_faults(SerialCommunicator(), directory, fault)
        return events, repro_bundle(directory)


def repro_bundle(directory: Path) -> dict[str, Any]:
    """The files of the one repro bundle; its facts without the commit, which may change during the tests."""
    bundle: dict[str, Any] = contents(directory / "run" / "divergence")
    name = "step-00000010/update.json"
    facts = json.loads(bundle[name])
    assert facts.pop("code")
    return {**bundle, name: facts}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return Alone(tmp_path_factory.mktemp("alone"))


def tree_sum(n_ranks: int) -> str:
    n_working = working_ranks(n_ranks, N_MICRO_BATCHES)
    return hashlib.blake2b(sum_along_tree([summand(rank) for rank in range(n_working)])).hexdigest()


# Sums of arrays, and values.


@ranks_run("sum_summands", on=(2, 3, 4, 8))
def all_ranks_end_with_the_sum_along_the_tree_of_the_working_ones(run: Run, alone: Alone) -> None:
    assert run.results == [dict.fromkeys(NODE_GROUPS, tree_sum(run.n_ranks))] * run.n_ranks


@ranks_run("sum_in_fast_order", on=(2, 3))
def sums_in_another_order_are_those_of_all_ranks(run: Run, alone: Alone) -> None:
    numbers, n = np.arange(N_SUMMED, dtype=np.float32) % 1_021, run.n_ranks
    assert run.results == [checksum(n * numbers + n * (n - 1) // 2)] * n


@ranks_run("sum_often", on=(4,))
@ranks_run("begin_with_values", on=(3,))
@ranks_run("wait_patiently", on=(2,))
def the_ranks_have_checked_it(run: Run, alone: Alone) -> None:
    """Sums in quick succession do not mix; values begin as they were; waiting for what takes long is no freezing."""
    assert run.results == [None] * run.n_ranks


@ranks_run("share_no_memory", ("no room", "another process"), on=(3,))
def a_rank_that_cannot_share_memory_makes_all_send_messages(run: Run, alone: Alone) -> None:
    reason = rf" by messages of .*, because ranks cannot share memory \(.*{run.arguments[0]}\); added in one fixed "
    assert re.search(reason, run.results[0])
    assert len(set(run.results)) == 1


@ranks_run("exchange_values", on=(3,))
def every_rank_learns_the_same(run: Run, alone: Alone) -> None:
    """And the barrier opens when the last rank has come."""
    same = {"size": 3, "local_size": 3, "sum": 4.5, "any of one": True, "any of none": False, "all have come": True}
    same |= {"broadcast": {"from": [0]}, "all": [[0], [1], [2]]}
    assert run.results == [same | {"rank": rank} for rank in range(3)]


@ranks_run("sum_rounded", "messages", on=(2,))
@ranks_run("sum_rounded", "pairs", on=(4,))
def what_comes_from_another_machine_is_rounded_once_and_all_ranks_have_the_same(run: Run, alone: Alone) -> None:
    """Ranks in two machines: (r₀ + r₁) + (r₂ + r₃), of which that bracket is rounded that a rank does not hold."""
    summands, half = [summand(rank) for rank in range(run.n_ranks)], run.n_ranks // 2
    first, second = (sum(of_half[1:], of_half[0]) for of_half in (summands[:half], summands[half:]))
    expected = np.empty_like(first)
    for rank in range(run.n_ranks):
        part = shard_of_rank(rank, run.n_ranks, N_SUMMED)
        expected[part] = first[part] + rounded(second[part]) if rank < half else rounded(first[part]) + second[part]
    assert run.results == [hashlib.blake2b(expected).hexdigest()] * run.n_ranks


@ranks_run("round_what_is_not_float32", on=(2,))
def what_is_not_float32_is_not_rounded(run: Run, alone: Alone) -> None:
    assert run.results == ["HostReducer: only float32 is sent in bfloat16; got gradients of float64"] * 2


@ranks_run("count_what_leaves", "messages", "float32", on=(4,))
@ranks_run("count_what_leaves", "pairs", ("float32", "bfloat16"), on=(4,))
def a_number_leaves_a_machine_once_and_in_half_the_bytes_if_wished(run: Run, alone: Alone) -> None:
    """Bytes that leave each of two machines with two ranks, by number of the model: half of them belong to the other.

    By messages alone both ranks send that half, and either value goes to two ranks.
    """
    expected = {("messages", "float32"): (4, 4), ("pairs", "float32"): (2, 2), ("pairs", "bfloat16"): (1, 2)}
    for one, other in (run.results[:2], run.results[2:]):
        sent = [(a + b) / N_SUMMED for a, b in zip(one, other, strict=True)]
        assert sent == pytest.approx(expected[run.arguments], rel=5e-3)


# Sums of arrays on GPUs, on the stand-in for CuPy.

WAYS = ("NCCL", "nothing")


@ranks_run("sum_on_gpus", WAYS, "exact", on=(2, 3, 4))
def with_every_transport_the_exact_sum_has_the_bits_of_the_tree(run: Run, alone: Alone) -> None:
    way, n = run.arguments[0], run.n_ranks
    assert [result["sum"] for result in run.results] == [tree_sum(n)] * n
    assert [result["gpu"] for result in run.results] == ([0] * n if way == "nothing" else list(range(n)))
    calls = [result["calls"] for result in run.results]
    if way == "nothing" and n == 2:  # pinned memory is allocated once and free before it is used again
        assert calls[0] == [["pinned", PINNED_BYTES], ["synchronize"], ["synchronize"]]
    if way == "NCCL" and n == 3:
        check_calls_of_nccl(*calls)


def check_calls_of_nccl(*calls: list[Any]) -> None:
    """Its id comes from rank 0, after the GPU was chosen; partners send and receive shards in a group.

    That is on a stream of sums, not on that of the process, number 7.
    """
    kind, stream, identifier = fake_cuda.nccl.NCCL_FLOAT32, calls[2][1][-1], [-3, 5, 8]
    assert stream != 7
    assert calls[0][:2] == [["get_unique_id"], ["communicator", 3, identifier, 0, 0]]
    assert [calls[rank][0] for rank in (1, 2)] == [["communicator", 3, identifier, rank, rank] for rank in (1, 2)]
    of_a_rank, piece = -(-N_SUMMED // (3 * ALIGNMENT)) * ALIGNMENT, GPU_ELEMENTS_AT_ONCE // 3
    pieces = piece, of_a_rank - piece  # rank 2 is idle: it has only a shard to sum
    assert calls[2][1:5] == [["recv", size, kind, rank, stream] for size in pieces for rank in (0, 1)]
    messages = ("send", 0), ("recv", 0), ("send", 2)
    assert calls[1][1:4] == [[way, piece, kind, partner, stream] for way, partner in messages]


@ranks_run("sum_on_gpus", WAYS, "fast", on=(3,))
def with_every_transport_the_fast_sum_is_that_of_all_ranks(run: Run, alone: Alone) -> None:
    assert len({result["sum"] for result in run.results}) == 1
    assert max(result["error"] for result in run.results) < 1e-5
    assert "added in an order that depends on the number of processes" in run.results[0]["said"]
    if run.arguments[0] == "NCCL":
        nccl = fake_cuda.nccl
        for result in run.results:
            (*_, (scatter, *summed), (gather, *copied)) = [call[:-1] for call in result["calls"]]
            assert [scatter, gather] == ["reduceScatter", "allGather"]
            assert summed == [*copied, nccl.NCCL_SUM]
            assert N_SUMMED <= 3 * copied[0] < N_SUMMED + 3 * ALIGNMENT


@ranks_run("sum_on_gpus", WAYS, "exact", "bfloat16", on=(2,))
def messages_between_gpus_round_to_bfloat16_and_all_ranks_have_the_same(run: Run, alone: Alone) -> None:
    """Check the sum that a rank receives.  In the host's memory, which ranks share here, nothing is sent."""
    way = run.arguments[0]
    assert all(", rounded to bfloat16 in messages; " in result["said"] for result in run.results)
    found, (first, second) = [np.load(run.directory / f"{rank}.npy") for rank in range(2)], (summand(0), summand(1))
    assert np.array_equal(*found)
    if way == "nothing":
        assert np.array_equal(found[0], first + second)
    else:
        of_first, of_second = first + rounded(second), rounded(first) + second
        assert ((found[0] == of_first) | (found[0] == of_second)).all()
    if way == "NCCL":  # which carries as many numbers, of half the bytes
        sent = [(count, kind) for name, count, kind, *_ in run.results[0]["calls"][2:] if name == "send"]
        assert sum(count for count, _ in sent) == pytest.approx(N_SUMMED / 2, abs=ALIGNMENT)
        assert {kind for _, kind in sent} == {fake_cuda.nccl.NCCL_FLOAT16}


@ranks_run("sum_on_gpus", "NCCL", "exact", "float32", "pairs", on=(4,))
def gpus_of_one_machine_are_summed_before_messages_leave_it(run: Run, alone: Alone) -> None:
    """The bits of the tree; a rank sends a quarter of its numbers to its partner on the other machine, not half."""
    assert [result["sum"] for result in run.results] == [tree_sum(4)] * 4
    sent = [call for call in run.results[0]["calls"] if call[0] == "send"]
    assert {partner: sum(call[1] for call in sent if call[3] == partner) / N_SUMMED for partner in (1, 2, 3)} == {
        1: pytest.approx(1 / 2, rel=0.01), 2: pytest.approx(1 / 4, rel=0.01), 3: 0
    }  # fmt: skip


# Training.

GRADIENTS_TRAVEL = {
    "": r'through shared memory; added in one fixed order \(training.sum = "exact"\)', "messages": "by messages of .*",
    "pairs": "through shared memory on a machine and by messages of .*",
}  # fmt: skip
MICRO_BATCHES = {2: [4, 4], 3: [4, 4, 0], 4: [2] * 4, 8: [1] * 8}


@ranks_run("train", 6, 1, "cpu", "", on=(2, 3, 4))
@ranks_run("train", 12, 1, "cpu", "", on=(8,))
@ranks_run("train", 6, 1, "cpu", "messages", on=(3, 4))
@ranks_run("train", 6, 1, "cpu", "pairs", on=(4,))
def training_gives_the_same_bits_on_every_rank(run: Run, alone: Alone) -> None:
    n_updates, _, _, way = run.arguments
    expected, parameters = alone.trained(n_updates)
    assert expected["epoch"] >= 1
    assert [result["micro_batches"] for result in run.results] == MICRO_BATCHES[run.n_ranks]
    assert {result["flops"] for result in run.results} == {expected["flops"]}
    assert all(result["finished"] for result in run.results)
    assert all(re.fullmatch(f"gradients travel {GRADIENTS_TRAVEL[way]}", result["way"]) for result in run.results)
    run.check_parameters(parameters)
    if run.n_ranks == 4:  # each keeps the moments of its shard alone
        moments = [result["moments"] for result in run.results]
        assert sum(moments) == len(parameters)
        assert max(moments) <= len(parameters) / 4 + ALIGNMENT


@ranks_run("train", 3, 1, "cpu", ("", "messages"), "", "exact", ("bfloat16", "bfloat16 products"), on=(2,))
def training_in_bfloat16_gives_the_same_bits_on_every_rank(run: Run, alone: Alone) -> None:
    """A rank rounds anew what others have changed."""
    run.check_parameters(alone.trained(3, run.arguments[6])[1])


OWN = ("optimizers:Lion", "optimizers:Muon")


@ranks_run("train", 6, 1, "cpu", ("", "messages"), "", "exact", "float32", "float32", OWN, on=(2, 3))
@ranks_run("train", 6, 1, "cpu", "", "", "exact", "float32", "float32", OWN, on=(4,))
def optimizers_of_users_and_a_penalty_give_the_same_bits_on_every_rank(run: Run, alone: Alone) -> None:
    """Muon needs whole matrices, which boundaries of shards cut; each rank keeps the state of its shard alone."""
    _, expected = alone.trained(6, "float32", run.arguments[8])
    run.check_parameters(expected)
    assert not np.array_equal(expected, alone.trained(6)[1])
    assert sum(result["moments"] for result in run.results) == len(expected)


@ranks_run("train", 6, 1, "cpu", ("", "messages"), "", "exact", "float32", "float32", "adam", "", "0.7", on=(2, 3))
def a_moving_average_has_the_same_bits_on_any_number_of_ranks(run: Run, alone: Alone) -> None:
    """Each rank has the average of its shard alone; the weights are those of a training without it."""
    run.check_parameters(alone.trained(6)[1])
    alone.trained(6, "float32", "adam", "", "0.7")
    expected, average = (folder / "average.npy" for folder in (alone.directory / "6 float32 adam  0.7 ", run.directory))
    assert np.array_equal(np.load(average), np.load(expected))
    assert not np.array_equal(np.load(average), run.parameters()[0])


FREEZE = "encoder.* *.bias"


@ranks_run("train", 6, 1, "cpu", "", "", "exact", "float32", "float32", ("adam", *OWN), "", "0", FREEZE, on=(2, 3))
def frozen_parameters_stay_and_others_have_the_same_bits_on_every_rank(run: Run, alone: Alone) -> None:
    _, expected = alone.trained(6, "float32", run.arguments[8], "", "0", FREEZE)
    run.check_parameters(expected)
    assert not np.array_equal(expected, alone.trained(6, "float32", run.arguments[8])[1])


@ranks_run("train", 6, 1, "cpu", "", "", "fast", on=(2, 3))
def in_the_fast_order_all_processes_train_and_agree_with_each_other(run: Run, alone: Alone) -> None:
    shares = {2: [4, 4], 3: [2, 3, 3]}
    assert [result["micro_batches"] for result in run.results] == shares[run.n_ranks]
    run.check_parameters(parameters_of(run.directory))
    # The learning rate reaches 0.18; rounding in another order moves a parameter by 1e-4 of that at most.
    np.testing.assert_allclose(parameters_of(run.directory), alone.trained(6)[1], rtol=0, atol=2e-5)


@ranks_run("train", 6, 1, "cpu", ("messages", "shared"), "", "exact", "float32", "bfloat16", on=(2,))
def training_that_sends_gradients_in_bfloat16_rounds_where_there_are_messages(run: Run, alone: Alone) -> None:
    kind, (_, expected), (first, second) = run.arguments[3], alone.trained(6), run.parameters()
    logged = {"messages": ", rounded to bfloat16; ", "shared": "shared memory, where nothing is rounded to bfloat16; "}
    assert all(logged[kind] in result["way"] for result in run.results)
    assert np.array_equal(first, second)
    assert np.array_equal(first, expected) == (kind == "shared")
    assert np.linalg.norm(first - expected) < 2e-3 * np.linalg.norm(expected)


@ranks_run("train", 3, 1, on=(4,))
def training_resumed_by_one_process_gives_the_same_bits(run: Run, alone: Alone) -> None:
    result = train(SerialCommunicator(), run.directory, "6", "2")
    expected, parameters = alone.trained(6)
    assert (result["first update"], result["flops"]) == (3, expected["flops"])
    assert np.array_equal(parameters_of(run.directory), parameters)


@ranks_run("train", 3, 1, "cpu", "", "", "exact", "float32", "float32", "adam", "0.5 1.7", on=(2, 4))
def training_on_weighted_files_gives_the_same_bits_on_every_rank_and_resumed_by_one_process(
    run: Run, alone: Alone
) -> None:
    weights = run.arguments[-1]
    first, after_first = alone.trained(3, weights=weights)
    run.check_parameters(after_first)
    result = train(SerialCommunicator(), run.directory, "6", "2", weights=weights)
    expected, parameters = alone.trained(6, weights=weights)
    assert (first["epoch"], result["epoch"], expected["epoch"]) == (0, 1, 1)
    assert np.array_equal(parameters_of(run.directory), parameters)
    assert not np.array_equal(parameters, alone.trained(6)[1])


@ranks_run("train_and_report", on=(2,))
def every_rank_reads_its_own_part_of_a_batch_and_says_how_long_all_waited(run: Run, alone: Alone) -> None:
    of_first, _ = run.results
    for update in range(2):
        first, second = (result["read"][update] for result in run.results)
        assert first
        assert second
        assert first + second == of_first["batches"][update]
    waited = re.fullmatch(r"processes waited (\d+\.\d) % of the time for the slowest .*", of_first["lines"][-1])
    assert waited
    assert 0 < float(waited[1]) < 100


@ranks_run("train_with_callback", (0, 1), ("on purpose", ""), on=(2,))
def a_callback_of_one_rank_lets_all_ranks_save(run: Run, alone: Alone) -> None:
    rank, failure = run.arguments
    ends = ["False" if failure else "True"] * 2
    if failure:
        ends[rank] = "callback OnOneRank.after_step: ValueError: on purpose"
    assert run.results == ends
    saved = [path.name for path in checkpoints(run.directory / "run")]
    assert saved == (["step-00000002"] if failure else ["step-00000003", "step-00000006"])


@ranks_run("train_on_stand_in_for_gpu", 3, on=(2,))
def processes_add_up_gradients_that_lie_on_a_gpu(run: Run, alone: Alone) -> None:
    run.check_parameters(parameters_of(run.directory / "alone"))


@ranks_run("prepare_together", ("in files", "held out"), on=(2, 3))
def files_of_prepared_text_are_those_of_one_process(run: Run, alone: Alone) -> None:
    directory = run.directory / "alone"
    directory.mkdir()
    log = prepare_together(SerialCommunicator(), directory, *run.arguments)
    assert run.results == [log, *[[]] * (run.n_ranks - 1)]
    files = contents(directory / "data")
    assert contents(run.directory / "data") == files
    assert len(files) > 3 * 10
    manifest = json.loads(files["manifest.json"])
    assert manifest["dropped"].keys() >= {"empty", "too long", "mojibake"}
    assert all(manifest["train_pairs_of_files"])
    assert sum(manifest["train_pairs_of_files"]) == manifest["train_pairs"]
    assert manifest["targets_with_lost_characters"]


@ranks_run("open_prepared", on=(4,))
def one_rank_of_each_machine_reads_all_prepared_files(run: Run, alone: Alone) -> None:
    """Their checksums, and all lengths; the machine's other ranks learn what it has found."""
    names, n_opened, lengths = run.results[0]
    files = {path.name for path in (run.directory / "data").iterdir()}
    assert {*names} == files - {"manifest.json", "tokenizer.checksums.json"}
    assert run.results == [[names, n_opened, lengths], [[], 0, lengths]] * 2


@ranks_run("train_with_faults", ("gradient nan", "loss nan"), on=(2, 4))
@ranks_run("train_with_faults", "gradient inf", "messages", on=(2,))
@ranks_run("train_with_faults", "gradient nan", "pairs", on=(4,))
def a_fault_of_one_rank_is_the_same_to_all_as_to_one_process(run: Run, alone: Alone) -> None:
    """Every event, the bits of the parameters after every update, and the one repro bundle."""
    fault = run.arguments[0]
    expected, expected_bundle = alone.faulty(fault)
    assert run.results == [expected] * run.n_ranks
    bundle = repro_bundle(run.directory)
    assert bundle == expected_bundle
    assert {name.split("/")[0] for name in bundle} == {"step-00000010"}
    norms = bundle["step-00000010/update.json"]["norms"]
    wrong = {name: norm["gradient"] for name, norm in norms.items() if not isinstance(norm["gradient"], float)}
    assert wrong == ({} if fault == "loss nan" else {SPOILT_PARAMETER: fault.split()[1]})
    assert min(norm["gradient"] for name, norm in norms.items() if name not in wrong) > 0


@pytest.mark.parametrize("n_ranks", sorted(CHECKS))
def test_ranks_under_one_mpirun(n_ranks: int, tmp_path: Path, alone: Alone) -> None:
    jobs = [job for job, _ in CHECKS[n_ranks]]
    for number, (program, *_) in enumerate(jobs):
        directory = tmp_path / str(number)
        directory.mkdir()
        if program.startswith("train"):
            corpus_in(directory)
    results = run_in_turn(n_ranks, tmp_path, jobs)
    for number, ((_, *arguments), check) in enumerate(CHECKS[n_ranks]):
        check(Run(tuple(arguments), tmp_path / str(number), results[number]), alone)


# Runs that end early.


@pytest.mark.parametrize("error", ["ValueError", "SystemExit"])
def test_an_exception_on_one_rank_ends_all_soon_with_its_traceback(error: str, tmp_path: Path) -> None:
    done = start_ranks(2, "raise_on_one_rank", tmp_path, error)
    assert time.time() - (tmp_path / "raised").stat().st_mtime < 60, "ranks wait ten minutes for each other"
    assert done.returncode != 0
    assert f"rank 1 of 2 ({socket.gethostname()}) failed; ending all ranks" in done.stderr
    assert f"{error}: on purpose" in done.stderr


def test_a_rank_that_is_killed_ends_all(tmp_path: Path) -> None:
    assert start_ranks(2, "die_on_one_rank", tmp_path).returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "what"),
    [("start", "MPI_Comm_dup"), ("work", "MPI_Ibarrier, for what rank 0 does alone"), ("barrier", "MPI_Barrier"),
     ("allocation", "MPI_Allgather"), ("sum", "MPI_Barrier")],
)  # fmt: skip
def test_a_rank_that_is_frozen_ends_all_after_a_set_time(when: str, what: str, tmp_path: Path) -> None:
    """In a sum, even if MPICH's mpirun does not end them."""
    options = ["-disable-auto-cleanup"] if when == "sum" and not IS_OPEN_MPI else []
    done = run(command_line(2, "freeze_one_rank", tmp_path, when, options=options))
    assert done.returncode != 0
    assert f"has waited 2 s for the other ranks, in {what}: one of them is frozen or cut off" in done.stderr


def test_ranks_that_disagree_end_with_a_message_that_says_which_and_how(tmp_path: Path) -> None:
    done, host = start_ranks(3, "disagree", tmp_path), socket.gethostname()
    assert done.returncode != 0
    message = f"at the start ranks disagree: code is old on rank 2 ({host}), new on rank 0 ({host}). Start anew"
    assert message in done.stderr
    assert done.stderr.count("failed; ending all ranks") == 1


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [("SLURM_STEP_NUM_TASKS", "use srun --mpi=pmi2 with MPICH, srun --mpi=pmix with Open MPI"),
     ("OMPI_COMM_WORLD_SIZE", "pip install mpi4py mpich")],
)  # fmt: skip
def test_a_launcher_of_another_mpi_library_names_the_remedy(variable: str, remedy: str, tmp_path: Path) -> None:
    """Then every process believes that it is the only one."""
    done = run([sys.executable, str(PROGRAM), "return_nothing", str(tmp_path)], **{variable: "3"})
    assert done.returncode != 0
    assert "LaunchError: 3 processes were started, but mpi4py sees 1" in done.stderr
    assert remedy in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_mpirun_ends_all_at_one_update_with_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
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
    model = Transformer(MODEL)
    model.set_weights(load_model_files(checkpoints(tmp_path / "run")[-1])[1])
    for rank in range(2):
        assert np.array_equal(parameters_of(tmp_path, rank), model.parameters.values), f"rank {rank}"


def test_a_rank_whose_parameters_are_others_is_found_before_they_are_saved(tmp_path: Path) -> None:
    done = start_ranks(2, "train", corpus_in(tmp_path), 4, 1, "cpu", "messages", 1)
    assert done.returncode != 0
    assert f"after update {TRAINING.checkpoint_every} ranks disagree: parameters is " in done.stderr
    assert f"on rank 1 ({socket.gethostname()})" in done.stderr
    assert not list((tmp_path / "run").glob("*"))


def test_training_says_where_its_processes_are_and_how_gradients_travel(tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "train", 60, seed=1)
    write_parallel_text(tmp_path, "valid", 5, seed=2)
    settings = f"--data.raw {tmp_path} {SMALL_MODEL} --training.sum fast"
    code = "from cli.train import main; raise SystemExit(main())"
    options = ["--run", str(tmp_path / "run"), *settings.split()]
    options = changed(options, "--training.max-updates", "2", "--training.n-micro-batches", "4")
    done = run([MPIRUN, "-n", "3", sys.executable, "-c", code, *options])
    assert done.returncode == 0, done.stderr
    # Colours and carriage returns appear where mpirun gives its ranks a terminal.
    screen = re.sub(r"\x1b\[[0-9;]*m|\r", "", done.stderr)
    assert f"{socket.gethostname()}: ranks 0 to 2\ngradients travel through shared memory; " in screen
    assert "idle" not in done.stderr


def test_every_update_of_the_training_above_changes_the_parameters(alone: Alone) -> None:
    assert not np.array_equal(alone.trained(5)[1], alone.trained(6)[1])
