"""The place of this process among all: its GPU or its share of the cores."""

from __future__ import annotations

from autograd.array import Device, count_gpus, use_gpu
from minitransformer.threads import allowed_cores
from parallel.communicator import Communicator
from parallel.placement import Place, gpu_of_rank


def take_place(device: Device, world: Communicator) -> list[Place]:
    """Choose the GPU that this rank computes on, if it does; return the places of all ranks, which must all call.

    To be called before anything is allocated on a GPU.

    Raises: DeviceError if there is no usable GPU.
    """
    n_gpus = count_gpus(device)
    gpu = gpu_of_rank(world.local_rank, n_gpus)
    if gpu is not None:
        use_gpu(gpu)
    return world.allgather(Place(allowed_cores(), gpu, n_gpus))
