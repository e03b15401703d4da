"""What does it cost in quality to send gradients in bfloat16?

    python benchmarks/rounding.py [--updates 400] [--seeds 1 2 3] [--ranks 2]

Starts mpirun itself.  Trains the demonstration's model with gradients sent in float32, and again in bfloat16.  Ranks
send messages as if each were on a machine of its own.  The data stay the same; a seed sets the initial weights, the
order of batches and dropout.  The error of a sum is ‖rounded − exact‖ / ‖exact‖, where exact is the exact sum of the
same gradients; the table has its median and its maximum over all updates.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from contest import describe_machine

from autograd.malloc import keep_freed_memory
from minitransformer.config import RunConfig
from minitransformer.training.callbacks import Callback
from minitransformer.training.open_run import OpenRun, open_run
from parallel.communicator import Communicator, SentIn
from parallel.reducer import choose_reducer


def be_rank(directory: Path, seed: int, n_updates: int, sent_in: SentIn) -> None:
    """Train as one of the ranks; rank 0 prints a row."""
    from parallel.mpi import MpiCommunicator  # noqa: PLC0415 (importing it starts MPI, which only ranks shall do)

    keep_freed_memory()
    world = MpiCommunicator(node_group=lambda local_rank: local_rank)
    demo = RunConfig()
    training = dataclasses.replace(
        demo.training,
        seed=seed,
        max_updates=n_updates,
        gradients_sent_in=sent_in,
        n_micro_batches=max(2, world.size),
        validate_every=n_updates,
        checkpoint_every=n_updates,
        warmup_steps=100,
    )
    data = dataclasses.replace(demo.data, directory=directory / "data")
    run = directory / f"{sent_in}-{seed}"
    job = open_run(dataclasses.replace(demo, run=run, data=data, training=training), world)
    errors = Errors(job, world)
    job.train(Callback())
    if world.rank == 0:
        assert job.trainer.validation is not None
        loss = job.trainer.validation.loss(job.trainer.model).loss
        error = f"{statistics.median(errors.found):.1e} (at most {max(errors.found):.1e})"
        print(f"| {seed} | {sent_in} | {loss:.4f} | {error} |", flush=True)


class Errors:
    """The relative errors of a run's sums, compared with exact sums of the same gradients."""

    def __init__(self, job: OpenRun, world: Communicator) -> None:
        self.found: list[float] = []
        self._reducer, self._world, self._rounded = job.trainer.reducer, world, job.trainer.reducer.reduce_scatter
        self._gradients = job.trainer.model.parameters.gradients
        self._exact = choose_reducer(world, None, world.size)
        _, self._summands = self._exact.allocate(len(self._gradients), np.float32)
        self._reducer.reduce_scatter = self._sum_and_compare  # type: ignore[method-assign]

    def _sum_and_compare(self) -> None:
        self._summands[...] = self._gradients
        self._exact.reduce_scatter()
        self._rounded()
        exact = self._summands[self._exact.pieces[0]]
        error = self._gradients[self._reducer.pieces[0]] - exact
        squares = [self._world.allreduce(float(np.vdot(x, x))) for x in (error, exact)]
        self.found.append((squares[0] / squares[1]) ** 0.5)


def main() -> None:
    """Start the ranks, or run as one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank-of", type=Path)
    parser.add_argument("--sent-in", choices=["float32", "bfloat16"])
    options = parser.parse_args()
    if options.rank_of:
        be_rank(options.rank_of, options.seeds[0], options.updates, options.sent_in)
        return
    describe_machine("mpi4py", "mpich")
    print(f"{options.ranks} ranks, {options.updates} updates")
    print("\n| seed | sent in | validation loss, nats a token | error of the sum |\n|-|-|-|-|", flush=True)
    mpirun = Path(sys.executable).with_name("mpirun")
    with tempfile.TemporaryDirectory() as name:
        for seed in options.seeds:
            for sent_in in ("float32", "bfloat16"):
                words = [__file__, "--rank-of", name, "--seeds", seed, "--updates", options.updates]
                command = [mpirun, "-n", options.ranks, sys.executable, *words, "--sent-in", sent_in]
                subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main()
