"""Linear maps: pending gradients, rejected shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import normal

from autograd import ShapeError, Tensor, backward, ops


@pytest.mark.parametrize("kernel", ["linear", "linear_relu"])
def test_a_weights_gradient_is_as_wide_as_what_it_is_made_of(kernel: str) -> None:
    x, weight = normal(4, 3).astype(np.float32), Tensor(normal(3, 2))
    y = getattr(ops, kernel)(x, weight, np.full(2, 9.0))
    backward(ops.sum(y))
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad, x.astype(np.float64).T @ np.ones((4, 2)), strict=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.linear(np.ones((2, 3)), np.ones((4, 5)), None), r"linear: expected x \(T, I\).*\(2, 3\).*\(4, 5"),
        (lambda: ops.linear_transposed(np.ones((2, 3)), np.ones((4, 5))), r"linear_transposed: expected"),
        (lambda: ops.linear(np.ones((1, 2, 3)), np.ones((2, 5)), None), r"linear: expected x \(T, I\).*\(1, 2, 3"),
        (lambda: ops.linear_transposed(np.ones((1, 2, 3)), np.ones((4, 2))), r"linear_transposed: expected"),
        (lambda: ops.linear_relu(np.ones((2, 3)), np.ones((4, 5)), np.ones(5)), r"linear_relu: expected x \(T, I\)"),
        (lambda: ops.linear_relu(np.ones((2, 3)), np.ones((3, 5)), None), r"linear_relu: .*bias \(O,\);.* None"),
        (lambda: ops.linear(np.ones((2, 3)), np.ones(3), None), r"linear: expected x \(T, I\).*weight \(3,\)"),
        (lambda: ops.linear(np.ones((2, 3)), np.ones((3, 5)), np.ones(1)), r"linear: expected .* bias \(1,\)"),
        (lambda: ops.linear(np.ones((2, 3)), np.ones((3, 5)), np.ones((2, 5))), r"linear: expected .* bias \(2, 5\)"),
        (lambda: ops.linear_relu(np.ones((2, 3)), np.ones((3, 5)), np.ones(())), r"linear_relu: expected .* bias \(\)"),
        (lambda: ops.matmul(np.ones((2, 3)), np.ones((4, 5))), r"matmul: expected x \(…, M, K\)"),
        (lambda: ops.matmul(np.ones(3), np.ones((3, 2))), r"matmul: expected x \(…, M, K\).*got x \(3,\)"),
        (lambda: ops.matmul(np.ones((2, 3)), np.ones(3)), r"matmul: expected x \(…, M, K\)"),
    ],
)
def test_shape_errors_name_expected_and_given_shapes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()
