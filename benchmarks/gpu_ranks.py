"""Training on all GPUs of a machine: the transport, the same bits, the time of updates, and of sums alone.

mpirun -n 8 python benchmarks/gpu_ranks.py update --tokens 25000 --order exact --device cuda      (started by the stage)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
from gpu_card import Card, Name, die_with_parent, synchronize
from gpu_ours import N_UPDATES, OurTraining

from autograd import to_host
from autograd.array import count_gpus, namespace_of_device
from minitransformer.system.ranks import choose_placements
from minitransformer.training.graph import CapturedStep
from parallel.communicator import Communicator, SumOrder
from parallel.launch import communicator
from parallel.nccl import NcclTransport

N_DRY_RUN = 2  # processes without a GPU
MEGABYTES = {"cuda": (34, 252), "cpu": (0.1,)}  # of sums alone: a bucket, and all gradients of the base model
REPEATS = 20
SECONDS = 30  # that must be left when an item begins
ORDERS: tuple[SumOrder, ...] = get_args(SumOrder)


def ranks(card: Card) -> bool:
    """Run all items with a process on each GPU; with one GPU there is nothing to measure."""
    n = count_gpus("cuda") if card.name == "cuda" else N_DRY_RUN
    if n == 1:
        card.record(what="several GPUs", left_out="there is one GPU")
        return True
    facts: list[tuple[str, dict[str, Any]]] = [
        ("update", {"batch tokens": tokens, "order": order, "sums": sums})
        for tokens, order, sums in product(card.sizes.tokens, ORDERS, ("during the backward pass", "at the end"))
    ]
    items: list[tuple[str, dict[str, Any], Callable[[], dict[str, Any]]]] = [
        ("the same bits as one process", {"processes": n}, partial(same_bits, card, n)),
        *((what, {"processes": n, **its}, partial(launched, card, n, what, its)) for what, its in facts),
        ("sums alone", {"processes": n}, partial(launched, card, n, "sums", {})),
    ]
    return card.attempt_each(items, seconds=SECONDS)


def same_bits(card: Card, n: int) -> dict[str, Any]:
    """Compare the parameters after a few updates with one process and with n; the micro-batches are the same."""
    facts = {"batch tokens": card.sizes.tokens[1], "micro-batches": n}
    launched(card, 1, "train", facts)  # chooses algorithms of products
    one, many = (launched(card, n_processes, "train", facts) for n_processes in (1, n))
    assert one["parameters"] == many["parameters"], f"the parameters differ; {many}"
    return many


def launched(card: Card, n: int, what: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a program on n processes, or raise RuntimeError with its errors."""
    mpirun = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if mpirun is None and n > 1:
        raise RuntimeError("mpirun is not installed: pip install mpich")
    tokens, order = str(facts.get("batch tokens", 0)), facts.get("order", "exact")
    command = [sys.executable, __file__, what, "--device", card.name, "--tokens", tokens, "--order", order]
    command += [
        "--micro-batches",
        str(facts.get("micro-batches", n)),
        *["--at-end"] * (facts.get("sums") == "at the end"),
    ]
    done = subprocess.run(
        [*([mpirun, "-n", str(n)] if n > 1 else []), *command],
        capture_output=True,
        text=True,
        timeout=max(1, card.ends - time.time()) if np.isfinite(card.ends) else None,
        check=False,
    )
    if done.returncode:
        errors = " ".join(line for line in done.stderr.splitlines() if "Error" in line)
        raise RuntimeError(f"{what}: status {done.returncode}: {errors[:600]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


class SumsAtEnd:
    """A reducer that begins no sum during the backward pass."""

    def __init__(self, reducer: Any) -> None:
        self._reducer = reducer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Do nothing: ``reduce_scatter`` sums the bucket."""


def training_of(card: Card, world: Communicator, options: argparse.Namespace) -> OurTraining:
    """Return the training of this rank; each micro-batch has ``options.tokens`` tokens a side."""
    n = options.micro_batches
    config, batches = card.batches("base", n * options.tokens)
    training = OurTraining(
        config, batches, n * options.tokens, in_graphs=True, world=world, n_micro_batches=n, order=options.order
    )
    step = training.trainer.training_step
    if options.at_end:
        step = step.step if isinstance(step, CapturedStep) else step
        step.reducer = SumsAtEnd(step.reducer)
    return training


def train(card: Card, world: Communicator, options: argparse.Namespace) -> dict[str, Any]:
    """Return the transport, the reason against graphs, and a hash of the parameters after a few updates."""
    training = training_of(card, world, options)
    training.updates(N_UPDATES)
    trainer = training.trainer
    trainer.reducer.complete()
    bits = hashlib.blake2b(digest_size=8)
    for _, parameter in training.model.named_parameters():
        bits.update(to_host(parameter.value).tobytes())
    return {
        "transport": trainer.reducer.description,
        "why no graph": trainer.why_not_captured,
        "parameters": bits.hexdigest(),
    }


def update(card: Card, world: Communicator, options: argparse.Namespace) -> dict[str, Any]:
    """Return the median milliseconds of an update, and all ranks' tokens per second."""
    training, times, tokens = training_of(card, world, options), list[float](), 0
    training.updates(2 * card.sizes.updates)
    for _ in range(card.sizes.rounds):
        world.barrier()
        start = time.perf_counter()
        tokens = training.updates(card.sizes.updates)
        times.append((time.perf_counter() - start) / card.sizes.updates)
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    quartiles = [1e3 * low, 1e3 * high]
    return {"ms": 1e3 * middle, "quartiles": quartiles, "tokens/s": tokens / card.sizes.updates / middle}


def sums(card: Card, world: Communicator, options: argparse.Namespace) -> dict[str, Any]:
    """Return the milliseconds of NCCL's sums of float32 numbers, and the bytes a second of each GPU's link."""
    del options
    cupy = namespace_of_device("cuda")
    transport, found = NcclTransport(cupy, world), {}
    for megabytes in MEGABYTES[card.name]:
        array = cupy.zeros(int(megabytes * 1e6) // 4, np.float32)
        transport.allreduce_array(array)
        synchronize()
        world.barrier()
        start = time.perf_counter()
        for _ in range(REPEATS):
            transport.allreduce_array(array)
        synchronize()
        seconds = (time.perf_counter() - start) / REPEATS
        sent = 2 * (1 - 1 / world.size) * array.nbytes
        found[f"{megabytes} MB"] = {"ms": 1e3 * seconds, "GB/s": sent / seconds / 1e9}
    return found


PROGRAMS = {"train": train, "update": update, "sums": sums}


def main() -> None:
    """Run as a rank; rank 0 prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=PROGRAMS)
    parser.add_argument("--device", choices=get_args(Name), required=True)
    parser.add_argument("--tokens", type=int, required=True, help="of a side of a micro-batch")
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--order", choices=ORDERS, required=True)
    parser.add_argument("--at-end", action="store_true", help="sum gradients after the backward pass only")
    options = parser.parse_args()
    die_with_parent()
    card, world = Card(options.device), communicator()
    card.open(n_gpus=world.size)
    choose_placements("cuda", world)
    result = PROGRAMS[options.what](card, world, options)
    if world.rank == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
