"""The child process that checks CUDA kernels, forward and backward, against the references in float64 on the CPU.

``python -m autograd.kernels.cuda.check_child GPU [CHECK …]`` checks all kernels that this GPU can run in their dtypes,
except the checks that are named, such as "dropout in float16".  It prints JSON lists: before each check [name], after
it [name, fault or null, errors by dtype of the results].
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from autograd.array import Array, Device, namespace, namespace_of_device, to_device, to_host, use_gpu
from autograd.kernel_registry import kernels_for
from autograd.kernels.cuda import attention, beam, layer_norm, register_all
from autograd.kernels.cuda.check import SECONDS
from autograd.masks import CachedKeys, KeyRanges, Segments
from autograd.op import JointKernels, Operation
from autograd.ops.feed_forward import feed_forward
from autograd.ops.linear_maps import linear_maps
from autograd.optim import sum_squares
from autograd.parameters import Layer, Parameter, ParameterBuffer, zeros
from autograd.precision import is_16_bit, lack_of_bfloat16, rounded, tf32_products, upcast
from autograd.random import StreamId
from autograd.tensor import Node, Tensor, backward

TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "bfloat16": 1e-2, "float16": 1.5e-3, "tf32": 1.5e-3}  # of the norm
GUARD = 512  # bytes before and behind an array
LENGTHS = (1, 63, 64, 65, 250)  # of sentences, and numbers of rows
WAVE = 160 * 2_048  # more threads than a GPU runs at once
DROPOUT: dict[str, Any] = {"rate": 0.3, "stream_id": StreamId(2**64 - 1, 5, 2**33, 3)}
Case: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments of a kernel, on the host
Cases: TypeAlias = Callable[["Draw"], Iterator[Case]]


class Draw:
    """A source of random arrays on the host; a call draws normal numbers in ``dtype``."""

    def __init__(self, dtype: str, seed: int = 1) -> None:
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.stored = functools.partial(rounded if dtype.endswith("float16") else np.asarray, dtype=dtype)

    def __call__(self, *shape: int) -> Any:
        return self.stored(self.float32(*shape))

    def float32(self, *shape: int) -> Any:
        return self.random.standard_normal(shape).astype(np.float32)

    def whole(self, *shape: int) -> Any:
        """Draw whole numbers, so that sums of products are exact; a bias of n + ½ keeps these sums away from 0."""
        return self.stored(self.ids(5, *shape).astype(np.float32) - 2)

    def ids(self, below: int, *shape: int) -> Any:
        return self.random.integers(0, below, shape)


def _rows(
    arguments: Callable[..., tuple[Any, ...]],
    threads: float,
    widths: Sequence[tuple[int, ...]] = ((),),
    last: tuple[int, ...] = (),
    **static: Any,
) -> Cases:
    """Return a function that yields cases of all lengths and widths, and a case of more rows than a GPU runs at once.

    A kernel has ``threads`` threads for each row.
    """

    def cases(draw: Draw) -> Iterator[Case]:
        many = int(WAVE / threads) + 1, last or widths[0]
        for n, width in [*itertools.product(LENGTHS, widths), many]:
            yield arguments(draw, n, *width), static

    return cases


def _attention(draw: Draw) -> Iterator[Case]:
    yield from _cached_attention(draw)
    if draw.dtype != "bfloat16":
        return
    here, there = Segments.of_lengths(LENGTHS), Segments.of_lengths([n + 1 for n in LENGTHS[::-1]])
    many = Segments.of_lengths([17] * (WAVE // 512 + 1))  # each segment has two tiles; a warp computes a tile of a head
    kinds = itertools.product([(here, there)], attention.WIDTHS, ({}, DROPOUT))
    for (queries, keys), width, static in [*kinds, ((many, many), attention.WIDTHS[0], {})]:
        segment = queries.segment_of_token
        for mask in (
            KeyRanges(keys.starts[segment], keys.starts[segment] + keys.lengths[segment], queries, keys),  # all keys
            KeyRanges(queries.starts[segment], queries.tokens + 1, queries, queries),  # causal
        ):
            heads = [draw(side.n_tokens, 3, width) for side in (mask.queries, mask.keys, mask.keys)]
            yield tuple(heads), {"mask": mask, **static}


def _cached_attention(draw: Draw) -> Iterator[Case]:
    kinds = itertools.product(LENGTHS, (33, attention.WIDEST_CACHED), (None, 7), ((1, 3), (4, 2)))
    many = LENGTHS[1], 33, None, (4, WAVE // (attention.THREADS * 4 * 3) + 1)
    for n, width, neighbourhood, (n_slots, n_sentences) in [*kinds, many]:
        queries = Segments.of_lengths([n_slots] * n_sentences)
        keys = Segments(np.arange(n_sentences) * (n + 2) * n_slots, np.full(n_sentences, n * n_slots))
        n_steps = n - draw.ids(min(n, 3), n_sentences if n_slots == 1 else 1)
        slots = draw.ids(n_slots, n_sentences, n_slots, n) if n_slots > 1 else None
        mask = CachedKeys(n_steps, queries, keys, slots, n_slots, neighbourhood)
        n_keys = n_sentences * (n + 2) * n_slots
        yield (draw(queries.n_tokens, 3, width), *draw(2, n_keys, 3, width)), {"mask": mask}


def _beams(draw: Draw) -> Iterator[Case]:
    """Yield states in which every result exists: at most one of 2k continuations of a sentence ends."""
    end, longest = 2, beam.THREADS + 20
    for n, k, n_finished in [(1, beam.MOST, beam.MOST), (33, 4, 4), (WAVE // beam.THREADS + 1, 4, 1)]:
        n_steps = 1 + draw.ids(longest - 1, n)
        exists = np.arange(longest) < n_steps[:, None, None]
        ids, slots = (np.where(exists, draw.ids(50, n, k, longest), 0) for _ in range(2))
        finished_ids = np.where(exists, draw.ids(50, n, n_finished, longest), 0)
        scores = -np.sort(np.abs(draw(n, n_finished)))
        token = 3 + draw.ids(50, n * k, 2 * k)
        token[::k, 0] = end
        token_log_p = -np.sort(np.abs(draw(n * k, 2 * k)))
        state = draw(n, k), draw.ids(50, n, k), ids, slots, scores, 2 * scores, finished_ids, draw.ids(2, n) > 0
        numbers = n_steps, n_steps + draw.ids(2, n), 1 + np.abs(draw(n)), token_log_p, token, 1 + np.abs(draw(longest))
        yield (*state, *numbers), {"beam": k, "n_ranked": 2 * k, "end": end}


def _caches(draw: Draw) -> Iterator[Case]:
    for n, k, n_slots in [(1, 1, 4), (7, 4, 4), (WAVE // beam.THREADS + 1, 1, 1)]:
        caches = draw(n, 5, n_slots, 2, 33), draw(n, 5, n_slots, 2, 65)
        yield (*caches, draw(n * k, 2, 33), draw(n * k, 2, 65), 1 + draw.ids(5, n)), {}


def _log_softmax(draw: Draw) -> Iterator[Case]:
    for n, (width,) in [*itertools.product(LENGTHS, WORDS), (WAVE // 1_024 + 1, WORDS[0])]:
        yield (draw.whole(2 * n, width), draw.ids(2, 2, width) > 0, draw.ids(2, n) > 0), {"n": 8}


NORMS, WORDS = [(width,) for width in (192, *layer_norm.WIDTHS)], [(33,), (5_003,), (37_000,)]
SHAPES, MANY = [(64, 128), (33, 65)], (64, 2_048)  # of matrices; MANY: many blocks, each of 256 rows of 128 columns
ALL, FLOAT32, IN_16_BITS = ("float32", "bfloat16", "float16"), ("float32",), ("bfloat16", "float16")
PRODUCTS = (*ALL, "tf32")  # tf32: float32 within ``tf32_products``
SCALARS = np.array([0.01, 1e-3, 0.5])  # of an update
CASES: dict[str, tuple[tuple[str, ...], Cases]] = {  # the dtypes in which a kernel is checked, and its cases
    "adam_update": (FLOAT32, _rows(
        lambda x, n: (x(n), x(n), x(n), np.square(x(n)), rounded(x(n)), SCALARS, np.array(0.3)), 0.25,
        beta1=0.9, beta2=0.98, eps=1e-9)),
    "add": (IN_16_BITS, _rows(lambda x, n, d: (x(n, d), x(n, d)), 32, [(63,)])),
    "add_norm": (ALL, _rows(
        lambda x, n, d: (x(n, d), x(n, d), x.float32(d), x.float32(d)), 32, NORMS, **DROPOUT)),
    "append_to_cache": (ALL, _caches),
    "attention": (ALL, _attention),
    "clip": (FLOAT32, _rows(
        lambda x, n: (np.square(x(n).astype(float)), np.array(7.0), SCALARS), 0.25, max_norm=0.01)),
    "dropout": (ALL, _rows(lambda x, n, d: (x(n, d),), 63 / 16, [(63,)], **DROPOUT)),
    "embedding": (ALL, _rows(lambda x, n, d: (x(37, d), x.ids(37, n)), 32, [(64,), (65,)])),
    "embedding_with_positions": (ALL, _rows(
        lambda x, n, d: (x(37, d), x.ids(37, n), x(41, d), x.ids(41, n)), 64 / 16, [(64,), (65,)],
        scale=8.0, **DROPOUT)),
    "extend_beams": (("float64",), _beams),
    "feed_forward": (IN_16_BITS, _rows(
        lambda x, n, d, f: (x.whole(n, d), x.whole(d, f), x.whole(f) + np.float32(0.5), x(f, d), x.float32(d)),
        64, [(64, 128)], last=MANY)),
    "layer_norm": (ALL, _rows(lambda x, n, d: (x(n, d), x.float32(d), x.float32(d)), 32, NORMS)),
    "linear": (PRODUCTS, _rows(lambda x, n, i, o: (x(n, i), x(i, o), x.float32(o)), 64, SHAPES, last=MANY)),
    "linear_cross_entropy": (ALL, _rows(
        lambda x, n, words: (x(n, 64), x.stored(x.float32(words, 64) / 8), None, x.ids(words, n)), 512, WORDS,
        smoothing=0.1)),
    "linear_logits": (IN_16_BITS, _rows(lambda x, n, i, o: (x(n, i), x(i, o), x.float32(o)), 64, SHAPES, last=MANY)),
    "linear_maps": (PRODUCTS, _rows(
        lambda x, n, i, o: (x(n, i), *(array for _ in range(3) for array in (x(i, o), x.float32(o)))), 512,
        [(64, 128)])),
    "linear_relu": (PRODUCTS, _rows(
        lambda x, n, i, o: (x.whole(n, i), x.whole(i, o), x.whole(o) + np.float32(0.5)), 64, SHAPES, last=MANY)),
    "linear_transposed": (PRODUCTS, _rows(lambda x, n, i, o: (x(n, i), x(o, i)), 64, SHAPES, last=MANY)),
    "log_softmax_top": (FLOAT32, _log_softmax),
    "random_words": (FLOAT32, lambda x: (((x(0),), {"stream_id": DROPOUT["stream_id"], "count": n})
                                         for n in (*LENGTHS, WAVE * 4 + 1))),
    "sum_squares": (FLOAT32, _rows(lambda x, n: (x(n),), 0.25)),
    "top": (("float32", "float64"), _rows(lambda x, n, d: (x.whole(n, d),), 1_024, WORDS, n=8)),  # many equal
}  # fmt: skip


class WrongResultError(RuntimeError):
    """An error: a kernel computes a wrong result, or writes outside its arrays."""


class GuardedMemory:
    """An allocator of CuPy arrays between guard bytes.  All bytes begin as 0xFF, so numbers not written are NaN."""

    def __init__(self) -> None:
        self._pool = namespace_of_device("cuda").cuda.MemoryPool()
        self.allocated: list[tuple[Any, int]] = []

    def allocate(self, size: int) -> Any:
        """Allocate memory; ``cupy.cuda.set_allocator`` takes this method."""
        memory = self._pool.malloc(size + 2 * GUARD)
        memory.memset_async(0xFF, size + 2 * GUARD, namespace_of_device("cuda").cuda.get_current_stream())
        self.allocated.append((memory, size))
        return memory + GUARD

    def check(self) -> None:
        """Check that the guard bytes around every allocated array are unchanged.  Raises: WrongResultError if not."""
        guard = np.empty(GUARD, np.uint8)
        for memory, size in self.allocated:
            for start, where in ((0, "before"), (GUARD + size, "behind")):
                (memory + start).copy_to_host(guard.ctypes.data, GUARD)
                if (guard != 0xFF).any():
                    raise WrongResultError(f"it writes {where} an array of {size} bytes")


FUNCTIONS: dict[str, Callable[..., Any]] = {  # called instead of the operation with the kernel
    "feed_forward": feed_forward,
    "linear_maps": linear_maps,
    "sum_squares": lambda gradients: sum_squares(gradients).sum(),
}


class _Weights(Layer):
    """A layer whose parameters have these values, so that gradients are written as in training."""

    def __init__(self, arrays: Iterable[Array], dtype: str, device: Device) -> None:
        self.parameters = [Parameter(x.shape, zeros) for x in arrays]
        buffer = ParameterBuffer(self, seed=None, dtype=dtype, device=device)
        for values, x in zip(buffer.named_values().values(), arrays, strict=True):
            values[...] = to_device(upcast(x), device)
        buffer.refresh_low_precision()


def computed(name: str, case: Case, dtype: str, device: Device) -> list[Any]:
    """Return results and gradients: of the kernel on "cuda", of the reference in float64 on "cpu".

    Raises: WrongResultError if there is no kernel for these arguments.
    """
    (arguments, static), operation = case, kernels_for("cuda")[name]
    inputs: list[Any] = [_on(device, x) for x in arguments]
    if device == "cuda" and isinstance(mask := static.get("mask"), CachedKeys):
        arrays = {name: _on(device, getattr(mask, name)) for name in ("n_steps", "slots")}
        static = {**static, "mask": dataclasses.replace(mask, **arrays)}
    is_on_tape = isinstance(operation, Operation | JointKernels)
    leaves: list[Tensor] = []
    if is_on_tape:  # the first argument is a tensor, the others are parameters
        weights = {i: x for i, x in enumerate(arguments) if i and x is not None and x.dtype.kind != "i"}
        layer = _Weights(weights.values(), dtype if device == "cuda" else "float64", device)
        leaves = [Tensor(inputs[0]), *layer.parameters]
        for i, leaf in zip([0, *weights], leaves, strict=True):
            inputs[i] = leaf
    values = tuple(x.value if isinstance(x, Tensor) else x for x in inputs)
    narrow = is_on_tape and any(map(is_16_bit, values))
    if device == "cuda" and operation.first_that_supports(values, static, takes_16_bits=narrow) is None:
        raise WrongResultError("it does not support these arguments")
    result = FUNCTIONS.get(name, operation)(*inputs, **static)  # type: ignore[operator]
    results = inputs if result is None else list(result) if isinstance(result, tuple | list) else [result]
    if is_on_tape:
        dys = Draw(dtype, seed=2)(len(results), *results[0].shape)
        dys = _on(device, dys if is_16_bit(results[0].value) or device == "cpu" else upcast(dys))
        sink = Node("check", tuple(y.origin for y in results), lambda _: [dys[-1 - i] for i in range(len(dys))])
        backward(Tensor(namespace(dys).zeros(()), sink))
        results = [*(y.value for y in results), *(leaf.grad for leaf in leaves)]
    return results


def _on(device: Device, x: Any) -> Any:
    """Return an argument on the device; on the CPU floating-point numbers become float64."""
    if x is None or device == "cuda":
        return None if x is None else to_device(x, "cuda")
    return x if x.dtype.kind in "ib" else upcast(x).astype(np.float64)


def _difference(got: Array, exact: Array) -> float:
    """Return ‖got − exact‖ / ‖exact‖; for integers 0 if all are equal, else 1.

    Raises: WrongResultError if the shapes differ, or if a number in ``got`` is not finite.
    """
    computed, expected = upcast(to_host(got)), np.asarray(exact)
    if computed.shape != expected.shape:
        raise WrongResultError(f"a result has shape {computed.shape}; expected {expected.shape}")
    if expected.dtype.kind in "iub":
        return float((computed != expected).any())
    if not np.isfinite(computed).all():
        raise WrongResultError("an element of a result is not finite, or not written")
    return float(np.linalg.norm(computed - expected) / max(float(np.linalg.norm(expected)), 1e-30))


def dtypes_of(name: str) -> list[str]:
    """Return the dtypes in which a kernel is checked; bfloat16 and tf32 only if this GPU has them."""
    return [dtype for dtype in CASES[name][0] if dtype not in ("bfloat16", "tf32") or not lack_of_bfloat16()]


def largest_errors(name: str, dtype: str, memory: GuardedMemory) -> dict[str, float]:
    """Return a kernel's largest relative error by dtype of the results, for arguments of a dtype.

    Raises: WrongResultError if an error is too large.
    """
    errors = dict[str, float]()
    numbers = "float32" if dtype == "tf32" else dtype
    for case in CASES[name][1](Draw(numbers)):
        memory.allocated.clear()
        with tf32_products(dtype == "tf32"):
            got, expected = computed(name, case, numbers, "cuda"), computed(name, case, numbers, "cpu")
        found = [
            (str(one.dtype) if is_16_bit(one) else dtype, _difference(one, exact))
            for one, exact in zip(got, expected, strict=True)
        ]
        memory.check()
        for i, (stored, error) in enumerate(found):
            if error > TOLERANCE[stored]:
                shapes = ", ".join(" × ".join(map(str, x.shape)) for x in case[0] if x is not None)
                raise WrongResultError(f"relative error {error:.2g} in {stored}, result {i}, arguments {shapes}")
            errors[stored] = max(error, errors.get(stored, 0.0))
    return errors


def main(arguments: Sequence[str]) -> None:
    """Make the checks that the arguments do not name, and report on stdout."""
    gpu, *done = arguments
    use_gpu(int(gpu))
    register_all()
    cuda, memory = namespace_of_device("cuda").cuda, GuardedMemory()
    cuda.set_allocator(memory.allocate)
    checks = {f"{name} in {dtype}": (name, dtype) for name in sorted(kernels_for("cuda")) for dtype in dtypes_of(name)}
    for check in (check for check in checks if check not in done):
        signal.alarm(SECONDS)  # ends this process, even while a library or the GPU does not answer
        print(json.dumps([check]), flush=True)
        try:
            errors, fault = largest_errors(*checks[check], memory), None
        except MemoryError:  # of the host or of CuPy: other programs may need the memory now, so the child ends
            raise
        except Exception as error:  # of any library: the next kernel may be right
            errors, fault = {}, " ".join(f"{type(error).__name__}: {error}".split())[:500]
        print(json.dumps([check, fault, errors]), flush=True)
        if fault:
            cuda.get_current_stream().synchronize()  # raises if the fault has made CUDA unusable


if __name__ == "__main__":
    main(sys.argv[1:])
