"""Cross-entropy behind its projection: a row of logits becomes its own gradient."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.ops.cross_entropy import (
    SmoothedClasses,
    checked_shape,
    linear_cross_entropy,
    linear_logits,
    smoothed_masses,
)
from autograd.tensor import Backward

SOURCE = "cross_entropy.cu"
THREADS = 1024


def kernel_name(dtype: object) -> str:
    """The kernel for logits of this type."""
    return f"cross_entropy_{STORAGE[str(dtype)]}"


def _is_supported(x: Array, weight: Array, bias: Array | None, targets: Array, **static: object) -> bool:
    return str(x.dtype) in STORAGE and x.dtype == weight.dtype and targets.dtype == np.int64


@linear_cross_entropy.kernel("cuda", supports=_is_supported)
def linear_cross_entropy_in_place(
    x: Array,
    weight: Array,
    bias: Array | None,
    targets: Array,
    *,
    smoothing: float = 0.0,
    over: SmoothedClasses = "V-1",
    impossible: int | None = None,
) -> tuple[Array, Backward]:
    """The reference's numbers, without an array of the logits' size beside the logits.

    Saves: p − q (T, W), x and the weight.
    """
    xp = namespace(x)
    logits = xp.ascontiguousarray(linear_logits(x, weight, bias))
    n_rows, n_words = checked_shape(logits, targets)
    share, of_target = smoothed_masses(smoothing, over, impossible, n_words)
    losses = xp.empty(n_rows, np.float32)
    if n_rows:
        launch(
            SOURCE, kernel_name(x.dtype), n_rows, THREADS, logits, xp.ascontiguousarray(targets), losses,
            np.int64(n_words), np.float32(share), np.float32(of_target - share),
            np.int32(-1 if impossible is None else impossible),
        )  # fmt: skip

    def backward(dy: Array) -> tuple[Array | None, ...]:
        dbias = logits.sum(0) * dy if bias is not None else None
        return (logits @ weight) * dy, logits.T @ (x * dy), dbias, None

    return losses.sum(), backward
