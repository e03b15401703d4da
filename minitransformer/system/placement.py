"""The choice of this process' GPU, and the placements of all processes."""

from __future__ import annotations

from autograd.array import Device, count_gpus, use_gpu
from minitransformer.system.threads import allowed_cores
from parallel.communicator import Communicator
from parallel.placement import Placement, gpu_of_rank


def choose_placements(device: Device, world: Communicator) -> list[Placement]:
    """Select this rank's GPU if the device is "cuda", and return the placements of all ranks.

    All ranks must call this, before anything is allocated on a GPU.

    Raises: DeviceError if there is no usable GPU.
    """
    n_gpus = count_gpus(device)
    gpu = gpu_of_rank(world.local_rank, n_gpus)
    if gpu is not None:
        use_gpu(gpu)
    return world.allgather(Placement(allowed_cores(), gpu, n_gpus))
