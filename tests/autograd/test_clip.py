"""The norm of the gradient, and the scale that clips it."""

import numpy as np
import pytest

from autograd.optim import clip, gradient_norm, sum_squares
from autograd.parameters import ALIGNMENT


@pytest.mark.parametrize(("max_norm", "scale"), [(np.inf, 0.25), (10, 0.25), (1.25, 0.25), (0.5, 0.1)])
def test_a_gradient_is_divided_by_its_tokens_and_clipped(max_norm: float, scale: float) -> None:
    squares, scalars = sum_squares(np.array([3.0, 4.0])), np.array([1 / 4, 0, 0])
    assert gradient_norm(np.array([3.0, 4.0])) == 5
    np.testing.assert_allclose(clip(squares, np.float64(7), scalars, max_norm=max_norm), [7, 1.25, scale])


@pytest.mark.parametrize("loss", [1.0, np.nan, np.inf])
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
@pytest.mark.parametrize("max_norm", [0.5, np.inf])
def test_numbers_that_are_not_finite_have_a_scale_of_zero(value: float, loss: float, max_norm: float) -> None:
    squares = sum_squares(np.array([3.0, value, 4.0]))
    found_loss, norm, scale = clip(squares, np.float64(loss), np.ones(3), max_norm=max_norm)
    assert (scale != 0) == (value == loss == 1)
    assert np.isfinite(norm) == (value == 1)
    np.testing.assert_array_equal(found_loss, loss)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0, 5, ALIGNMENT, 3 * ALIGNMENT + 1])
def test_sums_of_squares_are_those_of_the_reference(size: int, dtype: str) -> None:
    gradients = np.random.default_rng(size).standard_normal(size).astype(dtype)
    found, expected = sum_squares(gradients), sum_squares.reference(gradients)
    assert found.dtype == expected.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("cut", [0, 1, 7, 99, 100, 101])
def test_the_norm_has_the_same_bits_however_the_gradient_is_divided(cut: int) -> None:
    gradients = np.random.default_rng(3).standard_normal(100 * ALIGNMENT + 5, np.float32)
    assert gradient_norm(gradients) == pytest.approx(np.linalg.norm(gradients.astype(np.float64)), rel=1e-6)
    shard_sums = [sum_squares(shard) for shard in np.split(gradients, [cut * ALIGNMENT])]
    np.testing.assert_array_equal(np.concatenate(shard_sums), sum_squares(gradients))
