"""Where parameters and gradients lie, so that ranks can exchange them."""

from __future__ import annotations

from autograd import ParameterBuffer
from autograd.array import device_of, gpu_module
from minitransformer.config import TrainingConfig
from minitransformer.memory import give_back_freed_memory
from parallel.communicator import Communicator, Exchange, working_ranks
from parallel.route import RoutedExchange, choose_route


def exchange_of(parameters: ParameterBuffer, world: Communicator, config: TrainingConfig) -> Exchange:
    """What ranks need to update these parameters together; they may lie in other memory afterwards.

    On CPUs and in the exact order every rank updates a part of them; on GPUs, and in a library's order, all of them.
    """
    n_working = working_ranks(world.size, config.n_shards, config.sum)
    cupy = gpu_module(device_of(parameters.values))
    if world.size > 1 and (cupy is not None or config.sum == "fast"):
        route = choose_route(world, cupy, config.n_shards, config.sum, config.gradients_sent_in)
        return RoutedExchange(route, parameters.values, parameters.gradients, is_idle=world.rank >= n_working)
    exchange = world.exchange(parameters.values, lambda: parameters.gradients, n_working, config.gradients_sent_in)
    if exchange.values is not parameters.values:
        parameters.move(exchange.values, exchange.gradients)
        give_back_freed_memory()
    return exchange
