"""Ranks that disagree would train something that nobody asked for: compare them, and say which differ and how."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from parallel.communicator import Communicator


class DisagreementError(RuntimeError):
    """Two ranks were started, or have become, different where they must be the same."""


def check_agreement(world: Communicator, facts: Mapping[str, str], when: str, remedy: str) -> None:
    """Compare facts, such as {"code": "4f2a"}, of all ranks; all must call.

    Args:
        when: what the message begins with, such as "at the start".
        remedy: what it ends with.

    Raises: DisagreementError on rank 0, if another rank says otherwise; the others wait to be ended by it.
    """
    if world.size == 1:
        return
    said = world.allgather((socket.gethostname(), dict(facts)))
    host, expected = said[0]
    differences = [
        f"{name} is {theirs.get(name)} on rank {rank} ({their_host}), {fact} on rank 0 ({host})"
        for rank, (their_host, theirs) in enumerate(said)
        for name, fact in expected.items()
        if theirs.get(name) != fact
    ]
    if not differences:
        return
    if world.rank == 0:
        more = f" and {len(differences) - 4} more" if len(differences) > 4 else ""
        raise DisagreementError(f"{when} ranks disagree: {'; '.join(differences[:4])}{more}. {remedy}")
    world.barrier()


def checksum(array: np.ndarray[Any, Any]) -> str:
    """The CRC-32 of the numbers, as eight hexadecimal digits."""
    return f"{zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data):08x}"
