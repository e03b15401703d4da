"""The operations, each with a backward written by hand, and Python's operators on tensors."""

from __future__ import annotations

from typing import Any

from autograd.ops.activations import gelu, gelu_tanh, swish
from autograd.ops.add_norm import add_norm
from autograd.ops.arithmetic import add, divide, multiply, relu, scale, subtract, tanh
from autograd.ops.attention import attention
from autograd.ops.cross_entropy import cross_entropy, linear_cross_entropy
from autograd.ops.dropout import dropout
from autograd.ops.embedding import embedding, embedding_with_positions
from autograd.ops.feed_forward import feed_forward
from autograd.ops.layer_norm import layer_norm
from autograd.ops.linear import linear, linear_relu, linear_transposed, matmul
from autograd.ops.linear_maps import linear_maps
from autograd.ops.shape import getitem, mean, reshape, sum, transpose
from autograd.ops.softmax import log_softmax, softmax
from autograd.tensor import Tensor

__all__ = [
    "add",
    "add_norm",
    "attention",
    "cross_entropy",
    "divide",
    "dropout",
    "embedding",
    "embedding_with_positions",
    "feed_forward",
    "gelu",
    "gelu_tanh",
    "getitem",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "linear_maps",
    "linear_relu",
    "linear_transposed",
    "log_softmax",
    "matmul",
    "mean",
    "multiply",
    "relu",
    "reshape",
    "scale",
    "softmax",
    "subtract",
    "sum",
    "swish",
    "tanh",
    "transpose",
]


def _add(x: Tensor, y: Any) -> Tensor:
    return add(x, y)


def _subtract(x: Tensor, y: Any) -> Tensor:
    return subtract(x, y)


def _swapped_subtract(x: Tensor, y: Any) -> Tensor:
    return subtract(y, x)


def _multiply(x: Tensor, y: Any) -> Tensor:
    return scale(x, factor=float(y)) if isinstance(y, int | float) else multiply(x, y)


def _divide(x: Tensor, y: Any) -> Tensor:
    return scale(x, factor=1 / float(y)) if isinstance(y, int | float) else divide(x, y)


def _swapped_divide(x: Tensor, y: Any) -> Tensor:
    return divide(y, x)


def _negative(x: Tensor) -> Tensor:
    return scale(x, factor=-1)


def _matmul(x: Tensor, y: Any) -> Tensor:
    return matmul(x, y)


def _swapped_matmul(x: Tensor, y: Any) -> Tensor:
    return matmul(y, x)


def _getitem(x: Tensor, index: Any) -> Tensor:
    return getitem(x, index=index)


Tensor.__add__ = Tensor.__radd__ = _add
Tensor.__sub__, Tensor.__rsub__ = _subtract, _swapped_subtract
Tensor.__mul__ = Tensor.__rmul__ = _multiply
Tensor.__truediv__, Tensor.__rtruediv__ = _divide, _swapped_divide
Tensor.__matmul__, Tensor.__rmatmul__ = _matmul, _swapped_matmul
Tensor.__neg__, Tensor.__getitem__ = _negative, _getitem
