"""An update that is judged where it is computed: its host learns later whether it was made.

Norm, clipping, the question whether all numbers are finite, and Adam read what they need from the device and leave
their verdict there.  Nothing waits for the host, and nothing that changes from update to update is an argument: the
same launches serve every update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autograd.array import Array, namespace
from autograd.op import Dispatch
from autograd.optim import Adam

N_NUMBERS = 3  # of an update: see ``numbers_of_update``
N_VERDICTS = 3  # see ``judge``


def numbers_of_update(adam: Adam, learning_rate: float, step: int, n_tokens: int) -> Sequence[float]:
    """What an update needs to be told: 1/tokens, and α/(1 − β₁ᵗ) and 1 − β₂ᵗ for update t = ``step``, from 1."""
    return 1 / n_tokens, learning_rate / (1 - adam.beta1**step), 1 - adam.beta2**step


@Dispatch
def judge(gradients: Array, loss: Array, numbers: Array, verdict: Array, *, max_norm: float = math.inf) -> None:
    """verdict ← (loss, ‖g‖, factor) for the mean gradient g = gradients · numbers[0].

    ``factor · gradients`` is g clipped to ``max_norm``; a factor of 0 says that loss or norm are not finite, and that
    nothing may change.  Squares are added up in float64, where ``gradient_norm`` has float32's: that one takes a number
    over 10¹⁹ in size for an infinity already.
    Shapes: gradients (n,), loss () float64, numbers (N_NUMBERS,) float32; changes verdict (N_VERDICTS,) float64.
    """
    xp = namespace(gradients)
    wide, per_token = gradients.astype(np.float64), numbers[0].astype(np.float64)
    norm = xp.sqrt((wide * wide).sum()) * per_token
    clipping = max_norm / xp.maximum(norm, max_norm) if max_norm < math.inf else 1.0
    verdict[0], verdict[1] = loss, norm
    verdict[2] = xp.where(xp.isfinite(loss + norm), per_token * clipping, 0)


def update_as_judged(adam: Adam, numbers: Array, verdict: Array) -> None:
    """``Adam.update`` of all parameters, by the gradient as the verdict of ``judge`` has it."""
    buffer = adam.buffer
    judged_adam_update(
        buffer.values, buffer.gradients, adam.m, adam.v, buffer.copies, numbers, verdict,
        beta1=adam.beta1, beta2=adam.beta2, eps=adam.eps,
    )  # fmt: skip


@Dispatch
def judged_adam_update(
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
    """``adam_update`` by verdict[2] · gradients; nothing changes where that factor is 0.

    Shapes: as there; numbers (N_NUMBERS,) float32, verdict (N_VERDICTS,) float64.
    """
    xp, is_sound = namespace(values), verdict[2] > 0
    scaled = xp.where(is_sound, gradients * verdict[2].astype(gradients.dtype), 0)
    m[...] = xp.where(is_sound, beta1 * m + (1 - beta1) * scaled, m)
    v[...] = xp.where(is_sound, beta2 * v + (1 - beta2) * scaled * scaled, v)
    step = numbers[1] * m / (xp.sqrt(v / numbers[2]) + eps)
    values -= xp.where(is_sound, step, 0)
    if copies is not None:
        copies[...] = values.astype(copies.dtype)
