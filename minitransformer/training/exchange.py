"""Where parameters and gradients lie, so that ranks can exchange them."""

from __future__ import annotations

import numpy as np

from autograd import ParameterBuffer
from autograd.array import Array, gpu_module
from minitransformer.memory import give_back_freed_memory
from minitransformer.model.transformer import Transformer
from parallel.communicator import Communicator, Exchange, InSlices, SumOrder, working_ranks
from parallel.route import Route, choose_route


def exchange_of(model: Transformer, world: Communicator, n_shards: int, order: SumOrder) -> Exchange:
    """What ranks need to update the model's parameters together; these may lie in other memory afterwards.

    Ranks share the update if gradients lie in host memory and are added in the exact order.
    """
    parameters = model.parameters
    if world.size > 1 and (order == "fast" or not isinstance(parameters.values, np.ndarray)):
        return _WholeExchange(parameters, choose_route(world, gpu_module(model.device), n_shards, order))
    n_working = working_ranks(world.size, n_shards)
    exchange = world.exchange(parameters.values, lambda: parameters.gradients, n_working)
    if exchange.values is not parameters.values:
        parameters.move(exchange.values, exchange.gradients)
        give_back_freed_memory()
    return exchange


class _WholeExchange:
    """Every rank has the whole sum, and makes the whole update itself."""

    seconds_waited = None

    def __init__(self, parameters: ParameterBuffer, route: Route) -> None:
        self.values, self.gradients, self.part = parameters.values, parameters.gradients, slice(len(parameters.values))
        self.way, self._add_up = route.said.removeprefix("gradients travel "), route.add_up

    def sum_gradients(self, in_slices: InSlices) -> None:
        self._add_up(self.gradients)

    def share_values(self) -> None:
        """All have them."""

    def gather(self, part: Array) -> Array:
        return part
