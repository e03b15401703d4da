"""The placement of ranks on machines, cores and GPUs."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Placement:
    """The hardware of one rank: its machine, cores and GPU."""

    cores: frozenset[int]
    """Cores that the system allows the rank's process to use."""
    gpu: int | None = None
    """Number of the rank's GPU among the GPUs that the process sees; None if the rank computes on the CPU."""
    n_gpus: int = 0
    """Number of GPUs that the process sees."""
    host: str = field(default_factory=socket.gethostname)


def gpu_of_rank(local_rank: int, n_gpus: int) -> int | None:
    """Return the GPU of a rank: ranks of a machine take its GPUs in turn.  Return None if there is no GPU."""
    return local_rank % n_gpus if n_gpus else None


def share_of_cores(mine: Collection[int], core_sets: Sequence[Collection[int]]) -> int:
    """Return the number of cores for a rank, at least one.

    A core that several ranks of the machine may use is divided among them.
    MPICH's launcher lets every rank use all cores.  The launchers of Open MPI and Slurm bind each rank to some of the
    cores.
    """
    shares = [Fraction(1, sum(core in cores for cores in core_sets)) for core in mine]
    return max(1, int(sum(shares)))


def cores_of(rank: int, placements: Sequence[Placement]) -> int:
    """Return the number of cores for a rank: its share of its machine's cores."""
    mine = placements[rank]
    return share_of_cores(mine.cores, [placement.cores for placement in placements if placement.host == mine.host])


def describe(placements: Sequence[Placement]) -> list[str]:
    """Return one line for each machine, with its ranks and their GPUs."""
    lines = []
    for host, ranks in ranks_by_value([placement.host for placement in placements]).items():
        line = f"{host}: {named_ranks(ranks)}"
        gpus = [placements[rank].gpu for rank in ranks]
        if gpus[0] is not None:
            line += f" on GPU {', '.join(map(str, gpus))} of {placements[ranks[0]].n_gpus}"
        lines.append(line)
    return lines


def ranks_by_value(values: Sequence[str]) -> dict[str, list[int]]:
    """Return the ranks that have each value, such as a host, given the value of every rank."""
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(rank)
    return ranks


def ranks_per_host(hosts: Sequence[str]) -> int:
    """Return the number of ranks of each host, given the host of every rank.

    Return 1 if hosts have different numbers of ranks, or ranks of one host are not consecutive.
    """
    n = hosts.count(hosts[0])
    is_regular = all(host == hosts[rank - rank % n] for rank, host in enumerate(hosts))
    return n if is_regular and len(set(hosts)) * n == len(hosts) else 1


def named_ranks(ranks: Sequence[int]) -> str:
    """Return ranks, which ascend, as text: "rank 3", "ranks 0 to 7", or "ranks 0, 2, 4"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    in_a_row = len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1
    return "ranks " + (f"{ranks[0]} to {ranks[-1]}" if in_a_row else ", ".join(map(str, ranks)))
