"""Several linear maps of one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import normal

from autograd import ShapeError, Tensor, backward, ops
from autograd.testing import check_gradients


@pytest.mark.parametrize("bias", [True, False])
def test_linear_maps_are_linear_maps_one_after_the_other(bias: bool) -> None:
    """Results and gradients are equal bit for bit."""
    x, weights = normal(4, 3), [normal(3, width, seed=width) for width in (5, 2, 5)]
    maps = [argument for w in weights for argument in (w, normal(w.shape[1], seed=9) if bias else None)]

    def together(x: Tensor, *maps: Any) -> list[Tensor]:
        return ops.linear_maps(x, *maps)

    def one_by_one(x: Tensor, *maps: Any) -> list[Tensor]:
        return [ops.linear(x, *maps[i : i + 2]) for i in (0, 2, 4)]

    found = []
    for compute in (together, one_by_one):
        leaves = [None if array is None else Tensor(array) for array in (x, *maps)]
        ys = compute(*leaves)
        backward(ops.sum(ys[0] * ys[2]) + ops.sum(ys[1]))
        found.append([*(y.value for y in ys), *(leaf.grad for leaf in leaves if leaf is not None)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)

    def curved(x: Tensor, *weights: Tensor) -> Tensor:
        ys = ops.linear_maps(x, *(argument for i, w in enumerate(weights) for argument in (w, maps[2 * i + 1])))
        return ys[0] * ys[2]

    check_gradients(curved, x, *weights)


@pytest.mark.parametrize(
    ("call", "message"),
    [(lambda: ops.linear_maps(np.ones((2, 3)), np.ones((3, 5)), None, np.ones((4, 5)), None), r"linear: expected x")],
)
def test_shape_errors_name_expected_and_given_shapes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()
