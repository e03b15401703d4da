"""Dropout, residual connection and layer normalisation ("Add & Norm" in Figure 1 of the paper) in one operation."""

from __future__ import annotations

from autograd.array import Array
from autograd.op import ShapeError, op
from autograd.ops.dropout import dropout
from autograd.ops.layer_norm import layer_norm
from autograd.random import StreamId
from autograd.tensor import Backward


@op
def add_norm(
    x: Array,
    y: Array,
    gain: Array,
    bias: Array,
    *,
    rate: float = 0.0,
    stream_id: StreamId | None = None,
    eps: float = 1e-6,
) -> tuple[Array, Backward]:
    """Return LayerNorm(x + Dropout(y)); without a random stream id drop nothing.

    As one operation it can have a kernel that writes no intermediate results to memory.  Without such a kernel the
    three operations run one after the other, each with its own kernel.
    Source: Vaswani et al. 2017, sections 3.1 and 5.4.
    Shapes: x and y (…, D), gain and bias (D,).  Returns (…, D).
    Saves: what ``layer_norm`` and ``dropout`` save.
    Raises: ShapeError unless x and y have one shape; with a random stream id, ValueError unless 0 ≤ rate < 1.
    """
    if x.shape != y.shape:
        raise ShapeError(f"add_norm: expected x and y of one shape; got x {x.shape}, y {y.shape}")
    dropout_backward: Backward | None = None
    if rate and stream_id:
        y, dropout_backward = dropout.of_arrays(y, rate=rate, stream_id=stream_id)
    normalised, norm_backward = layer_norm.of_arrays(x + y, gain, bias, eps=eps)

    def backward(dy: Array) -> tuple[Array, ...]:
        dsum, dgain, dbias = norm_backward(dy)
        return dsum, dropout_backward(dsum)[0] if dropout_backward else dsum, dgain, dbias

    return normalised, backward
