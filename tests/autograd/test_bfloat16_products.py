"""Products in bfloat16: those of the rounded operands, whatever the sizes, threads and neighbouring rows."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from guarded import guarded_allocations
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autograd import Tensor, backward, ops
from autograd.bfloat16_products import bfloat16_products, packed_operands
from autograd.kernels.cpu.bfloat16 import Rows
from autograd.kernels.cpu.library import library
from autograd.op import ShapeError
from autograd.ops.cross_entropy import linear_cross_entropy
from autograd.ops.feed_forward import feed_forward, joint_feed_forward
from autograd.ops.linear import linear, linear_relu
from autograd.ops.linear_maps import joint_linear_maps, linear_maps
from autograd.tensor import TapeError, gradient_array

pytestmark = pytest.mark.skipif(not library().functions, reason="no C compiler")

SIZES = st.sampled_from([1, 2, 3, 13, 14, 15, 16, 17, 31, 32, 33, 70, 130])  # around a tile and a panel
FAR = [(5, 700, 40), (700, 5, 40), (40, 40, 700), (1_100, 33, 2)]  # more than a block of rows, or of terms
MAPS = ("product", "bias", "relu")


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


def far_examples(test: Any) -> Any:
    for sizes, kind in itertools.product(FAR, MAPS):
        test = example(sizes=sizes, kind=kind)(test)
    return test


@far_examples
@given(sizes=st.tuples(SIZES, SIZES, SIZES), kind=st.sampled_from(MAPS))
@settings(max_examples=80, deadline=None)
def test_products_are_those_of_the_rounded_operands(sizes: tuple[int, int, int], kind: str) -> None:
    """Between guards and not aligned."""
    n_rows, n_terms, n_columns = sizes
    with guarded_allocations() as guarded, bfloat16_products(1):
        x, weight, bias, dy = map(
            guarded.copy_of,
            (numbers(n_rows, n_terms), numbers(n_terms, n_columns), numbers(n_columns), numbers(n_rows, n_columns)),
        )
        operation = linear_relu if kind == "relu" else linear
        arguments = x, weight, None if kind == "product" else bias
        run = operation.choose(arguments, {})
        assert run is not operation.reference
        y, backward = run(*arguments)
        dx, dweight, dbias = backward(dy)
        added = np.ones_like(weight)
        dweight.into(added, True)
        dweight = gradient_array(dweight)
    z, dz = rounded(x) @ rounded(weight) + (0 if kind == "product" else bias), dy
    if kind == "relu":
        z, dz = np.maximum(z, 0), dy * (y > 0)
    assert_close(y, z)
    assert_close(dx, rounded(dz) @ rounded(weight).T)
    assert_close(dweight, rounded(x).T @ rounded(dz))
    assert_close(added, 1 + rounded(x).T @ rounded(dz))
    if kind == "product":
        assert dbias is None
    else:
        assert_close(dbias, dz.sum(0, dtype=np.float64))


@given(n_rows=SIZES, n_terms=SIZES, n_columns=SIZES)
@example(n_rows=13, n_terms=130, n_columns=33)
@settings(max_examples=30, deadline=None)
def test_a_feed_forward_network_rounds_its_hidden_rows(n_rows: int, n_terms: int, n_columns: int) -> None:
    """Sums of products of integers are exact; odd ones from 257 to 511 are ties of bfloat16."""
    random, (x_shape, shape1) = np.random.default_rng(1), ((n_rows, n_terms), (n_terms, n_columns))
    shapes = x_shape, shape1, n_columns, shape1[::-1], n_terms, x_shape
    x, weight1, bias1, weight2, bias2, dy = (random.integers(-16, 17, shape).astype(np.float32) for shape in shapes)
    arguments = x, weight1, bias1, weight2, bias2
    with guarded_allocations(), bfloat16_products(1):
        together = joint_feed_forward.kernel_of(arguments)
        assert together is not None
        [y], gradients_for = together(*arguments)
        gradients = [gradient_array(gradient) for gradient in gradients_for([dy])]
    hidden = np.maximum(x @ weight1 + bias1, 0)
    dz = dy @ weight2.T * (hidden > 0)
    np.testing.assert_array_equal(y, rounded(hidden) @ weight2 + bias2)
    exact = [rounded(dz) @ weight1.T, x.T @ rounded(dz), dz.sum(0), rounded(hidden).T @ dy, dy.sum(0)]
    for found, expected in zip(gradients, exact, strict=True):
        np.testing.assert_array_equal(found, expected)


OPERATIONS: dict[str, Callable[..., Tensor]] = {  # of x (T, I), a weight (I, O), a bias (O,), and a weight (O, I)
    "linear": lambda x, weight, bias, _: linear(x, weight, bias),
    "linear_relu": lambda x, weight, bias, _: linear_relu(x, weight, bias),
    "linear_maps": lambda x, weight, bias, _: ops.add(*linear_maps(x, weight, None, weight, bias)),
    "feed_forward": lambda x, weight1, bias, weight2: feed_forward(x, weight1, bias, weight2, None),
    "linear_cross_entropy": lambda x, _, bias, weight: linear_cross_entropy(
        x, weight, None, np.arange(len(x.value)) % max(1, bias.shape[0])
    ),
}
operations = pytest.mark.parametrize("operation", OPERATIONS)


def results(operation: str, *arrays: Any, dy_dtype: Any = np.float32) -> list[Any]:
    """Return the value, and the gradients of x and the others that it depends on."""
    arguments = [Tensor(array.copy()) for array in arrays]
    value = OPERATIONS[operation](*arguments)
    dy = np.asarray(np.random.default_rng(3).standard_normal(value.shape), np.float32)
    backward(value, dy.astype(dy_dtype))
    return [value.value, *(each.grad for each in arguments if each.grad is not None)]


def operands(n_rows: int, n_terms: int, n_columns: int) -> list[Any]:
    return [numbers(*shape) for shape in ((n_rows, n_terms), (n_terms, n_columns), (n_columns,), (n_columns, n_terms))]


def assert_near(found: list[Any], exact: list[Any]) -> None:
    """Compare results but for the rounding of operands."""
    for x, y in zip(found, exact, strict=True):
        np.testing.assert_allclose(x, y, rtol=0.02, atol=0.02 * np.abs(y).max(initial=0))


@operations
@pytest.mark.parametrize("sizes", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 7)])
def test_sizes_may_be_zero(operation: str, sizes: tuple[int, int, int]) -> None:
    if operation == "linear_cross_entropy" and not sizes[2]:
        pytest.skip("there is no class")
    with guarded_allocations(), bfloat16_products(1):
        found = results(operation, *operands(*sizes))
    assert_near(found, results(operation, *(x.astype(np.float64) for x in operands(*sizes))))


@operations
def test_gradients_may_be_float64(operation: str) -> None:
    with bfloat16_products(1):
        found, expected = (results(operation, *operands(20, 33, 7), dy_dtype=dtype) for dtype in ("float64", "float32"))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


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


@operations
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_is_not_finite_stays_so_and_changes_no_other(operation: str, bad: float) -> None:
    x, *others = operands(40, 50, 37)
    with bfloat16_products(1):
        before = results(operation, x, *others)[:2]
        x[7, 3] = bad
        after = results(operation, x, *others)[:2]
    assert not np.isfinite(after[0]).all()
    for rows_before, rows_after in zip(before, after, strict=True):
        if rows_after.ndim:  # no loss
            np.testing.assert_array_equal(np.delete(rows_after, 7, 0), np.delete(rows_before, 7, 0))


@operations
def test_very_large_numbers_and_rows_of_zeros(operation: str) -> None:
    x, weight = np.array([[1e30, -1e30, 0], [0, 0, 0], [1e30, 0, 1e30]], np.float32), np.eye(3, 2, dtype=np.float32)
    arrays = x, weight + weight[::-1] / 2, np.array([1, 2], np.float32), weight.T
    with bfloat16_products(1):
        found = results(operation, *arrays)
    exact = results(operation, *(array.astype(np.float64) for array in arrays))
    assert_near(found, exact)
    if found[0].ndim:
        np.testing.assert_array_equal(found[0][1], exact[0][1])


@pytest.mark.parametrize("n_rows", [0, 128])
def test_cross_entropy_needs_a_target_for_each_row(n_rows: int) -> None:
    with bfloat16_products(1), pytest.raises(ShapeError, match=rf"\({n_rows}, 5\) and \(200,\)"):
        linear_cross_entropy(Tensor(numbers(n_rows, 3)), Tensor(numbers(5, 3)), None, np.zeros(200, np.int64))


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
