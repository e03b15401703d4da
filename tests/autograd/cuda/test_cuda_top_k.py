"""CUDA kernels without a GPU: the greatest numbers of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autograd.kernels.cuda import top_k

pytestmark = pytest.mark.usefixtures("launch")


@pytest.mark.parametrize("dtype", top_k.KERNELS)
@pytest.mark.parametrize("n_values", [2, 5, 10**6])
@pytest.mark.parametrize(
    ("n_rows", "width", "n"),
    [(0, 5, 2), (1, 1, 1), (3, 7, 9), (4, 32, 8), (3, 33, 10), (2, 1_023, 5), (2, 1_025, 8), (2, 5_003, 40)],
)
def test_of_equal_numbers_the_first_are_taken(n_rows: int, width: int, n: int, n_values: int, dtype: str) -> None:
    random = np.random.default_rng(width)
    x = np.where(random.random((n_rows, width)) < 0.2, -np.inf, random.integers(0, n_values, (n_rows, width)))
    x = x.astype(dtype)
    values, columns = top_k.top_in_one_block(x, n=n)
    order = np.argsort(-x, axis=1, kind="stable")[:, :n]
    assert (values.dtype, columns.dtype) == (dtype, np.int64)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    finite = values > -np.inf
    np.testing.assert_array_equal(columns[finite], order[finite])
    assert ((columns >= 0) & (columns < width)).all()


@pytest.mark.parametrize("dtype", top_k.KERNELS)
@pytest.mark.parametrize("rest", [np.nan, -np.inf])
def test_what_is_not_finite(rest: float, dtype: Any) -> None:
    x = np.full((2, 70), rest, dtype)
    x[0, 3], x[0, 68], x[1, 34] = 1, np.inf, -3
    values, columns = top_k.top_in_one_block(x, n=4)
    np.testing.assert_array_equal(values, [[np.inf, 1, -np.inf, -np.inf], [-3, -np.inf, -np.inf, -np.inf]])
    assert (columns[0, :2].tolist(), columns[1, 0]) == ([68, 3], 34)
    assert ((columns >= 0) & (columns < 70)).all()
