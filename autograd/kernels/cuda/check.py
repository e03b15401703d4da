"""The check of the CUDA kernels: forward and backward, against the references in float64 on the CPU.

``python -m autograd.kernels.cuda.check GPU [KERNEL …]`` checks all kernels but those that are named, and reports on
stdout: a JSON list of a name before each kernel, of the name and the fault after it, and an empty list at the end.
``autograd.kernels.cuda.checked`` starts it, and reads the reports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from autograd.array import Array, namespace_of_device, to_device, to_host, use_gpu
from autograd.kernel_registry import kernels_for
from autograd.kernels.cuda import register_all
from autograd.kernels.cuda.cases import CASES, FULL, STREAM_ID, Case, CaseSizes, Draw
from autograd.op import operations
from autograd.ops.linear import linear, linear_relu
from autograd.ops.top_k import top
from autograd.optim import adam_update, clip, sum_squares
from autograd.precision import rounded, upcast
from autograd.random import random_words
from autograd.tensor import written

TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}  # of the Euclidean norm
GUARD = 512  # bytes before and behind an array
ADAM = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}

Errors: TypeAlias = Iterator[tuple[str, float]]  # the name of a case, and its greatest relative error


class WrongResultError(RuntimeError):
    """An error: a kernel computes a wrong result, or writes outside its arrays."""


class GuardedMemory:
    """An allocator of CuPy arrays between guards.

    Every byte is 0xFF: NaN as a floating-point number, −1 as an integer.
    """

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


def fault_of(name: str, sizes: CaseSizes, memory: GuardedMemory) -> str:
    """Return what is wrong with a kernel; "" if nothing is."""
    try:
        for dtype in TOLERANCE:
            worst_case(name, dtype, sizes, memory)
    except Exception as error:  # of any library: the next kernel may be right
        return " ".join(f"{type(error).__name__}: {error}".split())[:500]
    return ""


def worst_case(name: str, dtype: str, sizes: CaseSizes, memory: GuardedMemory) -> tuple[float, str]:
    """Return the greatest relative error of a kernel, and the name of its case; (0, "") if it has none of this dtype.

    Raises: WrongResultError if an error is too great; what the kernel raises.
    """
    errors = CHECKS.get(name, _errors_of_operation)
    worst = 0.0, ""
    for case, error in errors(name, Draw(dtype), sizes):
        memory.check()
        if error > TOLERANCE[dtype]:
            raise WrongResultError(f"relative error {error:.2g} in {dtype}, {case}")
        worst = max(worst, (error, case))
    return worst


def _errors_of_operation(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    for case in CASES[name](draw, sizes):
        yield case.name, _error_of(name, case)


def _error_of(name: str, case: Case) -> float:
    """Return the greatest relative error of the value and the gradients."""
    value, backward = _run(name, *map(_on_device, case.arguments), **case.static)
    expected, exact_backward = operations[name].reference(*map(_exact, case.arguments), **case.static)
    dy = _direction(value)
    gradients, exact_gradients = backward(_on_device(dy)), exact_backward(_exact(dy))
    pairs = zip(gradients, exact_gradients, strict=True)
    return max(
        _relative_error(value, expected),
        *(_relative_error(written(got), written(exact)) for got, exact in pairs if exact is not None),
    )


def _run(name: str, *arguments: Any, **static: Any) -> Any:
    """Run the kernel of an operation.  Raises: WrongResultError if it does not support the arguments."""
    for kernel in kernels_for("cuda")[name].kernels:
        if kernel.device == "cuda" and kernel.supports(*arguments, **static):
            return kernel.run(*arguments, **static)
    shapes = ", ".join(f"{x.dtype} {x.shape}" for x in arguments if x is not None)
    raise WrongResultError(f"it does not support {shapes}")


def _on_device(x: Any) -> Any:
    return None if x is None else to_device(x, "cuda")


def _exact(x: Any) -> Any:
    """Return numbers in float64; integers and None as they are."""
    return x if x is None or x.dtype.kind == "i" else upcast(x).astype(np.float64)


def _direction(value: Array) -> Array:
    """Return a random gradient of a value, in its dtype."""
    direction = np.asarray(np.random.default_rng(2).standard_normal(value.shape), np.float32)
    return rounded(direction) if str(value.dtype) == "bfloat16" else direction


def _relative_error(got: Array, exact: Array) -> float:
    """Return ‖got − exact‖ / ‖exact‖.

    Raises: WrongResultError if the shapes differ, or if an element is not finite.
    """
    computed, expected = upcast(to_host(got)).astype(np.float64), np.asarray(exact, np.float64)
    if computed.shape != expected.shape:
        raise WrongResultError(f"a result has shape {computed.shape}; expected {expected.shape}")
    if not np.isfinite(computed).all():
        raise WrongResultError("an element of a result is not finite, or not written")
    return float(np.linalg.norm(computed - expected) / max(float(np.linalg.norm(expected)), 1e-30))


def _errors_of_linear_maps(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    """Check weights that form a stack, in another order than in memory; all gradients form one, too."""
    for n in sizes.lengths:
        x, weights, biases = draw(n, 64), draw(3, 64, 128), draw.float32(3, 128)
        order, on_device = (2, 0, 1), _on_device(weights)
        maps = [argument for i in order for argument in (on_device[i], _on_device(biases[i]))]
        ys, backward = _run(name, _on_device(x), *maps)
        exact = [linear.reference(_exact(x), _exact(weights[i]), _exact(biases[i])) for i in order]
        dys = _direction(np.empty((3, n, 128), weights.dtype))
        dys_on_device = _on_device(dys)
        gradients = backward([dys_on_device[i] for i in order])
        exact_gradients = [run(_exact(dys[i])) for i, (_, run) in zip(order, exact, strict=True)]
        dweights = namespace_of_device("cuda").empty(weights.shape, np.float32)
        for i, dweight in zip(order, gradients[1::2], strict=True):
            dweight.write_to(dweights[i])
        for dweight in gradients[1::2]:
            dweight.finish()
        yield (
            f"3 maps of {n} × 64 × 128",
            max(
                *(_relative_error(y, expected) for y, (expected, _) in zip(ys, exact, strict=True)),
                _relative_error(written(gradients[0]), sum(of_one[0] for of_one in exact_gradients)),
                *(_relative_error(dweights[i], e[1]) for i, e in zip(order, exact_gradients, strict=True)),
                *(_relative_error(db, e[2]) for db, e in zip(gradients[2::2], exact_gradients, strict=True)),
            ),
        )


def _errors_of_feed_forward(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    """Check the kernel, which exists for bfloat16 only.  ReLU is applied to n + ½: rounding does not change a sign."""
    shapes = [*((n, 64, 128) for n in sizes.lengths), (sizes.wave // 64 + 1, 64, 2_048)]
    for n, width, inner in shapes if draw.dtype == "bfloat16" else ():
        first = draw.whole(n, width), draw.whole(width, inner), draw.whole(inner).astype(np.float32) + np.float32(0.5)
        second = draw(inner, width), draw.float32(width)
        (y,), backward = _run(name, *map(_on_device, (*first, *second)))
        hidden, of_relu = linear_relu.reference(*map(_exact, first))
        exact_y, of_output = linear.reference(hidden, *map(_exact, second))
        dy = _direction(y)
        dhidden, *of_second = of_output(_exact(dy))
        exact = [exact_y, *of_relu(dhidden), *of_second]
        pairs = zip([y, *backward([_on_device(dy)])], exact, strict=True)
        yield f"{n} × {width} × {inner}", max(_relative_error(written(got), of_one) for got, of_one in pairs)


def _errors_of_random_words(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    for count in (*sizes.lengths, 4 * sizes.wave + 1) if draw.dtype == "float32" else ():
        like = namespace_of_device("cuda").empty(0)
        words = to_host(_run(name, like, stream_id=STREAM_ID, count=count))
        expected = random_words.reference(np.empty(0), stream_id=STREAM_ID, count=count)
        yield f"{count} words", float((words != expected).any())


def _errors_of_sum_squares(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    for n in _lengths_of_buffers(draw, sizes):
        gradients = draw(n)
        squares = to_host(_run(name, _on_device(gradients)))
        yield f"{n} elements", _relative_error(squares.sum(), sum_squares.reference(_exact(gradients)).sum())


def _errors_of_clip(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    loss, scalars = np.array(7.0), np.array([0.01, 1e-3, 0.5])
    for n in _lengths_of_buffers(draw, sizes):
        arguments = np.square(draw(n).astype(np.float64)), loss, scalars
        outcome = _run(name, *map(_on_device, arguments), max_norm=0.01)
        yield f"{n} squares", _relative_error(outcome, clip.reference(*arguments, max_norm=0.01))


def _errors_of_adam(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    """Check the update, and the low-precision weights that it writes."""
    scalars, scale = np.array([0.01, 1e-3, 0.5]), np.array(0.3)
    for n in _lengths_of_buffers(draw, sizes):
        arguments = draw(n), draw(n), draw(n), np.square(draw(n))
        exact = values, gradients, m, v = [_exact(x) for x in arguments]
        adam_update.reference(values, gradients, m, v, None, scalars, scale, **ADAM)
        low_precision = namespace_of_device("cuda").empty(n, rounded(arguments[0]).dtype)
        results = [_on_device(x) for x in arguments]
        _run(name, *results, low_precision, _on_device(scalars), _on_device(scale), **ADAM)
        if (to_host(low_precision) != rounded(to_host(results[0]))).any():
            raise WrongResultError("the low-precision weights are not the rounded values")
        yield f"{n} elements", max(_relative_error(got, of_one) for got, of_one in zip(results, exact, strict=True))


def _errors_of_top(name: str, draw: Draw, sizes: CaseSizes) -> Errors:
    """Check values and columns, which are exact, of rows with many equal numbers."""
    for width in (33, *sizes.vocabularies) if draw.dtype == "float32" else ():
        for dtype in ("float32", "float64"):
            x = draw.whole(sizes.lengths[-1], width).astype(dtype)
            found = [to_host(y) for y in _run(name, _on_device(x), n=8)]
            expected = top.reference(x, n=8)
            differ = any((got != exact).any() for got, exact in zip(found, expected, strict=True))
            yield f"{len(x)} × {width}, {dtype}", float(differ)


def _lengths_of_buffers(draw: Draw, sizes: CaseSizes) -> tuple[int, ...]:
    """Return lengths of flat buffers, which are float32: none for another dtype."""
    return (*sizes.lengths, 4 * sizes.wave + 1) if draw.dtype == "float32" else ()


CHECKS: dict[str, Callable[[str, Draw, CaseSizes], Errors]] = {
    "adam_update": _errors_of_adam,
    "clip": _errors_of_clip,
    "feed_forward": _errors_of_feed_forward,
    "linear_maps": _errors_of_linear_maps,
    "random_words": _errors_of_random_words,
    "sum_squares": _errors_of_sum_squares,
    "top": _errors_of_top,
}


def main(arguments: Sequence[str], sizes: CaseSizes = FULL) -> None:
    """Check the kernels that the arguments do not name, and report on stdout."""
    gpu, *done = arguments
    use_gpu(int(gpu))
    register_all()
    cuda, memory = namespace_of_device("cuda").cuda, GuardedMemory()
    cuda.set_allocator(memory.allocate)
    for name in sorted(kernels_for("cuda").keys() - set(done)):
        _report(name)
        fault = fault_of(name, sizes, memory)
        _report(name, fault)
        if fault:
            cuda.get_current_stream().synchronize()  # raises if the fault has made CUDA unusable
    _report()


def _report(*report: str) -> None:
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
