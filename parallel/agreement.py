"""Comparison of ranks: different code or settings on one rank would corrupt the training of all, unnoticed."""

from __future__ import annotations

import logging
import socket
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from parallel.communicator import Communicator
from parallel.placement import named_ranks, ranks_by_value
from parallel.rank_log import log_warnings_of_other_ranks

_log = logging.getLogger(__name__)


class DisagreementError(RuntimeError):
    """An error: two ranks have different values of a fact that must be the same on all ranks."""


def check_agreement(world: Communicator, facts: Mapping[str, str], when: str, remedy: str) -> None:
    """Compare facts, such as {"code": "4f2a"}, of all ranks; all ranks must call this.

    Before that, rank 0 logs the new warnings of other ranks, which may explain a difference.

    Args:
        when: the beginning of the error message, such as "at the start".
        remedy: the end of the error message.

    Raises: DisagreementError on rank 0, if a fact differs on another rank.  The other ranks then wait at a barrier
    until rank 0 ends them.
    """
    if world.size == 1:
        return
    log_warnings_of_other_ranks(world)
    rank_facts = world.allgather((socket.gethostname(), dict(facts)))
    host, expected = rank_facts[0]
    differences = [
        f"{name} is {theirs.get(name)} on rank {rank} ({their_host}), {fact} on rank 0 ({host})"
        for rank, (their_host, theirs) in enumerate(rank_facts)
        for name, fact in expected.items()
        if theirs.get(name) != fact
    ]
    if not differences:
        return
    if world.rank == 0:
        more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise DisagreementError(f"{when} ranks disagree: {'; '.join(differences[:4])}{more}. {remedy}")
    world.barrier()


def warn_of_differences(world: Communicator, facts: Mapping[str, str], consequence: str) -> None:
    """Log a warning on rank 0 for each fact that differs between ranks; all ranks must call this."""
    rank_facts = world.allgather(dict(facts))
    for name in facts if world.rank == 0 else ():
        ranks = ranks_by_value([theirs[name] for theirs in rank_facts])
        if len(ranks) > 1:
            values = "; ".join(f"{value} on {named_ranks(numbers)}" for value, numbers in ranks.items())
            _log.warning(f"{name} differs: {values}: {consequence}")


def checksum(array: np.ndarray[Any, Any]) -> str:
    """Return the CRC-32 of an array's bytes, as eight hexadecimal digits."""
    return f"{zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data):08x}"
