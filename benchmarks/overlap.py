"""How much time could be saved by sending gradients while backward still runs?

    python benchmarks/overlap.py [tiny small-1024 base] [--rounds 5] [--ranks 2] [--gigabytes-per-second 1.25]

Measured: when each gradient is final, in the backward pass of one micro-batch on one core.  Predicted from that: the
greatest share of an update (forward and backward of that micro-batch) that is saved over a network of a given
bandwidth, if numbers are sent in the order in which they become final, and if sending takes no time of the core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from typing import Any

from contest import describe_machine
from threadpoolctl import threadpool_limits
from workload import WORKLOADS

from autograd import RandomStream, backward
from autograd.malloc import keep_freed_memory
from autograd.parameters import Parameter
from minitransformer import Batch, Transformer

SHARES = (0.5, 0.75, 0.9)  # of backward's time


@dataclass(frozen=True)
class Pass:
    """The seconds of forward and backward of one micro-batch, and when each parameter's gradient was final."""

    forward: float
    backward: float
    final: dict[Parameter, float]

    def share_of_numbers(self, share_of_time: float) -> float:
        """Return the share of the gradient's numbers that are final after a share of backward's time."""
        sizes = {parameter: parameter.size for parameter in self.final}
        done = sum(sizes[p] for p, when in self.final.items() if when <= share_of_time * self.backward)
        return done / sum(sizes.values())

    def saving(self, seconds_a_number: float) -> float:
        """Return the seconds saved by sending gradients in the order of completion, instead of after backward."""
        end = 0.0
        for parameter, when in sorted(self.final.items(), key=lambda item: item[1]):
            end = max(end, when) + parameter.size * seconds_a_number
        afterwards = self.backward + sum(parameter.size for parameter in self.final) * seconds_a_number
        return afterwards - end


class MicroBatch:
    """A model and a micro-batch for it."""

    def __init__(self, name: str) -> None:
        workload = WORKLOADS[name]
        self.model = Transformer(workload.config, seed=1)
        pairs = workload.batches()[0]
        self._batch = Batch.from_token_ids(
            *map(list, zip(*pairs[::2], strict=True))
        )  # half a batch: one of two micro-batches

    def run(self) -> Pass:
        """Compute and time one forward and backward pass."""
        final: dict[Any, float] = {}
        start = time.perf_counter()
        loss = self.model.loss(self._batch, RandomStream(1))
        middle = time.perf_counter()
        backward(loss, completed=lambda parameter: final.update({parameter: time.perf_counter() - middle}))
        return Pass(middle - start, time.perf_counter() - middle, final)


def show_completion(name: str, rounds: int, n_ranks: int, bandwidth: float) -> None:
    """Print a row: when gradients are final, and the saving that is predicted from it."""
    micro_batch = MicroBatch(name)
    micro_batch.run()
    passes = [micro_batch.run() for _ in range(rounds)]
    shares = [statistics.median(p.share_of_numbers(share) for p in passes) for share in SHARES]
    seconds_a_number = (1 - 1 / n_ranks) * 4 / bandwidth
    saving = statistics.median(p.saving(seconds_a_number) / (p.forward + p.backward) for p in passes)
    cells = [f"{100 * share:.0f} %" for share in shares]
    print(f"| {name} | {' | '.join(cells)} | {100 * saving:.1f} % |", flush=True)


def main() -> None:
    """Measure each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--gigabytes-per-second", type=float, default=1.25)
    options = parser.parse_args()
    keep_freed_memory()
    describe_machine()
    network = f"{options.ranks} ranks and {options.gigabytes_per_second:g} GB/s"
    columns = [*(f"final at {100 * share:.0f} % of backward" for share in SHARES), f"saves at most, {network}"]
    print(f"\n| | {' | '.join(columns)} |\n{'|-' * (len(columns) + 1)}|", flush=True)
    with threadpool_limits(1, user_api="blas"):
        for name in options.workloads:
            show_completion(name, options.rounds, options.ranks, 1e9 * options.gigabytes_per_second)


if __name__ == "__main__":
    main()
