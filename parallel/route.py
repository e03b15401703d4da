"""How gradients travel between ranks: chosen by what is there, never guessed, and said."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from parallel import nccl
from parallel.communicator import (
    ORDER_IN_WORDS,
    Communicator,
    Exchange,
    InSlices,
    SentIn,
    SerialExchange,
    SumOrder,
    working_ranks,
)
from parallel.cuda_aware import reads_gpu_memory
from parallel.messages import Messenger, sum_by_messages
from parallel.placement import numbered

AddUp: TypeAlias = Callable[[Any], None]
Value = TypeVar("Value")

PINNED_BYTES = 64 << 20  # of host memory that a GPU reads and writes by itself, through which its arrays go in pieces


@dataclass(frozen=True)
class Route:
    """How flat arrays are added up over ranks."""

    add_up: AddUp
    """Replaces an array by its sum over all ranks, in place; on an idle rank it must be zero."""
    said: str
    """In words: through what, in which order, and why."""


class Carrier(Messenger, Protocol):
    """Carries arrays of GPUs, and adds them up."""

    def sum_in_any_order(self, array: Any) -> None:
        """Add up ``array`` over all ranks, in place."""


class GpuAwareMpi:
    """The messages of an MPI library that reads the memory of GPUs.  It does not wait for a GPU to finish: we do."""

    def __init__(self, cupy: Any, world: Communicator) -> None:
        self.rank, self.size = world.rank, world.size
        self._cuda, self._world = cupy.cuda, world

    def sum_in_any_order(self, array: Any) -> None:
        """The library's own sum."""
        self._cuda.get_current_stream().synchronize()
        self._world.sum_in_any_order(array)

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """Send and receive at once."""
        self._cuda.get_current_stream().synchronize()
        self._world.send_and_receive(outgoing, incoming, partner)

    def broadcast_array(self, array: Any) -> None:
        """Overwrite ``array`` by rank 0's."""
        self._cuda.get_current_stream().synchronize()
        self._world.broadcast_array(array)


class ExchangedSum:
    """Adds arrays of the host up in the exact order, by an exchange, which is made for every size that occurs."""

    def __init__(self, world: Communicator, n_working: int, sent_in: SentIn) -> None:
        self._world, self._n_working, self._sent_in = world, n_working, sent_in
        self._exchanges: dict[tuple[int, str], Exchange] = {}

    def described(self) -> str:
        """How its exchanges travel.  All ranks must ask: an exchange is made to know."""
        return self._exchange_for(np.zeros(1, np.float32)).said

    def __call__(self, flat: Any) -> None:
        """Replace ``flat`` by its sum over the working ranks, on all."""
        exchange = self._exchange_for(flat)
        exchange.gradients[...] = flat
        exchange.sum_gradients(lambda add: add(slice(None)))
        exchange.values[exchange.part] = exchange.gradients[exchange.part]
        exchange.share_values()
        flat[...] = exchange.values

    def _exchange_for(self, flat: Any) -> Exchange:
        key = flat.size, flat.dtype.str
        if key not in self._exchanges:
            zeros = np.zeros_like(flat)
            self._exchanges[key] = self._world.exchange(zeros, zeros.copy, self._n_working, self._sent_in)
        return self._exchanges[key]


class PinnedSum:
    """Takes an array of a GPU to the host, adds it up there, and takes it back; piece by piece."""

    def __init__(self, cupy: Any, on_host: AddUp) -> None:
        self._cuda, self._on_host = cupy.cuda, on_host
        self._room = np.frombuffer(cupy.cuda.alloc_pinned_memory(PINNED_BYTES), np.uint8, PINNED_BYTES)

    def __call__(self, flat: Any) -> None:
        """Add up ``flat`` over ranks, in place."""
        n_elements = PINNED_BYTES // flat.dtype.itemsize
        for start in range(0, flat.size, n_elements):
            piece = flat[start : start + n_elements]
            on_host = self._room[: piece.nbytes].view(piece.dtype)
            piece.get(out=on_host)
            self._on_host(on_host)
            piece.set(on_host)
            self._cuda.get_current_stream().synchronize()  # the room is free again


class RoutedExchange:
    """Every rank gets the whole sum by a route, and updates all values: nothing is exchanged afterwards.

    Args:
        is_idle: this rank has nothing to add.
    """

    seconds_waited = 0.0  # how long a library waits is not known

    def __init__(self, route: Route, values: Any, gradients: Any, *, is_idle: bool) -> None:
        self.values, self.gradients, self.part, self.said = values, gradients, slice(len(values)), route.said
        self._add_up, self._is_idle = route.add_up, is_idle

    def sum_gradients(self, in_slices: InSlices) -> None:
        """Replace the gradients by their sum over ranks."""
        del in_slices
        if self._is_idle:
            self.gradients[...] = 0
        self._add_up(self.gradients)

    def share_values(self) -> None:
        """Everybody has all."""

    def of_all_parts(self, value: Value) -> list[Value]:
        """That of the only part, which every rank has."""
        return [value]

    def gather(self, part: Any) -> Any:
        """The part, which is the whole."""
        return part


def choose_route(
    world: Communicator, cupy: Any | None, n_shards: int, order: SumOrder, sent_in: SentIn = "float32"
) -> Route:
    """The best way that all ranks have; all must call, each after it has chosen its GPU.

    Args:
        cupy: the module of that name if the arrays lie on GPUs, None if on the CPU.
        order: "exact" adds along the fixed tree, on every route; "fast" as the route likes.
        sent_in: what messages round to; in the order that a library likes there are none.
    """
    if world.size == 1:
        return Route(lambda flat: None, SerialExchange.said)
    n_working = working_ranks(world.size, n_shards, order)
    if cupy is None:
        return _route_on_host(world, n_working, order, sent_in)
    nccl_refuses, mpi_refuses = _obstacles(world, cupy)
    carrier: Carrier
    if not nccl_refuses:
        carrier, way = nccl.Nccl(cupy, world), "NCCL, because every rank has a GPU of its own"
    elif not mpi_refuses:
        because = f"says that it reads the memory of GPUs, and NCCL cannot be used: {nccl_refuses}"
        carrier, way = GpuAwareMpi(cupy, world), f"{world.library}, because it {because}"
    else:
        on_host = _route_on_host(world, n_working, order, sent_in).add_up
        way = f"pinned host memory, because {nccl_refuses}, and {world.library} {mpi_refuses}"
        return Route(PinnedSum(cupy, on_host), _said(way, order, sent_in))
    in_tree: AddUp = partial(sum_by_messages, n_working=n_working, piece=nccl.PIECE, messenger=carrier, sent_in=sent_in)
    add_up = carrier.sum_in_any_order if order == "fast" else in_tree
    return Route(add_up, _said(way, order, sent_in))


def _route_on_host(world: Communicator, n_working: int, order: SumOrder, sent_in: SentIn) -> Route:
    if order == "fast":
        return Route(world.sum_in_any_order, _said(f"the sums of {world.library}", order, sent_in))
    exchanged = ExchangedSum(world, n_working, sent_in)
    return Route(exchanged, exchanged.described())


def _said(way: str, order: SumOrder, sent_in: SentIn) -> str:
    if sent_in == "bfloat16":
        way += ", where nothing is rounded to bfloat16" if order == "fast" else ", rounded to bfloat16 in messages"
    return f"gradients travel through {way}; {ORDER_IN_WORDS[order]}"


def _obstacles(world: Communicator, cupy: Any) -> tuple[str, str]:
    """Why gradients cannot travel through NCCL, and why not through MPI; empty where they can."""
    has_nccl = bool(nccl.load_nccl(cupy).available)
    mine = (socket.gethostname(), cupy.cuda.Device().pci_bus_id, has_nccl, reads_gpu_memory())
    said = world.all_of(mine)
    sharing = _sharing([(host, address) for host, address, *_ in said])
    without_nccl = [rank for rank, (_, _, available, _) in enumerate(said) if not available]
    nccl_refuses = ""
    if sharing:
        nccl_refuses = f"{numbered('rank', sharing)} share a GPU, which NCCL refuses"
    elif without_nccl:
        nccl_refuses = f"CuPy finds no NCCL on {numbered('rank', without_nccl)}"
    answers = {aware for *_, aware in said}
    mpi_refuses = "" if answers == {True} else "does not say whether it reads the memory of GPUs"
    if False in answers:
        mpi_refuses = "says that it does not read the memory of GPUs"
    return nccl_refuses, mpi_refuses


def _sharing(gpus: Sequence[tuple[str, str]]) -> list[int]:
    """The ranks on the first GPU that more than one rank has."""
    for gpu in gpus:
        if gpus.count(gpu) > 1:
            return [rank for rank, other in enumerate(gpus) if other == gpu]
    return []
