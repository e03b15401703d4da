"""Search for the first operation of a computation that produces an infinity or a NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd.array import Array, namespace
from autograd.op import Operation, Run, observed
from autograd.packed_weight import PackedWeight
from autograd.precision import upcast
from autograd.tensor import Backward, Gradient, gradient_array


@dataclass(frozen=True)
class NotFinite:
    """The first array that is not finite, its role, its operation and the operation's arguments.

    ``array`` is "argument i" (an array that no operation computed), "result" or "gradient of argument i".
    ``number`` counts operations from 1 in the order of their forward passes.
    """

    operation: str
    number: int
    array: str
    n_wrong: int
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        shapes = ", ".join(str(tuple(x.shape)) for x in self.arguments if hasattr(x, "shape"))
        return f"{self.array} of operation {self.number}, {self.operation} of {shapes}: {self.n_wrong} not finite"


class _SearchEnd(Exception):  # noqa: N818 (not an error: it ends the search)
    def __init__(self, what: NotFinite) -> None:
        self.what = what


def first_not_finite(compute: Callable[[], object]) -> NotFinite | None:
    """Run ``compute`` until an array is not finite and describe that array; return None if all are finite.

    Check the arguments and the result of every operation of this thread, and the gradients if ``compute`` runs a
    backward pass.  Meant for debugging: it is slow.
    """
    try:
        with observed(_FiniteCheck()), np.errstate(all="ignore"):  # no warnings of overflow
            compute()
    except _SearchEnd as found:
        return found.what
    return None


class _FiniteCheck:
    """An observer that counts operations and raises ``_SearchEnd`` at the first array that is not finite."""

    def __init__(self) -> None:
        self.n_operations = 0

    def __call__(self, operation: Operation, run: Run, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        self.n_operations += 1
        number, name = self.n_operations, operation.__name__
        for i, argument in enumerate(arguments):
            _require_finite(argument, name, number, f"argument {i}", arguments)
        value, backward = run(*arguments, **static)
        _require_finite(value, name, number, "result", arguments)

        def checked_backward(dy: Array) -> Sequence[Gradient | None]:
            gradients = [None if gradient is None else gradient_array(gradient) for gradient in backward(dy)]
            for i, gradient in enumerate(gradients):
                _require_finite(gradient, name, number, f"gradient of argument {i}", arguments)
            return gradients

        return value, checked_backward


def _require_finite(array: Any, operation: str, number: int, what: str, arguments: tuple[Any, ...]) -> None:
    if isinstance(array, PackedWeight):  # in int8 a column that is not finite has a scale that is not finite
        array = array.levels() if array.scales is None else array.scales
    array = upcast(array)
    if hasattr(array, "dtype") and array.dtype.kind == "f":
        n_wrong = int((~namespace(array).isfinite(array)).sum())
        if n_wrong:
            raise _SearchEnd(NotFinite(operation, number, what, n_wrong, arguments))
