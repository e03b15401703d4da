"""The placements of a run's ranks on cores and GPUs, and the check that all ranks have the same kernels."""

from __future__ import annotations

import numpy as np

from autograd.array import Device, count_gpus, namespace_of_device, use_gpu
from autograd.kernel_registry import KernelChoice, kernels_for, register_kernels
from autograd.kernels.cpu.library import bfloat16_set, library
from minitransformer.system.provenance import blas_libraries, processor
from minitransformer.system.threads import allowed_cores
from parallel.agreement import check_agreement, warn_of_differences
from parallel.communicator import Communicator
from parallel.placement import Placement, gpu_of_rank

START = "at the start"
SAME_KERNELS = (
    "Use the same compiler on all machines, and for different processors the same instructions (the environment"
    ' variable MINITRANSFORMER_CFLAGS, such as -march=x86-64-v3); or set kernels = "reference"'
)
SAME_CUDA_KERNELS = 'Use the same GPUs, driver and CuPy on all machines; or set kernels = "reference"'


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


def require_same_kernels(device: Device, kernels: KernelChoice, world: Communicator) -> None:
    """Raise DisagreementError on rank 0 if kernels of ranks differ; warn if processors, GPUs or libraries differ."""
    if world.size == 1:
        return
    if kernels == "compiled" and device == "cuda":
        register_kernels("cuda")
        check_agreement(world, {"CUDA kernels": _cuda_kernels() or "none"}, START, SAME_CUDA_KERNELS)
    elif kernels == "compiled":
        obstacle = library().obstacle
        obstacles = world.allgather(obstacle and obstacle.partition("\n")[0].rstrip(":"))
        reason = next((f"{obstacle}. " for obstacle in obstacles if obstacle), "")
        facts = {"kernel library": library().sha256[:10] or "none", "products of bfloat16": bfloat16_set() or "none"}
        check_agreement(world, facts, START, reason + SAME_KERNELS)
    facts = _gpu_and_library() if device == "cuda" else _processor_and_libraries()
    warn_of_differences(world, facts, "the last bits of the model depend on which rank computes what")


def _cuda_kernels() -> str:
    """Return the names of the CUDA kernels that passed their check, each with the dtypes in which it did not."""
    wrong = {name: set().union(*(k.wrong_in for k in each.kernels)) for name, each in kernels_for("cuda").items()}
    return ", ".join(" not in ".join([name, *sorted(wrong[name])]) for name in sorted(wrong))


def _gpu_and_library() -> dict[str, str]:
    cupy = namespace_of_device("cuda")
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return {"GPU": gpu, "CuPy": cupy.__version__}


def _processor_and_libraries() -> dict[str, str]:
    return {"processor": processor(), "BLAS": blas_libraries() or "unknown", "NumPy": np.__version__}
