"""How would training scale to more machines?  A prediction, from measured and from cited figures.

    python benchmarks/scaling.py [tiny small-1024 base] [--ranks 8 64 512] [--rounds 5]
    python benchmarks/scaling.py base --update-ms 4466 --gigabytes-per-second 1.25 --latency-us 30

Time of an update on N ranks, each with the same batch of its own (weak scaling):

    t(N) = t₁ · (1 + w(N)) + s(N),   s(N) = (1 − 1/N) · bytes / bandwidth + 2 (N − 1) · latency · pieces

t₁ is one rank's update: --update-ms, or measured here on all cores of this machine.  s(N) is the exchange of gradients
and values between each two machines (``HostReducer``), without overlap with computation.  w(N) is the wait for the
slowest of N ranks, relative to t₁: the median of the maximum of N normal draws with the measured deviation of updates.
Bandwidth and latency of the network are not measured; they are options, by default those of 10 Gbit Ethernet and TCP:
1.25 GB/s at most, 30 µs.  Efficiency is t₁ / t(N).
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass
from statistics import NormalDist

from contest import describe_machine
from training import ours
from workload import WORKLOADS

from minitransformer import Transformer
from parallel.communicator import ELEMENTS_AT_ONCE


@dataclass(frozen=True)
class Network:
    """The network between the machines."""

    bandwidth: float
    """Bytes a second that a machine can send while it receives as many."""
    latency: float
    """Seconds from sending an empty message to its arrival."""

    def exchange_seconds(self, n_ranks: int, n_numbers: int, bytes_a_number: int) -> float:
        """Return the seconds to exchange gradients, then values, with every other rank, one piece after the other."""
        messages = 2 * (n_ranks - 1) * math.ceil(n_numbers / ELEMENTS_AT_ONCE)
        return (1 - 1 / n_ranks) * n_numbers * bytes_a_number / self.bandwidth + messages * self.latency


@dataclass(frozen=True)
class Update:
    """The time of an update of one rank alone."""

    seconds: float
    deviation: float
    """Standard deviation from update to update, of the same work."""

    def of_slowest(self, n_ranks: int) -> float:
        """Return the seconds of the slowest of ``n_ranks`` ranks: the median of the maximum of normal draws."""
        return self.seconds + self.deviation * NormalDist().inv_cdf(0.5 ** (1 / n_ranks))


def measured(name: str, rounds: int) -> Update:
    """Measure the updates of the training benchmark, in rounds of the same batches."""
    workload = WORKLOADS[name]
    (_, work), n_updates = ours(workload), len(workload.batches())
    work()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        seconds.append((time.perf_counter() - start) / n_updates)
    # The deviation of a round's mean is that of a single update divided by √n_updates.
    return Update(statistics.median(seconds), statistics.stdev(seconds) * math.sqrt(n_updates))


def main() -> None:
    """Print the assumptions, then the predictions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--update-ms", type=float, help="of one rank; measured here if not given")
    parser.add_argument("--deviation-ms", type=float, default=0.0, help="of --update-ms, from update to update")
    parser.add_argument("--gigabytes-per-second", type=float, default=1.25)
    parser.add_argument("--latency-us", type=float, default=30.0)
    parser.add_argument("--gradients-sent-in", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    bytes_a_number = 4 + {"float32": 4, "bfloat16": 2}[options.gradients_sent_in]  # of a value, and of its gradient
    network = Network(1e9 * options.gigabytes_per_second, 1e-6 * options.latency_us)
    describe_machine("mpi4py", "mpich")
    print(f"network: {options.gigabytes_per_second:g} GB/s, {options.latency_us:g} µs (assumed, not measured)")
    columns = ["model", "tokens a rank", "gradient, MB", "update of one rank, ms", "deviation, ms"]
    columns += [f"efficiency on {n} ranks, predicted" for n in options.ranks]
    print(f"\n| {' | '.join(columns)} |\n{'|-' * len(columns)}|")
    for name in options.workloads:
        if options.update_ms:
            update = Update(1e-3 * options.update_ms, 1e-3 * options.deviation_ms)
        else:
            update = measured(name, options.rounds)
        n_numbers = Transformer(WORKLOADS[name].config, seed=None).n_parameters
        cells = [
            name,
            f"{WORKLOADS[name].batch_tokens:,}",
            f"{4e-6 * n_numbers:.0f}",
            f"{1e3 * update.seconds:.0f}",
            f"{1e3 * update.deviation:.1f}",
        ]
        for n_ranks in options.ranks:
            whole = update.of_slowest(n_ranks) + network.exchange_seconds(n_ranks, n_numbers, bytes_a_number)
            cells.append(f"{100 * update.seconds / whole:.0f} %")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
