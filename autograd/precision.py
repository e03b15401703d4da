"""Numbers stored in 16 bits and computed with in float32, and products that round float32 to TF32.

bfloat16 is the upper half of a float32: the same range, with 8 bits of precision.  float16 has 11 bits, and ends at
65,504.  Operations do not handle them themselves: ``Operation.choose`` passes arrays of 16 bits to kernels that take
them, else to ``in_float32``.  Nothing relies on type promotion, in which NumPy and CuPy differ.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from autograd.array import Array, DeviceError, namespace_of_device
from autograd.tensor import Backward, Gradient, PendingGradient, gradient_array, put

LEAST_CAPABILITY = 80  # compute capability 8.0: the first that multiplies matrices of bfloat16 and TF32
_rounds_to_tf32: ContextVar[bool] = ContextVar("rounds_to_tf32", default=False)


@contextmanager
def tf32_products(when: bool) -> Iterator[None]:
    """Let the products of a GPU round factors of float32 to TF32 in this context if ``when`` is true, else do not.

    TF32 is float32 with 11 bits of precision instead of 24.  Tensor cores multiply it, and add in float32.  A CPU and
    the references ignore this context.
    """
    token = _rounds_to_tf32.set(when)
    try:
        yield
    finally:
        _rounds_to_tf32.reset(token)


def rounds_to_tf32() -> bool:
    """Return whether products may round factors of float32 to TF32; see ``tf32_products``."""
    return _rounds_to_tf32.get()


def lack_of_bfloat16() -> str | None:
    """Return why kernels in bfloat16 cannot run on the current GPU; None if they can, and products in TF32, too."""
    capability = str(namespace_of_device("cuda").cuda.Device().compute_capability)
    if int(capability) >= LEAST_CAPABILITY:
        return None
    return f"the GPU has compute capability {capability[:-1]}.{capability[-1]}, and bfloat16 needs 8.0"


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


def is_16_bit(x: Any) -> bool:
    """Return whether x is an array of bfloat16 or float16."""
    try:
        dtype = x.dtype
    except AttributeError:
        return False
    return bool(dtype.itemsize == 2 and (dtype.kind == "f" or dtype.name == "bfloat16"))


def upcast(x: Any) -> Any:
    """Return x in float32 if it is an array of bfloat16 or float16, else x itself."""
    return x.astype(np.float32) if is_16_bit(x) else x


def rounded(x: Array, dtype: Any = "bfloat16") -> Array:
    """Return x rounded to bfloat16 or float16, to nearest, ties to even."""
    return x.astype(dtype_named(dtype))


def as_gradient_of(x: Array, gradient: Gradient) -> Gradient:
    """Return ``gradient``, which is float32, as the gradient of x.

    If x has 16 bits, the gradient is rounded to its dtype, unless its destination is float32, as for a parameter.
    """
    if not is_16_bit(x):
        return gradient

    def into(out: Array, add: bool) -> None:
        if isinstance(gradient, PendingGradient) and not is_16_bit(out):
            gradient.into(out, add)
        else:
            put(gradient_array(gradient).astype(out.dtype, copy=False), out, add)

    is_deferred = isinstance(gradient, PendingGradient) and gradient.is_deferred
    return PendingGradient(gradient.shape, x, into, is_deferred=is_deferred)


def in_float32(
    choose: Callable[[tuple[Any, ...], dict[str, Any]], Callable[..., tuple[Array, Backward]]],
    *arguments: Any,
    **static: Any,
) -> tuple[Array, Backward]:
    """Convert the arguments to float32, run the implementation that ``choose`` returns, and round the result.

    A scalar, such as a loss, stays float32.
    Saves: the arguments of 16 bits.  The backward pass repeats the computation, because the closure of the forward
        pass would keep float32 arrays.
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
    dtype = next(x.dtype for x in arguments if is_16_bit(x))
    return rounded(value, dtype) if np.ndim(value) else value, backward
