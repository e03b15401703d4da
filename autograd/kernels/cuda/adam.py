"""Adam in one pass over memory."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cuda.driver import launch
from autograd.optim import adam_update
from autograd.precision import is_bfloat16

SOURCE, KERNEL, JUDGED = "adam.cu", "adam_update_bf16", "adam_update_judged_bf16"
THREADS = 256


def _is_supported(
    values: Array, gradients: Array, m: Array, v: Array, copies: Array | None = None, **static: float
) -> bool:
    return all(x.dtype == np.float32 for x in (values, gradients, m, v)) and (copies is None or is_bfloat16(copies))


@adam_update.kernel("cuda", supports=_is_supported)
def adam_update_in_one_pass(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    copies: Array | None = None,
    *,
    step_size: float,
    beta1: float,
    beta2: float,
    variance_correction: float,
    eps: float,
) -> None:
    """The reference's arithmetic, every element read and written once."""
    n = len(values)
    scalars = (np.float32(x) for x in (step_size, beta1, beta2, 1 - beta1, 1 - beta2, variance_correction, eps))
    if n:
        launch(SOURCE, KERNEL, -(-n // THREADS), THREADS, values, gradients, m, v, copies, np.int64(n), *scalars)
