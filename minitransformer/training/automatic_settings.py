"""The automatic settings of a training: their values are those of the run's first start, or fit device and ranks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from autograd.array import Device, DeviceError
from autograd.kernel_registry import KernelChoice, register_kernels
from autograd.kernels.cpu.library import bfloat16_set
from autograd.ops import linear
from autograd.precision import dtype_named, lack_of_bfloat16
from minitransformer.config import RunConfig
from minitransformer.config.run import initial_settings, kept_settings, resolved, with_values
from minitransformer.data.store import MANIFEST
from minitransformer.system.files import CorruptFileError
from minitransformer.system.records import as_object, read_object
from parallel.communicator import Communicator


def resolve(config: RunConfig, world: Communicator) -> tuple[RunConfig, str | None]:
    """Replace the automatic settings of training; all ranks must call this, each after it has chosen its GPU.

    Rank 0 reads the settings with which the run began.  bfloat16 is chosen only if every rank computes faster in it.
    Also return the first rank's reason against bfloat16; None if there is none.
    Raises: ConfigError if the file of the run has an invalid value.
    """
    initial = with_values(config, world.bcast(_initial_values(config) if world.rank == 0 else {}))
    obstacle = next(filter(None, world.allgather(why_no_bfloat16(config.device, config.kernels))), None)
    return resolved(initial, world.size, obstacle), obstacle


def _initial_values(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the values with which the run began, or its data was prepared; see ``initial_settings``."""
    values, manifest = initial_settings(config.run), dict[str, Any]()
    with suppress(CorruptFileError):  # ``PreparedData.open`` reports a corrupt file
        manifest = read_object(config.data_directory / MANIFEST)
    return values | {"data": values.get("data", {}) | kept_settings("data", as_object(manifest.get("config")))}


def why_no_bfloat16(device: Device, kernels: KernelChoice) -> str | None:
    """Return why bfloat16 is unavailable or not faster than float32 on the current device; None if it is faster.

    On a GPU, register its kernels.
    """
    if kernels == "reference":
        return 'the references compute in float32 (kernels is "reference")'
    if device == "cpu":  # bfloat16 was measured as faster only with these instructions
        return None if bfloat16_set() in ("AVX-512 BF16", "AMX") else "it was not seen to be faster here than float32"
    try:
        dtype_named("bfloat16")
    except DeviceError as error:
        return f"{error.problem}; {error.remedy}"
    if lack := lack_of_bfloat16():
        return lack
    register_kernels(device)
    return None if linear.may_run(device, "bfloat16") else "no kernel of products in bfloat16 has passed its check"
