"""The exact sum by messages between pairs of ranks, whatever carries them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from parallel.bfloat16 import narrow, widen
from parallel.communicator import SentIn

PIECE = 4 << 20  # elements under way at once: large messages are faster in pieces, and so is memory bounded


class Messenger(Protocol):
    """Carries arrays between ranks; they may lie on a GPU."""

    rank: int
    size: int

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """Send ``outgoing`` to a rank that does the same with this one, and receive its array into ``incoming``."""

    def broadcast_array(self, array: Any) -> None:
        """Overwrite ``array`` by rank 0's."""


class Rounding:
    """A messenger whose partners receive float32 rounded to bfloat16, in half the bytes."""

    def __init__(self, messenger: Messenger) -> None:
        self.rank, self.size, self._messenger = messenger.rank, messenger.size, messenger

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """Round on the way."""
        sent, received = _room_for_bits(outgoing), _room_for_bits(incoming)
        narrow(outgoing, sent)
        self._messenger.send_and_receive(sent, received, partner)
        widen(received, incoming)

    def broadcast_array(self, array: Any) -> None:
        """As it is."""
        self._messenger.broadcast_array(array)

    def round(self, array: Any) -> None:
        """Make of an array what others will receive of it."""
        bits = _room_for_bits(array)
        narrow(array, bits)
        widen(bits, array)


def _room_for_bits(like: Any) -> Any:
    """uint16 on the same device, as many as there are elements."""
    return like[: (like.size + 1) // 2].copy().view(np.uint16)[: like.size]


def sum_by_messages(flat: Any, n_working: int, piece: int, messenger: Messenger, sent_in: SentIn = "float32") -> None:
    """Replace ``flat`` by its sum along the binary tree over the first ``n_working`` ranks, on all ranks.

    Recursive halving, then doubling: in round k ranks that differ in bit k share the work on what both have, so that
    each adds up one half of it; then the finished parts go back the same way.  Addition of two numbers commutes, so an
    element is (r₀ + r₁) + (r₂ + r₃) … wherever it is added up.  A rank sends 2(1 − 1/n) times the array, all in all.

    Args:
        n_working: a power of two.
        piece: elements summed at once; half as many are received at a time.
        sent_in: with "bfloat16" sums (of float32) are rounded before each of the log₂ n messages that they go through,
            and when they are finished, so that all ranks have the same.

    Source: Thakur, Rabenseifner & Gropp (2005), "Optimization of Collective Communication Operations in MPICH".
    """
    messenger = Rounding(messenger) if sent_in == "bfloat16" else messenger
    spare = flat[: (min(piece, flat.size) + 1) // 2].copy()
    for start in range(0, flat.size, piece):
        part = flat[start : start + piece]
        if messenger.rank < n_working:
            _halve_and_double(part, spare, n_working, messenger)
        if n_working < messenger.size:
            messenger.broadcast_array(part)


def _halve_and_double(flat: Any, spare: Any, n_working: int, messenger: Messenger) -> None:
    rounds: list[tuple[int, slice, slice]] = []
    begin, end, distance = 0, flat.size, 1
    while distance < n_working:
        middle = (begin + end) // 2
        kept, given = slice(begin, middle), slice(middle, end)
        if messenger.rank & distance:
            kept, given = given, kept
        partner, received = messenger.rank ^ distance, spare[: kept.stop - kept.start]
        messenger.send_and_receive(flat[given], received, partner)
        flat[kept] += received
        rounds.append((partner, kept, given))
        begin, end, distance = kept.start, kept.stop, 2 * distance
    if isinstance(messenger, Rounding):
        messenger.round(flat[begin:end])
    for partner, kept, given in reversed(rounds):
        messenger.send_and_receive(flat[kept], flat[given], partner)
