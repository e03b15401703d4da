"""Linear maps by products with epilogues: one, several of the same x as a stack, and the feed-forward network."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cublaslt_on_cpu import Recorder
from cuda_kernels import registered
from cuda_on_cpu import near

from autograd import Layer, Parameter, ParameterBuffer, Tensor, backward, ops, to_device, to_host
from autograd.array import Device
from autograd.kernels.cuda import epilogues, feed_forward, linear
from autograd.kernels.cuda.cublaslt import Epilogue, ProductError
from autograd.kernels.cuda.feed_forward import feed_forward_with_epilogues
from autograd.kernels.cuda.linear import linear_relu_with_epilogue, linear_with_epilogue
from autograd.kernels.cuda.linear_maps import linear_maps_as_a_stack
from autograd.op import ShapeError
from autograd.ops.linear_maps import joint_linear_maps
from autograd.parameters import glorot_uniform, scaled_normal
from autograd.precision import dtype_named
from autograd.tensor import PendingGradient, gradient_array, wait_for_deferred_gradients

WIDTH, OUT, N = 33, 40, 3
TOLERANCE = {"float32": 3e-6, "bfloat16": 6e-3, "float16": 8e-4}
in_all_dtypes = pytest.mark.parametrize("dtype", TOLERANCE)
on_host_arrays = pytest.mark.usefixtures("launch")
on_device = pytest.mark.usefixtures("device_products")
on_stand_in = pytest.mark.usefixtures("emulated")


def draw(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype_named(dtype))


def in_double(x: Any) -> Any:
    return None if x is None else to_host(x).astype(float)


def compare(results: Any, expected: Any, tolerance: float) -> None:
    for got, right in zip(results, expected, strict=True):
        assert (got is None) == (right is None)
        if got is not None:
            near(in_double(got), right, tolerance)


# One linear map.

KERNELS: dict[str, Callable[..., Any]] = {
    "linear": linear_with_epilogue,
    "linear_relu": linear_relu_with_epilogue,
    "linear_transposed": linear.linear_transposed_by_flags,
}


@on_host_arrays
@in_all_dtypes
@pytest.mark.parametrize("n_rows", [0, 1, 9, 300])
@pytest.mark.parametrize(
    ("name", "bias"), [("linear", True), ("linear", False), ("linear_relu", True), ("linear_transposed", False)]
)
def test_a_linear_map(name: str, bias: bool, n_rows: int, dtype: str) -> None:
    """The bias is float32, as parameters are."""
    x, weight, dy = draw(n_rows, WIDTH, dtype=dtype), draw(WIDTH, OUT, dtype=dtype), draw(n_rows, OUT, dtype=dtype)
    arguments = [x, weight.T] if name == "linear_transposed" else [x, weight, draw(OUT) if bias else None]
    y, run_backward = KERNELS[name](*arguments)
    expected, expected_backward = getattr(ops, name).reference(*map(in_double, arguments))
    assert y.dtype == dtype
    near(in_double(y), expected, TOLERANCE[dtype])
    dx, dweight, *dbias = run_backward(dy)
    right_dx, right_dweight, *right_dbias = expected_backward(in_double(dy))
    if name == "linear_relu":  # the sign of a sum near 0 may be another one
        dz = in_double(dy) * (in_double(y) > 0)
        right_dx, right_dweight, right_dbias = dz @ in_double(weight).T, in_double(x).T @ dz, [dz.sum(0)]
    near(in_double(gradient_array(dx)), right_dx, TOLERANCE[dtype])
    assert gradient_array(dx).dtype == dtype
    assert isinstance(dweight, PendingGradient)
    gradient = np.full(right_dweight.shape, np.nan, np.float32)
    for n, add in enumerate((False, True), 1):
        dweight.into(gradient, add)
        near(gradient, n * right_dweight, TOLERANCE[dtype if name == "linear_relu" else "float32"])
    compare(dbias, right_dbias, TOLERANCE["float32"])
    assert all(x is None or x.dtype == np.float32 for x in dbias)


def ones(*shapes: tuple[int, ...]) -> list[Any]:
    return [np.ones(shape, np.float32) for shape in shapes]


@on_host_arrays
@pytest.mark.parametrize(
    ("name", "kernel", "arguments"),
    [
        ("linear", linear_with_epilogue, ones((5, 2), (3, 4), (4,))),
        ("linear_relu", linear_relu_with_epilogue, ones((5, 2), (3, 4), (4,))),
        ("linear_transposed", linear.linear_transposed_by_flags, ones((5, 2), (4, 3))),
        ("linear_maps", linear_maps_as_a_stack, [*ones((5, 2), (3, 4)), None, *ones((3, 4)), None]),
        ("feed_forward", feed_forward_with_epilogues, ones((5, 2), (3, 4), (4,), (4, 3), (3,))),
    ],
)
def test_matrices_that_do_not_fit_are_refused_in_the_name_of_the_operation(
    name: str, kernel: Callable[..., Any], arguments: list[Any]
) -> None:
    with pytest.raises(ShapeError, match=rf"^{name}: expected x \(T, I\)"):
        kernel(*arguments)


@on_host_arrays
@pytest.mark.parametrize("width", [1, 31, 32, 65, 128, 130, 260])
@pytest.mark.parametrize("n_rows", [0, 1, 257, 700])
def test_sums_of_rows(n_rows: int, width: int) -> None:
    rows = draw(n_rows, width)
    near(linear.sum_of_rows(rows), in_double(rows).sum(0), 2e-6)


@on_host_arrays
@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("width", [33, 64, 132])
@in_all_dtypes
def test_the_derivative_of_relu_and_its_sums(dtype: str, width: int, offset: int) -> None:
    """Arrays begin ``offset`` elements behind an aligned address, and have NaN before them."""
    random, n = np.random.default_rng(width), 300
    dy, y = (np.full(n * width + offset, np.nan, dtype_named(dtype))[offset:].reshape(n, width) for _ in range(2))
    for array in (dy, y):
        array[...] = random.standard_normal((n, width)).astype(array.dtype)
    dz, dbias = linear.relu_backward(dy, y)
    expected = np.where(in_double(y) > 0, in_double(dy), 0)
    assert (dz.dtype, dbias.dtype) == (dtype, np.float32)
    np.testing.assert_array_equal(in_double(dz), expected)
    near(dbias, expected.sum(0), 1e-6)
    near(linear.sum_of_rows(dy), in_double(dy).sum(0), 1e-6)


# Several linear maps of the same x, compared with separate maps.


class Maps(Layer):
    """A layer of weights, with or without biases, and another parameter."""

    def __init__(self, *, bias: bool, dtype: str = "float32", device: Device = "cpu") -> None:
        self.before = Parameter((7,), scaled_normal)
        self.weights: list[Parameter] = []
        self.biases: list[Parameter] = []
        for _ in range(N):
            self.weights.append(Parameter((WIDTH, OUT), glorot_uniform))
            self.biases.append(Parameter((OUT,), lambda stream_id, shape: scaled_normal(stream_id, (*shape, 1))[:, 0]))
        if not bias:
            self.biases.clear()
        self.values = ParameterBuffer(self, seed=3, dtype=dtype, device=device)

    @property
    def arguments(self) -> list[Parameter | None]:
        biases: Sequence[Parameter | None] = self.biases or [None] * N
        return [argument for pair in zip(self.weights, biases, strict=True) for argument in pair]


def gradients_of(maps: Maps, x: Any, dys: list[Any]) -> tuple[list[Any], Any, list[Any], list[Any]]:
    """Return in float64 on the host: results, dx, weight gradients (written, then added) and bias gradients."""
    ys, run_backward = linear_maps_as_a_stack(x, *(None if p is None else p.value for p in maps.arguments))
    dx, *dmaps = run_backward(dys)
    assert gradient_array(dx).dtype == ys[0].dtype == x.dtype
    views = [weight.view_of(maps.values.gradients) for weight in maps.weights]
    maps.values.gradients[...] = np.nan
    written = []
    for add in (False, True):
        for gradient, view in zip(dmaps[::2], views, strict=True):
            assert isinstance(gradient, PendingGradient)
            gradient.into(view, add)
        wait_for_deferred_gradients()
        written.append([to_host(view) for view in views])
    once, twice = written
    compare(twice, [2 * in_double(dweight) for dweight in once], 2e-6)
    assert np.isnan(to_host(maps.before.view_of(maps.values.gradients))).all()
    assert all(dbias is None or dbias.dtype == np.float32 for dbias in dmaps[1::2])
    return [*map(in_double, ys)], in_double(gradient_array(dx)), once, [*map(in_double, dmaps[1::2])]


@on_device
@pytest.mark.parametrize("stacked", [True, False], ids=["gradients in one array", "gradients apart"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@in_all_dtypes
@pytest.mark.parametrize("n_rows", [0, 1, 9, 65])
def test_maps_are_those_one_after_the_other(n_rows: int, dtype: str, bias: bool, stacked: bool) -> None:
    x, dys = draw(n_rows, WIDTH, dtype=dtype), draw(N, n_rows, OUT, dtype=dtype)
    maps = Maps(bias=bias, dtype=dtype, device="cuda")
    together = to_device(dys[::-1].copy(), "cuda")  # as weights lie: the last first
    apart = [to_device(dy.copy(), "cuda") for dy in dys]
    ys, dx, dweights, dbiases = gradients_of(
        maps, to_device(x, "cuda"), [together[N - 1 - i] for i in range(N)] if stacked else apart
    )
    expected_dx = np.zeros((n_rows, WIDTH))
    for i, weight in enumerate(maps.weights):
        w, dy, b = in_double(weight.value), in_double(dys[i]), in_double(maps.biases[i].value) if bias else 0.0
        near(ys[i], in_double(x) @ w + b, TOLERANCE[dtype])
        expected_dx += dy @ w.T
        compare([dweights[i], dbiases[i]], [in_double(x).T @ dy, dy.sum(0) if bias else None], TOLERANCE["float32"])
    near(dx, expected_dx, N * TOLERANCE[dtype])


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("used", [[0, 1, 2], [2, 0], [1]])
def test_gradients_reach_leaves_if_not_all_results_are_used(used: list[int], bias: bool) -> None:
    maps, twin = Maps(bias=bias, device="cuda"), Maps(bias=bias)
    x = draw(9, WIDTH)
    here, there = Tensor(x), Tensor(to_device(x, "cuda"))
    ys, total = ops.linear_maps(there, *maps.arguments), None
    for i in used:
        total = ops.sum(ys[i]) if total is None else total + ops.sum(ys[i])
    backward(total)
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


@pytest.mark.usefixtures("launched")
def test_the_order_of_maps_in_memory_does_not_matter() -> None:
    x, values = to_device(draw(9, WIDTH), "cuda"), [w.value for w in Maps(bias=False, device="cuda").weights]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        maps = [argument for i in order for argument in (values[i], None)]
        assert joint_linear_maps.kernel_of((x, *maps)) is not None
        for y, i in zip(ops.linear_maps(x, *maps), order, strict=True):
            near(to_host(y.value), to_host(x) @ to_host(values[i]), TOLERANCE["float32"])


@pytest.mark.usefixtures("launched")
def test_the_gradient_of_x_is_added_up_in_the_order_of_the_reference() -> None:
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


# The feed-forward network.

EVEN, INNER = 24, 40  # a row of the mask has bits that belong to no column
ALL: tuple[Epilogue, ...] = ("relu_mask_bias", "relu_bias", "bias", "relu_bias_backward")


def placed(*arrays: Any) -> list[Any]:
    return [None if x is None else to_device(x, "cuda") for x in arrays]


def whole(*shape: int, dtype: str = "bfloat16") -> Any:
    """Draw whole numbers, and for a bias (float32) n + ½, so that rounding changes no sign and no float32 sum."""
    numbers = np.random.default_rng(sum(shape)).integers(-2, 3, shape)
    return (numbers + 0.5 * (len(shape) == 1)).astype(dtype_named(dtype))


def arguments_and_dy(n_rows: int, *, bias2: bool = True) -> tuple[Any, ...]:
    first = whole(n_rows, EVEN), whole(EVEN, INNER), whole(INNER, dtype="float32")
    return (
        *first,
        draw(INNER, EVEN, dtype="bfloat16"),
        draw(EVEN) if bias2 else None,
        draw(n_rows, EVEN, dtype="bfloat16"),
    )


def exact(*arguments: Any) -> list[Any]:
    """Compute the value and the gradients in float64, in plain NumPy."""
    x, weight1, bias1, weight2, bias2, dy = map(in_double, arguments)
    z = x @ weight1 + bias1
    hidden, dz = np.maximum(z, 0), dy @ weight2.T * (z > 0)
    y = hidden @ weight2 + (0 if bias2 is None else bias2)
    return [y, dz @ weight1.T, x.T @ dz, dz.sum(0), hidden.T @ dy, None if bias2 is None else dy.sum(0)]


def check_feed_forward(n_rows: int = 9, *, bias2: bool = True) -> list[bytes]:
    """Compare the value and the gradients with the exact ones; return their bits."""
    *arguments, dy = arguments_and_dy(n_rows, bias2=bias2)
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
    compare(results, exact(*arguments, dy), TOLERANCE["bfloat16"])
    return [to_host(x).tobytes() for x in results if x is not None]


@on_device
@pytest.mark.parametrize("bias2", [True, False])
@pytest.mark.parametrize("n_rows", [1, 9, 300])
def test_feed_forward(n_rows: int, bias2: bool) -> None:
    check_feed_forward(n_rows, bias2=bias2)


@on_device
def test_a_second_weight_that_does_not_fit_is_refused() -> None:
    x, weight1, bias1, weight2, bias2, _ = arguments_and_dy(3)
    with pytest.raises(ShapeError, match=r"^feed_forward: expected x \(T, I\)"):
        feed_forward_with_epilogues(*placed(x, weight1, bias1, weight2[1:], bias2))


@on_device
def test_the_operation_needs_no_pass_over_the_inner_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are all that reads or writes (T, F); the only sum over rows is the gradient of b₂."""
    *arguments, dy = arguments_and_dy(9)
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
    compare([y.value, *(leaf.grad for leaf in leaves)], exact(*arguments, dy), TOLERANCE["bfloat16"])
    assert summed == [(9, EVEN)]


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


@on_stand_in
@in_all_dtypes
@pytest.mark.parametrize("kernel", [linear_with_epilogue, linear_relu_with_epilogue])
def test_linear_maps_without_epilogues(kernel: Any, dtype: str, products_on_cpu: Recorder) -> None:
    arguments = whole(9, EVEN, dtype=dtype), whole(EVEN, INNER, dtype=dtype), whole(INNER, dtype="float32")
    products_on_cpu.refuse_epilogues(*ALL)
    x, weight, bias = map(in_double, arguments)
    y, run_backward = kernel(*placed(*arguments))
    z = x @ weight + bias
    right = np.maximum(z, 0) if kernel is linear_relu_with_epilogue else z
    assert y.dtype == dtype
    np.testing.assert_array_equal(in_double(y), right.astype(dtype_named(dtype)).astype(float))
    dz = np.ones((9, INNER)) * (1 if kernel is linear_with_epilogue else z > 0)
    gradients = run_backward(to_device(np.ones((9, INNER), dtype_named(dtype)), "cuda"))
    compare(map(gradient_array, gradients), (dz @ weight.T, x.T @ dz, dz.sum(0)), TOLERANCE["bfloat16"])


@on_stand_in
def test_a_stack_of_linear_maps_without_epilogues(products_on_cpu: Recorder) -> None:
    x, weights, biases = whole(9, EVEN), whole(N, EVEN, INNER), [whole(INNER, dtype="float32") + i for i in range(N)]
    products_on_cpu.refuse_epilogues("bias")
    order, on_gpu = (2, 0, 1), to_device(weights, "cuda")
    maps = [argument for i in order for argument in (on_gpu[i], to_device(biases[i], "cuda"))]
    ys, _ = linear_maps_as_a_stack(to_device(x, "cuda"), *maps)
    expected = [in_double(x) @ in_double(weights[i]) + biases[i] for i in order]
    compare(ys, expected, TOLERANCE["bfloat16"])
