"""How fast is training, compared with PyTorch and with the matrix products alone?

    python benchmarks/training.py [tiny small-1024 base] [--rounds 7] [--bf16 | --avx2]

With --bf16 PyTorch computes in bfloat16 (autocast), which would take twenty times as long with AVX2.  A unit of work is
one update (forward, backward, Adam) for each batch of the workload; only real target tokens count.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from contest import MALLOC, Contestant, add_instruction_set, compete, describe_machine, report, serve
from threadpoolctl import threadpool_limits
from workload import WORKLOADS, Workload

from autograd.malloc import keep_freed_memory
from minitransformer.config import TrainingConfig
from minitransformer.config.training import PrecisionChoice
from minitransformer.data.store import TokenStore, write_store
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import allowed_cores, available_cores
from minitransformer.training.loop import Trainer
from minitransformer.training.new_trainer import reducer_for
from parallel.communicator import Communicator, SerialCommunicator
from parallel.launch import communicator
from parallel.placement import share_of_cores

PEERS = {
    "PyTorch, eager": ["torch"],
    "PyTorch, torch.compile": ["torch", "--compiled"],
    "PyTorch, eager, packed": ["torch", "--packed"],
}


def ours(
    workload: Workload, world: Communicator | None = None, *, bf16: bool = False
) -> tuple[Trainer, Callable[[], int]]:
    """Return a trainer, and a function that makes its updates without logging and checkpoints."""
    world = world or SerialCommunicator()
    keep_freed_memory()
    batches = workload.batches()
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory)  # the store opens its files again for each epoch
    write_store(directory, "train", (pair for batch in batches for pair in batch), workload.config.vocabulary_size)
    store = TokenStore(directory, "train")
    ends = np.cumsum([0, *map(len, batches)])
    indices = [np.arange(a, b) for a, b in pairwise(ends)]
    n_threads = share_of_cores(allowed_cores(), world.allgather(allowed_cores()))
    precision: PrecisionChoice = "bfloat16" if bf16 else "float32"
    config = TrainingConfig(
        batch_tokens=workload.batch_tokens, n_micro_batches=max(2, world.size), warmup_steps=100, precision=precision
    )
    reducer = reducer_for(config, world, "cpu", n_threads)
    model = Transformer(workload.config, allocate=reducer.allocate)
    trainer = Trainer(model, store, None, config, directory, world, reducer, n_threads=n_threads)

    def work() -> int:
        with threadpool_limits(1, user_api="blas"):
            for batch in indices:
                trainer.step(batch)
        return sum(len(target) + 1 for batch in batches for _, target in batch)

    return trainer, work


@cache
def numbers(use: str, *shape: int) -> np.ndarray:
    """Return random numbers, drawn once for each use and shape: NumPy has a faster product of an array with itself."""
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def matrix_products(workload: Workload) -> Callable[[], int]:
    """Return a function that computes only the matrix products of the same updates: forward and backward.

    Attention's inputs are drawn in the first call, which is the warm-up.
    """
    config, batches = workload.config, workload.batches()
    d, width = config.d_model, config.n_heads * config.d_k

    def linear(n_tokens: int, d_in: int, d_out: int, times: int) -> None:
        x, w, dy = inputs[d_in][:n_tokens], weights[d_in, d_out], inputs[d_out][:n_tokens]
        for _ in range(times):
            x @ w, dy @ w.T, x.T @ dy

    def attention(queries: np.ndarray, keys: np.ndarray, times: int) -> None:
        shape = len(queries), config.n_heads
        q = numbers("queries", *shape, int(queries.max()), config.d_k)
        k = numbers("keys", *shape, int(keys.max()), config.d_k)
        for _ in range(times):
            scores = q @ k.swapaxes(2, 3)
            scores @ k, q @ k.swapaxes(2, 3), scores.swapaxes(2, 3) @ q, scores @ k, scores.swapaxes(2, 3) @ q

    sizes = [(d, width), (width, d), (d, config.d_ff), (config.d_ff, d), (d, config.vocabulary_size)]
    weights = {(i, o): numbers("weights", i, o) for i, o in sizes}
    inputs = {n: numbers("inputs", workload.batch_tokens, n) for n in {n for pair in sizes for n in pair}}

    def half(pairs: list[tuple[list[int], list[int]]]) -> None:
        n, lengths = config.n_layers, np.array([(len(s) + 1, len(t) + 1) for s, t in pairs])
        n_source, n_target = map(int, lengths.sum(0))
        linear(n_source, d, width, n * (3 + 2))
        linear(n_source, width, d, n)
        linear(n_target, d, width, n * (3 + 1))
        linear(n_target, width, d, n * 2)
        for n_tokens in (n_source, n_target):
            linear(n_tokens, d, config.d_ff, n)
            linear(n_tokens, config.d_ff, d, n)
        linear(n_target, d, config.vocabulary_size, 1)
        source, target = lengths.T
        attention(source, source, n), attention(target, target, n), attention(target, source, n)

    executor = ThreadPoolExecutor(2)

    def work() -> int:
        with threadpool_limits(1, user_api="blas"):
            for batch in batches:
                list(executor.map(half, [batch[0::2], batch[1::2]]))
        return sum(len(target) + 1 for batch in batches for _, target in batch)

    return work


def torch(workload: Workload, **how: bool) -> Callable[[], int]:
    """Return a function that makes the same updates with PyTorch."""
    from torch_peer import TorchTraining  # noqa: PLC0415 (of the contestants only these have PyTorch in memory)

    return TorchTraining.padded(workload.config, workload.batches(), **how).updates


def bench(name: str, rounds: int, *, bf16: bool) -> None:
    """Let our training in both precisions compete on a workload with its peers in one precision."""

    def contestant(title: str, words: list[str], environment: dict[str, str], n_processes: int = 1) -> Contestant:
        return Contestant(title, [__file__, name, "--serve", *words], environment, n_processes)

    contestants = [contestant("ours", ["ours"], {}), contestant("ours, bfloat16", ["ours", "--bf16"], {})]
    n_cores = available_cores()
    if importlib.util.find_spec("mpi4py") and n_cores > 1 and name != "base":  # which would need over 24 GB in all
        by_processes = f"mpirun -n {n_cores}"
        contestants.append(contestant(f"ours, {by_processes}", ["ours"], {}, n_cores))
        contestants.append(contestant(f"ours, bfloat16, {by_processes}", ["ours", "--bf16"], {}, n_cores))
    contestants.append(contestant("the matrix products alone", ["matrix-products"], {}))
    if importlib.util.find_spec("torch"):
        for title, words in PEERS.items():
            contestants.append(contestant(title, [*words, *["--bf16"] * bf16], MALLOC))
    compete(contestants, rounds)
    report(f"training, {name}{', bfloat16' if bf16 else ''}", contestants)


def main() -> None:
    """Run the contest, or run as a contestant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", choices=["ours", "matrix-products", "torch"])
    for how in ("--packed", "--compiled", "--bf16"):
        parser.add_argument(how, action="store_true")
    add_instruction_set(parser)
    options = parser.parse_args()
    if options.serve:
        workload, world = WORKLOADS[options.workloads[0]], communicator()
        works = {
            "ours": lambda: ours(workload, world, bf16=options.bf16)[1],
            "matrix-products": lambda: matrix_products(workload),
            "torch": lambda: torch(workload, packed=options.packed, compiled=options.compiled, bf16=options.bf16),
        }
        serve(works[options.serve](), world=world)
        return
    describe_machine(*(["torch"] if importlib.util.find_spec("torch") else []), avx2=options.avx2)
    for name in options.workloads:
        bench(name, options.rounds, bf16=options.bf16)


if __name__ == "__main__":
    sys.exit(main())
