"""The check of the CUDA kernels: forward and backward, against the references in float64 on the CPU.

``python -m autograd.kernels.cuda.check GPU [KERNEL …]`` checks all kernels but those that are named, and reports on
stdout as JSON lists: a name before each kernel; after it the name, the fault or null, and the errors by dtype.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autograd.array import Array, namespace, namespace_of_device, to_device, to_host, use_gpu
from autograd.blas import product
from autograd.kernel_registry import Kernels, kernels_for
from autograd.kernels.cuda import register_all
from autograd.kernels.cuda.cases import CASES, FULL, Case, CaseSizes, Draw
from autograd.ops.linear import linear, linear_relu
from autograd.optim import adam_update
from autograd.precision import rounded, upcast
from autograd.side_work import wait_for_side_work
from autograd.tensor import gradient_array

TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}  # of the Euclidean norm
GUARD = 512  # bytes before and behind an array


class WrongResultError(RuntimeError):
    """An error: a kernel computes a wrong result, or writes outside its arrays."""


class GuardedMemory:
    """An allocator of CuPy arrays between guards; every byte is 0xFF: NaN as a floating-point number."""

    def __init__(self) -> None:
        self._pool = namespace_of_device("cuda").cuda.MemoryPool()
        self._allocated: list[tuple[Any, int]] = []

    def allocate(self, size: int) -> Any:
        """Allocate memory; ``cupy.cuda.set_allocator`` takes this method."""
        memory = self._pool.malloc(size + 2 * GUARD)
        memory.memset_async(0xFF, size + 2 * GUARD, namespace_of_device("cuda").cuda.get_current_stream())
        self._allocated.append((memory, size))
        return memory + GUARD

    def check(self) -> None:
        """Compare the guards of all memory since the last check.  Raises: WrongResultError if one has changed."""
        allocated, self._allocated = self._allocated, []
        guard = np.empty(GUARD, np.uint8)
        for memory, size in allocated:
            for start, where in ((0, "before"), (GUARD + size, "behind")):
                (memory + start).copy_to_host(guard.ctypes.data, GUARD)
                if (guard != 0xFF).any():
                    raise WrongResultError(f"it writes {where} an array of {size} bytes")


def relative_error(name: str, case: Case) -> float:
    """Return the largest relative error of a kernel's results and gradients.  Raises: what the kernel raises."""
    (arguments, static), operation = case, kernels_for("cuda")[name]
    run, reference = functools.partial(_run, operation), REFERENCES.get(name) or getattr(operation, "reference", None)
    assert reference is not None
    adapted = functools.partial(ADAPTERS[name], run) if name in ADAPTERS else run
    results, backward = _split(adapted(*map(_on_device, arguments), **static))
    expected, exact_backward = _split(reference(*map(_exact, arguments), **static))
    pairs = list(zip(results, expected, strict=True))
    if backward is not None and exact_backward is not None:
        dy = np.asarray(np.random.default_rng(2).standard_normal(results[0].shape), np.float32)
        dy = rounded(dy) if str(results[0].dtype) == "bfloat16" else dy
        gradients = zip(backward(_on_device(dy)), exact_backward(_exact(dy)), strict=True)
        pairs += [(gradient_array(got), gradient_array(exact)) for got, exact in gradients if exact is not None]
    return max(itertools.starmap(_difference, pairs))


def _run(operation: Kernels[Any], *arguments: Any, **static: Any) -> Any:
    for kernel in operation.kernels:
        if kernel.device == "cuda" and kernel.supports(*arguments, **static):
            return kernel.run(*arguments, **static)
    raise WrongResultError("it does not support these arguments")


def _split(result: Any) -> tuple[list[Any], Callable[[Any], Any] | None]:
    """Return the values, and the backward of (y, backward); None if there is none."""
    if isinstance(result, tuple):
        return ([result[0]], result[1]) if callable(result[-1]) else (list(result), None)
    return [result], None


def _on_device(x: Any) -> Any:
    return None if x is None else to_device(x, "cuda")


def _exact(x: Any) -> Any:
    """Return numbers in float64; integers and None as they are."""
    return x if x is None or x.dtype.kind == "i" else upcast(x).astype(np.float64)


def _difference(got: Array, exact: Array) -> float:
    """Return ‖got − exact‖ / ‖exact‖; integers must be equal.  Raises: WrongResultError if a number is not finite."""
    computed, expected = upcast(to_host(got)), np.asarray(exact)
    if computed.shape != expected.shape:
        raise WrongResultError(f"a result has shape {computed.shape}; expected {expected.shape}")
    if expected.dtype.kind in "iu":
        return float((computed != expected).any())
    if not np.isfinite(computed).all():
        raise WrongResultError("an element of a result is not finite, or not written")
    return float(np.linalg.norm(computed - expected.astype(np.float64)) / max(float(np.linalg.norm(expected)), 1e-30))


# What joint kernels, and kernels that work in place, are to the check: functions that return y or (y, backward).


def _linear_maps(run: Callable[..., Any], x: Array, weights: Array, biases: Array) -> Any:
    """Call with weights that form a stack, in another order than in memory; their gradients form one, too."""
    order, xp = (2, 0, 1), namespace(x)
    ys, backward = run(x, *(argument for i in order for argument in (weights[i], biases[i])))

    def stacked(dys: Array) -> list[Any]:
        gradients, dweights = backward([dys[i] for i in order]), xp.empty(weights.shape, np.float32)
        for i, dweight in zip(order, gradients[1::2], strict=True):
            dweight.into(dweights[i], False)
        wait_for_side_work()
        return [gradients[0], dweights, xp.stack([gradients[2 + 2 * order.index(i)] for i in range(3)])]

    return xp.stack([ys[order.index(i)] for i in range(3)]), stacked


def _exact_maps(x: Array, weights: Array, biases: Array) -> Any:
    y = product(x, weights) + biases[:, None]
    return y, lambda dys: [product(dys, weights.swapaxes(1, 2)).sum(0), product(x.T, dys), dys.sum(1)]


def _feed_forward(run: Callable[..., Any], *arguments: Array) -> Any:
    (y,), backward = run(*arguments)
    return y, lambda dy: backward([dy])


def _exact_network(x: Array, weight1: Array, bias1: Array, weight2: Array, bias2: Array) -> Any:
    hidden, relu_backward = linear_relu.reference(x, weight1, bias1)
    y, output_backward = linear.reference(hidden, weight2, bias2)

    def backward(dy: Array) -> list[Any]:
        dhidden, *gradients = output_backward(dy)
        return [*relu_backward(gradient_array(dhidden)), *gradients]

    return y, backward


def _adam(run: Callable[..., Any], *arguments: Array, **static: Any) -> Any:
    """Return the buffers, and where the low-precision weights are not the rounded values."""
    run(*arguments, **static)
    values, gradients, m, v, low_precision = map(to_host, arguments[:5])
    return values, gradients, m, v, (rounded(values) != low_precision).astype(np.int64)


def _exact_adam(*arguments: Array, **static: Any) -> Any:
    adam_update.reference(*arguments, **static)
    return *arguments[:4], np.zeros(len(arguments[0]), np.int64)


ADAPTERS: dict[str, Callable[..., Any]] = {
    "adam_update": _adam,
    "feed_forward": _feed_forward,
    "linear_maps": _linear_maps,
    "sum_squares": lambda run, gradients: to_host(run(gradients)).sum(),
}
REFERENCES: dict[str, Callable[..., Any]] = {
    "adam_update": _exact_adam,
    "feed_forward": _exact_network,
    "linear_maps": _exact_maps,
    "sum_squares": lambda gradients: (gradients * gradients).sum(),
}


def largest_errors(name: str, sizes: CaseSizes, memory: GuardedMemory) -> dict[str, float]:
    """Return a kernel's largest relative error by dtype.  Raises: WrongResultError if one is too large."""
    errors = dict[str, float]()
    dtypes, cases = CASES[name]
    for dtype in dtypes:
        for case in cases(Draw(dtype), sizes):
            error = relative_error(name, case)
            memory.check()
            if error > TOLERANCE[dtype]:
                shapes = ", ".join(" × ".join(map(str, x.shape)) for x in case[0] if x is not None)
                raise WrongResultError(f"relative error {error:.2g} in {dtype}, arguments {shapes}")
            errors[dtype] = max(error, errors.get(dtype, 0.0))
    return errors


def main(arguments: Sequence[str], sizes: CaseSizes = FULL) -> None:
    """Check the kernels that the arguments do not name, and report on stdout."""
    gpu, *done = arguments
    use_gpu(int(gpu))
    register_all()
    cuda, memory = namespace_of_device("cuda").cuda, GuardedMemory()
    cuda.set_allocator(memory.allocate)
    for name in sorted(kernels_for("cuda").keys() - set(done)):
        print(json.dumps([name]), flush=True)
        try:
            errors, fault = largest_errors(name, sizes, memory), None
        except MemoryError:  # of the host or of CuPy: other programs may need the memory now, so the child ends
            raise
        except Exception as error:  # of any library: the next kernel may be right
            errors, fault = {}, " ".join(f"{type(error).__name__}: {error}".split())[:500]
        print(json.dumps([name, fault, errors]), flush=True)
        if fault:
            cuda.get_current_stream().synchronize()  # raises if the fault has made CUDA unusable


if __name__ == "__main__":
    main(sys.argv[1:])
