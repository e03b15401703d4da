"""The norm of the gradient and the scale of an update, in two kernel launches."""

from __future__ import annotations

import math

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import launch
from autograd.optim import clip, sum_squares

SOURCE, SQUARES, CLIP = "clip.cu", "sum_squares", "clip"
THREADS = 256
RUN = 1 << 14  # elements of a partial sum: the bits do not change if ranks divide the gradient between runs


@sum_squares.kernel("cuda", supports=lambda gradients: gradients.dtype == np.float32)
def sum_squares_by_blocks(gradients: Array) -> Array:
    """Return float64 partial sums, one for each RUN elements; the reference has one for each ALIGNMENT."""
    n = len(gradients)
    squares = namespace(gradients).empty(max(1, -(-n // RUN)), np.float64)
    launch(SOURCE, SQUARES, len(squares), THREADS, gradients, squares, np.int64(n), np.int32(RUN))
    return squares


def _is_supported(squares: Array, loss: Array, scalars: Array, *, max_norm: float = math.inf) -> bool:
    return bool(squares.dtype == loss.dtype == scalars.dtype == np.float64)


@clip.kernel("cuda", supports=_is_supported)
def clip_in_one_block(squares: Array, loss: Array, scalars: Array, *, max_norm: float = math.inf) -> Array:
    """Compute the reference's result."""
    outcome = namespace(squares).empty(3, np.float64)
    launch(SOURCE, CLIP, 1, THREADS, squares, np.int32(len(squares)), loss, scalars, outcome, np.float32(max_norm))
    return outcome
