"""The order in which ranks that do not share memory send to and receive from each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Exchange:
    """One call of sendrecv between this rank and a partner of another node; at least one of them sends."""

    partner: int
    sends: bool
    """This rank sends what its node has; the partner needs it."""
    receives: bool
    """The partner sends what its own node has."""


def exchange_schedule(nodes: Sequence[Sequence[int]], rank: int) -> Iterator[Exchange]:
    """Yield this rank's exchanges in an order in which no ranks wait for each other in a circle.

    Every rank receives from one rank of every other node, and the ranks of a node share the sending.  Ranks of the same
    index in their nodes are partners.  Where a node has fewer ranks, some of them have several partners.

    Args:
        nodes: the ranks that share memory with each other; every rank is in one node.
    """
    own = next(number for number, ranks in enumerate(nodes) if rank in ranks)
    index, n_own = nodes[own].index(rank), len(nodes[own])
    for distance in range(1, 1 << (len(nodes) - 1).bit_length()):
        if own ^ distance < len(nodes):
            others = nodes[own ^ distance]
            for their_index, partner in enumerate(others):
                exchange = Exchange(partner, their_index % n_own == index, index % len(others) == their_index)
                if exchange.sends or exchange.receives:
                    yield exchange
