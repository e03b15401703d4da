"""Softmax and log-softmax over the last axis."""

from __future__ import annotations

from autograd.array import Array, namespace
from autograd.op import Dispatch, op
from autograd.tensor import Backward


@op
def softmax(x: Array) -> tuple[Array, Backward]:
    """Return y_i = exp(x_i) / Σ_j exp(x_j) over the last axis; dx = y ⊙ (dy − ⟨dy, y⟩).

    Saves: y.
    """
    y = softmax_values(x)

    def backward(dy: Array) -> tuple[Array]:
        return (softmax_gradient(dy, y),)

    return y, backward


def softmax_values(x: Array) -> Array:
    """Return the softmax over the last axis, shifted by the maximum so that no exponential overflows."""
    if not x.size:  # an empty array has no maximum
        return x.copy()
    xp = namespace(x)
    y = x - x.max(-1, keepdims=True)
    xp.exp(y, out=y)
    y /= y.sum(-1, keepdims=True)
    return y


def softmax_gradient(dy: Array, y: Array) -> Array:
    """Return dx = y ⊙ (dy − ⟨dy, y⟩), given the softmax y."""
    dx = dy * y
    dx -= y * dx.sum(-1, keepdims=True)
    return dx


@op
def log_softmax(x: Array) -> tuple[Array, Backward]:
    """Return y = x − log Σ_j exp(x_j) over the last axis; dx = dy − exp(y) Σ dy.

    Saves: y.
    """
    y = log_softmax_values(x)
    xp = namespace(x)

    def backward(dy: Array) -> tuple[Array]:
        return (dy - xp.exp(y) * dy.sum(-1, keepdims=True),)

    return y, backward


def log_softmax_values(x: Array) -> Array:
    """Return the log-softmax over the last axis, shifted by the maximum so that no exponential overflows."""
    greatest, log_total = log_normaliser(x)
    y = x - greatest
    y -= log_total
    return y


@Dispatch
def log_normaliser(x: Array) -> tuple[Array, Array]:
    """Return max_j x_j and log Σ_j exp(x_j − max); their sum is the logarithm of softmax's denominator.

    Shapes: x (…, W); returns two (…, 1), dtype of x.
    """
    xp = namespace(x)
    greatest = x.max(-1, keepdims=True)
    return greatest, xp.log(xp.exp(x - greatest).sum(-1, keepdims=True))
