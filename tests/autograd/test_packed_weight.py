"""Packed weights: the products are those of the weight, whatever its size, order in memory, and the threads."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest
from guarded import guarded_allocations
from waiting import TIME_LIMIT

from autograd import Tensor, backward, ops
from autograd.blas import product_threads
from autograd.kernel_registry import references_only
from autograd.kernels.cpu.library import library
from autograd.ops.linear import pack_weight
from autograd.packed_weight import PackedDtype, PackedWeight

RANDOM = np.random.default_rng(1)
needs_compiler = pytest.mark.skipif(not library().functions, reason="no C compiler")


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n_columns", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("n_terms", [1, 7, 512, 513, 1_030])
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
def test_products_are_those_of_the_weight_also_of_rows_that_lie_apart(
    n_columns: int, n_terms: int, dtype: PackedDtype
) -> None:
    with guarded_allocations() as guarded:
        weight, bias = guarded.copy_of(numbers(n_terms, n_columns)), guarded.copy_of(numbers(n_columns))
        packed = Tensor(pack_weight(weight, dtype=dtype))
        for n_rows in (0, 1, 3, 4, 5, 12, 13, 97):
            x = guarded.copy_of(numbers(n_rows, n_terms + n_rows % 2))[:, :n_terms]
            found = [ops.linear(x, packed, each).value for each in (None, bias)]
            found.append(ops.linear_relu(x, packed, bias).value)
            guarded.check()
            product = x.astype(np.float64) @ weight if dtype == "float32" else x @ packed.value
            for y, expected in zip(found, (product, product + bias, np.maximum(product + bias, 0)), strict=True):
                np.testing.assert_allclose(y, expected, rtol=1e-5, atol=3e-6 * n_terms**0.5, err_msg=f"{n_rows} rows")


@needs_compiler
@pytest.mark.parametrize("n_columns", [1, 16, 17, 33])
@pytest.mark.parametrize("n_terms", [1, 7, 512, 1_030])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_packed_weight_has_the_nearest_numbers(n_terms: int, n_columns: int, is_transposed: bool) -> None:
    weight = numbers(n_columns, n_terms).T if is_transposed else numbers(n_terms, n_columns)
    in_float32, in_bfloat16, in_int8 = (pack_weight(weight, dtype=dtype) for dtype in get_args(PackedDtype))
    np.testing.assert_array_equal(in_float32.levels(), weight)
    np.testing.assert_array_equal(in_bfloat16.levels(), weight.astype(ml_dtypes.bfloat16).astype(np.float32))
    scales = in_int8.scales[:n_columns]
    np.testing.assert_allclose(scales, np.abs(weight).max(0) / 127, rtol=1e-6)
    assert (np.abs(in_int8.levels() * scales - weight) <= 0.5001 * scales).all()


def test_a_column_of_int8_has_255_levels_and_its_greatest_weight_is_exact() -> None:
    weight = numbers(300, 5)
    weight[:, 2] = 0
    rounded = pack_weight.reference(weight, dtype="int8")
    scales = np.abs(weight).max(0) / 127
    assert (np.abs(rounded - weight) <= scales * 0.5001).all()
    levels = rounded / np.maximum(scales, np.finfo(np.float32).tiny)
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)  # whole numbers from −127 to 127
    np.testing.assert_allclose(np.abs(rounded).max(0), np.abs(weight).max(0), rtol=1e-6)


@needs_compiler
def test_int8_weights_take_a_quarter_of_the_memory_and_have_no_gradient() -> None:
    packed = pack_weight(numbers(64, 96), dtype="int8")
    assert isinstance(packed, PackedWeight)
    assert packed.words is not None
    assert packed.words.nbytes == 64 * 96
    assert packed.panels is None
    y = ops.linear(Tensor(numbers(3, 64)), packed, None)
    with pytest.raises(TypeError, match="a packed weight has no gradient"):
        backward(ops.sum(y))


@needs_compiler
def test_int8_multiplies_integers() -> None:
    """Greatest sizes of 127 give scales of 1, so the nearest integers are the levels."""
    x, weight = np.float32([[127, -50.4, 3.4], [0, -127, 1.6]]), np.float32([[2, 0.4], [-127, 127], [60.6, 5]])
    y = [[127 * 2 + 50 * 127 + 3 * 61, -50 * 127 + 3 * 5], [127 * 127 + 2 * 61, -127 * 127 + 2 * 5]]
    packed = pack_weight(weight, dtype="int8")
    np.testing.assert_array_equal(ops.linear(x, packed, None).value, np.float32(y))
    np.testing.assert_array_equal(x @ packed, np.float32(y))


@needs_compiler
@pytest.mark.parametrize(
    ("n_rows", "n_terms", "n_columns"), [(1, 1, 1), (7, 3, 33), (13, 66, 15), (12, 512, 32), (97, 1_030, 100)]
)
@pytest.mark.filterwarnings("ignore:invalid value|overflow:RuntimeWarning")
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
def test_zeros_large_numbers_nan_match_reference(n_rows: int, n_terms: int, n_columns: int, dtype: PackedDtype) -> None:
    """In int8 the bits are equal."""
    x, weight, bias = numbers(n_rows, n_terms), numbers(n_terms, n_columns), numbers(n_columns)
    x[1::6] = 0
    x[2::6] *= np.float32(1e30)
    x[3::6] *= np.float32(1e-44)
    x[4::6, -1], x[5::6, 0] = np.nan, -np.inf
    weight[:, 1::9], weight[-1, 2::9], weight[0, 3::9] = 0, np.inf, np.nan
    packed = pack_weight(weight, dtype=dtype)
    with guarded_allocations() as guarded:
        arrays = (guarded.copy_of(x), guarded.copy_of(bias))
        with product_threads(2):
            y = ops.linear(arrays[0], packed, arrays[1]).value
    error = 0 if dtype == "int8" else 1e-6 * n_terms**0.5
    row_size = np.where(np.isfinite(x), np.abs(x), 0).max(1, keepdims=True) + 1
    np.testing.assert_allclose(y / row_size, (x @ packed + bias) / row_size, rtol=0, atol=error)
    finite_columns = np.isfinite(weight).all(0)
    np.testing.assert_array_equal(y[1::6, finite_columns], np.broadcast_to(bias, y.shape)[1::6, finite_columns])
    assert (np.isfinite(y) == np.isfinite(x).all(1)[:, None] & finite_columns).all()


@needs_compiler
def test_sums_that_may_exceed_32_bits_are_not_computed_in_int8() -> None:
    packed = pack_weight(np.ones((133_144, 1), np.float32), dtype="int8")
    assert ops.linear(np.ones((1, 133_144), np.float32), packed, None).value == pytest.approx(133_144)
    assert not isinstance(pack_weight(np.ones((133_145, 1), np.float32), dtype="int8"), PackedWeight)


@needs_compiler
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
def test_the_bits_depend_neither_on_threads_nor_on_other_rows(dtype: PackedDtype) -> None:
    x, packed = numbers(30, 700), pack_weight(numbers(700, 333), dtype=dtype)
    alone = np.concatenate([ops.linear(row[None], packed, None).value for row in x])
    for n_threads in (1, 2, 7):
        with product_threads(n_threads):
            np.testing.assert_array_equal(ops.linear(x, packed, None).value, alone)


@needs_compiler
def test_python_threads_may_multiply_at_the_same_time() -> None:
    x, packed = numbers(5, 300), pack_weight(numbers(300, 400))
    alone = ops.linear(x, packed, None).value

    def multiply(_: int) -> bool:
        with product_threads(3):
            return all(np.array_equal(ops.linear(x, packed, None).value, alone) for _ in range(200))

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(multiply, range(8)))


@needs_compiler
def test_a_forked_process_computes_without_helpers() -> None:
    code = """
import os
import numpy as np
from autograd import ops
from autograd.ops.linear import pack_weight
from autograd.blas import product_threads
packed, x = pack_weight(np.ones((40, 500), np.float32)), np.ones((3, 40), np.float32)
with product_threads(2):
    ops.linear(x, packed, None)
    child = os.fork()
    assert (ops.linear(x, packed, None).value == 40).all()
    if not child:
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIME_LIMIT)


@needs_compiler
@pytest.mark.parametrize("dtype", get_args(PackedDtype))
@pytest.mark.parametrize(("n_terms", "n_columns"), [(1, 1), (7, 33), (513, 100)])
def test_references_compute_with_packed_weights(
    n_terms: int, n_columns: int, dtype: PackedDtype, kernels_run: list[Any]
) -> None:
    x, weight, bias = numbers(3, n_terms), numbers(n_terms, n_columns), numbers(n_columns)
    packed, rounded = pack_weight(weight, dtype=dtype), pack_weight.reference(weight, dtype=dtype)
    kernels_run.clear()
    y = x @ rounded if dtype == "float32" else x @ packed
    with references_only():
        np.testing.assert_array_equal(ops.linear(x, packed, bias).value, y + bias)
        np.testing.assert_array_equal(ops.linear_relu(x, packed, bias).value, np.maximum(y + bias, 0))
        assert isinstance(pack_weight(weight, dtype=dtype), np.ndarray)
    assert kernels_run == []


def test_weights_of_float64_are_not_packed() -> None:
    weight = RANDOM.standard_normal((4, 5))
    np.testing.assert_array_equal(pack_weight(weight.T), weight.T, strict=True)
