"""Numbers stored in bfloat16 and computed with in float32.

bfloat16 is the upper half of a float32: the same range, with 8 bits of precision.  Operations do not handle it
themselves: ``Operation.choose`` passes bfloat16 arrays to kernels that take them, else to ``in_float32``.  Nothing
relies on type promotion, in which NumPy and CuPy differ.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autograd.array import Array, DeviceError
from autograd.tensor import Backward, Gradient, PendingGradient, gradient_array


def dtype_named(name: Any) -> np.dtype[Any]:
    """Return the dtype of this name.

    For "bfloat16" this imports ``ml_dtypes``, which defines the dtype.

    Raises: DeviceError if ``ml_dtypes`` cannot be imported.
    """
    if name == "bfloat16":
        try:
            importlib.import_module("ml_dtypes")  # registers the name with NumPy
        except ImportError as error:
            raise DeviceError(
                f'precision "bfloat16" needs ml_dtypes, which cannot be imported ({error})',
                'install it with pip install ml_dtypes, or use precision "float32"',
            ) from error
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def is_bfloat16(x: Any) -> bool:
    """Return whether x is an array of bfloat16."""
    try:
        dtype = x.dtype
    except AttributeError:
        return False
    # The kind first: every operation calls this, and NumPy is slow to make the name.
    return bool(dtype.kind == "V" and dtype.name == "bfloat16")


def upcast(x: Any) -> Any:
    """Return x in float32 if it is an array of bfloat16, else x itself."""
    return x.astype(np.float32) if is_bfloat16(x) else x


def rounded(x: Array) -> Array:
    """Return x rounded to bfloat16, to nearest, ties to even."""
    return x.astype(dtype_named("bfloat16"))


class WideGradient(PendingGradient):
    """The float32 gradient of a bfloat16 array; it is rounded unless its destination is float32.

    (The gradients of parameters are float32.)
    """

    def __init__(self, gradient: Gradient, like: Array) -> None:
        self.gradient, self.shape, self.like = gradient, gradient.shape, like

    def write_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        if isinstance(self.gradient, PendingGradient) and not is_bfloat16(out):
            self.gradient.write_to(out)
        else:
            out[...] = gradient_array(self.gradient).astype(out.dtype, copy=False)

    def add_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        if isinstance(self.gradient, PendingGradient) and not is_bfloat16(out):
            self.gradient.add_to(out)
        else:
            out += gradient_array(self.gradient).astype(out.dtype, copy=False)

    def finish(self) -> None:
        """Implement ``PendingGradient``."""
        if isinstance(self.gradient, PendingGradient):
            self.gradient.finish()


def as_gradient_of(x: Array, gradient: Gradient) -> Gradient:
    """Return a float32 gradient as the gradient of x: wrapped if x is bfloat16, else itself."""
    return WideGradient(gradient, x) if is_bfloat16(x) else gradient


def in_float32(
    choose: Callable[[tuple[Any, ...], dict[str, Any]], Callable[..., tuple[Array, Backward]]],
    *arguments: Any,
    **static: Any,
) -> tuple[Array, Backward]:
    """Convert the arguments to float32, run the implementation that ``choose`` returns, and round the result.

    A scalar, such as a loss, stays float32.
    Saves: the bfloat16 arguments.  The backward pass repeats the computation, because the closure of the first one
        would keep float32 arrays.
    """

    def run_upcast() -> tuple[Array, Backward]:
        wide = tuple(map(upcast, arguments))
        return choose(wide, static)(*wide, **static)

    def backward(dy: Array) -> Sequence[Gradient | None]:
        gradients = run_upcast()[1](upcast(dy))
        if not (isinstance(gradients, (tuple, list)) and len(gradients) == len(arguments)):
            return gradients  # which the backward pass refuses
        return [None if dx is None else as_gradient_of(x, dx) for x, dx in zip(arguments, gradients, strict=True)]

    value = run_upcast()[0]
    return rounded(value) if value.ndim else value, backward
