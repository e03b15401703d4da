"""CUDA kernels without a GPU: linear maps, with products by a library of the CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import near

from autograd import ops
from autograd.kernels.cuda import linear
from autograd.kernels.cuda.feed_forward import feed_forward_with_epilogues
from autograd.kernels.cuda.linear_maps import linear_maps_as_a_stack
from autograd.op import ShapeError
from autograd.precision import dtype_named
from autograd.tensor import PendingGradient, gradient_array

pytestmark = pytest.mark.usefixtures("launch")
KERNELS: dict[str, Callable[..., Any]] = {
    "linear": linear.linear_with_epilogue,
    "linear_relu": linear.linear_relu_with_epilogue,
    "linear_transposed": linear.linear_transposed_by_flags,
}
CASES = [("linear", True), ("linear", False), ("linear_relu", True), ("linear_transposed", False)]
TOLERANCE = {"float32": 3e-6, "bfloat16": 6e-3}
in_both_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


def draw(name: str, n_rows: int, dtype: str, *, bias: bool) -> tuple[Any, ...]:
    """Draw x, the weight, a bias (float32 as parameters are) and dy."""
    random = np.random.default_rng(n_rows)
    x, weight, b, dy = (random.standard_normal(shape) for shape in ((n_rows, 33), (33, 40), 40, (n_rows, 40)))
    weight = weight.T if name == "linear_transposed" else weight
    rest = () if name == "linear_transposed" else (b.astype(np.float32) if bias else None,)
    stored = dtype_named(dtype)
    return x.astype(stored), weight.astype(stored), *rest, dy.astype(stored)


def ones(*shapes: tuple[int, ...]) -> list[Any]:
    return [np.ones(shape, np.float32) for shape in shapes]


def in_double(*arguments: Any) -> list[Any]:
    return [None if x is None else np.asarray(x).astype(float) for x in arguments]


@in_both_dtypes
@pytest.mark.parametrize("n_rows", [1, 9, 300])
@pytest.mark.parametrize(("name", "bias"), CASES)
def test_linear_maps(name: str, bias: bool, n_rows: int, dtype: str) -> None:
    *arguments, dy = draw(name, n_rows, dtype, bias=bias)
    y, backward = KERNELS[name](*arguments)
    expected, expected_backward = getattr(ops, name).reference(*in_double(*arguments))
    assert y.dtype == dtype
    near(y.astype(float), expected, TOLERANCE[dtype])
    dx, dweight, *dbias = backward(dy)
    right_dx, right_dweight, *right_dbias = expected_backward(dy.astype(float))
    if name == "linear_relu":  # the sign of a sum near 0 may be another one
        x, weight, dz = *in_double(*arguments[:2]), dy.astype(float) * (y.astype(float) > 0)
        right_dx, right_dweight, right_dbias = dz @ weight.T, x.T @ dz, [dz.sum(0)]
    near(gradient_array(dx).astype(float), right_dx, TOLERANCE[dtype])
    assert gradient_array(dx).dtype == dtype
    assert isinstance(dweight, PendingGradient)
    gradient = np.full(right_dweight.shape, np.nan, np.float32)
    for n, add in enumerate((False, True), 1):
        dweight.into(gradient, add)
        near(gradient, n * right_dweight, TOLERANCE[dtype if name == "linear_relu" else "float32"])
    for got, right in zip(dbias, right_dbias, strict=True):
        assert (got is None) == (right is None)
        if got is not None:
            assert got.dtype == np.float32
            near(got, right, TOLERANCE["float32"])


@pytest.mark.parametrize(("name", "bias"), CASES)
def test_no_rows(name: str, bias: bool) -> None:
    *arguments, dy = draw(name, 0, "float32", bias=bias)
    y, backward = KERNELS[name](*arguments)
    assert y.shape == (0, 40)
    dx, dweight, *dbias = backward(dy)
    assert dx.shape == (0, 33)
    gradient = np.ones(dweight.shape, np.float32)
    dweight.into(gradient, True)
    assert (gradient == 1).all()
    dweight.into(gradient, False)
    assert not gradient.any()
    assert all(x is None or not x.any() for x in dbias)


MISFITS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "linear": (linear.linear_with_epilogue, ones((5, 2), (3, 4), (4,))),
    "linear_relu": (linear.linear_relu_with_epilogue, ones((5, 2), (3, 4), (4,))),
    "linear_transposed": (linear.linear_transposed_by_flags, ones((5, 2), (4, 3))),
    "linear_maps": (linear_maps_as_a_stack, [*ones((5, 2), (3, 4)), None, *ones((3, 4)), None]),
    "feed_forward": (feed_forward_with_epilogues, ones((5, 2), (3, 4), (4,), (4, 3), (3,))),
}


@pytest.mark.parametrize("name", MISFITS)
def test_matrices_that_do_not_fit_are_refused_in_the_name_of_the_operation(name: str) -> None:
    kernel, arguments = MISFITS[name]
    with pytest.raises(ShapeError, match=rf"^{name}: expected x \(T, I\)"):
        kernel(*arguments)


def test_a_gradient_that_is_a_view_of_another_type_is_no_other_gradient() -> None:
    *arguments, dy = draw("linear", 5, "float32", bias=True)
    wide = np.repeat(dy.astype(float), 2, axis=1)[:, ::2]
    gradients = [map(gradient_array, linear.linear_with_epilogue(*arguments)[1](x)) for x in (dy, wide)]
    for got, expected in zip(*gradients, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("width", [1, 31, 32, 65, 128, 130, 260])
@pytest.mark.parametrize("n_rows", [0, 1, 257, 700])
def test_sums_of_rows(n_rows: int, width: int) -> None:
    rows = np.random.default_rng(n_rows).standard_normal((n_rows, width)).astype(np.float32)
    near(linear.sum_of_rows(rows), rows.astype(float).sum(0), 2e-6)


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("width", [33, 64, 132])
@in_both_dtypes
def test_the_derivative_of_relu_and_its_sums(dtype: str, width: int, offset: int) -> None:
    """Arrays begin ``offset`` elements behind an aligned address, and have NaN before them."""
    random, n = np.random.default_rng(width), 300
    dy, y = (np.full(n * width + offset, np.nan, dtype_named(dtype))[offset:].reshape(n, width) for _ in range(2))
    for array in (dy, y):
        array[...] = random.standard_normal((n, width)).astype(array.dtype)
    dz, dbias = linear.relu_backward(dy, y)
    expected = np.where(y.astype(float) > 0, dy.astype(float), 0)
    assert (dz.dtype, dbias.dtype) == (dtype, np.float32)
    np.testing.assert_array_equal(dz.astype(float), expected)
    near(dbias, expected.sum(0), 1e-6)
    near(linear.sum_of_rows(dy), dy.astype(float).sum(0), 1e-6)
