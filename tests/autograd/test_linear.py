"""Linear maps: pending gradients, few rows, rejected shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import normal
from op_cases import results

from autograd import ShapeError, Tensor, backward, ops
from autograd.op import operations


@pytest.mark.parametrize("kernel", ["linear", "linear_relu"])
def test_a_weights_gradient_is_as_wide_as_what_it_is_made_of(kernel: str) -> None:
    x, weight = normal(4, 3).astype(np.float32), Tensor(normal(3, 2))
    y = getattr(ops, kernel)(x, weight, np.full(2, 9.0))
    backward(ops.sum(y))
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad, x.astype(np.float64).T @ np.ones((4, 2)), strict=True)


@pytest.mark.parametrize("n_rows", [1, 8, 9])
@pytest.mark.parametrize(("n_columns", "n_pieces"), [(2_047, 0), (2_048, 1), (5_000, 3)])
def test_few_rows_of_linear_are_multiplied_one_by_one_in_pieces(
    n_rows: int, n_columns: int, n_pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(np, "matmul", lambda x, w, out: calls.append((x.shape, w.shape[1])))
    ops.linear(np.ones((n_rows, 5)), np.ones((5, n_columns)), None)
    assert len(calls) == (n_rows * n_pieces if n_rows <= 8 else 0)
    assert all(shape == (5,) for shape, _ in calls)
    assert sum(width for _, width in calls) in (0, n_rows * n_columns)


@pytest.mark.parametrize("n_rows", [1, 8, 9])
@pytest.mark.parametrize("n_columns", [2_047, 2_048, 5_000])
@pytest.mark.parametrize("name", ["linear", "linear_relu"])
def test_few_rows_times_a_wide_matrix(name: str, n_columns: int, n_rows: int) -> None:
    random = np.random.default_rng(n_rows)
    arguments = tuple(random.standard_normal(shape) for shape in ((n_rows, 5), (5, n_columns), (n_columns,)))
    operation = operations[name]
    kernel = results(operation.choose(arguments, {}), arguments, {}, 1)
    for x, y in zip(kernel, results(operation.reference, arguments, {}, 1), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


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
)  # fmt: skip
def test_shape_errors_name_expected_and_given_shapes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()
