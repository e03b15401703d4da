"""The kernels of operations, and the choice between them and the references.

A kernel is registered with ``@operation.kernel(...)``, on import or by the function given to ``at_first_use``.  Within
``references_only`` no kernel runs, but all stay registered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from autograd.array import Device, device_of

KernelChoice: TypeAlias = Literal["compiled", "reference"]
Implementation = TypeVar("Implementation", bound=Callable[..., Any])

_references_only: ContextVar[bool] = ContextVar("references_only", default=False)


@contextmanager
def references_only(*, when: bool = True) -> Iterator[None]:
    """Run the references of all operations, and no kernel, in this context; with ``when`` false, change nothing.

    A thread that is started in this context runs references, too, if it runs in a copy of the context
    (``contextvars.copy_context``).  Other threads are not affected.
    """
    token = _references_only.set(when or _references_only.get())
    try:
        yield
    finally:
        _references_only.reset(token)


class _Kernel(NamedTuple, Generic[Implementation]):
    run: Implementation
    device: Device
    supports: Callable[..., bool]
    takes_16_bits: bool
    wrong_in: frozenset[str] = frozenset()


class Kernels(Generic[Implementation]):
    """The kernels of the operation ``name``, in reverse order of registration."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[_Kernel[Implementation]] = []

    def kernel(
        self,
        device: Device,
        *,
        supports: Callable[..., bool] = lambda *arguments, **static: True,
        takes_16_bits: bool = False,
    ) -> Callable[[Implementation], Implementation]:
        """Register a kernel for arrays on ``device`` for which ``supports(*arguments, **static)`` is true.

        The kernel registered last is tried first.  Operations pass arrays of bfloat16 and float16 only to
        kernels with ``takes_16_bits``.
        """

        def register(implementation: Implementation) -> Implementation:
            self.kernels.insert(0, _Kernel(implementation, device, supports, takes_16_bits))
            if self not in _with_kernels:
                _with_kernels.append(self)
            return implementation

        return register

    def may_run(self, device: Device, *dtypes: str) -> bool:
        """Return whether ``device`` has kernels, which may run in this context, and none is wrong in ``dtypes``."""
        kernels = [kernel for kernel in self.kernels if kernel.device == device and not _references_only.get()]
        return bool(kernels) and all(kernel.wrong_in.isdisjoint(dtypes) for kernel in kernels)

    def remove_kernels(self, device: Device, *dtypes: str) -> None:
        """Remove the kernels for arrays on ``device`` from this process, for example because they are wrong.

        With ``dtypes``, remove them only from calls whose first argument has one of these dtypes.
        """
        self.kernels[:] = [
            kernel if kernel.device != device else kernel._replace(wrong_in=kernel.wrong_in.union(dtypes))
            for kernel in self.kernels
            if kernel.device != device or dtypes
        ]

    def first_that_supports(
        self, arguments: tuple[Any, ...], static: dict[str, Any], *, takes_16_bits: bool = False
    ) -> Implementation | None:
        """Return the first kernel for these arguments; None if there is none, or within ``references_only``.

        With ``takes_16_bits`` only kernels that take arrays of 16 bits are tried.
        """
        if self.kernels and not _references_only.get():
            device = "cuda" if any(device_of(x) == "cuda" for x in arguments if x is not None) else "cpu"
            for kernel in self.kernels:
                fits = kernel.device == device and (kernel.takes_16_bits or not takes_16_bits)
                is_wrong = kernel.wrong_in and str(arguments[0].dtype) in kernel.wrong_in
                if fits and not is_wrong and kernel.supports(*arguments, **static):
                    return kernel.run
        return None


_with_kernels: list[Kernels[Any]] = []  # every operation for which a kernel has been registered
_at_first_use: dict[Device, Callable[[], None]] = {}
_lock = threading.Lock()


def at_first_use(device: Device, register: Callable[[], None]) -> None:
    """Let ``register`` register the kernels of a device when ``register_kernels`` is first called for it.

    ``register`` replaces the function of an earlier call for this device.
    """
    _at_first_use[device] = register


def register_kernels(device: Device) -> None:
    """Register the kernels of a device at its first use, unless only references run in this context."""
    if _references_only.get():
        return
    with _lock:
        register = _at_first_use.pop(device, None)
        if register is not None:
            try:
                register()
            except BaseException:
                at_first_use(device, register)  # else the next call would silently run references
                raise


def kernels_for(device: Device) -> dict[str, Kernels[Any]]:
    """Return the operations that have a kernel for arrays on ``device``, by name, also within ``references_only``."""
    return {
        operation.name: operation
        for operation in _with_kernels
        if any(kernel.device == device for kernel in operation.kernels)
    }
