"""Where parameters and gradients lie, so that ranks can exchange them."""

from __future__ import annotations

import numpy as np

from autograd import ParameterBuffer, to_device, to_host
from autograd.array import Array
from minitransformer.memory import give_back_freed_memory
from parallel.communicator import Communicator, Exchange, InSlices


def exchange_of(parameters: ParameterBuffer, world: Communicator, n_working: int) -> Exchange:
    """What ranks need to update these parameters together; they may lie in other memory afterwards."""
    if world.size > 1 and not isinstance(parameters.values, np.ndarray):
        return _ThroughHost(parameters, world, n_working)
    exchange = world.exchange(parameters.values, lambda: parameters.gradients, n_working)
    if exchange.values is not parameters.values:
        parameters.move(exchange.values, exchange.gradients)
        give_back_freed_memory()
    return exchange


class _ThroughHost:
    """Parameters of a GPU travel through host memory: an MPI library need not know of GPUs."""

    def __init__(self, parameters: ParameterBuffer, world: Communicator, n_working: int) -> None:
        self.values, self.gradients = parameters.values, parameters.gradients
        values = to_host(self.values)
        self._host = world.exchange(values, lambda: np.zeros_like(values), n_working)
        self.part, self.way = self._host.part, self._host.way

    @property
    def seconds_waited(self) -> float:
        return self._host.seconds_waited

    def sum_gradients(self, in_slices: InSlices) -> None:
        self._host.gradients[...] = to_host(self.gradients)
        self._host.sum_gradients(in_slices)
        self.gradients[self.part] = to_device(self._host.gradients[self.part], "cuda")

    def share_values(self) -> None:
        self._host.values[self.part] = to_host(self.values[self.part])
        self._host.share_values()
        self.values[...] = to_device(self._host.values, "cuda")

    def gather(self, part: Array) -> Array | None:
        return self._host.gather(to_host(part))
