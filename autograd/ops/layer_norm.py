"""Layer normalisation over the last axis."""

from __future__ import annotations

from autograd.array import Array, namespace
from autograd.op import ShapeError, op
from autograd.tensor import Backward


@op
def layer_norm(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """Normalise the last axis: gain · (x − μ) / √(σ² + eps) + bias.

    Source: Ba, Kiros & Hinton 2016, Layer Normalization, equations 3 and 4.
    Shapes: x (…, D), gain and bias (D,).  Returns (…, D), dtype of x.
    Saves: x̂ = (x − μ)/√(σ² + eps) (…, D), 1/√(σ² + eps) (…, 1), and the gain.
    Differs: eps is added inside the square root; the paper has none.
    Raises: ShapeError if gain or bias has another shape.
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
    """Check the arguments of ``layer_norm``.  Raises: ShapeError if they do not fit together."""
    if not gain.shape == bias.shape == x.shape[-1:] != ():
        raise ShapeError(
            f"layer_norm: expected x (…, D), gain (D,) and bias (D,);"
            f" got x {x.shape}, gain {gain.shape}, bias {bias.shape}"
        )
