"""Several linear maps of the same x by stacks of products, compared with separate maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cublaslt_on_cpu import Recorder
from cuda_kernels import registered
from cuda_on_cpu import near

from autograd import Layer, Parameter, ParameterBuffer, Tensor, backward, ops, to_device, to_host
from autograd.array import Device
from autograd.kernels.cuda.linear_maps import linear_maps_as_a_stack
from autograd.ops.linear_maps import joint_linear_maps
from autograd.parameters import glorot_uniform, scaled_normal
from autograd.precision import dtype_named
from autograd.tensor import PendingGradient, gradient_array, wait_for_deferred_gradients

WIDTH, OUT, N = 33, 40, 3
TOLERANCE = {"float32": 3e-6, "bfloat16": 6e-3}


class Maps(Layer):
    """A layer of weights, with or without biases, and another parameter."""

    def __init__(self, n_maps: int, *, bias: bool, dtype: str = "float32", device: Device = "cpu") -> None:
        self.before = Parameter((7,), scaled_normal)
        self.weights: list[Parameter] = []
        self.biases: list[Parameter] = []
        for _ in range(n_maps):
            self.weights.append(Parameter((WIDTH, OUT), glorot_uniform))
            self.biases.append(Parameter((OUT,), lambda stream_id, shape: scaled_normal(stream_id, (*shape, 1))[:, 0]))
        if not bias:
            self.biases.clear()
        self.values = ParameterBuffer(self, seed=3, dtype=dtype, device=device)

    @property
    def arguments(self) -> list[Parameter | None]:
        biases: Sequence[Parameter | None] = self.biases or [None] * len(self.weights)
        return [argument for pair in zip(self.weights, biases, strict=True) for argument in pair]


def draw(*shape: int, dtype: str) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype_named(dtype))


def gradients_of(maps: Maps, x: Any, dys: list[Any]) -> tuple[list[Any], Any, list[Any], list[Any]]:
    """Return in float64 on the host: results, dx, weight gradients (written, then added) and bias gradients."""
    ys, run_backward = linear_maps_as_a_stack(x, *(None if p is None else p.value for p in maps.arguments))
    dx, *dmaps = run_backward(dys)
    assert gradient_array(dx).dtype == ys[0].dtype == x.dtype
    views = [weight.view_of(maps.values.gradients) for weight in maps.weights]
    maps.values.gradients[...] = np.nan
    for gradient, view in zip(dmaps[::2], views, strict=True):
        assert isinstance(gradient, PendingGradient)
        gradient.into(view, False)
    wait_for_deferred_gradients()
    once = [to_host(view) for view in views]
    for gradient, view in zip(dmaps[::2], views, strict=True):
        gradient.into(view, True)
    wait_for_deferred_gradients()
    for before, view in zip(once, views, strict=True):
        near(to_host(view).astype(float), 2 * before.astype(float), 2e-6)
    assert np.isnan(to_host(maps.before.view_of(maps.values.gradients))).all()
    assert all(dbias is None or dbias.dtype == np.float32 for dbias in dmaps[1::2])
    return [*map(in_double, ys)], in_double(gradient_array(dx)), once, [*map(in_double, dmaps[1::2])]


def in_double(x: Any) -> Any:
    return None if x is None else to_host(x).astype(float)


@pytest.mark.usefixtures("device_products")
@pytest.mark.parametrize("stacked", [True, False], ids=["gradients in one array", "gradients apart"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("n_rows", [1, 9, 65])
def test_maps_are_those_one_after_the_other(n_rows: int, dtype: str, bias: bool, stacked: bool) -> None:
    x, dys = draw(n_rows, WIDTH, dtype=dtype), draw(N, n_rows, OUT, dtype=dtype)
    maps = Maps(N, bias=bias, dtype=dtype, device="cuda")
    together = to_device(dys[::-1].copy(), "cuda")  # as weights lie: the last first
    apart = [to_device(dy.copy(), "cuda") for dy in dys]
    ys, dx, dweights, dbiases = gradients_of(
        maps, to_device(x, "cuda"), [together[N - 1 - i] for i in range(N)] if stacked else apart
    )
    expected_dx = np.zeros((n_rows, WIDTH))
    for i, weight in enumerate(maps.weights):
        w, b = in_double(weight.value), in_double(maps.biases[i].value) if bias else 0.0
        near(ys[i], x.astype(float) @ w + b, TOLERANCE[dtype])
        near(dweights[i].astype(float), x.astype(float).T @ dys[i].astype(float), TOLERANCE["float32"])
        expected_dx += dys[i].astype(float) @ w.T
        assert (dbiases[i] is None) is not bias
        if bias:
            near(dbiases[i], dys[i].astype(float).sum(0), TOLERANCE["float32"])
    near(dx, expected_dx, N * TOLERANCE[dtype])


@pytest.mark.usefixtures("device_products")
@pytest.mark.parametrize("bias", [True, False])
def test_no_rows(bias: bool) -> None:
    maps = Maps(N, bias=bias, device="cuda")
    x, dys = to_device(draw(0, WIDTH, dtype="float32"), "cuda"), to_device(draw(N, 0, OUT, dtype="float32"), "cuda")
    ys, dx, dweights, dbiases = gradients_of(maps, x, [dys[i] for i in range(N)])
    assert {y.shape for y in ys} == {(0, OUT)}
    assert dx.shape == (0, WIDTH)
    assert not any(dweight.any() for dweight in dweights)
    assert all(dbias is None or not dbias.any() for dbias in dbiases)


@pytest.fixture
def products(launched: list[str], products_on_cpu: Recorder) -> Recorder:
    """Register all kernels and record the calls to cuBLASLt."""
    return products_on_cpu


def counted(products: Recorder, maps: Maps, x: Tensor, used: list[int]) -> tuple[int, int]:
    """Count the products of the forward and the backward pass, after all algorithms are chosen."""
    for _ in range(2):
        products.calls.clear()
        ys = ops.linear_maps(x, *maps.arguments)
        forward = len(products.of("Matmul"))
        total = ops.sum(ys[used[0]])
        for i in used[1:]:
            total = total + ops.sum(ys[i])
        backward(total)
    return forward, len(products.of("Matmul")) - forward


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("used", [[0, 1, 2], [2, 0], [1]])
def test_gradients_reach_leaves_if_not_all_results_are_used(products: Recorder, used: list[int], bias: bool) -> None:
    maps, twin = Maps(N, bias=bias, device="cuda"), Maps(N, bias=bias)
    x = draw(9, WIDTH, dtype="float32")
    here, there = Tensor(x), Tensor(to_device(x, "cuda"))
    counted(products, maps, there, used)
    for i in used:
        on_host = ops.linear_maps(here, *twin.arguments)[i]
        backward(ops.sum(on_host))
        near(to_host(maps.weights[i].grad), twin.weights[i].grad, TOLERANCE["float32"])
        if bias:
            near(to_host(maps.biases[i].grad), twin.biases[i].grad, TOLERANCE["float32"])
    unused = set(range(N)) - set(used)
    assert not any(to_host(maps.weights[i].view_of(maps.values.gradients)).any() for i in unused)
    expected = sum((twin.weights[i].value.sum(1) for i in used), np.zeros(WIDTH))
    near(to_host(there.grad), np.broadcast_to(expected, x.shape), TOLERANCE["float32"])


def test_products_are_counted(products: Recorder) -> None:
    """Forward one; backward one for each term of dx, and one per weight if its gradient is in a separate array."""
    x = Tensor(to_device(draw(9, WIDTH, dtype="float32"), "cuda"))
    assert counted(products, Maps(N, bias=False, device="cuda"), x, [0, 1, 2]) == (1, 3 + 3)
    assert counted(products, Maps(1, bias=False, device="cuda"), x, [0]) == (1, 1 + 1)


def test_the_order_of_maps_in_memory_does_not_matter(products: Recorder) -> None:
    x, maps = to_device(draw(9, WIDTH, dtype="float32"), "cuda"), Maps(N, bias=False, device="cuda")
    values = [weight.value for weight in maps.weights]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        ys = ops.linear_maps(x, *(argument for i in order for argument in (values[i], None)))
        for y, i in zip(ys, order, strict=True):
            near(to_host(y.value), to_host(x) @ to_host(values[i]), TOLERANCE["float32"])
    with registered():
        assert joint_linear_maps.kernel_of((x, values[1], None, values[2], None, values[0], None)) is not None


def test_the_gradient_of_x_is_added_up_in_the_order_of_the_reference(products: Recorder) -> None:
    """(10⁸ − 10⁸) + 1 is 1 in float32, (1 − 10⁸) + 10⁸ is not."""
    flat, gradients = np.array([1e8, -1e8, 1], np.float32), []
    for device in ("cpu", "cuda"):
        weights, x = to_device(flat, device), Tensor(to_device(np.ones((1, 1), np.float32), device))
        first, second, third = ops.linear_maps(
            x, *(argument for i in range(N) for argument in (weights[i : i + 1].reshape(1, 1), None))
        )
        backward(ops.sum(first + second + third))
        gradients.append(float(x.grad[0, 0]))
    assert gradients == [1, 1]
