"""Random words, and dropout in one pass without a mask in memory."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.ops.dropout import dropout, threshold_and_scale
from autograd.random import StreamId, random_words
from autograd.tensor import Backward

SOURCE, WORDS = "dropout.cu", "philox_words"
THREADS = 256
WORDS_OF_A_THREAD, ELEMENTS_OF_A_THREAD = 4, 16


def kernel_name(dtype: object) -> str:
    """Return the name of the kernel for elements of this dtype."""
    return f"dropout_{STORAGE[str(dtype)]}"


def numbers_of(stream_id: StreamId) -> tuple[np.uint64 | Array | None, ...]:
    """Return the numbers of a stream id as arguments of a kernel.

    The update is passed by value if it is a number, by address if it is an array on the device.
    """
    is_number = isinstance(stream_id.update, int | np.integer)
    update, update_at = (stream_id.update, None) if is_number else (0, stream_id.update)
    return (
        np.uint64(stream_id.seed),
        np.uint64(stream_id.stream),
        np.uint64(update),
        update_at,
        np.uint64(stream_id.micro_batch),
    )


@random_words.kernel("cuda")
def random_words_by_blocks(like: Array, *, stream_id: StreamId, count: int) -> Array:
    """Return the reference's words; each thread computes four."""
    words = namespace(like).empty(count, np.uint64)
    if count:
        launch(
            SOURCE, WORDS, -(-count // (THREADS * WORDS_OF_A_THREAD)), THREADS,
            words, np.int64(count), *numbers_of(stream_id),
        )  # fmt: skip
    return words


def _is_stored(x: Array, **static: object) -> bool:
    return str(x.dtype) in STORAGE


@dropout.kernel("cuda", supports=_is_stored, takes_bfloat16=True)
def dropout_in_one_pass(x: Array, *, rate: float, stream_id: StreamId) -> tuple[Array, Backward]:
    """Compute the reference's result; the thread that reads an element draws its mask.

    Saves: nothing.
    """
    threshold, scale = threshold_and_scale(rate)

    def masked(values: Array) -> Array:
        values = namespace(values).ascontiguousarray(values, dtype=x.dtype)
        out, n = namespace(values).empty_like(values), values.size
        if n:
            launch(
                SOURCE, kernel_name(values.dtype), -(-n // (THREADS * ELEMENTS_OF_A_THREAD)), THREADS, values, out,
                np.int64(n), *numbers_of(stream_id), np.int32(threshold), np.float32(scale),
            )  # fmt: skip
        return out

    return masked(x), lambda dy: (masked(dy),)
