"""Which implementation of an operation runs, and what is recorded of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autograd import Tensor, no_tape
from autograd.op import Dispatch, Operation, operations, unbroadcast

X = np.arange(3.0)


def dispatch() -> Dispatch[Any]:
    return Dispatch(lambda x, *, factor=1: ("reference", factor))


def named(name: str) -> Any:
    return lambda x, *, factor=1: (name, factor)


def test_without_kernels_the_reference_runs() -> None:
    assert dispatch()(X, factor=3) == ("reference", 3)


def test_the_kernel_registered_last_is_asked_first() -> None:
    double = dispatch()
    for name in ("first", "second", "third"):
        assert double.kernel("cpu")(function := named(name)) is function
    assert double(X) == ("third", 1)


def test_a_kernel_runs_what_it_supports() -> None:
    double = dispatch()
    double.kernel("cpu", supports=lambda x, factor=1: len(x) > 2)(named("long"))
    double.kernel("cpu", supports=lambda x, factor=1: factor == 7)(named("seven"))
    assert [double(X[:n], factor=factor)[0] for n, factor in ((3, 1), (2, 1), (2, 7))] == ["long", "reference", "seven"]


def test_a_kernel_of_another_device_is_not_asked() -> None:
    double = dispatch()
    asked: list[Any] = []
    double.kernel("cuda", supports=lambda *arguments, **static: bool(asked.append(arguments)) or True)(named("cuda"))
    assert double(X) == ("reference", 1)
    assert asked == []


def test_arguments_that_are_none_have_no_device() -> None:
    linear = operations["linear"]
    linear.kernel("cpu", supports=lambda x, w, b: b is None)(lambda x, w, b: (x, lambda dy: (dy, None, None)))
    try:
        np.testing.assert_array_equal(linear(X[None], np.eye(3) * 2, None).value, X[None])
        np.testing.assert_array_equal(linear(X[None], np.eye(3) * 2, X).value, 3 * X[None])
    finally:
        del linear.kernels[0]


def test_an_operation_keeps_the_name_and_the_words_of_its_function() -> None:
    def cube(x: Any) -> Any:
        """x³."""
        return x**3, lambda dy: (3 * x**2 * dy,)

    operation = Operation(cube)
    assert (operation.__name__, operation.__doc__) == ("cube", "x³.")
    result = operation(Tensor(X))
    assert result.node is not None
    assert (result.node.name, len(result.node.inputs)) == ("cube", 1)
    with no_tape():
        assert operation(Tensor(X)).node is None


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 1), (1, 4), (3, 4), (1, 3, 1), (2, 1, 4), (2, 3, 4)])
def test_unbroadcast_sums_what_was_stretched(shape: tuple[int, ...]) -> None:
    gradient = np.random.default_rng(1).standard_normal((2, 3, 4))
    summed = unbroadcast(gradient, shape)
    assert summed.shape == shape
    x = np.random.default_rng(2).standard_normal(shape)
    assert (summed * x).sum() == pytest.approx((gradient * x).sum(), rel=1e-12)
