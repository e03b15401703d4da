"""CUDA kernels where the library refuses epilogues: other operations compute the same."""

from typing import Any

import numpy as np
import pytest
from cublaslt_on_cpu import Recorder, forget
from cuda_on_cpu import near

from autograd import to_device, to_host
from autograd.kernels.cuda import epilogues
from autograd.kernels.cuda.cublaslt import Epilogue, ProductError
from autograd.kernels.cuda.feed_forward import feed_forward_with_epilogues
from autograd.kernels.cuda.linear import linear_relu_with_epilogue, linear_with_epilogue
from autograd.kernels.cuda.linear_maps import linear_maps_as_a_stack
from autograd.precision import dtype_named
from autograd.tensor import gradient_array

WIDTH, INNER = 24, 40
ALL: tuple[Epilogue, ...] = ("relu_mask_bias", "relu_bias", "bias", "relu_bias_backward")


pytestmark = pytest.mark.usefixtures("emulated")


def draw(*shape: int, dtype: str = "bfloat16") -> Any:
    """Draw whole numbers, and for a bias (float32) n + ½, so that rounding changes no sign and no float32 sum."""
    numbers = np.random.default_rng(sum(shape)).integers(-2, 3, shape)
    return to_device((numbers + 0.5 * (len(shape) == 1)).astype(dtype_named(dtype)), "cuda")


def feed_forward_results(n_rows: int = 9) -> list[Any]:
    """Compute y and the gradients, in float64 of the host."""
    arguments = (
        draw(n_rows, WIDTH),
        draw(WIDTH, INNER),
        draw(INNER, dtype="float32"),
        draw(INNER, WIDTH),
        draw(WIDTH, dtype="float32"),
    )
    (y,), backward = feed_forward_with_epilogues(*arguments)
    return [to_host(gradient_array(x)).astype(float) for x in (y, *backward([draw(n_rows, WIDTH)]))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "refused", [("relu_mask_bias",), ("relu_bias_backward",), ("relu_mask_bias", "relu_bias"), ALL], ids=str
)
def test_a_feed_forward_network_is_computed_by_other_operations(
    refused: tuple[Epilogue, ...], products_on_cpu: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    expected = feed_forward_results()
    forget()
    products_on_cpu.refuse_epilogues(*refused)
    for got, right in zip(feed_forward_results(), expected, strict=True):
        near(got, right, 6e-3)
    (warning,) = caplog.messages
    assert f"epilogue {refused[0]}" in warning


def test_only_refused_shapes_are_not_tried_again(products_on_cpu: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    products_on_cpu.refuse_epilogues("relu_mask_bias")
    first = feed_forward_results()
    products_on_cpu.calls.clear()
    for got, before in zip(feed_forward_results(), first, strict=True):
        np.testing.assert_array_equal(got, before)
    assert "MatmulAlgoGetHeuristic" not in products_on_cpu.names()
    feed_forward_results(10)
    assert "MatmulAlgoGetHeuristic" in products_on_cpu.names()
    assert len(caplog.messages) == 1


def test_a_capture_does_what_the_run_before_it_did(products_on_cpu: Recorder, cupy: Any) -> None:
    products_on_cpu.refuse_epilogues("relu_mask_bias")
    feed_forward_results()
    cupy.cuda.get_current_stream().capturing = True
    feed_forward_results()
    with pytest.raises(ProductError, match="run the same once before, uncaptured; .*epilogue relu_mask_bias"):
        feed_forward_results(10)
    assert len(epilogues._refused) == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", [linear_with_epilogue, linear_relu_with_epilogue])
def test_linear_maps_without_epilogues(kernel: Any, dtype: str, products_on_cpu: Recorder) -> None:
    arguments = draw(9, WIDTH, dtype=dtype), draw(WIDTH, INNER, dtype=dtype), draw(INNER, dtype="float32")
    products_on_cpu.refuse_epilogues(*ALL)
    x, weight, bias = (to_host(x).astype(float) for x in arguments)
    y, backward = kernel(*arguments)
    z = x @ weight + bias
    right = np.maximum(z, 0) if kernel is linear_relu_with_epilogue else z
    assert y.dtype == dtype
    np.testing.assert_array_equal(to_host(y).astype(float), right.astype(dtype_named(dtype)).astype(float))
    dz = np.ones((9, INNER)) * (1 if kernel is linear_with_epilogue else z > 0)
    gradients = backward(to_device(np.ones((9, INNER), dtype_named(dtype)), "cuda"))
    for got, expected in zip(gradients, (dz @ weight.T, x.T @ dz, dz.sum(0)), strict=True):
        near(to_host(gradient_array(got)).astype(float), expected, 6e-3)


def test_a_stack_of_linear_maps_without_epilogues(products_on_cpu: Recorder) -> None:
    x, weights = draw(9, WIDTH), draw(3, WIDTH, INNER)
    biases = [draw(INNER, dtype="float32") + i for i in range(3)]
    products_on_cpu.refuse_epilogues("bias")
    maps = [argument for i in (2, 0, 1) for argument in (weights[i], biases[i])]
    ys, _ = linear_maps_as_a_stack(x, *maps)
    for y, i in zip(ys, (2, 0, 1), strict=True):
        x_values, weight, bias = (to_host(a).astype(float) for a in (x, weights[i], biases[i]))
        near(to_host(y).astype(float), x_values @ weight + bias, 6e-3)
