"""Products with epilogues: the feed-forward network, and what is computed where the library refuses epilogues."""

from typing import Any

import numpy as np
import pytest
from cublaslt_on_cpu import Recorder
from cuda_kernels import registered
from cuda_on_cpu import near

from autograd import Tensor, backward, ops, to_device, to_host
from autograd.kernels.cuda import epilogues, feed_forward, linear
from autograd.kernels.cuda.cublaslt import Epilogue, ProductError
from autograd.kernels.cuda.feed_forward import feed_forward_with_epilogues
from autograd.kernels.cuda.linear import linear_relu_with_epilogue, linear_with_epilogue
from autograd.kernels.cuda.linear_maps import linear_maps_as_a_stack
from autograd.op import ShapeError
from autograd.precision import dtype_named
from autograd.tensor import PendingGradient, gradient_array, wait_for_deferred_gradients

WIDTH, INNER = 24, 40  # a row of the mask has bits that belong to no column
ALL: tuple[Epilogue, ...] = ("relu_mask_bias", "relu_bias", "bias", "relu_bias_backward")
on_device = pytest.mark.usefixtures("device_products")
on_stand_in = pytest.mark.usefixtures("emulated")


def placed(*arrays: Any) -> list[Any]:
    return [None if x is None else to_device(x, "cuda") for x in arrays]


def in_double(x: Any) -> Any:
    return None if x is None else to_host(x).astype(float)


def compare(results: Any, expected: Any) -> None:
    for got, right in zip(results, expected, strict=True):
        assert (got is None) == (right is None)
        if got is not None:
            near(in_double(got), right, 6e-3)


# The feed-forward network.


def draw(n_rows: int, *, bias2: bool = True) -> tuple[Any, ...]:
    """Draw the arguments, and dy.  ReLU is applied to n + ½, so that rounding changes no sign."""
    random, bf16 = np.random.default_rng(n_rows), dtype_named("bfloat16")
    x, weight1 = (random.integers(-2, 3, shape).astype(bf16) for shape in ((n_rows, WIDTH), (WIDTH, INNER)))
    bias1 = random.integers(-2, 3, INNER).astype(np.float32) + np.float32(0.5)
    weight2, dy = (random.standard_normal(shape).astype(bf16) for shape in ((INNER, WIDTH), (n_rows, WIDTH)))
    return x, weight1, bias1, weight2, random.standard_normal(WIDTH).astype(np.float32) if bias2 else None, dy


def exact(*arguments: Any) -> list[Any]:
    """Compute the value and the gradients in float64, in plain NumPy."""
    x, weight1, bias1, weight2, bias2, dy = map(in_double, arguments)
    z = x @ weight1 + bias1
    hidden, dz = np.maximum(z, 0), dy @ weight2.T * (z > 0)
    y = hidden @ weight2 + (0 if bias2 is None else bias2)
    return [y, dz @ weight1.T, x.T @ dz, dz.sum(0), hidden.T @ dy, None if bias2 is None else dy.sum(0)]


def check_feed_forward(n_rows: int = 9, *, bias2: bool = True) -> list[bytes]:
    """Compare the value and the gradients with the exact ones; return their bits."""
    *arguments, dy = draw(n_rows, bias2=bias2)
    (y,), run_backward = feed_forward_with_epilogues(*placed(*arguments))
    assert y.dtype == "bfloat16"
    gradients = run_backward(placed(dy))
    dweights = []
    for gradient in (gradients[1], gradients[3]):  # in float32, as the buffer of gradients
        assert isinstance(gradient, PendingGradient)
        dweights.append(to_device(np.full(gradient.shape, np.nan, np.float32), "cuda"))
        gradient.into(dweights[-1], False)
    wait_for_deferred_gradients()
    dx, dbias1, dbias2 = (None if g is None else gradient_array(g) for g in gradients[::2])
    assert dbias1.dtype == np.float32
    results = [y, dx, dweights[0], dbias1, dweights[1], dbias2]
    compare(results, exact(*arguments, dy))
    return [to_host(x).tobytes() for x in results if x is not None]


@on_device
@pytest.mark.parametrize("bias2", [True, False])
@pytest.mark.parametrize("n_rows", [1, 9, 300])
def test_feed_forward(n_rows: int, bias2: bool) -> None:
    check_feed_forward(n_rows, bias2=bias2)


@on_device
def test_a_second_weight_that_does_not_fit_is_refused() -> None:
    x, weight1, bias1, weight2, bias2, _ = draw(3)
    with pytest.raises(ShapeError, match=r"^feed_forward: expected x \(T, I\)"):
        feed_forward_with_epilogues(*placed(x, weight1, bias1, weight2[1:], bias2))


@on_device
def test_the_operation_needs_no_pass_over_the_inner_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are all that reads or writes (T, F); the only sum over rows is the gradient of b₂."""
    *arguments, dy = draw(9)
    summed: list[tuple[int, ...]] = []

    def recorded(rows: Any) -> Any:
        summed.append(rows.shape)
        return linear.sum_of_rows(rows)

    monkeypatch.setattr(feed_forward, "sum_of_rows", recorded)
    monkeypatch.setattr(linear, "relu_backward", lambda *_: pytest.fail("ReLU has a pass of its own"))
    leaves = [Tensor(x) for x in placed(*arguments)]
    with registered():
        y = ops.feed_forward(*leaves)
        backward(y, to_device(dy, "cuda"))
    compare([y.value, *(leaf.grad for leaf in leaves)], exact(*arguments, dy))
    assert summed == [(9, WIDTH)]


# Where the library refuses epilogues, other operations compute the same.


@on_stand_in
@pytest.mark.parametrize(
    "refused", [("relu_mask_bias",), ("relu_bias_backward",), ("relu_mask_bias", "relu_bias"), ALL], ids=str
)
def test_a_feed_forward_network_is_computed_by_other_operations(
    refused: tuple[Epilogue, ...], products_on_cpu: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Only for the refused shapes, which are not tried again."""
    products_on_cpu.refuse_epilogues(*refused)
    first = check_feed_forward()
    (warning,) = caplog.messages
    assert f"epilogue {refused[0]}" in warning
    products_on_cpu.calls.clear()
    assert check_feed_forward() == first
    assert "MatmulAlgoGetHeuristic" not in products_on_cpu.names()
    check_feed_forward(10)
    assert "MatmulAlgoGetHeuristic" in products_on_cpu.names()
    assert len(caplog.messages) == 1


@on_stand_in
def test_a_capture_does_what_the_run_before_it_did(products_on_cpu: Recorder, cupy: Any) -> None:
    products_on_cpu.refuse_epilogues("relu_mask_bias")
    check_feed_forward()
    cupy.cuda.get_current_stream().capturing = True
    check_feed_forward()
    with pytest.raises(ProductError, match="run the same once before, uncaptured; .*epilogue relu_mask_bias"):
        check_feed_forward(10)
    assert len(epilogues._refusals) == 1


def whole(*shape: int, dtype: str = "bfloat16") -> Any:
    """Draw whole numbers, and for a bias (float32) n + ½, so that rounding changes no sign and no float32 sum."""
    numbers = np.random.default_rng(sum(shape)).integers(-2, 3, shape)
    return to_device((numbers + 0.5 * (len(shape) == 1)).astype(dtype_named(dtype)), "cuda")


@on_stand_in
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", [linear_with_epilogue, linear_relu_with_epilogue])
def test_linear_maps_without_epilogues(kernel: Any, dtype: str, products_on_cpu: Recorder) -> None:
    arguments = whole(9, WIDTH, dtype=dtype), whole(WIDTH, INNER, dtype=dtype), whole(INNER, dtype="float32")
    products_on_cpu.refuse_epilogues(*ALL)
    x, weight, bias = map(in_double, arguments)
    y, run_backward = kernel(*arguments)
    z = x @ weight + bias
    right = np.maximum(z, 0) if kernel is linear_relu_with_epilogue else z
    assert y.dtype == dtype
    np.testing.assert_array_equal(in_double(y), right.astype(dtype_named(dtype)).astype(float))
    dz = np.ones((9, INNER)) * (1 if kernel is linear_with_epilogue else z > 0)
    gradients = run_backward(to_device(np.ones((9, INNER), dtype_named(dtype)), "cuda"))
    compare(map(gradient_array, gradients), (dz @ weight.T, x.T @ dz, dz.sum(0)))


@on_stand_in
def test_a_stack_of_linear_maps_without_epilogues(products_on_cpu: Recorder) -> None:
    x, weights = whole(9, WIDTH), whole(3, WIDTH, INNER)
    biases = [whole(INNER, dtype="float32") + i for i in range(3)]
    products_on_cpu.refuse_epilogues("bias")
    order = (2, 0, 1)
    ys, _ = linear_maps_as_a_stack(x, *(argument for i in order for argument in (weights[i], biases[i])))
    compare(ys, [in_double(x) @ in_double(weights[i]) + in_double(biases[i]) for i in order])
