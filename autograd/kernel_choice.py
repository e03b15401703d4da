"""The choice between kernels and references, for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from autograd.array import Device
from autograd.op import Kernels, with_kernels

KernelChoice: TypeAlias = Literal["compiled", "reference"]

at_first_use: dict[Device, Callable[[], None]] = {}
"""For each device whose kernels are not registered on import, the function that registers them."""

_lock = threading.Lock()


def register_kernels(device: Device) -> None:
    """Register the kernels of a device, if this process uses it for the first time."""
    with _lock:
        register = at_first_use.pop(device, None)
        if register is not None:
            register()


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
        at_first_use.clear()
        for operation in with_kernels:
            operation.kernels.clear()
