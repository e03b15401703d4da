"""Adam on the flat buffer, and the norm of the gradient."""

from __future__ import annotations

import math
from typing import Any

from autograd.array import Array, namespace
from autograd.op import Dispatch
from autograd.parameters import ParameterBuffer


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) over all parameters at once, with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e−9.

    m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  θ ← θ − α · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)
    """

    def __init__(self, buffer: ParameterBuffer, *, beta1: float = 0.9, beta2: float = 0.98, eps: float = 1e-9) -> None:
        xp = namespace(buffer.values)
        self.buffer, self.beta1, self.beta2, self.eps = buffer, beta1, beta2, eps
        self.m, self.v = xp.zeros_like(buffer.values), xp.zeros_like(buffer.values)

    def update(self, learning_rate: float, step: int, part: slice = slice(None)) -> None:
        """Apply ``buffer.gradients`` (of the whole buffer, or of a part of it) as update number ``step`` (from 1)."""
        adam_update(
            self.buffer.values[part],
            self.buffer.gradients[part],
            self.m[part],
            self.v[part],
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
    *,
    step_size: float,
    beta1: float,
    beta2: float,
    variance_correction: float,
    eps: float,
) -> None:
    """One step of Adam in place: ``step_size`` is α/(1 − β₁ᵗ), ``variance_correction`` is 1 − β₂ᵗ.

    Shapes: all (n,), one dtype; changes values, m and v.
    """
    xp = namespace(values)
    m *= beta1
    m += (1 - beta1) * gradients
    v *= beta2
    v += (1 - beta2) * gradients * gradients
    values -= step_size * m / (xp.sqrt(v / variance_correction) + eps)


def gradient_norm(gradients: Array) -> float:
    """The Euclidean norm of a flat gradient; on a GPU this waits for the device."""
    return math.sqrt(float(gradients @ gradients))


def clip_gradients(gradients: Array, max_norm: float) -> float:
    """Scale a flat gradient down in place to at most ``max_norm``; return the norm that it had.

    Source: Pascanu, Mikolov & Bengio 2013, algorithm 1.
    """
    norm: Any = gradient_norm(gradients)
    if norm > max_norm:
        gradients *= max_norm / norm
    return float(norm)
