"""What ranks do in tests under mpirun, and how they are started.  Each rank runs this very file as a program."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fake_cuda
import numpy as np
import pytest

from autograd import to_host
from autograd.array import Device
from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import plan_epoch
from minitransformer.data.store import TokenStore, write_store
from minitransformer.place import take_place
from minitransformer.training.monitor import SilentMonitor
from minitransformer.training.trainer import Trainer
from parallel.agreement import check_agreement, checksum
from parallel.communicator import RUN, Communicator, Exchange, SumOrder, working_ranks
from parallel.cuda_aware import reads_gpu_memory
from parallel.launch import all_or_none, communicator
from parallel.route import choose_route

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120  # far more than any program here takes: a hang fails, and does not stop the tests
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

# What Open MPI's mpirun must be told where tests run: as root perhaps, with more ranks than cores.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip

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
IS_OPEN_MPI = (
    MPIRUN is not None
    and "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, check=False).stdout
)
needs_mpi = pytest.mark.skipif(
    MPIRUN is None or importlib.util.find_spec("mpi4py") is None,
    reason='mpirun or mpi4py is not installed: pip install "minitransformer[mpi]"',
)


def environment(**variables: str) -> dict[str, str]:
    outside_mpi = {name: value for name, value in os.environ.items() if name not in SIZE_VARIABLES}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return outside_mpi | OPEN_MPI | {"PYTHONPATH": path} | variables


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


def command_line(n_ranks: int, program: str, *arguments: object, options: Sequence[str] = ()) -> list[str]:
    """``options`` are mpirun's."""
    assert MPIRUN is not None
    return [MPIRUN, *options, "-n", str(n_ranks), sys.executable, __file__, program, *map(str, arguments)]


def start_ranks(n_ranks: int, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(command_line(n_ranks, program, *arguments))


def run_ranks(n_ranks: int, program: str, directory: Path, *arguments: object) -> list[Any]:
    """Run a program on all ranks; return what each rank returned."""
    done = start_ranks(n_ranks, program, directory, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads((directory / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(n_ranks)]


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def summand(rank: int) -> Any:
    return np.random.default_rng(rank).standard_normal(N_SUMMED, np.float32)


def zeros_in(world: Communicator, size: int, n_working: int) -> Exchange:
    return world.exchange(np.zeros(size, np.float32), lambda: np.zeros(size, np.float32), n_working)


def exchange_of_each_kind(world: Communicator, size: int, n_working: int) -> dict[str, Exchange]:
    from parallel.mpi import MpiCommunicator

    kinds = {"shared": MpiCommunicator(), "messages": MpiCommunicator(may_share=False)}
    found = {kind: zeros_in(of_kind, size, n_working) for kind, of_kind in kinds.items()}
    shared, messages = (exchange.said for exchange in found.values())
    assert shared == "gradients travel through shared memory; added in one fixed order (--training.sum exact)"
    assert messages.startswith(f"gradients travel by messages of {world.library}; ")
    return found


def in_two_slices(add: Callable[[slice], None]) -> None:
    add(slice(2, None))
    add(slice(2))


def add_up(exchange: Exchange, numbers: Any) -> Any:
    """The sum of all ranks' numbers, on all of them: an update that makes of a value its gradient."""
    exchange.gradients[...] = numbers
    exchange.sum_gradients(in_two_slices)
    exchange.values[exchange.part] = exchange.gradients[exchange.part]
    exchange.share_values()
    return exchange.values


def sum_summands(world: Communicator, directory: Path) -> dict[str, Any]:
    """What a rank has in the end, both ways, and what rank 0 can put together of parts."""
    result: dict[str, Any] = {}
    for kind, exchange in exchange_of_each_kind(world, N_SUMMED, working_ranks(world.size, N_SHARDS)).items():
        array = add_up(exchange, summand(world.rank))
        whole = exchange.gather(array[exchange.part].astype(np.float64))
        assert (whole is not None) == (world.rank == 0)
        assert whole is None or (whole.dtype == np.float64 and (whole == array).all())
        result[kind] = hashlib.blake2b(array).hexdigest()
        assert exchange.seconds_waited > 0
    return result


def sum_in_any_order(world: Communicator, directory: Path) -> str:
    """Numbers so small that float32 adds them exactly, in any order."""
    array = np.arange(N_SUMMED, dtype=np.float32) % 1_021 + world.rank
    world.sum_in_any_order(array)
    return checksum(array)


def sum_on_gpus(world: Communicator, directory: Path, way: str, order: SumOrder) -> dict[str, Any]:
    """Add up arrays of a stand-in for CuPy; ``way`` is what there is: "NCCL", "MPI" that reads GPUs, or "nothing"."""
    from parallel import nccl, route

    cupy = stand_in_for_cupy()
    fake_cuda.N_GPUS = 1 if way == "nothing" else world.size
    fake_cuda.nccl.available = way != "MPI"
    nccl.PIECE, route.PINNED_BYTES = 3_000_000, 10_000_000
    route.reads_gpu_memory = lambda: way == "MPI"
    place = take_place("cuda", world)[world.rank]
    there = choose_route(GpuAwareWorld(world), cupy, N_SHARDS, order)
    working = world.rank in ranks_that_work(world, order)
    array = cupy.asarray(summand(world.rank) if working else np.zeros(N_SUMMED, np.float32))
    there.add_up(array)
    return {
        "gpu": place.gpu, "said": there.said, "calls": fake_cuda.CALLS,
        "sum": hashlib.blake2b(array.get()).hexdigest(), "error": distance_of_sum(array.get(), world, order),
    }  # fmt: skip


def ranks_that_work(world: Communicator, order: SumOrder) -> range:
    return range(working_ranks(world.size, N_SHARDS, order))


def distance_of_sum(found: Any, world: Communicator, order: SumOrder) -> float:
    expected = sum(summand(rank).astype(np.float64) for rank in ranks_that_work(world, order))
    return float(np.abs(found - expected).max())


class GpuAwareWorld:
    """MPI that reads the stand-in's memory, and insists that the GPU has finished before."""

    def __init__(self, world: Communicator) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        self._world.send_and_receive(self._read(outgoing), incoming._values, partner)

    def broadcast_array(self, array: Any) -> None:
        self._world.broadcast_array(self._read(array))

    def sum_in_any_order(self, array: Any) -> None:
        on_host = isinstance(array, np.ndarray)
        self._world.sum_in_any_order(array if on_host else self._read(array))

    def _read(self, array: Any) -> Any:
        assert fake_cuda.CALLS[-1] == ("synchronize",)
        fake_cuda.CALLS.append(("MPI", array.size))
        return array._values


def ask_whether_mpi_reads_gpus(world: Communicator, directory: Path) -> bool | None:
    return reads_gpu_memory()


def sum_often(world: Communicator, directory: Path) -> None:
    """One sum after the other, while now this rank is late, now that one."""
    for exchange in exchange_of_each_kind(world, 5 * RUN, world.size).values():
        for i in range(150):
            time.sleep(0.001 * ((i + world.rank) % 5 == 0))
            numbers = np.arange(5.0 * RUN) + i * world.rank
            expected = world.size * np.arange(5.0 * RUN) + i * world.size * (world.size - 1) / 2
            assert (add_up(exchange, numbers) == expected).all(), i


def begin_with_values(world: Communicator, directory: Path) -> None:
    """The values that ranks begin with are kept, and only with shared memory does one see what another writes."""
    from parallel.mpi import MpiCommunicator

    initial = np.arange(200, dtype=np.float32)
    for may_share in (True, False):
        of_kind = MpiCommunicator(may_share=may_share)
        exchange = of_kind.exchange(initial.copy(), lambda: np.zeros_like(initial), 2)
        assert (exchange.values == initial).all()
        assert not exchange.gradients.any()
        world.barrier()
        if world.rank == 1:
            exchange.values[0] = 7
        world.barrier()
        assert (exchange.values[0] == 7) == (may_share or world.rank == 1)


def share_no_memory(world: Communicator, directory: Path, reason: str) -> str:
    """One rank has no memory to share, or not where it says: then all send messages."""
    if world.rank == 1 and reason == "no room":
        os.posix_fallocate = refuse  # type: ignore[assignment]
    if world.rank == 1 and reason == "another process":
        os.fstat = lambda file: Path("/").stat()  # type: ignore[assignment]
    exchange = zeros_in(world, 99, 2)
    assert (add_up(exchange, np.full(99, world.rank + 1.0)) == 3).all()
    return exchange.said


def refuse(*_: object) -> None:
    raise OSError("no room")


def count_pieces(world: Communicator, directory: Path) -> int:
    from parallel.exchange import PIECE

    return -(-N_SUMMED // PIECE)


def exchange_values(world: Communicator, directory: Path) -> dict[str, Any]:
    world.barrier()
    return {
        "rank": world.rank,
        "size": world.size,
        "node_size": world.node_size,
        "sum": world.sum_of_numbers(world.rank + 0.5),
        "any of one": world.any(world.rank == world.size - 1),
        "any of none": world.any(False),
        "broadcast": world.broadcast({"from": [world.rank]}),
        "all": world.all_of([world.rank]),
    }


def meet_at_barrier(world: Communicator, directory: Path) -> bool:
    if world.rank == 1:
        time.sleep(0.3)
        (directory / "rank 1 has come").touch()
    world.barrier()
    return (directory / "rank 1 has come").exists()


def raise_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        raise ValueError("on purpose")
    world.barrier()


def freeze_one_rank(world: Communicator, directory: Path) -> None:
    exchange = zeros_in(impatient_world(2), 300, 2)
    add_up(exchange, 1)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    add_up(exchange, 1)


def impatient_world(patience: float) -> Communicator:
    from parallel.mpi import MpiCommunicator

    return MpiCommunicator(patience)


def freeze_rank_0_at_work(world: Communicator, directory: Path) -> None:
    impatient = impatient_world(2)
    with impatient.waiting_for_rank_0():
        if world.rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)


def freeze_before_barrier(world: Communicator, directory: Path) -> None:
    impatient = impatient_world(2)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    impatient.barrier()


def add_up_for_ever(world: Communicator, directory: Path) -> None:
    exchange = zeros_in(impatient_world(5), 1000, 2)
    for _ in range(30_000):
        add_up(exchange, 1)
        (directory / f"rank {world.rank} adds up").touch()
        time.sleep(0.01)


def wait_patiently(world: Communicator, directory: Path) -> None:
    """While rank 0 works, and between calls, nobody is impatient."""
    impatient = impatient_world(2)
    for _ in range(2):
        with impatient.waiting_for_rank_0():
            if world.rank == 0:
                time.sleep(3)
    time.sleep(3)
    assert impatient.any(world.rank == 1)


def disagree(world: Communicator, directory: Path) -> None:
    check_agreement(world, {"code": "new", "data": "same"}, "before", "Nothing")
    check_agreement(world, {"code": "old" if world.rank == 2 else "new", "data": "same"}, "at the start", "Start anew")


def exit_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        sys.exit("out of here")
    zeros_in(world, 3, 2).sum_gradients(in_two_slices)


def die_on_one_rank(world: Communicator, directory: Path) -> None:
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    world.barrier()


def return_nothing(world: Communicator, directory: Path) -> None:
    pass


def train(
    world: Communicator, directory: Path, n_updates: str, n_threads: str,
    device: Device = "cpu", way: str = "", deviant: str = "", order: SumOrder = "exact", precision: str = "float32",
) -> dict[str, Any]:  # fmt: skip
    """Train up to an update, going on from the last checkpoint, and save every rank's own parameters.

    A ``deviant`` rank has another parameter than the others after every update; for that, each must have its own.
    """
    if way == "by messages":
        from parallel.mpi import MpiCommunicator

        world = MpiCommunicator(may_share=False)
    model = Transformer(MODEL, seed=TRAINING.seed, dtype=precision, device=device)
    config = dataclasses.replace(TRAINING, max_updates=int(n_updates), sum=order)
    store = TokenStore(directory / "data", "train")
    trainer = Trainer(model, store, None, config, directory / "run", world, n_threads=int(n_threads))
    if deviant and world.rank == int(deviant):
        share_values = trainer.exchange.share_values

        def share_and_deviate() -> None:
            share_values()
            model.parameters.values[0] += 1e-3

        trainer.exchange.share_values = share_and_deviate  # type: ignore[method-assign]
    first_update = trainer.resume() and trainer.state.step
    finished = trainer.train(SilentMonitor())
    np.save(directory / f"parameters-{world.rank}.npy", to_host(model.parameters.values))
    return {
        "first update": first_update,
        "finished": finished,
        "shards": len(trainer.shards),
        "epoch": trainer.state.epoch,
        "flops": trainer.state.flops,
        "way": trainer.exchange.said,
    }


class TellingMonitor(SilentMonitor):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def train_and_tell(world: Communicator, directory: Path) -> dict[str, Any]:
    """Two updates: which pairs this rank reads for each, and what it says of itself."""
    read: list[list[int]] = []

    class Watched(TokenStore):
        def pair(self, i: int) -> Any:
            read[-1].append(i)
            return super().pair(i)

    store, monitor = Watched(directory / "data", "train"), TellingMonitor()
    config = dataclasses.replace(TRAINING, max_updates=2)
    trainer = Trainer(Transformer(MODEL), store, None, config, directory / "run", world, n_threads=1)
    update = trainer._update

    def update_in_turn(batch: Any) -> Any:
        read.append([])
        return update(batch)

    trainer._update = update_in_turn  # type: ignore[method-assign]
    trainer.train(monitor)
    plan = plan_epoch(store.lengths, config.batch_tokens, seed=config.seed, epoch=0)
    return {"read": read, "batches": [batch.tolist() for batch in plan[:2]], "lines": monitor.lines}


def parameters_of(directory: Path, rank: int = 0) -> Any:
    return np.load(directory / f"parameters-{rank}.npy")


def corpus_in(directory: Path) -> Path:
    """36 pairs of random sentences, some empty: few batches an epoch, so that six updates reach into the second."""
    random = np.random.default_rng(9)

    def sentence() -> list[int]:
        return random.integers(3, MODEL.vocabulary_size, random.integers(0, 9)).tolist()

    write_store(directory / "data", "train", [(sentence(), sentence()) for _ in range(36)], MODEL.vocabulary_size)
    return directory


def train_on_stand_in_for_gpu(world: Communicator, directory: Path, n_updates: str) -> dict[str, Any]:
    stand_in_for_cupy()
    return train(world, directory, n_updates, "1", "cuda")


def stand_in_for_cupy() -> Any:
    path = ROOT / "tests" / "autograd" / "fake_cupy.py"
    spec = importlib.util.spec_from_file_location("cupy", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["cupy"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["cupy"])
    return sys.modules["cupy"]


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (
        sum_summands, sum_in_any_order, sum_on_gpus, ask_whether_mpi_reads_gpus,
        sum_often, begin_with_values, share_no_memory, freeze_rank_0_at_work, freeze_before_barrier,
        count_pieces, exchange_values, meet_at_barrier, raise_on_one_rank, exit_on_one_rank,
        die_on_one_rank, freeze_one_rank, wait_patiently, add_up_for_ever, disagree, return_nothing,
        train, train_and_tell, train_on_stand_in_for_gpu,
    )
}  # fmt: skip


def run_as_rank(program: str, directory: str, *arguments: str) -> None:
    world = communicator()
    with all_or_none(world):
        result = PROGRAMS[program](world, Path(directory), *arguments)
        (Path(directory) / f"{world.rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    run_as_rank(*sys.argv[1:])
