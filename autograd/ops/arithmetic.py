"""Elementwise arithmetic with NumPy's broadcasting, and elementwise functions."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.op import op, unbroadcast
from autograd.tensor import Backward


@op
def add(x: Array, y: Array) -> tuple[Array, Backward]:
    """Return x + y, broadcast.

    Saves: the shapes.
    """
    x_shape, y_shape = np.shape(x), np.shape(y)

    def backward(dz: Array) -> tuple[Array, Array]:
        return unbroadcast(dz, x_shape), unbroadcast(dz, y_shape)

    return x + y, backward


@op
def subtract(x: Array, y: Array) -> tuple[Array, Backward]:
    """Return x − y, broadcast.

    Saves: the shapes.
    """
    x_shape, y_shape = np.shape(x), np.shape(y)

    def backward(dz: Array) -> tuple[Array, Array]:
        return unbroadcast(dz, x_shape), unbroadcast(-dz, y_shape)

    return x - y, backward


@op
def multiply(x: Array, y: Array) -> tuple[Array, Backward]:
    """Return x · y elementwise, broadcast.

    Saves: x and y.
    """

    def backward(dz: Array) -> tuple[Array, Array]:
        return unbroadcast(dz * y, np.shape(x)), unbroadcast(dz * x, np.shape(y))

    return x * y, backward


@op
def divide(x: Array, y: Array) -> tuple[Array, Backward]:
    """Return x / y elementwise, broadcast.

    Saves: y and the quotient.
    """
    quotient, x_shape = x / y, np.shape(x)

    def backward(dz: Array) -> tuple[Array, Array | None]:
        dx = dz / y
        dy = unbroadcast(-dx * quotient, np.shape(y)) if hasattr(y, "dtype") else None  # a number needs no gradient
        return unbroadcast(dx, x_shape), dy

    return quotient, backward


@op
def scale(x: Array, *, factor: float) -> tuple[Array, Backward]:
    """Return factor · x, for a number ``factor`` that needs no gradient.

    Saves: nothing.
    """

    def backward(dy: Array) -> tuple[Array]:
        return (dy * factor,)

    return x * factor, backward


@op
def relu(x: Array) -> tuple[Array, Backward]:
    """Return max(0, x); the derivative at 0 is taken as 0.

    Saves: the result, whose sign is the derivative.
    """
    y = namespace(x).maximum(x, 0)

    def backward(dy: Array) -> tuple[Array]:
        return (dy * (y > 0),)

    return y, backward


@op
def tanh(x: Array) -> tuple[Array, Backward]:
    """Return y = tanh(x); dx = (1 − y²) dy.  The logistic function is (1 + tanh(x / 2)) / 2.

    Saves: y.
    """
    y = namespace(x).tanh(x)

    def backward(dy: Array) -> tuple[Array]:
        return (dy * (1 - y * y),)

    return y, backward


@op
def exp(x: Array) -> tuple[Array, Backward]:
    """Return y = eˣ; dx = y dy.

    Saves: y.
    """
    y = namespace(x).exp(x)

    def backward(dy: Array) -> tuple[Array]:
        return (dy * y,)

    return y, backward


@op
def log(x: Array) -> tuple[Array, Backward]:
    """Return the natural logarithm of x; dx = dy / x.

    Saves: x.
    """

    def backward(dy: Array) -> tuple[Array]:
        return (dy / x,)

    return namespace(x).log(x), backward


@op
def sqrt(x: Array) -> tuple[Array, Backward]:
    """Return y = √x; dx = dy / 2y, which is infinite at 0.

    Saves: y.
    """
    y = namespace(x).sqrt(x)

    def backward(dy: Array) -> tuple[Array]:
        return (dy / (2 * y),)

    return y, backward


@op
def power(x: Array, *, exponent: float) -> tuple[Array, Backward]:
    """Return xⁿ, for a number n (``exponent``) that needs no gradient; dx = n xⁿ⁻¹ dy.

    Saves: x.
    """

    def backward(dy: Array) -> tuple[Array]:
        if exponent == 0:  # 0 · x⁻¹ would be NaN at 0
            return (namespace(x).zeros_like(dy),)
        return (dy * exponent * x ** (exponent - 1),)

    return x**exponent, backward


@op
def maximum(x: Array, y: Array) -> tuple[Array, Backward]:
    """Return the greater of x and y elementwise, broadcast; where they are equal, each gets half of the gradient.

    Saves: x and y.
    """
    xp = namespace(x if hasattr(x, "dtype") else y)

    def backward(dz: Array) -> tuple[Array, Array]:
        half = dz * 0.5 * (x == y)
        return unbroadcast(dz * (x > y) + half, np.shape(x)), unbroadcast(dz * (x < y) + half, np.shape(y))

    return xp.maximum(x, y), backward
