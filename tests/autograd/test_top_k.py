"""The greatest numbers of each row, ties and all, and the k greatest log-probabilities of a projection."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest
from guarded import guarded_allocations
from hypothesis import example, given, settings
from hypothesis import strategies as st
from op_cases import log_softmax

from autograd.blas import product_threads
from autograd.kernels.cpu.library import library
from autograd.ops.linear import pack_weight
from autograd.ops.top_k import linear_top_k, top
from autograd.packed_weight import PackedDtype, PackedWeight

SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.integers(1, 12) | st.integers(1, 600)
needs_compiler = pytest.mark.skipif(not library().functions, reason="no C compiler")


@given(SEEDS, WIDTHS, st.integers(1, 6), st.sampled_from([2, 5, 10**6]))
@example(1, 13, 6, 10**6)
@example(1, 20, 2, 2)
def test_of_equal_numbers_the_first_are_taken(seed: int, n_columns: int, n: int, n_values: int) -> None:
    random = np.random.default_rng(seed)
    x = np.where(random.random((5, n_columns)) < 0.2, -np.inf, random.integers(0, n_values, (5, n_columns)))
    before = x.copy()
    values, columns = top(x, n=n)
    order = np.argsort(-x, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    finite = values > -np.inf
    np.testing.assert_array_equal(columns[finite], order[finite])
    assert ((columns >= 0) & (columns < n_columns)).all()
    np.testing.assert_array_equal(x, before)


def test_nan_counts_as_minus_infinity() -> None:
    values, columns = top(np.array([[1, np.nan, 3, 2], [np.nan, np.nan, np.nan, 1]]), n=2)
    np.testing.assert_array_equal(values, [[3, 2], [1, -np.inf]])
    assert (columns[0].tolist(), columns[1, 0]) == ([2, 3], 3)


def mask(n_columns: int, never: Sequence[int]) -> np.ndarray:
    forbidden = np.zeros((1, n_columns), np.bool_)
    forbidden[:, list(never)] = True
    return forbidden


PROJECTIONS = st.tuples(
    SEEDS, st.integers(0, 30), st.integers(1, 12), WIDTHS, st.integers(1, 7), st.sampled_from([2, 5, 10**6])
)
HOW = st.fixed_dictionaries({
    name: st.booleans() for name in ("has_bias", "per_row", "is_packed")
} | {"n_threads": st.integers(1, 3), "dtype": st.sampled_from(get_args(PackedDtype))})  # fmt: skip


@given(projection=PROJECTIONS, how=HOW)
@example((1, 7, 11, 403, 2, 2), {"has_bias": 1, "per_row": 0, "dtype": "float32", "is_packed": 1, "n_threads": 2})
@settings(max_examples=60)
def test_top_k_of_a_projection_are_those_of_its_softmax(projection: tuple[int, ...], how: dict[str, Any]) -> None:
    """Products of integers are exact: ties are the same in every order of summation."""
    seed, n_rows, n_terms, n_columns, n, n_values = projection
    random, dtype = np.random.default_rng(seed), how["dtype"]
    x, weight, bias = (
        random.integers(-n_values, n_values, shape).astype(np.float32) / (1 if n_values < 10 else n_values)
        for shape in ((n_rows, n_terms), (n_terms, n_columns), n_columns)
    )
    forbidden = random.random((n_rows if how["per_row"] else 1, n_columns)) < 0.1
    rounded = pack_weight.reference(weight, dtype=dtype)
    with product_threads(how["n_threads"]), guarded_allocations() as guarded:
        x, weight, rounded, forbidden = map(guarded.copy_of, (x, weight, rounded, forbidden))
        bias = guarded.copy_of(bias) if how["has_bias"] else None
        used = pack_weight(weight, dtype=dtype) if how["is_packed"] else rounded
        values, columns = linear_top_k(x, used, bias, n=n, forbidden=forbidden)
    product = x.astype(np.float64) @ rounded if dtype == "float32" else x @ used
    expected = log_softmax(product + (0 if bias is None else bias))
    expected = np.where(forbidden, -np.inf, expected)
    np.testing.assert_allclose(values, -np.sort(-expected, axis=1)[:, :n], rtol=1e-5, atol=1e-4)
    possible = values > -np.inf
    column_values = np.take_along_axis(expected, columns, 1)
    np.testing.assert_allclose(values[possible], column_values[possible], rtol=1e-5, atol=1e-4)
    if n_values < 10 and dtype != "int8":
        np.testing.assert_array_equal(columns[possible], np.argsort(-expected, 1, "stable")[:, :n][possible])


@pytest.mark.parametrize("column", [1, 13, 259, 299])
@pytest.mark.parametrize("greatest", [-300.0, 30.0, 60.0, 2_000.0, 1e30])
@pytest.mark.parametrize("never", [[], [0], [299]], ids=str)
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
def test_exponentials_never_overflow(column: int, greatest: float, never: list[int], dtype: PackedDtype) -> None:
    weight, x = np.random.default_rng(1).standard_normal((2, 300)).astype(np.float32), np.eye(2, dtype=np.float32)
    weight[0, column] = greatest
    packed = pack_weight(weight, dtype=dtype)
    values, columns = linear_top_k(x, packed, None, n=3, forbidden=mask(300, never))
    logits = (x @ packed).astype(np.float64)
    expected = log_softmax(logits)
    logits[:, never] = -np.inf
    np.testing.assert_array_equal(columns, np.argsort(-logits, 1, "stable")[:, :3])
    np.testing.assert_allclose(values, np.take_along_axis(expected, columns, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
def test_numbers_that_are_not_finite_give_no_log_probability(dtype: PackedDtype, value: float, n_threads: int) -> None:
    bias = np.zeros(300, np.float32)
    bias[30] = value
    packed = pack_weight(np.zeros((2, 300), np.float32), dtype=dtype)
    with product_threads(n_threads), np.errstate(invalid="ignore"):
        values, _ = linear_top_k(np.eye(2, dtype=np.float32), packed, bias, n=3, forbidden=mask(300, []))
    assert not (values > -np.inf).any()


@needs_compiler
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
def test_the_bits_do_not_depend_on_the_number_of_threads(dtype: PackedDtype) -> None:
    random = np.random.default_rng(1)
    x, weight = (random.standard_normal(shape, np.float32) for shape in ((29, 70), (70, 1_111)))
    packed = pack_weight(weight, dtype=dtype)
    assert isinstance(packed, PackedWeight)
    found = []
    for n_threads in (1, 2, 5, 20):
        with product_threads(n_threads):
            found.append(linear_top_k(x, packed, None, n=8, forbidden=mask(1_111, [0])))
    for values, columns in found[1:]:
        np.testing.assert_array_equal(values, found[0][0])
        np.testing.assert_array_equal(columns, found[0][1])
