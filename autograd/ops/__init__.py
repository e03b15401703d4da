"""The operations, each with a backward written by hand, and Python's operators on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograd.ops.activations import gelu, gelu_tanh, swish
from autograd.ops.add_norm import add_norm
from autograd.ops.arithmetic import (
    add,
    divide,
    exp,
    log,
    maximum,
    multiply,
    power,
    relu,
    scale,
    sqrt,
    subtract,
    tanh,
)  # fmt: skip
from autograd.ops.attention import attention
from autograd.ops.cross_entropy import cross_entropy, linear_cross_entropy
from autograd.ops.dropout import dropout
from autograd.ops.embedding import embedding, embedding_with_positions
from autograd.ops.feed_forward import feed_forward
from autograd.ops.layer_norm import layer_norm
from autograd.ops.linear import linear, linear_relu, linear_transposed, matmul
from autograd.ops.linear_maps import linear_maps
from autograd.ops.shape import concatenate, getitem, max, mean, reshape, stack, sum, transpose
from autograd.ops.softmax import log_softmax, softmax
from autograd.tensor import Tensor

__all__ = [
    "add",
    "add_norm",
    "attention",
    "concatenate",
    "cross_entropy",
    "divide",
    "dropout",
    "embedding",
    "embedding_with_positions",
    "exp",
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
    "log",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean",
    "multiply",
    "power",
    "relu",
    "reshape",
    "scale",
    "softmax",
    "sqrt",
    "stack",
    "subtract",
    "sum",
    "swish",
    "tanh",
    "transpose",
]


def _method(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap an operation in a function: Python makes methods only of functions."""

    def method(x: Tensor, *arguments: Any) -> Tensor:
        return operation(x, *arguments)

    return method


def _swap(operation: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    return lambda x, y: operation(y, x)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float)


def _power(x: Tensor, exponent: Any) -> Tensor:
    return power(x, exponent=exponent) if _is_number(exponent) else NotImplemented


def _shape(arguments: tuple[Any, ...]) -> Any:
    """Return (2, 3) for ``x.reshape(2, 3)`` as for ``x.reshape((2, 3))``, None without arguments."""
    return (arguments[0] if isinstance(arguments[0], tuple | list) else arguments) if arguments else None


METHODS: dict[str, Any] = {  # Python's operators on tensors, and the methods that NumPy's arrays have
    "__add__": _method(add),
    "__radd__": _swap(add),
    "__sub__": _method(subtract),
    "__rsub__": _swap(subtract),
    "__mul__": lambda x, y: scale(x, factor=float(y)) if _is_number(y) else multiply(x, y),
    "__rmul__": lambda x, y: scale(x, factor=float(y)) if _is_number(y) else multiply(x, y),
    "__truediv__": lambda x, y: divide(x, float(y) if _is_number(y) else y),
    "__rtruediv__": _swap(divide),
    "__pow__": _power,
    "__neg__": lambda x: scale(x, factor=-1),
    "__matmul__": _method(matmul),
    "__rmatmul__": _swap(matmul),
    "__getitem__": lambda x, index: getitem(x, index=index),
    "sum": lambda x, axis=None, keepdims=False: sum(x, axis=axis, keepdims=keepdims),
    "mean": lambda x, axis=None, keepdims=False: mean(x, axis=axis, keepdims=keepdims),
    "max": lambda x, axis=None, keepdims=False: max(x, axis=axis, keepdims=keepdims),
    "reshape": lambda x, *shape: reshape(x, shape=_shape(shape)),
    "transpose": lambda x, *axes: transpose(x, axes=_shape(axes)),
    "T": property(_method(transpose)),
}
for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
