"""The send/receive schedule of ranks that do not share memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SendReceive:
    """One sendrecv call between this rank and a partner on another node; at least one of the two sends."""

    partner: int
    sends: bool
    """True if this rank sends its node's sums to the partner."""
    receives: bool
    """True if the partner sends its node's sums to this rank."""


def send_receive_schedule(nodes: Sequence[Sequence[int]], rank: int) -> Iterator[SendReceive]:
    """Yield this rank's sendrecv calls in an order that is free of deadlocks.

    Every rank receives from one rank of every other node, and the ranks of a node share the sending.  Ranks with the
    same index in their nodes are partners.  If a node has fewer ranks than another, some of its ranks have several
    partners.

    Args:
        nodes: the ranks that share memory with each other; every rank is in one node.
    """
    own_node = next(number for number, ranks in enumerate(nodes) if rank in ranks)
    index, n_own = nodes[own_node].index(rank), len(nodes[own_node])
    for distance in range(1, 1 << (len(nodes) - 1).bit_length()):
        if own_node ^ distance < len(nodes):
            others = nodes[own_node ^ distance]
            for their_index, partner in enumerate(others):
                call = SendReceive(partner, their_index % n_own == index, index % len(others) == their_index)
                if call.sends or call.receives:
                    yield call
