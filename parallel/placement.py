"""Where ranks are: who shares a machine, its cores and its GPUs."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Place:
    """What one rank computes on."""

    cores: frozenset[int]
    """Cores that the system lets its process use."""
    gpu: int | None = None
    """Its GPU, by its number among those that the process sees; None if it computes on the CPU."""
    n_gpus: int = 0
    """GPUs that the process sees."""
    host: str = field(default_factory=socket.gethostname)


def gpu_of_rank(local_rank: int, n_gpus: int) -> int | None:
    """Ranks of a machine take its GPUs in turn; None where there are none."""
    return local_rank % n_gpus if n_gpus else None


def share_of_cores(mine: Collection[int], of_all: Sequence[Collection[int]]) -> int:
    """Cores for a rank, at least one; those that several ranks of its machine may use are divided among them.

    Launchers differ: MPICH's lets every rank use all cores, Open MPI's and Slurm's bind a rank to some of them.
    """
    shares = [Fraction(1, sum(core in cores for cores in of_all)) for core in mine]
    return max(1, int(sum(shares)))


def cores_of(rank: int, places: Sequence[Place]) -> int:
    """Cores for a rank: its share of those of its machine."""
    mine = places[rank]
    return share_of_cores(mine.cores, [place.cores for place in places if place.host == mine.host])


def described(places: Sequence[Place]) -> list[str]:
    """A line a machine: its ranks, and their GPUs."""
    lines = []
    for host, ranks in ranks_by_host([place.host for place in places]).items():
        line = f"{host}: {numbered('rank', ranks)}"
        gpus = [places[rank].gpu for rank in ranks]
        if gpus[0] is not None:
            line += f" on GPU {', '.join(map(str, gpus))} of {places[ranks[0]].n_gpus}"
        lines.append(line)
    return lines


def ranks_by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    """The ranks on every host, given the host of every rank."""
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    return ranks


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """Such as "rank 3", "ranks 0 to 7", or "ranks 0, 2, 4"; numbers ascend."""
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    in_a_row = len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1
    return f"{noun}s " + (f"{numbers[0]} to {numbers[-1]}" if in_a_row else ", ".join(map(str, numbers)))
