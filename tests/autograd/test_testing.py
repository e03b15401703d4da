"""The tester is tested: wrong gradients must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import Tensor, ops
from autograd.op import Operation
from autograd.testing import GradientError, check_gradients

X = np.random.default_rng(0).standard_normal((3, 4))


def square_with(gradient: Callable[[Any, Any], Any]) -> Operation:
    def square(x: Any) -> Any:
        return x * x, lambda dy: (gradient(dy, x),)

    return Operation(square)


def test_right_gradient_passes() -> None:
    check_gradients(square_with(lambda dy, x: 2 * dy * x), X)


@pytest.mark.parametrize(
    "gradient",
    [
        lambda dy, x: 2.001 * dy * x,
        lambda dy, x: 2 * dy * x + 1e-3,
        lambda dy, x: 2 * dy,
        lambda dy, x: np.zeros_like(x),
        lambda dy, x: np.full_like(x, np.nan),
        lambda dy, x: np.where(np.arange(12).reshape(3, 4) == 7, 0, 2 * dy * x),
    ],
    ids=["off by 0.05 %", "a constant too much", "a factor missing", "nothing", "not a number", "one wrong coordinate"],
)
def test_wrong_gradients_are_found(gradient: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(GradientError):
        check_gradients(square_with(gradient), X)


def test_a_transposed_gradient_is_found() -> None:
    def product(x: Any, y: Any) -> Any:
        return x @ y, lambda dz: (dz @ y, x.T @ dz)

    with pytest.raises(GradientError, match="argument 0"):
        check_gradients(Operation(product), X[:, :3], X[:, 1:])


def test_a_gradient_of_the_wrong_shape_is_found() -> None:
    def row_added(x: Any, y: Any) -> Any:
        return x + y, lambda dz: (dz, dz)

    with pytest.raises(GradientError, match=r"argument 1 has shape \(3, 4\), expected \(4,\)"):
        check_gradients(Operation(row_added), X, X[0])


def test_the_error_names_function_argument_coordinate_and_both_numbers() -> None:
    def scale_row(x: Any, y: Any) -> Any:
        return x * y, lambda dz: (dz * y, (dz * x).sum(0) * np.array([1, 1, 1.5, 1]))

    with pytest.raises(
        GradientError,
        match=r"scale_row: gradient of argument 1 (along a random direction|at \(2,\)): backward gives [-\d.]+,"
        r" central difference [-\d.]+",
    ):
        check_gradients(Operation(scale_row), X, X[0])


def test_large_arguments_are_probed_too() -> None:
    with pytest.raises(GradientError):
        check_gradients(square_with(lambda dy, x: np.where(x > 2.5, 0, 2 * dy * x)), np.linspace(-3, 3, 4000))


def test_named_leaves_are_checked() -> None:
    leaf = Tensor(X.copy())
    check_gradients(lambda: ops.sum(leaf * leaf), leaves={"leaf": leaf})
    np.testing.assert_array_equal(leaf.value, X)
    with pytest.raises(GradientError, match="gradient of the leaf"):
        check_gradients(lambda: square_with(lambda dy, x: dy)(leaf), leaves={"the leaf": leaf})


def test_only_float64_can_be_checked() -> None:
    with pytest.raises(TypeError, match="leaf must be float64, got float32"):
        leaf = Tensor(np.ones(2, np.float32))
        check_gradients(lambda: leaf * 2.0, leaves={"leaf": leaf})
    with pytest.raises(ValueError, match="nothing has no float64 argument"):
        check_gradients(lambda: Tensor(np.ones(1)) * 1.0, name="nothing")
