"""Reshape, transpose, slicing and gathering, joining, and reductions over axes."""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from autograd.array import Array, namespace
from autograd.op import op
from autograd.tensor import Backward

Axes = int | tuple[int, ...] | None


@partial(op, moves=True)
def reshape(x: Array, *, shape: tuple[int, ...]) -> tuple[Array, Backward]:
    """Return the elements of x, in order, in another shape (one dimension may be −1).

    Saves: the shape of x.
    """
    x_shape = x.shape

    def backward(dy: Array) -> tuple[Array]:
        return (dy.reshape(x_shape),)

    return x.reshape(shape), backward


@partial(op, moves=True)
def transpose(x: Array, *, axes: tuple[int, ...] | None = None) -> tuple[Array, Backward]:
    """Return x with its axes permuted (reversed by default).

    Saves: nothing.
    """
    order = axes if axes is not None else tuple(reversed(range(x.ndim)))
    inverse = tuple(sorted(range(x.ndim), key=lambda axis: order[axis] % x.ndim))

    def backward(dy: Array) -> tuple[Array]:
        return (dy.transpose(inverse),)

    return x.transpose(order), backward


@op
def getitem(x: Array, *, index: Any) -> tuple[Array, Backward]:
    """Return x[index], a slice or rows gathered by an integer array; the gradients of a row gathered twice are added.

    Saves: the index and the shape of x.
    """
    xp, x_shape = namespace(x), x.shape

    def backward(dy: Array) -> tuple[Array]:
        dx = xp.zeros(x_shape, dy.dtype)
        if _is_basic(index):
            dx[index] = dy
        else:
            xp.add.at(dx, index, dy)
        return (dx,)

    return x[index], backward


def _is_basic(index: Any) -> bool:
    """Return whether an index gives a view, in which no element occurs twice.

    For other indices NumPy copies the elements.
    """
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or isinstance(part, int | slice) for part in parts)


@op
def sum(x: Array, *, axis: Axes = None, keepdims: bool = False) -> tuple[Array, Backward]:
    """Return Σ x over the given axes (all by default).

    Saves: the shape of x.
    """
    xp, x_shape = namespace(x), x.shape

    def backward(dy: Array) -> tuple[Array]:
        if axis is not None and not keepdims:
            dy = xp.expand_dims(dy, axis)
        return (xp.broadcast_to(dy, x_shape),)

    return xp.asarray(x.sum(axis, keepdims=keepdims)), backward


@op
def mean(x: Array, *, axis: Axes = None, keepdims: bool = False) -> tuple[Array, Backward]:
    """Return the mean of x over the given axes (all by default).

    Saves: the shape of x.
    """
    total, backward_of_sum = sum.reference(x, axis=axis, keepdims=keepdims)
    count = x.size // (total.size or 1)

    def backward(dy: Array) -> tuple[Array | None, ...]:
        return tuple(backward_of_sum(dy / count))

    return total / count, backward


@op
def max(x: Array, *, axis: Axes = None, keepdims: bool = False) -> tuple[Array, Backward]:
    """Return the maximum over the given axes (all by default); equal maxima share the gradient equally.

    Saves: the maxima, and a mask of their positions.
    """
    y = x.max(axis, keepdims=True)
    is_greatest = x == y

    def backward(dy: Array) -> tuple[Array]:
        share = is_greatest / is_greatest.sum(axis, keepdims=True)
        return (dy.reshape(y.shape) * share.astype(dy.dtype),)

    return y if keepdims else y.squeeze(axis), backward


@op
def concatenate(*arrays: Array, axis: int = 0) -> tuple[Array, Backward]:
    """Return the arrays joined along an existing axis: ``concatenate(x, y, axis=1)``.

    Saves: the lengths along this axis.
    Raises: TypeError if there is no argument, or if one is a list or a tuple.
    """
    _check_arrays("concatenate", arrays)
    ends = [0, *accumulate(x.shape[axis] for x in arrays)]
    before = (slice(None),) * (axis % arrays[0].ndim)

    def backward(dy: Array) -> tuple[Array, ...]:
        return tuple(dy[(*before, slice(*part))] for part in pairwise(ends))

    return namespace(arrays[0]).concatenate(arrays, axis), backward


@op
def stack(*arrays: Array, axis: int = 0) -> tuple[Array, Backward]:
    """Return the arrays joined along a new axis: ``stack(x, y)``.

    Saves: nothing.
    Raises: TypeError if there is no argument, or if one is a list or a tuple.
    """
    _check_arrays("stack", arrays)
    xp = namespace(arrays[0])

    def backward(dy: Array) -> tuple[Array, ...]:
        slices = xp.moveaxis(dy, axis, 0)
        return tuple(slices[i] for i in range(len(arrays)))

    return xp.stack(arrays, axis), backward


def _check_arrays(name: str, arrays: tuple[Any, ...]) -> None:
    if not arrays or any(isinstance(x, list | tuple) for x in arrays):
        raise TypeError(f"{name}: expected tensors as arguments of their own, as in {name}(x, y); got {arrays!r:.80}")
