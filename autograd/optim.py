"""The norm of the gradient, clipping, and Adam, all on the flat buffers and on the device that holds them.

Only ``Adam.step`` and ``gradient_norm`` wait for the device.  Values that change with each update are arrays, not
Python numbers, so a CUDA graph can be captured once and launched for every update.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd.array import Array, namespace, to_host
from autograd.blas import product
from autograd.op import Dispatch
from autograd.parameters import ALIGNMENT, ParameterBuffer

N_SCALARS = 3  # per update: see ``Adam.scalars``


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) over all parameters at once, with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e−9.

    m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  θ ← θ − α · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)

    Args:
        pieces: the slices of the flat buffer to update; other ranks update the rest.  m and v hold the moments of these
            slices, one slice after the other.

    If m and v are set to the moments of another training, set ``earlier_updates`` to the number of updates of that
    training.  t counts these updates, too, so that the bias correction fits the moments.
    """

    def __init__(
        self,
        buffer: ParameterBuffer,
        *,
        beta1: float = 0.9,
        beta2: float = 0.98,
        eps: float = 1e-9,
        pieces: Sequence[slice] = (slice(None),),
    ) -> None:
        if not isinstance(buffer, ParameterBuffer):
            raise TypeError(f"Adam: expected the parameters of a model, model.parameters; got {buffer!r:.80}")
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1 and eps > 0):
            raise ValueError(f"Adam: expected 0 ≤ beta1, beta2 < 1 and eps > 0; got {beta1}, {beta2} and {eps}")
        self.buffer, self.pieces, self.beta1, self.beta2, self.eps = buffer, pieces, beta1, beta2, eps
        size = sum(len(buffer.values[piece]) for piece in pieces)
        self.m, self.v = (namespace(buffer.values).zeros(size, buffer.values.dtype) for _ in range(2))
        self.earlier_updates = 0

    def of_all(self, m: Array, v: Array) -> Adam:
        """Return a copy of this optimizer that updates the whole buffer, with these moments."""
        whole = copy.copy(self)
        whole.pieces, whole.m, whole.v = (slice(None),), m, v
        return whole

    def shard(self, flat: Array) -> Array:
        """Return the pieces of an array of the buffer's size, one after the other."""
        pieces = [flat[piece] for piece in self.pieces]
        return pieces[0] if len(pieces) == 1 else namespace(flat).concatenate(pieces)

    def scalars(self, learning_rate: float, step: int, n_tokens: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the scalars of update number ``step`` (from 1), on the host: 1/tokens, α/(1 − β₁ᵗ) and 1 − β₂ᵗ.

        t is ``step`` plus ``earlier_updates``.
        """
        t = step + self.earlier_updates
        return np.array([1 / n_tokens, learning_rate / (1 - self.beta1**t), 1 - self.beta2**t])

    def step(self, learning_rate: float, step: int, n_tokens: int = 1, *, max_norm: float = math.inf) -> float:
        """Make update number ``step`` (from 1) with the mean gradients: the buffer's gradients / ``n_tokens``.

        Return the norm of the mean gradients.  If it exceeds ``max_norm``, they are scaled down to this norm.  If it is
        not finite, nothing changes.
        Raises: ValueError if a number is out of bounds, or ``backward`` has not set the gradients.
        """
        self._check(learning_rate, step, n_tokens, max_norm)
        xp = namespace(self.m)
        scalars = xp.asarray(self.scalars(learning_rate, step, n_tokens))
        squares = sum_squares(self.shard(self.buffer.gradients))
        outcome = clip(squares, xp.zeros(()), scalars, max_norm=max_norm)
        self.update(scalars, outcome[2])
        return float(outcome[1])

    def _check(self, learning_rate: float, step: int, n_tokens: int, max_norm: float) -> None:
        if not self.buffer.has_gradients:
            raise ValueError("Adam.step: there are no gradients; call backward(loss) before each step")
        if not (float(step).is_integer() and step >= 1):
            raise ValueError(f"Adam.step: step is the number of the update, 1, 2, …; got {step}")
        if not n_tokens > 0:
            raise ValueError(f"Adam.step: n_tokens divides the gradients and must be greater than 0; got {n_tokens}")
        if not 0 <= learning_rate < math.inf:
            raise ValueError(f"Adam.step: learning_rate must be a finite number of at least 0; got {learning_rate}")
        if not max_norm > 0:
            raise ValueError(f"Adam.step: max_norm must be greater than 0; got {max_norm}")

    def update(self, scalars: Array, scale: Array, within: slice = slice(None)) -> None:
        """Update all pieces, or the slice ``within`` of each, with ``scale`` times the buffer's gradients.

        Nothing changes if ``scale`` is 0.
        Shapes: scalars (N_SCALARS,), see ``scalars``; scale (), see ``clip``; float64, on the buffer's device.
        """
        low_precision, end = self.buffer.low_precision, 0
        for piece in self.pieces:
            values = self.buffer.values[piece]
            start, end = end, end + len(values)
            adam_update(
                values[within],
                self.buffer.gradients[piece][within],
                self.m[start:end][within],
                self.v[start:end][within],
                None if low_precision is None else low_precision[piece][within],
                scalars,
                scale,
                beta1=self.beta1,
                beta2=self.beta2,
                eps=self.eps,
            )


@Dispatch
def adam_update(
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
    """Make one step of Adam in place, with g = scale · gradients; change nothing if the scale is 0.

    Shapes: all (n,) and of one dtype, except low_precision (another dtype), scalars (N_SCALARS,) and scale ().
    Changes values, m and v, and sets ``low_precision`` to the rounded values.
    """
    xp, applies = namespace(values), scale > 0
    factor, step_size, variance_correction = (x.astype(values.dtype) for x in (scale, scalars[1], scalars[2]))
    g = xp.where(applies, gradients * factor, 0)
    m[...] = xp.where(applies, beta1 * m + (1 - beta1) * g, m)
    v[...] = xp.where(applies, beta2 * v + (1 - beta2) * g * g, v)
    values -= xp.where(applies, step_size * m / (xp.sqrt(v / variance_correction) + eps), 0)
    if low_precision is not None:
        low_precision[...] = values.astype(low_precision.dtype)


@Dispatch
def sum_squares(gradients: Array) -> Array:
    """Return partial sums of squares of the gradient; their total is the squared norm.

    Each partial sum is over ALIGNMENT consecutive elements.  A shard begins at a multiple of ALIGNMENT, so the sums of
    all shards, concatenated, have the same bits however the gradient is divided.
    Shapes: gradients (n,) → (⌈n / ALIGNMENT⌉,).
    """
    runs, rest = in_runs(gradients)
    squares = (runs * runs).sum(1)
    return namespace(gradients).concatenate([squares, product(rest, rest)[None]]) if len(rest) else squares


def in_runs(gradients: Array) -> tuple[Array, Array]:
    """Return all runs of ALIGNMENT elements, and the elements after the last run.

    Shapes: (n,) → (k, ALIGNMENT), (r,).
    """
    n_in_runs = len(gradients) // ALIGNMENT * ALIGNMENT
    return gradients[:n_in_runs].reshape(-1, ALIGNMENT), gradients[n_in_runs:]


@Dispatch
def clip(squares: Array, loss: Array, scalars: Array, *, max_norm: float = math.inf) -> Array:
    """Return (loss, ‖g‖, scale) for the mean gradient g = gradients · scalars[0].

    ``scale · gradients`` is g, scaled down so that its norm is at most ``max_norm``.  The scale is 0 if the loss or the
    norm is not finite: the update must then change nothing.  Sums are float64.
    Shapes: squares (k,), see ``sum_squares``; loss (); scalars (N_SCALARS,); returns (3,) float64.
    Source: Pascanu, Mikolov & Bengio 2013, algorithm 1.
    """
    xp, per_token = namespace(squares), scalars[0].astype(np.float64)
    norm = xp.sqrt(squares.sum(dtype=np.float64)) * per_token
    clipping = max_norm / xp.maximum(norm, max_norm) if max_norm < math.inf else 1.0
    scale = xp.where(xp.isfinite(norm) & xp.isfinite(loss), per_token * clipping, 0.0)
    return xp.stack([xp.asarray(loss, np.float64), norm, scale])


def gradient_norm(gradients: Array) -> float:
    """Return the Euclidean norm of a flat gradient; on a GPU this waits for the device."""
    return math.sqrt(float(to_host(sum_squares(gradients).sum(dtype=np.float64))))
