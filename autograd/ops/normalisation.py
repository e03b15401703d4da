"""Softmax, log-softmax and layer normalisation, each over the last axis."""

from __future__ import annotations

from autograd.array import Array, namespace
from autograd.op import Dispatch, ShapeError, op
from autograd.tensor import Backward


@op
def softmax(x: Array) -> tuple[Array, Backward]:
    """y_i = exp(x_i) / Σ_j exp(x_j) over the last axis; dx = y ⊙ (dy − ⟨dy, y⟩).

    Saves: y.
    """
    y = softmax_values(x)

    def backward(dy: Array) -> tuple[Array]:
        return (softmax_gradient(dy, y),)

    return y, backward


def softmax_values(x: Array) -> Array:
    """Softmax over the last axis, shifted by the maximum so that no exponential overflows."""
    if not x.size:  # nothing has no maximum
        return x.copy()
    xp = namespace(x)
    y = x - x.max(-1, keepdims=True)
    xp.exp(y, out=y)
    y /= y.sum(-1, keepdims=True)
    return y


def softmax_gradient(dy: Array, y: Array) -> Array:
    """dx = y ⊙ (dy − ⟨dy, y⟩), given the softmax y."""
    dx = dy * y
    dx -= y * dx.sum(-1, keepdims=True)
    return dx


@op
def log_softmax(x: Array) -> tuple[Array, Backward]:
    """y = x − log Σ_j exp(x_j) over the last axis; dx = dy − exp(y) Σ dy.

    Saves: y.
    """
    y = log_softmax_values(x)
    xp = namespace(x)

    def backward(dy: Array) -> tuple[Array]:
        return (dy - xp.exp(y) * dy.sum(-1, keepdims=True),)

    return y, backward


def log_softmax_values(x: Array) -> Array:
    """Log-softmax over the last axis, shifted by the maximum so that no exponential overflows."""
    greatest, log_total = log_normaliser(x)
    y = x - greatest
    y -= log_total
    return y


@Dispatch
def log_normaliser(x: Array) -> tuple[Array, Array]:
    """max_j x_j and log Σ_j exp(x_j − max), whose sum is the logarithm of softmax's denominator.

    Shapes: x (…, W); returns two (…, 1), dtype of x.
    """
    xp = namespace(x)
    greatest = x.max(-1, keepdims=True)
    return greatest, xp.log(xp.exp(x - greatest).sum(-1, keepdims=True))


@op
def layer_norm(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """Normalise the last axis: gain · (x − μ) / √(σ² + eps) + bias.

    Source: Ba, Kiros & Hinton 2016, Layer Normalization, equations 3 and 4.
    Shapes: x (…, D), gain and bias (D,).  Returns (…, D), dtype of x.
    Saves: x̂ = (x − μ)/√(σ² + eps) (…, D), 1/√(σ² + eps) (…, 1), and the gain.
    Differs: eps stands inside the root; the paper has none.
    Raises: ShapeError if gain or bias have another shape.
    """
    check_layer_norm(x, gain, bias)
    xp = namespace(x)
    x_hat = x - x.mean(-1, keepdims=True)
    inverse_std = 1 / xp.sqrt((x_hat * x_hat).mean(-1, keepdims=True) + eps)
    x_hat *= inverse_std

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        rows = tuple(range(dy.ndim - 1))
        dx_hat = dy * gain
        dx = dx_hat - dx_hat.mean(-1, keepdims=True)
        dx -= x_hat * (dx_hat * x_hat).mean(-1, keepdims=True)
        dx *= inverse_std
        return dx, (dy * x_hat).sum(rows), dy.sum(rows)

    y = x_hat * gain
    y += bias
    return y, backward


def check_layer_norm(x: Array, gain: Array, bias: Array) -> None:
    """Raises: ShapeError if the arguments of ``layer_norm`` do not fit together."""
    if not gain.shape == bias.shape == x.shape[-1:] != ():
        raise ShapeError(
            f"layer_norm: expected x (…, D), gain (D,) and bias (D,);"
            f" got x {x.shape}, gain {gain.shape}, bias {bias.shape}"
        )
