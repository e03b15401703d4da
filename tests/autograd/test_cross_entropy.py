"""Cross-entropy: smoothing conventions, large logits, rows without a target, rejected arguments."""

from typing import Any

import numpy as np
import pytest
from draws import normal
from op_cases import results

from autograd import Tensor, backward, ops

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])  # the kernel, the reference


@DTYPES
@pytest.mark.parametrize("static", [{}, {"smoothing": 0.1, "over": "V-2", "impossible": 1}], ids=str)
def test_a_class_that_gets_nothing_may_have_no_probability(dtype: str, static: dict[str, Any]) -> None:
    x, bias = Tensor(np.array([[0.5], [-0.5]], dtype)), np.array([0.0, -np.inf, 1.0, -1.0], dtype)
    loss = ops.linear_cross_entropy(x, np.ones((4, 1), dtype), bias, np.array([0, 3]), **static)
    without = Tensor(x.value)
    smoothing = static.get("smoothing", 0.0)
    expected = ops.linear_cross_entropy(
        without, np.ones((3, 1), dtype), bias[[0, 2, 3]], np.array([0, 2]), smoothing=smoothing
    )
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    backward(loss)
    backward(expected)
    np.testing.assert_allclose(x.grad, without.grad, rtol=1e-6, atol=1e-6)


def test_finite_logits_whose_sum_is_not_have_a_finite_loss() -> None:
    logits = np.float32([[1e38, -2e38, -2e38]])
    assert float(ops.cross_entropy(logits, np.array([0]))) == 0


@DTYPES
@pytest.mark.parametrize(
    "static", [{}, {"smoothing": 0.1}, {"smoothing": 0.2, "over": "V-2", "impossible": 0}], ids=str
)
def test_rows_without_a_target_add_nothing_whatever_their_logits_are(static: dict[str, Any], dtype: str) -> None:
    x, weight = np.random.default_rng(1).standard_normal((2, 4, 3)).astype(dtype)
    targets = np.array([-1, 2, 1, -1])
    rows = Tensor(x), Tensor(x[1:3])
    losses = [
        ops.linear_cross_entropy(of, weight, None, t, **static)
        for of, t in zip(rows, (targets, targets[1:3]), strict=True)
    ]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-6)
    for loss in losses:
        backward(loss)
    np.testing.assert_allclose(rows[0].grad[1:3], rows[1].grad, rtol=1e-6, atol=1e-7)
    assert not rows[0].grad[[0, 3]].any()


def compare_with_float64(x: Any, weight: Any, targets: Any, static: dict[str, Any], tolerance: float) -> None:
    found, exact = (
        results(ops.linear_cross_entropy.of_arrays, (x.astype(dtype), weight.astype(dtype), None, targets), static, 1)
        for dtype in ("float32", "float64")
    )
    for got, expected in zip(found[:3], exact[:3], strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("shift", [0.0, 39.0, 300.0, -39.0, -300.0])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_the_kernel_neither_overflows_nor_vanishes_for_large_logits(shift: float, spread: float) -> None:
    random = np.random.default_rng(1)
    x, weight = random.standard_normal((6, 5)), random.standard_normal((20, 5))
    x[:3, 0], x[:, 1:], weight[:, 0] = shift, spread * x[:, 1:], 1  # a shift of three rows, the same for all classes
    static = {"smoothing": 0.1, "over": "V-2", "impossible": 7}
    compare_with_float64(x, weight, random.integers(0, 20, 6), static, 3e-5)


@pytest.mark.parametrize("n_classes", [3, 33, 34, 35, 70])
def test_the_impossible_class_may_be_the_first_or_the_last(n_classes: int) -> None:
    x, weight = np.split(np.random.default_rng(1).standard_normal((3 + n_classes, 5)), [3])
    for impossible in (0, n_classes - 1):
        static = {"smoothing": 0.1, "over": "V-2", "impossible": impossible}
        compare_with_float64(x, weight, np.ones(3, int), static, 1e-5)


@DTYPES
def test_a_target_that_is_no_class_is_an_error(dtype: str) -> None:
    with pytest.raises(IndexError):
        ops.linear_cross_entropy(np.ones((2, 3), dtype), np.ones((5, 3), dtype), None, np.array([0, 5]))
    with pytest.raises(IndexError):
        ops.linear_cross_entropy(np.ones((2, 3), dtype), np.ones((5, 3), dtype), None, np.array([0, 1.7]))


@DTYPES
@pytest.mark.parametrize("target_dtype", ["uint8", "int16", "uint64"])
def test_targets_are_integers_of_any_dtype(dtype: str, target_dtype: str) -> None:
    x, weight, targets = normal(3, 4).astype(dtype), normal(5, 4).astype(dtype), np.array([4, 0, 2])
    loss = ops.linear_cross_entropy(x, weight, None, targets.astype(target_dtype))
    np.testing.assert_allclose(loss.value, ops.linear_cross_entropy(x, weight, None, targets).value, rtol=1e-6)


@pytest.mark.parametrize(
    ("n_classes", "convention", "message"),
    [
        (3, {"smoothing": 1.0}, r"smoothing must be in \[0, 1\).*got 1.0"),
        (3, {"smoothing": -0.5}, r"smoothing must be in \[0, 1\).*got -0.5"),
        (1, {"smoothing": 0.1}, "over V-1 = 0 of 1 classes"),
        (2, {"smoothing": 0.1, "over": "V-2", "impossible": 0}, "over V-2 = 0 of 2 classes"),
        (3, {"over": "V-2", "impossible": 3}, "the impossible class must be one of 3, got 3"),
        (3, {"over": "V-2", "impossible": -1}, "the impossible class must be one of 3, got -1"),
        (3, {"over": "V-2"}, "needs an impossible class"),
        (3, {"impossible": 0}, '"V-2", and only it'),
        (3, {"over": "V-3"}, "over must be one of"),
    ],
)
def test_smoothing_that_no_classes_can_share(n_classes: int, convention: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.cross_entropy(np.zeros((1, n_classes)), np.zeros(1, int), **convention)
