"""Who speaks with whom, where some ranks share memory and others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Meeting:
    """Two ranks that do not share memory, at least one of which speaks for those that share it with it."""

    partner: int
    serves: bool
    """This rank tells the partner what its own neighbours know, and tells them what the partner does."""
    is_served: bool
    """The partner does the same for this one."""


def meetings(neighbourhoods: Sequence[Sequence[int]], rank: int) -> Iterator[Meeting]:
    """Those of a rank, one after the other, so that two who meet never wait for each other in a circle.

    Every rank is served by one rank of every other neighbourhood, and ranks of one share the work: those that have the
    same place serve each other, and who has no counterpart is served by a rank that serves others, too.

    Args:
        neighbourhoods: the ranks that share memory with each other, in order; every rank is in one.
    """
    own = next(number for number, ranks in enumerate(neighbourhoods) if rank in ranks)
    place, n_own = neighbourhoods[own].index(rank), len(neighbourhoods[own])
    for distance in range(1, 1 << (len(neighbourhoods) - 1).bit_length()):
        if own ^ distance < len(neighbourhoods):
            theirs = neighbourhoods[own ^ distance]
            for their_place, partner in enumerate(theirs):
                meeting = Meeting(partner, their_place % n_own == place, place % len(theirs) == their_place)
                if meeting.serves or meeting.is_served:
                    yield meeting
