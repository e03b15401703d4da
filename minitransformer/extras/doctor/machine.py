"""Checks of one process on its machine: versions, libraries, cores, shared memory, GPUs, prepared data."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from autograd import DeviceError
from autograd.array import Device, count_gpus, gpu_module
from autograd.kernel_registry import KernelChoice
from autograd.kernels.cpu.library import library
from autograd.kernels.cuda.check import CheckError, check_results
from autograd.precision import lack_of_bfloat16
from minitransformer.data.prepare import PreparedData
from minitransformer.extras.doctor.finding import SAME_EVERYWHERE, Finding
from minitransformer.system.files import CheckpointError, CorruptFileError
from minitransformer.system.memory import describe_free_memory
from minitransformer.system.provenance import blas_libraries, code_version
from minitransformer.system.ranks import SAME_KERNELS
from parallel.communicator import Communicator, call_on_rank_0
from parallel.launch import INSTALL_MPI
from parallel.placement import Placement, cores_of

SHARED_MEMORY = Path("/dev/shm")
SAME_PROCESSOR = (
    "for other processors, set the environment variable OPENBLAS_CORETYPE, such as Haswell, on all machines"
)
BYTES_OF_RANK = 8_000_000  # shared memory that MPI libraries take per process, as measured in docs/lab/parallel.md


def machine(device: Device, choice: KernelChoice, world: Communicator, placements: list[Placement]) -> list[Finding]:
    """Check this process and its machine; return findings on the same checks, in the same order, on every rank.

    ``device`` and ``choice`` are the run's settings.
    """
    return [
        *(
            Finding(what, found, if_ranks_differ=SAME_EVERYWHERE)  # all three affect the bits of results
            for what, found in (
                ("minitransformer", code_version()),
                ("Python", platform.python_version()),
                ("NumPy", np.__version__),
            )
        ),
        blas(),
        kernels(device, choice),
        products(choice),
        cores(device, world.rank, placements),
        mpi(world),
        gpus(device, placements[world.rank]),
        *([cuda_kernels(choice, placements[world.rank])] if device == "cuda" else []),
    ]


def blas() -> Finding:
    """Return the BLAS library, which multiplies matrices."""
    unknown = "none that threadpoolctl recognises: products may be slow, and use any number of threads"
    return Finding("BLAS", blas_libraries() or unknown, if_ranks_differ=f"{SAME_EVERYWHERE}; {SAME_PROCESSOR}")


def kernels(device: Device, choice: KernelChoice) -> Finding:
    """Return how the kernels for the CPU were compiled, or why they were not compiled."""
    if choice == "reference":
        return Finding("kernels", 'not used (kernels is "reference")')
    found = library()
    if found.functions:
        compiled = f"{found.sha256[:10]}, compiled by {found.command}"
        return Finding("kernels", compiled, if_ranks_differ=SAME_KERNELS)
    return Finding(
        "kernels",
        "not compiled; NumPy computes instead, which takes up to three times as long",
        found.obstacle if device == "cpu" else None,
    )


def products(choice: KernelChoice) -> Finding:
    """Return the instruction sets of matrix products in C; in training, BLAS computes the float32 products."""
    sets = library().instruction_sets if choice != "reference" else {}
    found = ", ".join(f"{type_} {name or 'none'}" for type_, name in sets.items())
    return Finding("products", found or "of NumPy")


def cores(device: Device, rank: int, placements: list[Placement]) -> Finding:
    """Return the number of cores on which this process computes, and the number of cores that it may use."""
    mine, host = placements[rank].cores, placements[rank].host
    n_ranks = sum(placement.host == host for placement in placements)
    n_cores = len(frozenset[int]().union(*(placement.cores for placement in placements if placement.host == host)))
    found = (
        f"{cores_of(rank, placements)} of the {len(mine)} that this process may use; the machine has {os.cpu_count()}"
    )
    crowded = device == "cpu" and n_ranks > n_cores
    remedy = f"{n_ranks} processes on {host} share {n_cores} cores: start at most {n_cores} there"
    return Finding("cores", found, remedy if crowded else None)


def mpi(world: Communicator) -> Finding:
    """Return the library that sends messages."""
    if world.size > 1:
        return Finding("MPI", f"{world.library}, mpi4py {version('mpi4py')}", if_ranks_differ=SAME_EVERYWHERE)
    try:
        return Finding("MPI", f"mpi4py {version('mpi4py')}, not used: one process, alone")
    except PackageNotFoundError:
        return Finding("MPI", f"none: several processes need {INSTALL_MPI}")


def gpus(device: Device, placement: Placement) -> Finding:
    """Return the GPU of this rank, or why there is none; a missing GPU is a problem only if ``device`` is "cuda"."""
    try:
        n_gpus = count_gpus("cuda")
    except DeviceError as error:
        return Finding("GPU", f"none: {error.problem}", error.remedy if device == "cuda" else None)
    cupy = gpu_module("cuda")
    assert cupy is not None
    name = cupy.cuda.runtime.getDeviceProperties(placement.gpu or 0)["name"].decode()
    used = (
        f"number {placement.gpu} of {n_gpus}"
        if placement.gpu is not None
        else f'{n_gpus}, not used (device is not "cuda")'
    )
    return Finding("GPU", f"{used}; {name}, CuPy {cupy.__version__}")


def cuda_kernels(choice: KernelChoice, placement: Placement) -> Finding:
    """Return which CUDA kernels passed their check on this rank's GPU, and the faults of the other kernels."""
    if choice == "reference":
        return Finding("CUDA kernels", 'not used (kernels is "reference")')
    if placement.gpu is None:
        return Finding("CUDA kernels", "not checked: there is no GPU")
    try:
        results = check_results()
    except CheckError as error:
        return Finding("CUDA kernels", "not used; the references run instead, more slowly", str(error))
    right, warnings = f"right: {', '.join(results.right()) or 'none'}", results.warnings()
    lack = [f"in float32 and float16 only: {reason}"] if (reason := lack_of_bfloat16()) else []
    found = "\n".join([right, *lack, *(f"not used: {warning}" for warning in warnings)])
    return Finding("CUDA kernels", found, results.remedy if warnings else None)


def prepared_data(directory: Path, world: Communicator) -> Finding:
    """Return whether prepared data has its checksums; one rank of each machine reads all bytes, all must call this."""

    def compare() -> Finding:
        if not PreparedData.is_in(directory):
            return Finding("data", f"none prepared in {directory}")
        try:
            n_pairs = PreparedData.open(directory, anew=True).manifest["train_pairs"]
        except CorruptFileError as error:
            remedy = f"if its text is still there, remove {directory}: the next training prepares it"
            return Finding("data", str(error), remedy)
        except CheckpointError as error:
            return Finding("data", str(error), "look whether this user may read all its files")
        return Finding("data", f"{n_pairs:,} pairs in {directory}, all bytes as they were written")

    return call_on_rank_0(compare, world.node)


def shared_memory(n_ranks: int) -> Finding:
    """Return whether shared memory is large enough for ``n_ranks`` processes; if not, the MPI library would crash."""
    if not SHARED_MEMORY.exists():
        return Finding("shared memory", f"this system has no {SHARED_MEMORY}")
    if n_ranks == 1:
        return Finding("shared memory", "not needed by one process, alone")
    state = os.statvfs(SHARED_MEMORY)
    free, needed = state.f_bavail * state.f_frsize, n_ranks * BYTES_OF_RANK
    if free >= needed:
        return Finding(
            "shared memory", f"{SHARED_MEMORY} has the {needed / 1e6:.0f} MB that {n_ranks} processes may need"
        )
    found = f"{SHARED_MEMORY} has {free / 1e6:.0f} MB free, too little for {n_ranks} processes: MPI would crash"
    return Finding(
        "shared memory",
        found,
        f"give it {needed / 1e6:.0f} MB (docker run --shm-size); killed processes of MPICH leave files:"
        f" rm {SHARED_MEMORY}/mpich_shm_* when no MPI program runs",
    )


def precision(chosen: str, why_no_bfloat16: str | None) -> Finding:
    """Return the precision of matrix products, and why bfloat16 is slow or not available, if it is."""
    missing = "not bfloat16: " if chosen == "float32" else ""
    return Finding("precision", f"{chosen}{f'; {missing}{why_no_bfloat16}' if why_no_bfloat16 else ''}")


def memory(world: Communicator) -> Finding:
    """Return the free memory of this rank's machine."""
    free = describe_free_memory(world.local_size)
    return Finding("memory", f"free: {free}" if free else "not known")
