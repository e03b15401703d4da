"""Gradients travel by the best way that all ranks have, and the way is said."""

import threading
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import fake_cuda
import fake_streams
import numpy as np
import pytest

from parallel import nccl_reducer, reducer
from parallel.communicator import SerialCommunicator
from parallel.reducer import choose_reducer
from parallel.watchdog import Watchdog


class World(SerialCommunicator):
    """This rank, the first, among others that have a GPU and libraries as it is said."""

    library = "MPI 1.2"

    def __init__(self, others: list[tuple[str, str, bool]], *, local_size: int = 1) -> None:
        self.size, self.local_size, self._others = 1 + len(others), local_size, others

    def allgather(self, value: Any) -> list[Any]:
        return [("here", *value[1:]), *self._others]


ON_ITS_OWN_GPU = ("here", "0000:01:00.0", True)  # another rank
UNUSED = SimpleNamespace(why_not_captured=None)  # a transport
FIXED = '; added in one fixed order (training.sum = "exact")'
OWN = "through NCCL, because every rank has a GPU of its own"


@pytest.fixture
def description_of(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def choose(others: list[tuple[str, str, bool]], available: bool = True) -> str:
        monkeypatch.setattr(fake_cuda.nccl, "available", available)
        monkeypatch.setattr(reducer, "NcclTransport", lambda *arguments: UNUSED)
        logged = choose_reducer(World(others), cupy, 8).description
        assert logged.startswith("gradients travel ")
        assert logged.endswith(FIXED)
        return logged.removeprefix("gradients travel ").removesuffix(FIXED)

    return choose


def test_nccl_where_every_rank_has_a_gpu_of_its_own(description_of: Any) -> None:
    assert description_of([("here", "0000:01:00.0", True)]) == OWN
    assert description_of([("there", "0000:00:00.0", True)]) == OWN  # another machine's first GPU is another GPU


def test_pinned_memory_where_nccl_cannot_be_used(description_of: Any) -> None:
    way = "through pinned host memory, because"
    shared = description_of([ON_ITS_OWN_GPU, ("here", "0000:00:00.0", True)])
    assert shared == f"{way} ranks 0, 2 share a GPU, which NCCL refuses"
    assert description_of([("here", "0000:01:00.0", False)]) == f"{way} CuPy finds no NCCL on rank 1"
    assert description_of([ON_ITS_OWN_GPU], available=False) == f"{way} CuPy finds no NCCL on rank 0"


def test_a_library_that_chooses_the_order_rounds_nothing(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reducer, "NcclTransport", lambda *arguments: UNUSED)
    world = World([ON_ITS_OWN_GPU])
    described = choose_reducer(world, cupy, 8, "fast", "bfloat16").description
    assert described.startswith(f"gradients travel {OWN}, where nothing is rounded to bfloat16; ")


def reducer_over(
    world: World, cupy: Any, monkeypatch: pytest.MonkeyPatch, n_micro_batches: int, reduce_scatter: Any
) -> Any:
    """The reducer of a rank whose NCCL sums in the fast order as ``reduce_scatter`` does."""
    transport = SimpleNamespace(
        rank=world.rank, size=world.size, why_not_captured=None, reduce_scatter_array=reduce_scatter
    )
    monkeypatch.setattr(reducer, "NcclTransport", lambda *arguments: transport)
    return choose_reducer(world, cupy, n_micro_batches, "fast")


@pytest.mark.parametrize(("rank", "added"), [(0, [7.0, 7.0]), (1, [0.0, 0.0])])
def test_a_rank_without_micro_batches_adds_zeros_and_not_the_last_sum(
    rank: int, added: list[float], cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_reducer, "RUN", 1)
    world = World([ON_ITS_OWN_GPU])
    world.rank = rank
    chosen = reducer_over(world, cupy, monkeypatch, 1, lambda array: None)
    _, gradients = chosen.allocate(2, np.float32)
    gradients[...] = 7
    chosen.reduce_scatter()
    assert gradients.get().tolist() == added


def test_shards_are_collected_in_the_order_of_the_array(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers of whole matrices need this sum: each rank adds its own pieces to zeros."""
    monkeypatch.setattr(nccl_reducer, "RUN", 64)
    monkeypatch.setattr(nccl_reducer, "BUCKET", 128)
    found = []
    for rank in (0, 1):
        world = World([ON_ITS_OWN_GPU])
        world.rank = rank
        chosen = reducer_over(world, cupy, monkeypatch, 2, lambda array: None)
        chosen._nccl.allreduce_array = lambda array: None
        chosen.allocate(300, np.float32)
        found.append(chosen.map_shards(lambda shard: shard, cupy.arange(1, 385)).get())
    assert np.array_equal(found[0] + found[1], np.arange(1, 301))
    assert np.array_equal(found[1] > 0, np.arange(300) // 64 % 2 == 1)


def test_sums_run_on_their_stream_while_the_backward_pass_goes_on(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bucket is summed once, after what its gradients wait for; the stand-in's other streams compute late."""
    where: list[int] = []

    def double(array: Any) -> None:
        where.append(fake_streams.get_current_stream().ptr)
        array *= 2

    monkeypatch.setattr(nccl_reducer, "RUN", 64)
    monkeypatch.setattr(nccl_reducer, "BUCKET", 128)
    chosen = reducer_over(World([ON_ITS_OWN_GPU]), cupy, monkeypatch, 2, double)
    _, gradients = chosen.allocate(300, np.float32)
    assert chosen.buckets == [slice(0, 128), slice(128, 256), slice(256, 384)]
    assert chosen.pieces == [slice(0, 64), slice(128, 192), slice(256, 320)]
    for n_begun in (2, 0, 3):
        gradients[...] = 1
        where.clear()
        for bucket in chosen.buckets[:n_begun]:
            chosen.begin_sum(bucket, lambda: where.append(fake_streams.get_current_stream().ptr))
        assert (gradients.get() == 1).all()
        chosen.reduce_scatter()
        assert (gradients.get() == 2).all()
        assert len(where) == 3 + n_begun
        assert len({*where, fake_streams.get_current_stream().ptr}) == 2


class WatchedWorld(World):
    """Two ranks with a GPU each; who waits for the other for long is ended."""

    def __init__(self) -> None:
        super().__init__([ON_ITS_OWN_GPU])
        self.ended = threading.Event()
        self._watchdog = Watchdog(0, 0.05, self.ended.set)

    def waiting(self, what: str) -> AbstractContextManager[None]:
        return self._watchdog.waiting(what)


def reducer_over_nccl(world: World, cupy: Any, monkeypatch: pytest.MonkeyPatch, check: Any = lambda: None) -> Any:
    communicator = SimpleNamespace(check_async_error=check, allReduce=lambda *arguments: None)
    monkeypatch.setattr(fake_cuda.nccl, "NcclCommunicator", lambda *arguments: communicator, raising=False)
    return choose_reducer(world, cupy, 2)


def test_a_rank_that_waits_in_nccl_for_a_hung_one_is_ended(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sum, and when the host waits for the event of a launched graph."""
    event, asked = cupy.cuda.get_current_stream().record(), list[int]()
    for run in (lambda chosen: float(chosen.allreduce(cupy.ones(()))), lambda chosen: chosen.wait(event)):
        world = WatchedWorld()

        def query(pointer: int, world: WatchedWorld = world) -> int:
            asked.append(pointer)
            return 0 if world.ended.is_set() else 600

        monkeypatch.setattr(fake_cuda.runtime, "eventQuery", query)
        assert run(reducer_over_nccl(world, cupy, monkeypatch)) in (None, 1)
        assert world.ended.is_set()
        assert "has waited 0.05 s for the other ranks, in a sum by NCCL: " in capsys.readouterr().err
    assert asked[-1] == event.ptr


def test_errors_of_nccl_and_of_the_gpu_end_the_wait(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise fake_cuda.CUDARuntimeError("on purpose")

    world = WatchedWorld()
    monkeypatch.setattr(fake_cuda.runtime, "eventQuery", lambda event: 0 if world.ended.is_set() else 600)
    with pytest.raises(fake_cuda.CUDARuntimeError, match="on purpose"):
        reducer_over_nccl(world, cupy, monkeypatch, check=fail).allreduce(cupy.ones(()))
    monkeypatch.setattr(fake_cuda.runtime, "eventQuery", lambda event: 700)  # cudaErrorIllegalAddress
    monkeypatch.setattr(cupy.cuda.Event, "synchronize", fail)
    with pytest.raises(fake_cuda.CUDARuntimeError, match="on purpose"):
        reducer_over_nccl(WatchedWorld(), cupy, monkeypatch).allreduce(cupy.ones(()))


def test_what_a_graph_cannot_contain(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [("here", "0000:01:00.0", True)]
    world = WatchedWorld()
    assert reducer_over_nccl(world, cupy, monkeypatch).why_not_captured is None
    monkeypatch.setattr(fake_cuda.nccl, "version", 2_804)
    why = "NCCL before 2.9 cannot be captured (its version is 2804)"
    assert reducer_over_nccl(world, cupy, monkeypatch).why_not_captured == why
    monkeypatch.setattr(fake_cuda.nccl, "available", False)
    pinned = choose_reducer(World(others), cupy, 8).why_not_captured
    assert pinned == "gradients travel through pinned host memory, which cannot be part of it"
