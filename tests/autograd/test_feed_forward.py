"""The feed-forward network: without a joint kernel it is its two operations."""

from __future__ import annotations

import numpy as np
import pytest

from autograd import Tensor, backward, ops


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_feed_forward_is_linear_relu_and_linear_with_the_same_bits(dtype: type) -> None:
    random = np.random.default_rng(1)
    shapes = (7, 6), (6, 10), (10,), (10, 6), (6,)
    arrays = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    together, apart = ([Tensor(array) for array in arrays] for _ in range(2))
    y = ops.feed_forward(*together)
    x, weight1, bias1, weight2, bias2 = apart
    expected = ops.linear(ops.linear_relu(x, weight1, bias1), weight2, bias2)
    np.testing.assert_array_equal(y.value, expected.value)
    assert (y.node.name, y.node.inputs[0].name) == ("linear", "linear_relu")
    dy = random.standard_normal((7, 6)).astype(dtype)
    backward(y, dy)
    backward(expected, dy)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(one.grad, other.grad)
