"""The verdict on an update in two launches, and Adam as it says."""

from __future__ import annotations

import math

import numpy as np

from autograd.array import Array, namespace
from autograd.judged import judge, judged_adam_update
from autograd.kernels.cuda import adam
from autograd.kernels.cuda.driver import launch
from autograd.precision import is_bfloat16

SOURCE, SQUARES, JUDGE = "judgement.cu", "squares_of_gradient", "judge"
THREADS = 256
MOST_BLOCKS = 1056  # eight for every multiprocessor of an H200


def _is_supported(gradients: Array, loss: Array, numbers: Array, verdict: Array, *, max_norm: float = math.inf) -> bool:
    return bool(gradients.dtype == numbers.dtype == np.float32 and loss.dtype == verdict.dtype == np.float64)


@judge.kernel("cuda", supports=_is_supported)
def judge_in_two_launches(
    gradients: Array, loss: Array, numbers: Array, verdict: Array, *, max_norm: float = math.inf
) -> None:
    """The reference's numbers, in an order of addition that depends on nothing but the size."""
    n = len(gradients)
    squares = namespace(gradients).empty(max(1, min(MOST_BLOCKS, -(-n // THREADS))), np.float64)
    launch(SOURCE, SQUARES, len(squares), THREADS, gradients, squares, np.int64(n))
    launch(SOURCE, JUDGE, 1, THREADS, squares, np.int32(len(squares)), loss, numbers, verdict, np.float32(max_norm))


def _can_update(
    values: Array, gradients: Array, m: Array, v: Array, copies: Array | None, numbers: Array, verdict: Array,
    **static: float,
) -> bool:  # fmt: skip
    of_update = numbers.dtype == np.float32 and verdict.dtype == np.float64
    are_float32 = all(x.dtype == np.float32 for x in (values, gradients, m, v))
    return of_update and are_float32 and (copies is None or is_bfloat16(copies))


@judged_adam_update.kernel("cuda", supports=_can_update)
def judged_adam_update_in_one_pass(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    copies: Array | None,
    numbers: Array,
    verdict: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """The reference's arithmetic, every element read and written once; all are left alone where nothing may change."""
    n = len(values)
    scalars = (np.float32(x) for x in (beta1, beta2, 1 - beta1, 1 - beta2, eps))
    if n:
        launch(
            adam.SOURCE, adam.JUDGED, -(-n // adam.THREADS), adam.THREADS,
            values, gradients, m, v, copies, np.int64(n), numbers, verdict, *scalars,
        )  # fmt: skip
