"""The choice of automatic settings for this machine, the same on all ranks."""

from __future__ import annotations

from typing import NamedTuple

from autograd.array import Device, DeviceError, namespace_of_device
from autograd.kernel_registry import KernelChoice, kernels_for, register_kernels
from autograd.precision import dtype_named
from minitransformer.config import RunConfig
from minitransformer.config.automatic import begun_with, resolved, with_values
from parallel.communicator import Communicator

LEAST_CAPABILITY = 80  # compute capability 8.0: the first with tensor cores for bfloat16


class Resolved(NamedTuple):
    """A configuration without automatic settings, and why a GPU cannot compute fast in bfloat16."""

    config: RunConfig
    why_no_bfloat16: str
    """The reason of the first rank that has one; "" on a CPU, or if all can."""


def resolve(config: RunConfig, world: Communicator) -> Resolved:
    """Replace the automatic settings of training; all ranks must call this, each after it has chosen its GPU.

    Rank 0 reads what the run began with.  If one rank's GPU cannot compute fast in bfloat16, none uses it.
    Raises: ConfigError if the file of the run has an invalid value.
    """
    begun = with_values(config, world.bcast(begun_with(config.run) if world.rank == 0 else {}))
    obstacle = next(filter(None, world.allgather(why_no_bfloat16(config.device, config.kernels))), "")
    return Resolved(resolved(begun, world.size, obstacle), obstacle)


def why_no_bfloat16(device: Device, kernels: KernelChoice) -> str:
    """Return why bfloat16 is not available on the current GPU, or slower than float32; "" if it is fast.

    On a CPU, where float32 is faster, this is "", too.  Registers the kernels of a GPU.
    """
    if device == "cpu":
        return ""
    if kernels == "reference":
        return 'the references compute in float32 (kernels is "reference")'
    try:
        dtype_named("bfloat16")
    except DeviceError as error:
        return f"{error.problem}; {error.remedy}"
    capability = str(namespace_of_device(device).cuda.Device().compute_capability)
    if int(capability) < LEAST_CAPABILITY:
        return f"the GPU has compute capability {capability[:-1]}.{capability[-1]}, and bfloat16 needs 8.0"
    register_kernels(device)
    return "" if kernels_for(device) else "no CUDA kernel has passed its check, and the references compute in float32"
