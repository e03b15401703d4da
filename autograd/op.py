"""Differentiable operations, and the choice between their reference and its faster kernels.

An operation is a function of arrays that returns ``(y, backward)``; ``backward(dy)`` returns one gradient per
positional argument (None for one that has none).  Keyword arguments are static.  ``@op`` makes it callable with
tensors.  A kernel is another function of the same signature, registered from outside with ``@operation.kernel(...)``.
Which of them runs, and on numbers stored how, is decided in ``choose`` and nowhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from autograd.array import Array, Device, device_of
from autograd.precision import in_float32, is_bfloat16
from autograd.tensor import Backward, Node, Tensor, is_recording

Implementation = TypeVar("Implementation", bound=Callable[..., Any])


class ShapeError(ValueError):
    """Arguments of an operation do not fit together."""


class _Kernel(NamedTuple, Generic[Implementation]):
    run: Implementation
    device: Device
    supports: Callable[..., bool]
    takes_bfloat16: bool


class Dispatch(Generic[Implementation]):
    """A readable reference, which defines what is right, and its faster kernels, which must agree with it."""

    def __init__(self, reference: Implementation) -> None:
        self.reference = reference
        self.kernels: list[_Kernel[Implementation]] = []
        functools.update_wrapper(self, reference)

    def kernel(
        self,
        device: Device,
        *,
        supports: Callable[..., bool] = lambda *arguments, **static: True,
        takes_bfloat16: bool = False,
    ) -> Callable[[Implementation], Implementation]:
        """Register a kernel for arrays on ``device`` for which ``supports(*arguments, **static)`` is true.

        The kernel registered last is asked first; of bfloat16 arrays only those that say that they take them.
        """

        def register(implementation: Implementation) -> Implementation:
            self.kernels.insert(0, _Kernel(implementation, device, supports, takes_bfloat16))
            return implementation

        return register

    def choose(self, arguments: tuple[Any, ...], static: dict[str, Any]) -> Implementation:
        """The implementation that runs these arguments: the first kernel that supports them, else the reference."""
        return self._first_that_supports(self.kernels, arguments, static) or self.reference

    @staticmethod
    def _first_that_supports(
        kernels: list[_Kernel[Implementation]], arguments: tuple[Any, ...], static: dict[str, Any]
    ) -> Implementation | None:
        if kernels:
            devices = {device_of(x) for x in arguments if x is not None}
            device = "cuda" if "cuda" in devices else "cpu"
            for kernel in kernels:
                if kernel.device == device and kernel.supports(*arguments, **static):
                    return kernel.run
        return None

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        return self.choose(arguments, static)(*arguments, **static)


class Operation(Dispatch[Callable[..., tuple[Array, Backward]]]):
    """A differentiable operation on tensors: runs forward, and records its backward on the tape.

    One that ``moves`` elements and computes nothing with them runs on numbers stored in any type.
    """

    def __init__(self, reference: Callable[..., tuple[Array, Backward]], *, moves: bool = False) -> None:
        super().__init__(reference)
        self.moves = moves

    def choose(self, arguments: tuple[Any, ...], static: dict[str, Any]) -> Callable[..., tuple[Array, Backward]]:
        """As ``Dispatch.choose``; bfloat16 arrays that no kernel takes become float32 and are rounded afterwards."""
        if self.moves or not any(map(is_bfloat16, arguments)):
            return super().choose(arguments, static)
        kernels = [kernel for kernel in self.kernels if kernel.takes_bfloat16]
        run = self._first_that_supports(kernels, arguments, static)
        return run or functools.partial(in_float32, self.of_arrays)

    def of_arrays(self, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        """``(y, backward)`` of arrays, by whatever implementation suits them."""
        return self.choose(arguments, static)(*arguments, **static)

    def __call__(self, *inputs: Any, **static: Any) -> Tensor:
        value, backward = self.of_arrays(*(x.value if isinstance(x, Tensor) else x for x in inputs), **static)
        if not is_recording():
            return Tensor(value)
        return Tensor(value, Node(self.__name__, tuple(_origin(x) for x in inputs), backward))

    __name__: str


def _origin(x: Any) -> Node | Tensor | None:
    return x.origin if isinstance(x, Tensor) else None


operations: dict[str, Operation] = {}


def op(reference: Callable[..., tuple[Array, Backward]], *, moves: bool = False) -> Operation:
    """Make an operation of a function of arrays that returns ``(y, backward)``, and list it in ``operations``."""
    operation = Operation(reference, moves=moves)
    operations[operation.__name__] = operation
    return operation


def unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum ``gradient`` over the axes along which an argument of ``shape`` was broadcast: broadcasting's backward."""
    if tuple(gradient.shape) == shape:
        return gradient
    added = gradient.ndim - len(shape)
    stretched = tuple(
        axis for axis in range(added, gradient.ndim) if shape[axis - added] == 1 and gradient.shape[axis] != 1
    )
    return gradient.sum(tuple(range(added)) + stretched).reshape(shape)
