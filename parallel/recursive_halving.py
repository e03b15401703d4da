"""The exact sum by messages between pairs of ranks, over any transport."""

from __future__ import annotations

from typing import Any, Protocol

from parallel.bfloat16 import round_to_bfloat16, upcast_to_float32


class Transport(Protocol):
    """A way to send flat arrays between ranks; the arrays may lie on a GPU."""

    rank: int
    size: int

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send one array to a rank and receive another from it."""

    def bcast_array(self, array: Any) -> None:
        """Overwrite ``array`` with the array of rank 0."""

    def allreduce_array(self, array: Any) -> None:
        """Sum ``array`` over all ranks, in place, in any order."""


def allreduce_exactly(flat: Any, transport: Transport, n_working: int, piece: int, *, rounds: bool = False) -> None:
    """Replace ``flat`` with its sum along the binary tree over the first ``n_working`` ranks, on all ranks.

    This is recursive halving, then doubling.  In round k, two ranks that differ in bit k hold the same slice; each
    sums one half of it.  Then the finished halves are sent back along the same pairs.  Addition of two numbers
    commutes, so an element is (r₀ + r₁) + (r₂ + r₃) … on every rank.  A rank sends 2(1 − 1/n) times the array in total.

    Args:
        n_working: a power of two.
        piece: elements summed at once; half as many are received at a time.
        rounds: round float32 sums to bfloat16 before each of the log₂ n messages that carry them.  Finished sums are
            rounded, too, so that all ranks have the same bits.

    Source: Thakur, Rabenseifner & Gropp (2005), "Optimization of Collective Communication Operations in MPICH".
    """
    buffer = flat[: (min(piece, flat.size) + 1) // 2].copy()
    for start in range(0, flat.size, piece):
        part = flat[start : start + piece]
        if transport.rank < n_working:
            _halve_and_double(part, buffer, transport, n_working, rounds)
        if n_working < transport.size:
            transport.bcast_array(part)


def _halve_and_double(flat: Any, buffer: Any, transport: Transport, n_working: int, rounds: bool) -> None:
    halvings: list[tuple[int, slice, slice]] = []
    begin, end, distance = 0, flat.size, 1
    while distance < n_working:
        middle = (begin + end) // 2
        kept, given = slice(begin, middle), slice(middle, end)
        if transport.rank & distance:
            kept, given = given, kept
        partner, received = transport.rank ^ distance, buffer[: kept.stop - kept.start]
        _sendrecv(flat[given], received, partner, transport, rounds)
        flat[kept] += received
        halvings.append((partner, kept, given))
        begin, end, distance = kept.start, kept.stop, 2 * distance
    if rounds:
        bits = _bits_like(flat[begin:end])
        round_to_bfloat16(flat[begin:end], bits)
        upcast_to_float32(bits, flat[begin:end])
    for partner, kept, given in reversed(halvings):
        _sendrecv(flat[kept], flat[given], partner, transport, rounds)


def _sendrecv(sent: Any, received: Any, partner: int, transport: Transport, rounds: bool) -> None:
    if not rounds:
        transport.sendrecv_array(sent, received, partner)
        return
    bits, received_bits = _bits_like(sent), _bits_like(received)
    round_to_bfloat16(sent, bits)
    transport.sendrecv_array(bits, received_bits, partner)
    upcast_to_float32(received_bits, received)


def _bits_like(x: Any) -> Any:
    """Return a uint16 array of as many elements on the same device; its content is arbitrary."""
    return x[: (x.size + 1) // 2].copy().view("uint16")[: x.size]
