"""Search for the first operation of a computation that produces an infinity or a NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd.array import Array, namespace
from autograd.op import JointOperation, Operation
from autograd.precision import widened
from autograd.tensor import Backward, Gradient, written


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


class _Found(Exception):  # noqa: N818 (not an error: it ends the search)
    def __init__(self, what: NotFinite) -> None:
        self.what = what


def first_not_finite(compute: Callable[[], object]) -> NotFinite | None:
    """Run ``compute`` until an array is not finite and describe that array; return None if all are finite.

    Check the arguments and the result of every operation, and the gradients if ``compute`` runs a backward pass.  Meant
    for debugging: it is slow, and other threads must not compute meanwhile.
    """
    try:
        with _operations_watched(), np.errstate(all="ignore"):  # no warnings of overflow
            compute()
    except _Found as found:
        return found.what
    return None


@contextmanager
def _operations_watched() -> Iterator[None]:
    choose, kernel_of, counted = Operation.choose, JointOperation.kernel_of, [0]
    running: list[Operation] = []

    @contextmanager
    def as_running(operation: Operation) -> Iterator[None]:
        running.append(operation)
        try:
            yield
        finally:
            running.pop()

    def choose_watched(self: Operation, arguments: tuple[Any, ...], static: dict[str, Any]) -> Callable[..., Any]:
        run = choose(self, arguments, static)

        def watched(*arguments: Any, **static: Any) -> tuple[Array, Backward]:
            if running[-1:] == [self]:  # the float32 computation of an operation on bfloat16 arrays
                return run(*arguments, **static)
            counted[0] += 1
            number, name = counted[0], self.__name__
            for i, argument in enumerate(arguments):
                _require_finite(argument, name, number, f"argument {i}", arguments)
            with as_running(self):
                value, backward = run(*arguments, **static)
            _require_finite(value, name, number, "result", arguments)

            def watched_backward(dy: Array) -> Sequence[Gradient | None]:
                with as_running(self):
                    gradients = [None if gradient is None else written(gradient) for gradient in backward(dy)]
                for i, gradient in enumerate(gradients):
                    _require_finite(gradient, name, number, f"gradient of argument {i}", arguments)
                return gradients

            return value, watched_backward

        return watched

    def nothing_together(self: JointOperation, arguments: tuple[Any, ...]) -> None:
        """Return no kernel, so that each of the operations runs by itself and is checked."""

    Operation.choose, JointOperation.kernel_of = choose_watched, nothing_together  # type: ignore[method-assign]
    try:
        yield
    finally:
        Operation.choose, JointOperation.kernel_of = choose, kernel_of  # type: ignore[method-assign]


def _require_finite(array: Any, operation: str, number: int, what: str, arguments: tuple[Any, ...]) -> None:
    array = widened(array)
    if hasattr(array, "dtype") and array.dtype.kind == "f":
        n_wrong = int((~namespace(array).isfinite(array)).sum())
        if n_wrong:
            raise _Found(NotFinite(operation, number, what, n_wrong, arguments))
