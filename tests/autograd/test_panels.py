"""Packed weights for few rows: the same products, computed by small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import Tensor, no_tape, ops
from autograd.kernels.cpu import panels
from autograd.kernels.cpu.panels import COLUMNS, ROWS, TERMS, PackedWeight, small_products_are_fast
from autograd.ops.linear import pack_weight

RANDOM = np.random.default_rng(1)


def around(size: int) -> list[int]:
    """Return 1 and numbers around multiples of ``size``."""
    return [1, size - 1, size, size + 1, 3 * size, 3 * size + 5]


def numbers(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n_rows", [0, *around(ROWS)])
@pytest.mark.parametrize("n_columns", around(COLUMNS))
@pytest.mark.parametrize("n_terms", [1, 7, TERMS - 1, TERMS, TERMS + 1, 2 * TERMS + 9])
def test_products_by_panels_are_the_products(n_rows: int, n_columns: int, n_terms: int) -> None:
    x, matrix = numbers(n_rows, n_terms), numbers(n_terms, n_columns)
    np.testing.assert_allclose(PackedWeight.of(matrix).product(x), x @ matrix, rtol=0, atol=1e-12 * n_terms)


def test_rows_may_lie_apart_and_matrices_transposed() -> None:
    x, matrix = numbers(40, 100)[:, 10:80], numbers(90, 70).T
    np.testing.assert_allclose(PackedWeight.of(matrix).product(x), x @ matrix, rtol=1e-12, atol=1e-12)


def test_a_product_has_the_type_of_its_factors() -> None:
    x, matrix = numbers(3, 5, dtype=np.float32), PackedWeight.of(numbers(5, 4, dtype=np.float32))
    assert type(matrix.product(x)) is np.ndarray
    assert matrix.product(x).dtype == np.float32
    assert matrix.product(x.astype(np.float64)).dtype == np.float64


@pytest.mark.parametrize("bias", [None, numbers(70)])
def test_linear_maps_multiply_by_panels(bias: np.ndarray | None, monkeypatch: pytest.MonkeyPatch) -> None:
    x, matrix = numbers(9, 50), numbers(50, 70)
    expected = x @ matrix + (0 if bias is None else bias)
    in_panels = PackedWeight.of(matrix.copy())
    np.asarray(in_panels)[...] = np.nan  # so that only the panels can give the product
    with no_tape():
        np.testing.assert_allclose(ops.linear(Tensor(x), Tensor(in_panels), bias).value, expected, atol=1e-12)
        if bias is not None:
            relu = ops.linear_relu(Tensor(x), Tensor(in_panels), bias).value
            np.testing.assert_allclose(relu, np.maximum(expected, 0), atol=1e-12)


def test_a_sum_of_no_terms_is_0() -> None:
    matrix = PackedWeight.of(np.empty((0, 64)))
    np.testing.assert_array_equal(matrix.product(np.empty((3, 0))), np.zeros((3, 64)))


def test_large_results_are_not_written_in_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, in_panels = numbers(4, 6), PackedWeight.of(numbers(6, 5))
    product = x @ in_panels
    np.asarray(in_panels)[...] = np.nan
    np.testing.assert_allclose(in_panels.product(x), product)
    monkeypatch.setattr(panels, "LARGEST_RESULT", 19)
    assert np.isnan(in_panels.product(x)).all()


def test_who_knows_nothing_of_panels_sees_an_array() -> None:
    x, matrix = numbers(4, 6), numbers(6, 5)
    in_panels = PackedWeight.of(matrix)
    for result in (x @ in_panels, in_panels * 2, np.add.reduce(in_panels), np.exp(in_panels, out=np.empty((6, 5)))):
        assert type(result) is np.ndarray
    np.testing.assert_array_equal(x @ in_panels, x @ matrix)
    np.testing.assert_array_equal(in_panels[1:3, ::2], matrix[1:3, ::2])
    with no_tape():  # a slice has no panels, and is multiplied by as any array is
        np.testing.assert_allclose(ops.linear(x[:, 1:3], in_panels[1:3], None).value, x[:, 1:3] @ matrix[1:3])


@pytest.mark.parametrize("write", [lambda m: np.add(m, 1, out=m), lambda m: m.__imul__(2)], ids=["out", "in place"])
def test_what_has_panels_cannot_be_written_to(write: Callable[[PackedWeight], object]) -> None:
    with pytest.raises(TypeError, match="a matrix in panels cannot be written to"):
        write(PackedWeight.of(numbers(6, 5)))


@pytest.mark.parametrize(
    ("library", "fast"),
    [
        ({"internal_api": "openblas", "architecture": "SkylakeX"}, True),
        ({"internal_api": "openblas", "architecture": "Haswell"}, False),
        ({"internal_api": "openblas"}, False),
        ({"internal_api": "mkl", "architecture": "SkylakeX"}, False),
        ({"internal_api": "openmp"}, False),
    ],
)
def test_panels_are_made_where_small_products_are_fast(
    library: dict[str, str], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "threadpool_info", lambda: [{"internal_api": "openmp"}, library])
    small_products_are_fast.cache_clear()
    try:
        matrix = numbers(3, 4).T
        prepared = pack_weight(matrix)
        assert isinstance(prepared, PackedWeight) == fast
        assert fast or prepared.flags.c_contiguous
        np.testing.assert_array_equal(prepared, matrix)
    finally:
        small_products_are_fast.cache_clear()
