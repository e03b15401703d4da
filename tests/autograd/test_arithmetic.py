"""Python's operators on tensors; slices and gathered rows; the error function, and limits of Swish and GELU."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import normal

from autograd import Tensor, backward, ops
from autograd.ops.activations import erf
from autograd.tensor import gradient_array
from autograd.testing import check_gradients

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x + 2": lambda x, y: x + np.full(3, 2.0),
    "2 + x": lambda x, y: np.full(3, 2.0) + x,
    "x - y": lambda x, y: x - y,
    "2 - x": lambda x, y: 2.0 - x,
    "x * y": lambda x, y: x * y,
    "x * 3": lambda x, y: x * 3,
    "2.5 * x": lambda x, y: 2.5 * x,
    "x / y": lambda x, y: x / y,
    "x / 4": lambda x, y: x / 4,
    "2 / x": lambda x, y: 2.0 / x,
    "-x": lambda x, y: -x,
    "x @ y": lambda x, y: x @ y,
    "array @ x": lambda x, y: np.eye(3)[::-1] @ x,
    "x[1:]": lambda x, y: x[1:],
    "x ** 2": lambda x, y: x**2,
    "x.T": lambda x, y: x.T,
    "x.transpose(1, 0)": lambda x, y: x.transpose(1, 0),
    "x.transpose((1, 0))": lambda x, y: x.transpose((1, 0)),
    "x.reshape(-1)": lambda x, y: x.reshape(-1),
    "x.reshape((9, 1))": lambda x, y: x.reshape((9, 1)),
    "x.sum()": lambda x, y: x.sum(),
    "x.sum(0)": lambda x, y: x.sum(0),
    "x.mean(0)": lambda x, y: x.mean(0),
    "x.mean(axis=1, keepdims=True)": lambda x, y: x.mean(axis=1, keepdims=True),
    "x.max(axis=1)": lambda x, y: x.max(axis=1),
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_pythons_operators_mean_what_they_mean_for_arrays(operator: Callable[[Any, Any], Any]) -> None:
    x, y = 5 + normal(3, 3), 5 + normal(3, 3, seed=1)
    result = operator(Tensor(x), Tensor(y))
    assert isinstance(result, Tensor)
    np.testing.assert_allclose(result.value, operator(x, y), rtol=1e-14)
    check_gradients(operator, x, y)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_equal_maxima_share_the_gradient(dtype: str) -> None:
    x, y = Tensor(np.array([4, 4, 1], dtype)), Tensor(np.array([5, 4, 0], dtype))
    backward(x.max())
    np.testing.assert_array_equal(x.grad, [0.5, 0.5, 0])
    backward(ops.sum(ops.maximum(x, y)))
    np.testing.assert_array_equal([x.grad, y.grad], [[0, 0.5, 1], [1, 0.5, 0]])


def test_equal_maxima_share_the_gradient_at_infinity() -> None:
    x, y = Tensor(np.array([-np.inf, np.inf])), Tensor(np.array([-np.inf, np.inf]))
    backward(ops.maximum(x, y), np.ones(2))
    np.testing.assert_array_equal([x.grad, y.grad], np.full((2, 2), 0.5))


def test_a_power_of_0_has_no_slope_anywhere() -> None:
    x = Tensor(np.array([0.0, 1.0, -2.0]))
    backward(ops.sum(x**0))
    np.testing.assert_array_equal(x.grad, np.zeros(3))


@pytest.mark.parametrize(
    ("x", "number"),
    [(np.arange(1.0, 100.0), 49.0), (np.array([1e-309]), 1e-310), (np.arange(9, dtype=np.float32), 49.0),
     (np.array([1.0, -1.0, 0.0]), 0)],
)  # fmt: skip
def test_a_quotient_is_numpys_to_the_last_bit(x: Any, number: float) -> None:
    with np.errstate(divide="ignore", invalid="ignore"):
        result = Tensor(x) / number
        np.testing.assert_array_equal(result.value, x / number)
    assert result.dtype == x.dtype


def test_maximum_takes_a_number_on_either_side() -> None:
    x = Tensor(np.array([-1.0, 2.0]))
    for y in (ops.maximum(x, 0.0), ops.maximum(0.0, x)):
        np.testing.assert_array_equal(y.value, [0.0, 2.0])
        backward(ops.sum(y))
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad, [0.0, 1.0])


def test_an_exponent_is_a_number() -> None:
    with pytest.raises(TypeError, match=r"ops\.exp\(y \* ops\.log\(x\)\)"):
        Tensor(np.ones(2)) ** Tensor(np.ones(2))  # type: ignore[operator]


@pytest.mark.parametrize("index", [((0, 0),), [0, 0], np.array([0, 0]), (slice(None), (1, 1)), ([0, 0], None)], ids=str)
def test_what_is_gathered_twice_gets_both_gradients(index: Any) -> None:
    x = normal(3, 2)
    counts = np.zeros((3, 2))
    np.add.at(counts, index, 1.0)
    leaf = Tensor(x)
    backward(ops.sum(leaf[index]))
    assert counts.max() == 2
    np.testing.assert_array_equal(leaf.grad, counts)


@pytest.mark.parametrize(("dtype", "error"), [("float64", 5e-16), ("float32", 4e-7)])
def test_erf_is_that_of_the_c_library(dtype: str, error: float) -> None:
    """On all pieces of the approximation and at their ends, from the smallest numbers to where it is 1."""
    ends = [math.nextafter(0.46875, 1), 0.46875, 4.0, 6.0, 1e30]
    x = np.concatenate([ends, np.linspace(0, 8, 20_001)[1:], np.logspace(-30, 0, 1_001)]).astype(dtype)
    expected = np.array([math.erf(float(each)) for each in x])
    np.testing.assert_allclose(erf(x), expected, rtol=error, atol=0)
    np.testing.assert_array_equal(erf(-x), -erf(x))
    assert erf(x).dtype == dtype
    assert np.isnan(erf(np.array([np.nan, 1.0], dtype))).tolist() == [True, False]


@pytest.mark.parametrize("activation", [ops.swish, ops.gelu, ops.gelu_tanh], ids=lambda operation: operation.name)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_far_from_zero_they_are_relu(activation: Any, dtype: str) -> None:
    x = np.array([-1e9, -1e4, -200.0, 0.0, 200.0, 1e4, 1e9], dtype)
    y = activation(Tensor(x))
    np.testing.assert_allclose(y.value, np.maximum(x, 0), atol=1e-30)
    (dx,) = map(gradient_array, y.node.backward(np.ones_like(x)))
    np.testing.assert_allclose(dx, [0, 0, 0, 0.5, 1, 1, 1], atol=1e-30)
