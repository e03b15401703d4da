"""Numbers stored in bfloat16 and computed with in float32.

bfloat16 is the upper half of a float32: its range, and 8 bits of precision.  An operation need not know of it:
``Operation.choose`` hands arrays of it to kernels that take them, and all else to ``in_float32``.  Nothing relies on
promotion, in which NumPy and CuPy differ.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from autograd.array import Array, DeviceError
from autograd.tensor import Backward, Gradient, PendingGradient, written


def dtype_named(name: Any) -> np.dtype[Any]:
    """The dtype of this name; "bfloat16" is that of ``ml_dtypes``, which nobody needs who does not ask for it.

    Raises: DeviceError if it cannot be imported.
    """
    if name == "bfloat16":
        try:
            importlib.import_module("ml_dtypes")  # tells NumPy the name
        except ImportError as error:
            raise DeviceError(
                f'precision "bfloat16" needs ml_dtypes, which cannot be imported ({error})',
                'install it with pip install ml_dtypes, or use precision "float32"',
            ) from error
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def is_bfloat16(x: Any) -> bool:
    """Whether x is an array of bfloat16."""
    try:
        dtype = x.dtype
    except AttributeError:
        return False
    return bool(dtype.kind == "V" and dtype.name == "bfloat16")  # every operation asks: the name alone is slow to make


def widened(x: Any) -> Any:
    """The same numbers in float32, if x is an array of bfloat16; else x itself."""
    return x.astype(np.float32) if is_bfloat16(x) else x


def rounded(x: Array) -> Array:
    """x in bfloat16, to the nearest, ties to even."""
    return x.astype(dtype_named("bfloat16"))


class WideGradient(PendingGradient):
    """The gradient in float32 of an array in bfloat16: rounded, unless it is wanted in float32, as parameters' are."""

    def __init__(self, gradient: Gradient, like: Array) -> None:
        self.gradient, self.shape, self.like = gradient, gradient.shape, like

    def write_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        if isinstance(self.gradient, PendingGradient) and not is_bfloat16(out):
            self.gradient.write_to(out)
        else:
            out[...] = written(self.gradient).astype(out.dtype, copy=False)

    def add_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        if isinstance(self.gradient, PendingGradient) and not is_bfloat16(out):
            self.gradient.add_to(out)
        else:
            out += written(self.gradient).astype(out.dtype, copy=False)

    def finish(self) -> None:
        """See ``PendingGradient``."""
        if isinstance(self.gradient, PendingGradient):
            self.gradient.finish()


def as_gradient_of(x: Array, gradient: Gradient) -> Gradient:
    """A gradient computed in float32 as that of x: itself, unless x is an array of bfloat16."""
    return WideGradient(gradient, x) if is_bfloat16(x) else gradient


def in_float32(run: Callable[..., tuple[Array, Backward]], *arguments: Any, **static: Any) -> tuple[Array, Backward]:
    """What ``run`` gives of the arguments in float32, rounded; a number without axes, as a loss is, is left in float32.

    Saves: the arguments as they are.  The backward pass runs ``run`` a second time, because what its closure would keep
    is in float32.
    """

    def run_widened() -> tuple[Array, Backward]:
        return run(*map(widened, arguments), **static)

    def backward(dy: Array) -> list[Gradient | None]:
        gradients = run_widened()[1](widened(dy))
        return [None if dx is None else as_gradient_of(x, dx) for x, dx in zip(arguments, gradients, strict=True)]

    value = run_widened()[0]
    return rounded(value) if value.ndim else value, backward
