"""The choice between kernels and references, for the whole process."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from autograd.array import Device
from autograd.op import Kernels, with_kernels

KernelChoice: TypeAlias = Literal["compiled", "reference"]


def kernels_for(device: Device) -> dict[str, Kernels[Any]]:
    """Return the operations that have a kernel for arrays on ``device``, by name."""
    return {
        operation.name: operation
        for operation in with_kernels
        if any(kernel.device == device for kernel in operation.kernels)
    }


def choose_kernels(choice: KernelChoice) -> None:
    """Remove all kernels from this process if the choice is "reference"; they cannot be registered again."""
    if choice == "reference":
        for operation in with_kernels:
            operation.kernels.clear()
