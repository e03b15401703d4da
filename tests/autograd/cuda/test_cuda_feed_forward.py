"""CUDA kernels without a GPU: the feed-forward network with the derivative of ReLU in the product before it."""

from typing import Any

import numpy as np
import pytest
from cuda_kernels import registered
from cuda_on_cpu import near

from autograd import Tensor, backward, ops, to_device, to_host
from autograd.kernels.cuda import feed_forward, linear
from autograd.kernels.cuda.feed_forward import feed_forward_with_epilogues
from autograd.op import ShapeError
from autograd.precision import dtype_named
from autograd.tensor import PendingGradient, gradient_array, wait_for_deferred_gradients

pytestmark = pytest.mark.usefixtures("device_products")
WIDTH, INNER = 24, 40  # a row of the mask has bits that belong to no column


def on_device(*arrays: Any) -> list[Any]:
    return [None if x is None else to_device(x, "cuda") for x in arrays]


def draw(n_rows: int, *, bias2: bool = True) -> tuple[Any, ...]:
    """Draw the arguments, and dy.  ReLU is applied to n + ½, so that rounding changes no sign."""
    random, bf16 = np.random.default_rng(n_rows), dtype_named("bfloat16")
    x, weight1 = (random.integers(-2, 3, shape).astype(bf16) for shape in ((n_rows, WIDTH), (WIDTH, INNER)))
    bias1 = random.integers(-2, 3, INNER).astype(np.float32) + np.float32(0.5)
    weight2, dy = (random.standard_normal(shape).astype(bf16) for shape in ((INNER, WIDTH), (n_rows, WIDTH)))
    return x, weight1, bias1, weight2, random.standard_normal(WIDTH).astype(np.float32) if bias2 else None, dy


def exact(x: Any, weight1: Any, bias1: Any, weight2: Any, bias2: Any, dy: Any) -> list[Any]:
    """Compute the value and the gradients in float64, in plain NumPy."""
    z = x @ weight1 + bias1
    hidden, dz = np.maximum(z, 0), dy @ weight2.T * (z > 0)
    y = hidden @ weight2 + (0 if bias2 is None else bias2)
    return [y, dz @ weight1.T, x.T @ dz, dz.sum(0), hidden.T @ dy, None if bias2 is None else dy.sum(0)]


@pytest.mark.parametrize("bias2", [True, False])
@pytest.mark.parametrize("n_rows", [1, 9, 300])
def test_feed_forward(n_rows: int, bias2: bool) -> None:
    *arguments, dy = draw(n_rows, bias2=bias2)
    (y,), run_backward = feed_forward_with_epilogues(*on_device(*arguments))
    assert y.dtype == "bfloat16"
    gradients = run_backward(on_device(dy))
    dweights = []
    for gradient in (gradients[1], gradients[3]):  # in float32, as the buffer of gradients
        assert isinstance(gradient, PendingGradient)
        dweights.append(to_device(np.full(gradient.shape, np.nan, np.float32), "cuda"))
        gradient.into(dweights[-1], False)
    wait_for_deferred_gradients()
    dx, dbias1, dbias2 = (None if g is None else gradient_array(g) for g in gradients[::2])
    assert dbias1.dtype == np.float32
    results = [y, dx, dweights[0], dbias1, dweights[1], dbias2]
    expected = exact(*(None if a is None else a.astype(float) for a in (*arguments, dy)))
    for got, exact_one in zip(results, expected, strict=True):
        assert (got is None) == (exact_one is None)
        if got is not None:
            near(to_host(got).astype(float), exact_one, 6e-3)


def test_matrices_that_do_not_fit_are_refused_in_the_name_of_the_operation() -> None:
    x, weight1, bias1, weight2, bias2, _ = draw(3)
    for arguments in ((x[:, 1:], weight1, bias1, weight2, bias2), (x, weight1, bias1, weight2[1:], bias2)):
        with pytest.raises(ShapeError, match=r"^feed_forward: expected x \(T, I\)"):
            feed_forward_with_epilogues(*on_device(*arguments))


def test_the_operation_needs_no_pass_over_the_inner_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are all that reads or writes (T, F); the only sum over rows is the gradient of b₂."""
    *arguments, dy = draw(9)
    summed: list[tuple[int, ...]] = []

    def recorded(rows: Any) -> Any:
        summed.append(rows.shape)
        return linear.sum_of_rows(rows)

    monkeypatch.setattr(feed_forward, "sum_of_rows", recorded)
    monkeypatch.setattr(linear, "relu_backward", lambda *_: pytest.fail("ReLU has a pass of its own"))
    leaves = [Tensor(x) for x in on_device(*arguments)]
    with registered():
        y = ops.feed_forward(*leaves)
        backward(y, to_device(dy, "cuda"))
    expected = exact(*(x.astype(float) for x in (*arguments, dy)))
    for got, exact_one in zip([y.value, *(leaf.grad for leaf in leaves)], expected, strict=True):
        near(to_host(got).astype(float), exact_one, 6e-3)
    assert summed == [(9, WIDTH)]
