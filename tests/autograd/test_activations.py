"""Swish and GELU beyond what the table of operations draws: the error function, and limits."""

import math
from typing import Any

import numpy as np
import pytest

from autograd import Tensor, ops
from autograd.ops.activations import erf
from autograd.tensor import gradient_array


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
