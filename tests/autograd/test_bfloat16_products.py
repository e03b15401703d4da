"""Products in bfloat16: those of the rounded operands, whatever the sizes, threads and neighbouring rows."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from guarded import guarded_allocations
from hypothesis import given, settings
from hypothesis import strategies as st

from autograd.bfloat16_products import bfloat16_products, packed_operands
from autograd.kernels.cpu.bfloat16 import Rows
from autograd.kernels.cpu.library import library
from autograd.kernels.cpu.linear import linear_in_bfloat16
from autograd.ops.cross_entropy import linear_cross_entropy
from autograd.ops.feed_forward import joint_feed_forward
from autograd.ops.linear import linear, linear_relu
from autograd.ops.linear_maps import joint_linear_maps
from autograd.tensor import TapeError, gradient_array

pytestmark = pytest.mark.skipif(not library().functions, reason="no C compiler")

SIZES = st.sampled_from([1, 2, 3, 13, 14, 15, 31, 32, 33, 70, 130])  # around a tile and a panel
FAR = [(5, 700, 40), (700, 5, 40), (40, 40, 700), (1_100, 33, 2)]  # more than a block of rows, or of terms


def numbers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(x: Any) -> Any:
    """Round to bfloat16, as float64."""
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def assert_close(found: Any, exact: Any) -> None:
    """Compare a sum in float32 with the exact one."""
    found = gradient_array(found)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=3e-6 * np.abs(exact).max(initial=1))


@pytest.mark.parametrize("sizes", FAR)
@pytest.mark.parametrize("has_bias", [False, True])
def test_large_products_are_those_of_the_rounded_operands(sizes: tuple[int, int, int], has_bias: bool) -> None:
    check_linear_map(*sizes, has_bias=has_bias)


@given(n_rows=SIZES, n_terms=SIZES, n_columns=SIZES, has_bias=st.booleans())
@settings(max_examples=60, deadline=None)
def test_products_are_those_of_the_rounded_operands(n_rows: int, n_terms: int, n_columns: int, has_bias: bool) -> None:
    check_linear_map(n_rows, n_terms, n_columns, has_bias=has_bias)


def check_linear_map(n_rows: int, n_terms: int, n_columns: int, *, has_bias: bool) -> None:
    """Compare value and gradients, between guards and not aligned."""
    with guarded_allocations() as guarded, bfloat16_products(1):
        x, weight, bias, dy = map(
            guarded.copy_of,
            (numbers(n_rows, n_terms), numbers(n_terms, n_columns), numbers(n_columns), numbers(n_rows, n_columns)),
        )
        arguments = x, weight, bias if has_bias else None
        assert linear.choose(arguments, {}) is linear_in_bfloat16
        y, backward = linear_in_bfloat16(*arguments)
        dx, dweight, dbias = backward(dy)
        added = np.ones_like(weight)
        dweight.into(added, True)
        dweight = gradient_array(dweight)
    assert_close(y, rounded(x) @ rounded(weight) + (bias if has_bias else 0))
    assert_close(dx, rounded(dy) @ rounded(weight).T)
    assert_close(dweight, rounded(x).T @ rounded(dy))
    assert_close(added, 1 + rounded(x).T @ rounded(dy))
    if has_bias:
        assert_close(dbias, dy.sum(0, dtype=np.float64))
    else:
        assert dbias is None


@given(n_rows=SIZES, n_terms=SIZES, n_columns=SIZES)
@settings(max_examples=30, deadline=None)
def test_a_feed_forward_network_rounds_its_hidden_rows(n_rows: int, n_terms: int, n_columns: int) -> None:
    x, weight1, bias1 = numbers(n_rows, n_terms), numbers(n_terms, n_columns, seed=2), numbers(n_columns, seed=3)
    weight2, bias2, dy = numbers(n_columns, n_terms, seed=4), numbers(n_terms, seed=5), numbers(n_rows, n_terms, seed=6)
    arguments = x, weight1, bias1, weight2, bias2
    with guarded_allocations(), bfloat16_products(1):
        together = joint_feed_forward.kernel_of(arguments)
        assert together is not None
        [y], backward = together(*arguments)
        dx, dweight1, dbias1, dweight2, dbias2 = map(gradient_array, backward([dy]))
    hidden = np.maximum(rounded(x) @ rounded(weight1) + bias1, 0)
    dz = rounded(dy) @ rounded(weight2).T * (hidden > 0)
    exact = [rounded(hidden) @ rounded(weight2) + bias2, rounded(dz) @ rounded(weight1).T, rounded(x).T @ rounded(dz)]
    exact += [dz.sum(0), rounded(hidden).T @ rounded(dy), dy.sum(0, dtype=np.float64)]
    for found, expected in zip((y, dx, dweight1, dbias1, dweight2, dbias2), exact, strict=True):
        # A number in the middle between two neighbours may be rounded to the other one.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0.01 * np.abs(expected).max(initial=1))


def test_maps_of_one_x_leave_out_the_gradients_of_unused_results() -> None:
    x, weight, dy = numbers(20, 33), numbers(33, 5), numbers(20, 5, seed=2)
    with bfloat16_products(1):
        together = joint_linear_maps.kernel_of((x, weight, None, weight[::-1].copy(), numbers(5)))
        assert together is not None
        values, backward = together(x, weight, None, weight[::-1].copy(), numbers(5))
        dx, dweight, *unused = backward([dy, None])
        both = backward([dy, dy])[0]
    assert unused == [None, None, None]
    assert_close(values[1], rounded(x) @ rounded(weight[::-1]) + numbers(5))
    assert_close(dx, rounded(dy) @ rounded(weight).T)
    assert_close(dweight, rounded(x).T @ rounded(dy))
    assert_close(both, rounded(dy) @ (rounded(weight) + rounded(weight[::-1])).T)


def test_relu_alone() -> None:
    x, weight, bias, dy = numbers(20, 33), numbers(33, 7), numbers(7), numbers(20, 7, seed=2)
    with bfloat16_products(1):
        y, backward = linear_relu.of_arrays(x, weight, bias)
        dx, dweight, dbias = backward(dy)
    z = rounded(x) @ rounded(weight) + bias
    dz = dy * (z > 0)
    assert_close(y, np.maximum(z, 0))
    assert_close(dx, rounded(dz) @ rounded(weight).T)
    assert_close(dweight, rounded(x).T @ rounded(dz))
    assert_close(dbias, dz.sum(0, dtype=np.float64))


@pytest.mark.parametrize(("n_rows", "n_classes"), [(30, 5), (30, 33), (300, 70)])  # the last one in three blocks
@pytest.mark.parametrize("dy", [1.0, 0.25])
def test_cross_entropy_is_that_of_the_rounded_projection(n_rows: int, n_classes: int, dy: float) -> None:
    x, weight = numbers(n_rows, 12), numbers(n_classes, 12, seed=2)
    targets = np.random.default_rng(1).integers(-1, n_classes, n_rows)
    options: dict[str, Any] = {"smoothing": 0.1, "over": "V-2", "impossible": 1}
    targets[targets == 1] = 0
    with guarded_allocations(), bfloat16_products(1):
        loss, backward = linear_cross_entropy.of_arrays(x, weight, None, targets, **options)
        dx, dweight = map(gradient_array, backward(np.float32(dy))[:2])
    exact, exact_backward = linear_cross_entropy.reference(rounded(x), rounded(weight), None, targets, **options)
    assert loss == pytest.approx(float(exact), rel=1e-6)
    for found, expected in zip((dx, dweight), exact_backward(np.float64(dy)), strict=False):
        np.testing.assert_allclose(found, expected, atol=0.005 * np.abs(expected).max())


def test_numbers_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    ties = np.arange(0x3F800000, 0x3F800000 + 40 * 0x4000, 0x4000, dtype=np.uint32).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, 1e30, -1e30, 3.4e38, -3.4e38, 65_504, 1e-30], np.float32)
    for x in (ties, special, numbers(1_000)):
        found = Rows.rounded(x[None]).words.view(np.uint16)[0, : len(x)]
        np.testing.assert_array_equal(found, x.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_stays_so_and_changes_no_other(bad: float) -> None:
    x, weight = numbers(40, 50), numbers(50, 37)
    with bfloat16_products(1):
        before = linear.of_arrays(x, weight, None)[0]
        x[7, 3] = bad
        after = linear.of_arrays(x, weight, None)[0]
    assert not np.isfinite(after[7]).any()
    np.testing.assert_array_equal(np.delete(after, 7, 0), np.delete(before, 7, 0))


def test_very_large_numbers_and_rows_of_zeros() -> None:
    x = np.array([[1e30, -1e30, 0], [0, 0, 0], [1e30, 0, 1e30]], np.float32)
    weight, bias = np.array([[1, 1], [1, 0.5], [1, -1]], np.float32), np.array([1, 2], np.float32)
    with bfloat16_products(1):
        y = linear.of_arrays(x, weight, bias)[0]
    assert_close(y / 1e30, (rounded(x) @ weight + bias) / 1e30)
    np.testing.assert_array_equal(y[1], bias)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_bits_depend_neither_on_threads_nor_on_other_rows(n_threads: int) -> None:
    x, weight = numbers(500, 70), numbers(70, 300)

    def values_and_gradient(rows: Any, n_threads: int) -> tuple[Any, Any]:
        with bfloat16_products(n_threads):
            y, backward = linear.of_arrays(rows, weight, None)
            return y, backward(y)[0]

    together, alone = values_and_gradient(x, n_threads), values_and_gradient(x[100:117], 1)
    for all_rows, some_rows in zip(together, alone, strict=True):
        np.testing.assert_array_equal(all_rows[100:117], some_rows)


def test_threads_of_a_context_pack_a_weight_once() -> None:
    weight, packed = numbers(3, 4), []
    with bfloat16_products(2):
        operands = packed_operands()
        assert operands is not None
        pack = lambda weight, transposed, n_threads: packed.append((transposed, n_threads)) or "packed"  # noqa: E731
        get = lambda: operands.get(weight, transposed=False, pack=pack)  # noqa: E731
        threads = [threading.Thread(target=copy_context().run, args=(get,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert packed == [(False, 2)]


def test_the_context_ends_and_other_threads_are_outside() -> None:
    found: list[Any] = []
    with bfloat16_products(1):
        thread = threading.Thread(target=lambda: found.append(packed_operands()))
        thread.start()
        thread.join()
        with bfloat16_products(1, when=False):
            assert packed_operands() is not None
    assert found == [None]
    assert packed_operands() is None
    x, weight = numbers(20, 33), numbers(33, 7)
    exact = x.astype(np.float64) @ weight
    np.testing.assert_allclose(linear.of_arrays(x, weight, None)[0], exact, rtol=1e-5, atol=1e-5)


def test_backward_after_the_context_has_its_own_error() -> None:
    with bfloat16_products(1):
        backward = linear.of_arrays(numbers(2, 3), numbers(3, 4), None)[1]
    with pytest.raises(TapeError, match="the context bfloat16_products has ended; call backward in it"):
        backward(numbers(2, 4))
