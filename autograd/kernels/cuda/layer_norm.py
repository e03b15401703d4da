"""Layer normalisation with a row in the registers of a warp."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.ops.normalisation import layer_norm
from autograd.tensor import Backward

SOURCE = "layer_norm.cu"
WIDTHS = (128, 256, 512, 1024)
ROWS, THREADS = 8, 256  # of a block
MOST_BLOCKS = 264  # of the backward pass, each of which leaves sums of its own: two for every multiprocessor of an H200


def kernel_name(direction: str, dtype: object, width: int) -> str:
    """Of ``direction`` "forward" or "backward"."""
    return f"layer_norm_{direction}_{STORAGE[str(dtype)]}_{width}"


def _is_supported(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> bool:
    of_parameters = all(
        p.dtype == np.float32 and p.shape == x.shape[-1:] and p.flags.c_contiguous for p in (gain, bias)
    )
    return of_parameters and str(x.dtype) in STORAGE and x.shape[-1] in WIDTHS and x.flags.c_contiguous


@layer_norm.kernel("cuda", supports=_is_supported, takes_bfloat16=True)
def layer_norm_in_registers(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """The reference's equations; mean and variance in two passes over registers, one over memory.

    Saves: x, and two numbers a row: mean and 1/standard deviation.
    """
    xp, width = namespace(x), x.shape[-1]
    n_rows = x.size // width
    y, statistics = xp.empty_like(x), xp.empty((n_rows, 2), np.float32)
    n_blocks = -(-n_rows // ROWS)
    forward, of_backward = (kernel_name(direction, x.dtype, width) for direction in ("forward", "backward"))
    if n_rows:
        launch(
            SOURCE, forward, n_blocks, THREADS, x, gain, bias, y, statistics, np.int64(n_rows), np.float32(eps)
        )  # fmt: skip

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy = xp.ascontiguousarray(dy, dtype=x.dtype)
        dx, n_sums = xp.empty_like(x), min(n_blocks, MOST_BLOCKS)
        of_parameters = xp.empty((n_sums, 2, width), np.float32)
        if n_rows:
            launch(
                SOURCE, of_backward, n_sums, THREADS, dy, x, gain, statistics, dx, of_parameters, np.int64(n_rows)
            )  # fmt: skip
        dgain, dbias = of_parameters.sum(0)
        return dx, dgain, dbias

    return y, backward
