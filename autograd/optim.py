"""Adam on the flat buffer, and the norm of the gradient."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from autograd.array import Array, namespace, to_host
from autograd.op import Dispatch
from autograd.parameters import ALIGNMENT, ParameterBuffer

AllOf: TypeAlias = Callable[[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) over all parameters at once, with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e−9.

    m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  θ ← θ − α · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)

    Args:
        part: the stretch of the flat buffer to update, where others update the rest; m and v are of its size.
    """

    def __init__(
        self, buffer: ParameterBuffer, *, beta1: float = 0.9, beta2: float = 0.98, eps: float = 1e-9,
        part: slice = slice(None),
    ) -> None:  # fmt: skip
        self.buffer, self.part, self.beta1, self.beta2, self.eps = buffer, part, beta1, beta2, eps
        values = buffer.values[part]
        self.m, self.v = namespace(values).zeros_like(values), namespace(values).zeros_like(values)

    def of_all(self, m: Array, v: Array) -> Adam:
        """The same over the whole buffer, with these moments."""
        whole = copy.copy(self)
        whole.part, whole.m, whole.v = slice(None), m, v
        return whole

    def update(self, learning_rate: float, step: int, within: slice = slice(None)) -> None:
        """Apply ``buffer.gradients`` as update number ``step`` (from 1) to the part, or to what lies ``within`` it."""
        adam_update(
            self.buffer.values[self.part][within],
            self.buffer.gradients[self.part][within],
            self.m[within],
            self.v[within],
            None if self.buffer.copies is None else self.buffer.copies[self.part][within],
            step_size=learning_rate / (1 - self.beta1**step),
            beta1=self.beta1,
            beta2=self.beta2,
            variance_correction=1 - self.beta2**step,
            eps=self.eps,
        )


@Dispatch
def adam_update(
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
    """One step of Adam in place: ``step_size`` is α/(1 − β₁ᵗ), ``variance_correction`` is 1 − β₂ᵗ.

    Shapes: all (n,), one dtype, but for the copies; changes values, m, v, and the copies, which become the values as
    their dtype rounds them.
    """
    xp = namespace(values)
    m *= beta1
    m += (1 - beta1) * gradients
    v *= beta2
    v += (1 - beta2) * gradients * gradients
    values -= step_size * m / (xp.sqrt(v / variance_correction) + eps)
    if copies is not None:
        copies[...] = values.astype(copies.dtype)


def gradient_norm(gradients: Array, all_of: AllOf = lambda squares: [squares]) -> float:
    """The Euclidean norm of a flat gradient; on a GPU this waits for the device.

    Args:
        gradients: all of them, or this process's part, which begins at a multiple of ALIGNMENT.
        all_of: makes of one array in each process the list of them, in the order of parts.

    The squares of runs of ALIGNMENT elements are added up in float32, these sums in float64 and in the order of the
    whole: the norm has the same bits whoever holds which runs.
    """
    n_in_runs = len(gradients) // ALIGNMENT * ALIGNMENT
    runs, rest = gradients[:n_in_runs].reshape(-1, ALIGNMENT), gradients[n_in_runs:]
    squares = to_host(namespace(gradients).einsum("ij,ij->i", runs, runs))
    if len(rest):  # at the end of the whole
        squares = np.append(squares, to_host(rest @ rest))
    return math.sqrt(np.concatenate(all_of(squares)).sum(dtype=np.float64))


def clip_gradients(gradients: Array, max_norm: float, all_of: AllOf = lambda squares: [squares]) -> float:
    """Scale a flat gradient, or a part of it, down in place so that its norm is at most ``max_norm``.

    A norm that is not finite scales nothing: what is wrong stays to be seen.
    Returns the norm that it had.  See ``gradient_norm``.  Source: Pascanu, Mikolov & Bengio 2013, algorithm 1.
    """
    norm = gradient_norm(gradients, all_of)
    if max_norm < norm < math.inf:
        gradients *= max_norm / norm
    return norm
