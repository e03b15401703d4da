"""Programs of ranks whose updates are CUDA graphs, on the stand-ins for CuPy, NCCL and cuBLASLt."""

import dataclasses
import functools
import os
import signal
import socket
from pathlib import Path
from typing import Any
from unittest import mock

import fake_cuda
import numpy as np
import pytest
from failing_ranks import impatient_world

from autograd import to_host
from autograd.array import namespace_of_device
from autograd.kernel_registry import at_first_use
from autograd.kernels.cuda import clip
from minitransformer import ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.inference.bleu import Score
from minitransformer.system.ranks import choose_placements
from minitransformer.training import graph
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.graph import CapturedStep
from minitransformer.training.loop import Trainer
from minitransformer.training.new_trainer import reducer_for
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from parallel import nccl_reducer
from parallel.communicator import Communicator, SumOrder
from parallel.nccl import NcclTransport

CONFIG = ModelConfig(vocabulary_size=19, n_layers=1, d_model=128, d_ff=16, n_heads=1, d_k=32, d_v=32, p_drop=0.25)
N_UPDATES = 5
RUN = 512  # elements whose squares one block adds up
TRAINING = TrainingConfig(
    max_updates=N_UPDATES,
    batch_tokens=96,
    n_micro_batches=8,
    clip_norm=2.0,
    warmup_steps=4,
    log_every=3,
    checkpoint_every=100,
    precision="bfloat16",
    ema=0.5,
)


def pairs_in(directory: Path) -> Path:
    """44 pairs of random sentences: batches of several capacities, and some micro-batches without a sentence."""
    random = np.random.default_rng(2)

    def sentence() -> list[int]:
        return random.integers(
            3, CONFIG.vocabulary_size, random.choice([0, 3, 6, 30], p=[0.1, 0.5, 0.37, 0.03])
        ).tolist()

    write_store(directory / "data", "train", [(sentence(), sentence()) for _ in range(44)], CONFIG.vocabulary_size)
    return directory


def use_gpu_of_stand_in(world: Communicator, directory: Path) -> None:
    """Choose a GPU, for which all kernels are emulated."""
    import gpu_stand_in

    gpu_stand_in.install()
    graph.SPLIT_TERMS = 16  # several capacities of these small batches
    nccl_reducer.BUCKET, nccl_reducer.RUN, clip.RUN = 4096, RUN, RUN
    at_first_use("cuda", lambda: None)
    os.environ["XDG_CACHE_HOME"] = str(directory / f"cache-{world.rank}")
    fake_cuda.N_GPUS = world.size
    choose_placements("cuda", world)


class Observer(Callback):
    """Counts graphs, launches, and sums that the gradients have begun; keeps what is logged.

    ``hangs`` at the first launch: "process" or "GPU".
    """

    def __init__(self, trainer: Trainer, hangs: str) -> None:
        assert isinstance(trainer.training_step, CapturedStep), trainer.why_not_captured
        self.step = trainer.training_step
        self.losses: list[float] = []
        self.n_launched = self.n_graphs = 0
        enqueue, self.n_begun = self.step.enqueue, 0
        reducer, reduce_scatter = trainer.reducer, trainer.reducer.reduce_scatter

        def enqueue_and_count(buffers: Any) -> Any:
            self.n_launched += buffers.graph is not None
            if self.n_launched and hangs == "process":
                os.kill(os.getpid(), signal.SIGSTOP)
            fake_cuda.nccl.is_stuck |= self.n_launched > 0 and hangs == "GPU"
            return enqueue(buffers)

        def count_and_sum() -> None:
            self.n_begun = getattr(reducer, "_n_begun", 0)
            reduce_scatter()

        self.step.enqueue = enqueue_and_count  # type: ignore[method-assign]
        reducer.reduce_scatter = count_and_sum  # type: ignore[method-assign]

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        self.n_graphs = self.step.n_graphs

    def report(self, report: Any) -> None:
        if isinstance(report, TrainingReport):
            self.losses.append(report.loss)


class Reading:
    """A validation that keeps the values that it finds in the model."""

    values: Any = None

    def report(self, model: Transformer, step: int, callback: Callback) -> ValidationReport:
        self.values = to_host(model.parameters.values).copy()
        return ValidationReport(step, 0.0, 1.0, Score("BLEU", 0.0, "signature", "detail"))


def train_in_graphs(
    world: Communicator,
    directory: Path,
    order: SumOrder = "exact",
    hangs: str = "",
    error: str = "",
    n_updates: str = str(N_UPDATES),
    n_local: str = "8",
) -> dict[str, Any]:
    """Train, or go on, and save this rank's parameters; what ``hangs``, if anything, is the last rank's.

    ``n_local`` ranks are as if on one machine.
    """
    if hangs:
        world, fake_cuda.nccl.patience, fake_cuda.nccl.error = impatient_world(300 if error else 20), 10.0, error
    use_gpu_of_stand_in(world, directory)
    from cuda_kernels import registered

    config = dataclasses.replace(TRAINING, sum=order, max_updates=int(n_updates))
    host = f"{socket.gethostname()}, {world.rank // int(n_local)}"
    with registered(), mock.patch.object(socket, "gethostname", return_value=host):
        reducer = reducer_for(config, world, "cuda", 1)
        model = Transformer(CONFIG, seed=3, dtype="bfloat16", device="cuda", allocate=reducer.allocate)
        store = TokenStore(directory / "data", "train")
        validation: Any = Reading()
        trainer = Trainer(model, store, validation, config, directory / "run", world, reducer, n_threads=1)
        observer = Observer(trainer, hangs if world.rank == world.size - 1 else "")
        trainer.resume()
        assert trainer.train(observer)
    assert observer.step.n_graphs == 0, "graphs outlive the training"
    averaged = to_host(trainer.validated_model().parameters.values)
    if world.rank == 0:  # the last validation came after the last update
        assert np.array_equal(validation.values, averaged)
        np.save(directory / "average.npy", averaged)
    np.save(directory / f"parameters-{world.rank}.npy", to_host(model.parameters.values))
    return {
        "losses": observer.losses,
        "graphs": observer.n_graphs,
        "launched": observer.n_launched,
        "micro-batches": len(trainer.micro_batches),
        "begun": observer.n_begun,
        "moments": len(trainer.optimizer.m),
    }


def sum_in_a_graph(world: Communicator, directory: Path, deviation: str) -> list[float]:
    """Capture two sums in one graph, change the memory, and launch the graph twice; rank 1 may deviate."""
    use_gpu_of_stand_in(world, directory)
    cupy: Any = namespace_of_device("cuda")
    transport, stream, deviates = NcclTransport(cupy, world), cupy.cuda.Stream(non_blocking=True), world.rank == 1
    first, second = cupy.zeros(3), cupy.zeros(2)
    calls = [functools.partial(transport.allreduce_array, x) for x in (first, second)]
    if deviates and deviation == "order":
        calls.reverse()
    if deviates and deviation == "partner":
        calls[1] = functools.partial(transport.sendrecv_array, second, cupy.zeros(2), 0)
    before = cupy.cuda.get_current_stream().record()
    with stream:
        stream.wait_event(before)
        if not (deviates and deviation == "not captured"):
            stream.begin_capture()
        for call in calls:
            call()
        if not stream.is_capturing():
            pytest.fail("no other rank has noticed")
        captured = stream.end_capture()
        first[...] = world.rank + 1
        for _ in range(2):
            captured.launch(stream)
    return [*first.get().tolist(), *second.get().tolist()]
