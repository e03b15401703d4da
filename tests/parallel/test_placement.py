"""Ranks of a machine share its cores and take its GPUs in turn."""

import threading
from pathlib import Path
from typing import Any

import fake_cuda
import pytest
from training_ranks import MODEL, TRAINING, corpus_in

from autograd import DeviceError
from autograd.array import count_gpus, pin_to_device, use_gpu
from minitransformer import Transformer
from minitransformer.data.store import TokenStore
from minitransformer.system import ranks as placement
from minitransformer.system.ranks import choose_placements
from minitransformer.training.loop import Trainer
from parallel.communicator import SerialCommunicator
from parallel.placement import Placement, cores_of, describe, gpu_of_rank, ranks_per_host, share_of_cores
from tests.support.training import job_of, run_of


def test_ranks_take_gpus_in_turn() -> None:
    assert [gpu_of_rank(local_rank, 4) for local_rank in range(6)] == [0, 1, 2, 3, 0, 1]
    assert gpu_of_rank(3, 0) is None


@pytest.mark.parametrize(
    ("cores", "shares"),
    [
        ([range(16)] * 8, [2] * 8),  # MPICH's mpirun binds nobody
        ([range(4), range(4, 8)], [4, 4]),  # Slurm, and Open MPI with --bind-to, give every rank its own
        ([range(1), range(1, 2)], [1, 1]),
        ([range(2)] * 3, [1, 1, 1]),  # more ranks than cores
        ([range(3)] * 3, [1, 1, 1]),  # three thirds are one
        ([range(6), range(2)], [5, 1]),
    ],
)
def test_cores_are_divided_among_the_ranks_that_may_use_them(cores: list[range], shares: list[int]) -> None:
    assert [share_of_cores(mine, cores) for mine in cores] == shares


def test_cores_of_another_machine_are_others_though_their_numbers_are_the_same() -> None:
    placements = [Placement(frozenset(range(4)), host=host) for host in ("a", "a", "b")]
    assert [cores_of(rank, placements) for rank in range(3)] == [2, 2, 4]


def test_a_line_a_machine_tells_its_ranks_and_gpus() -> None:
    cores = frozenset({0})
    on_gpus = [Placement(cores, gpu, 2, host) for host, gpu in (("a", 0), ("a", 1), ("a", 0), ("b", 0))]
    assert describe(on_gpus) == ["a: ranks 0 to 2 on GPU 0, 1, 0 of 2", "b: rank 3 on GPU 0 of 2"]
    alternating = [Placement(cores, host=host) for host in "abaabb"]
    assert describe(alternating) == ["a: ranks 0, 2, 3", "b: ranks 1, 4, 5"]
    assert describe(alternating[2:4]) == ["a: ranks 0, 1"]


@pytest.mark.parametrize(
    ("hosts", "expected"), [("aaaa", 4), ("aabb", 2), ("abc", 1), ("aab", 1), ("abab", 1), ("aaba", 1), ("abba", 1)]
)
def test_machines_have_equally_many_consecutive_ranks_or_none_counts(hosts: str, expected: int) -> None:
    assert ranks_per_host(list(hosts)) == expected


class SecondOfThree(SerialCommunicator):
    rank = local_rank = 1
    size = local_size = 3


@pytest.mark.usefixtures("cupy")
def test_a_rank_computes_on_its_gpu_and_so_do_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_cuda, "N_GPUS", 2)
    seen: list[int] = []

    def look(before: Any) -> None:
        before()
        seen.append(fake_cuda.Device().id)

    try:
        (placement,) = choose_placements("cuda", SecondOfThree())
        assert (placement.gpu, placement.n_gpus, fake_cuda.Device().id) == (1, 2, 1)
        for before in (lambda: None, pin_to_device("cuda")):
            thread = threading.Thread(target=look, args=(before,))
            thread.start()
            thread.join()
    finally:
        use_gpu(0)
    assert seen == [0, 1]


@pytest.mark.usefixtures("cupy")
def test_threads_of_training_compute_on_the_gpu_of_their_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_cuda, "N_GPUS", 2)
    store = TokenStore(corpus_in(tmp_path) / "data", "train")
    try:
        use_gpu(1)
        model = Transformer(MODEL, device="cuda")
        trainer = Trainer(model, store, None, TRAINING, tmp_path / "run", SerialCommunicator(), n_threads=2)
        for executor in (trainer.training_step.executor, trainer.gradient._executor):
            assert executor.submit(lambda: fake_cuda.Device().id).result() == 1
    finally:
        use_gpu(0)


def test_training_computes_on_all_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    monkeypatch.setattr(placement, "allowed_cores", lambda: frozenset(range(3)))
    job_of(run_of(tmp_path))
    assert any(line.endswith("processes 1, threads each 3") for line in logged)


def test_on_the_cpu_no_gpu_is_looked_for() -> None:
    (placement,) = choose_placements("cpu", SerialCommunicator())
    assert (placement.gpu, placement.n_gpus, count_gpus("cpu")) == (None, 0, 0)
    pin_to_device("cpu")()


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize(
    ("n_gpus", "message"), [(0, "the driver sees no GPU"), (-1, "finds no usable driver .cudaError")]
)
def test_a_machine_without_gpu_is_reported_plainly(n_gpus: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_cuda, "N_GPUS", n_gpus)
    with pytest.raises(DeviceError, match=rf'device: .*{message}.*nvidia-smi lists a GPU, or use device "cpu"'):
        choose_placements("cuda", SerialCommunicator())
