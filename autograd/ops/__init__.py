"""The operations, each with a backward written by hand, and Python's operators on tensors."""

from __future__ import annotations

import math
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
    if isinstance(exponent, Tensor):
        raise TypeError("x ** y of two Tensors: ops.exp(y * ops.log(x)) computes it, for x greater than 0")
    return power(x, exponent=exponent) if _is_number(exponent) else NotImplemented


def _power_of(x: Tensor, base: Any) -> Tensor:
    """Return baseˣ = exp(x · ln base), for a number greater than 0."""
    if not _is_number(base) or base <= 0:
        raise TypeError(f"{base!r:.80} ** Tensor: expected a number greater than 0 before **")
    return exp(scale(x, factor=math.log(base)))


def _matmul(x: Any, y: Any) -> Any:
    """Return x @ y; a vector before @ is a row, a vector after @ a column, as for NumPy's arrays."""
    if not (hasattr(x, "shape") and hasattr(y, "shape")):
        return NotImplemented
    one_row, one_column = len(x.shape) == 1, len(y.shape) == 1
    if not (one_row or one_column):
        return matmul(x, y)
    row, column = reshape(x, shape=(1, -1)) if one_row else x, reshape(y, shape=(-1, 1)) if one_column else y
    z = matmul(row, column)
    return reshape(z, shape=z.shape[: -2 + (not one_row)] + z.shape[len(z.shape) - (not one_column) :])


# The names of operators in NumPy and in Python.
_OPERATORS = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "matmul": "matmul"}
_COMPARED = "compare its .value, as in mask = x.value > 0"


def _refuse(sign: str, remedy: str) -> Callable[..., Any]:
    """Return a method that raises TypeError: this operator of Python has no gradient."""

    def method(x: Tensor, *_: Any) -> Any:
        raise TypeError(f"a Tensor has no {sign}; {remedy}")

    return method


class _NumPyProtocol:
    """The attribute ``__array_ufunc__``, through which NumPy calls its functions with a tensor.

    NumPy reads it from the class.  CuPy reads it from the object, and calls ``Tensor.__radd__`` if it is None.
    """

    def __get__(self, tensor: Tensor | None, kind: type) -> Any:
        return _call_of_numpy if tensor is None else None


def _call_of_numpy(tensor: Tensor, function: Any, method: str, *inputs: Any, **more: Any) -> Any:
    """Compute ``array + tensor``, and other operators of arrays, for which NumPy calls np.add.

    Raises: TypeError for other functions of NumPy, which would record no tape.
    """
    name = function.__name__
    is_operator = method == "__call__" and name in _OPERATORS and (not more or more.get("out") == inputs[:1])
    if not is_operator:
        raise TypeError(_refusal(name))
    x, y = inputs
    sign = _OPERATORS[name]
    return METHODS[f"__r{sign}__"](y, x) if isinstance(y, Tensor) else METHODS[f"__{sign}__"](x, y)


def _refuse_function(tensor: Tensor, function: Any, *_: Any) -> Any:
    """Raise TypeError for a function of NumPy, such as np.sum(tensor)."""
    raise TypeError(_refusal(function.__name__))


def _refusal(name: str) -> str:
    """Return why a function of NumPy does not take tensors, and what to use."""
    if name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        return f"np.{name} of a Tensor has no gradient; {_COMPARED}"
    use = f"use {__name__}.{name}" if name in __all__ else f"compute it with functions of {__name__}"
    return f"np.{name} of a Tensor would have no gradient; {use}, or np.{name} of its .value"


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
    "__matmul__": _matmul,
    "__rmatmul__": _swap(_matmul),
    "__rpow__": _power_of,
    "__abs__": lambda x: maximum(x, scale(x, factor=-1)),
    "__pos__": lambda x: x,
    "__getitem__": lambda x, index: getitem(x, index=index),
    "sum": lambda x, axis=None, keepdims=False: sum(x, axis=axis, keepdims=keepdims),
    "mean": lambda x, axis=None, keepdims=False: mean(x, axis=axis, keepdims=keepdims),
    "max": lambda x, axis=None, keepdims=False: max(x, axis=axis, keepdims=keepdims),
    "reshape": lambda x, *shape: reshape(x, shape=_shape(shape)),
    "transpose": lambda x, *axes: transpose(x, axes=_shape(axes)),
    "T": property(_method(transpose)),
}
METHODS |= {
    "__array_ufunc__": _NumPyProtocol(),
    "__array_function__": _refuse_function,
    **{
        f"__{name}__": _refuse(sign, _COMPARED) for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
    **{
        f"__{side}{name}__": _refuse(sign, "compute it with its .value, without a gradient")
        for name, sign in (("floordiv", "//"), ("mod", "%"))
        for side in ("", "r")
    },
    "__setitem__": _refuse("assignment to its items", "change its .value"),
}
for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
