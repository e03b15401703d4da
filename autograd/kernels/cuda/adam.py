"""Adam in one pass over memory."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cuda.driver import launch
from autograd.optim import adam_update

SOURCE, KERNEL = "adam.cu", "adam_update_bf16"
THREADS = 256
ELEMENTS_OF_A_THREAD = 4


def _is_supported(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    low_precision: Array | None,
    scalars: Array,
    scale: Array,
    **static: float,
) -> bool:
    are_float32 = all(x.dtype == np.float32 for x in (values, gradients, m, v))
    return (
        are_float32
        and scalars.dtype == scale.dtype == np.float64
        and (low_precision is None or str(low_precision.dtype) == "bfloat16")
    )


@adam_update.kernel("cuda", supports=_is_supported)
def adam_update_in_one_pass(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    low_precision: Array | None,
    scalars: Array,
    scale: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """Compute the reference's result; each element is read and written once, or not at all if the scale is 0."""
    n = len(values)
    constants = (np.float32(x) for x in (beta1, beta2, 1 - beta1, 1 - beta2, eps))
    if n:
        launch(
            SOURCE,
            KERNEL,
            -(-n // (THREADS * ELEMENTS_OF_A_THREAD)),
            THREADS,
            values,
            gradients,
            m,
            v,
            low_precision,
            np.int64(n),
            scalars,
            scale,
            *constants,
        )
