"""Random integers of 64 bits, and dropout in one pass over memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.ops.dropout import dropout, threshold_and_scale
from autograd.random import StreamId, random_words
from autograd.tensor import Backward

SOURCE, WORDS = "dropout.cu", "philox_words"
DIRECTIONS = ("forward", "backward")
THREADS = 256
WORDS_OF_A_THREAD, ELEMENTS_OF_A_THREAD = 4, 16


def kernel_name(direction: str, dtype: object) -> str:
    """Return the name of the kernel of one of ``DIRECTIONS`` for elements of this dtype."""
    return f"dropout_{direction}_{STORAGE[str(dtype)]}"


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
            SOURCE,
            WORDS,
            -(-count // (THREADS * WORDS_OF_A_THREAD)),
            THREADS,
            words,
            np.int64(count),
            *numbers_of(stream_id),
        )
    return words


def _is_stored(x: Array, **static: object) -> bool:
    return str(x.dtype) in STORAGE


@dropout.kernel("cuda", supports=_is_stored, takes_16_bits=True)
def dropout_in_one_pass(x: Array, *, rate: float, stream_id: StreamId) -> tuple[Array, Backward]:
    """Compute the reference's result; the mask is drawn once.

    Saves: the mask, one bit per element.
    """
    threshold, scale = threshold_and_scale(rate)
    n_blocks, dtype = -(-x.size // (THREADS * ELEMENTS_OF_A_THREAD)), x.dtype
    mask = namespace(x).empty(n_blocks * THREADS, np.uint16)

    def masked(direction: str, values: Array, *drawing: Any) -> Array:
        values = namespace(mask).ascontiguousarray(values, dtype=dtype)
        out = namespace(mask).empty_like(values)
        if n_blocks:
            launch(
                SOURCE,
                kernel_name(direction, dtype),
                n_blocks,
                THREADS,
                values,
                out,
                mask,
                np.int64(values.size),
                np.float32(scale),
                *drawing,
            )
        return out

    y = masked("forward", x, *numbers_of(stream_id), np.int32(threshold))
    return y, lambda dy: (masked("backward", dy),)
