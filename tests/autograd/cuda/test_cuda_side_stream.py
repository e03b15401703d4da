"""Gradients of weights on a second stream, on the stand-in for CuPy: it computes late, and freed memory is reused."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import fake_streams
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder
from cuda_kernels import registered
from cuda_on_cpu import near

from autograd import Layer, Parameter, ParameterBuffer, Tensor, backward, ops, to_device, to_host
from autograd.graphs import capture_graph
from autograd.kernels.cuda import side_stream
from autograd.kernels.cuda.cublaslt import ProductError
from autograd.kernels.cuda.products import weight_gradients
from autograd.op import Operation
from autograd.parameters import glorot_uniform
from autograd.tensor import wait_for_deferred_gradients

WIDTH, N_ROWS = 12, 5
NEAR = 1e-5


class Maps(Layer):
    """A layer of square weights."""

    def __init__(self, n: int) -> None:
        self.weights = [Parameter((WIDTH, WIDTH), glorot_uniform) for _ in range(n)]
        self.values = ParameterBuffer(self, seed=3, device="cuda")


@pytest.fixture
def products(products_on_cpu: Recorder, cupy: Any) -> Iterator[Recorder]:
    """Register the kernels; arrays come from a pool, which gives freed memory to the next array at once."""
    with registered(), cupy.cuda.using_allocator(cupy.cuda.MemoryPool().malloc):
        yield products_on_cpu


def draw(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def matrices(n: int) -> tuple[list[Any], list[Any], Any]:
    """Return n matrices x and dy of the device, and a destination for each product."""
    xs, dys = ([to_device(draw(10 * i + k, N_ROWS, WIDTH), "cuda") for i in range(n)] for k in (1, 2))
    return xs, dys, to_device(np.full((n, WIDTH, WIDTH), 7, np.float32), "cuda")


def expected(i: int) -> Any:
    return draw(10 * i + 1, N_ROWS, WIDTH).T @ draw(10 * i + 2, N_ROWS, WIDTH)


def choose_algorithms() -> None:
    """Run two products of ``matrices`` once, which measures times, and so waits."""
    xs, dys, out = matrices(2)
    for i in range(2):
        start(xs[i].T, dys[i], out[i])
    wait_for_deferred_gradients()


def start(left: Any, right: Any, out: Any) -> None:
    (gradient,) = weight_gradients(left, right)
    gradient.into(out, False)


def reuse(like: Any, n: int) -> list[Any]:
    """Take the memory of arrays that were freed."""
    return [like * 0 for _ in range(n)]


def chain(maps: Maps, x: Tensor) -> Tensor:
    for weight in maps.weights:
        x = ops.linear(x, weight, None)
    return x


def streams_of(products: Recorder) -> list[int]:
    return [arguments[-1] for arguments in products.of("Matmul")]


def test_products_of_weights_run_on_the_second_stream_and_those_of_inputs_on_the_first(products: Recorder) -> None:
    maps, x = Maps(3), Tensor(to_device(draw(1, N_ROWS, WIDTH), "cuda"))
    for _ in range(2):
        products.calls.clear()
        backward(ops.sum(chain(maps, x)))
    first, second = streams_of(products)[0], streams_of(products)[-1]
    assert first == fake_streams.get_current_stream().ptr != second
    assert streams_of(products) == 3 * [first] + 3 * [first, second]
    workspaces = {arguments[-1]: arguments[-3] for arguments in products.of("Matmul")}
    assert workspaces[first] != workspaces[second]


def test_gradients_are_there_after_backward(products: Recorder) -> None:
    """Check a chain of more weights than the second stream holds; freed memory is reused in between."""
    n = 2 * side_stream.MOST_HELD
    maps, x = Maps(n), Tensor(to_device(draw(1, N_ROWS, WIDTH), "cuda"))
    backward(ops.sum(chain(maps, x)))
    ys, dy = [draw(1, N_ROWS, WIDTH)], np.ones((N_ROWS, WIDTH), np.float32)
    weights = [to_host(weight.value) for weight in maps.weights]
    for w in weights:
        ys.append(ys[-1] @ w)
    for weight, w, y in reversed(list(zip(maps.weights, weights, ys[:-1], strict=True))):
        near(to_host(weight.grad), y.T @ dy, NEAR)
        dy = dy @ w.T


def test_a_third_stream_may_wait_before_the_first_one_does(products: Recorder, cupy: Any) -> None:
    """It reads the products, whose factors are held all the same."""
    choose_algorithms()
    xs, dys, out = matrices(1)
    factor, first, third = weakref.ref(dys[0]), cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    start(xs.pop().T, dys.pop(), out[0])
    third.wait_event(first.record())
    with third:
        wait_for_deferred_gradients()
        copy = out[0] + 0
    gc.collect()
    assert factor() is not None
    wait_for_deferred_gradients()
    assert factor() is None
    first.wait_event(third.record())
    near(to_host(copy), expected(0), NEAR)


def test_a_few_factors_are_held_and_no_more(products: Recorder) -> None:
    n = side_stream.MOST_HELD + 2
    xs, dys, out = matrices(n)
    of_products = list(map(weakref.ref, dys))
    for i in range(n):
        start(xs.pop(0).T, dys.pop(0), out[i])
        reused = reuse(out[0, :N_ROWS], 2)
    gc.collect()
    assert [right() is not None for right in of_products] == [False] * 2 + [True] * side_stream.MOST_HELD
    wait_for_deferred_gradients()
    assert not any(right() for right in of_products)
    for i in range(n):
        near(to_host(out[i]), expected(i), NEAR)
    assert len(reused) == 2


def test_a_gradient_is_added_after_the_one_that_was_written_beside(products: Recorder) -> None:
    """The same weight twice, as an embedding that is also the projection."""
    maps, x = Maps(1), Tensor(to_device(draw(1, N_ROWS, WIDTH), "cuda"))
    (weight,) = maps.weights
    backward(ops.sum(ops.linear(ops.linear(x, weight, None), weight, None)))
    x_host, w, dy = draw(1, N_ROWS, WIDTH), to_host(weight.value), np.ones((N_ROWS, WIDTH), np.float32)
    near(to_host(weight.grad), (x_host @ w).T @ dy + x_host.T @ (dy @ w.T), NEAR)
    other = Tensor(to_device(draw(9, WIDTH, WIDTH), "cuda"))
    backward(ops.sum(ops.linear(x, weight, None)) + ops.sum(weight * other))
    near(to_host(weight.grad), x_host.T @ dy + draw(9, WIDTH, WIDTH), NEAR)


def test_products_of_one_operation_with_one_destination_stay_in_order(products: Recorder) -> None:
    (x, _), dys, out = matrices(2)
    for gradient, add in zip(weight_gradients(x.T, *dys), (False, True), strict=True):
        gradient.into(out[0], add)
    wait_for_deferred_gradients()
    near(to_host(out[0]), draw(1, N_ROWS, WIDTH).T @ (draw(2, N_ROWS, WIDTH) + draw(12, N_ROWS, WIDTH)), NEAR)


def failing(x: Any) -> Any:
    def run_backward(dy: Any) -> Any:
        raise ValueError("on purpose")

    return x + 0, run_backward


def test_an_error_in_the_backward_pass_waits_too(products: Recorder) -> None:
    """So nothing is held afterwards, and no memory is written to late."""
    maps, x = Maps(1), Tensor(to_device(draw(1, N_ROWS, WIDTH), "cuda"))
    for weight in (maps.weights[0], maps.weights[0]):
        with pytest.raises(ValueError, match="on purpose"):
            backward(ops.sum(ops.linear(Operation(failing)(x), weight, None)))
        near(to_host(weight.grad), draw(1, N_ROWS, WIDTH).T @ np.ones((N_ROWS, WIDTH), np.float32), NEAR)
    assert not side_stream.thread_stream._held


def test_a_product_that_fails_beside_does_not_leave_a_capture_open(products: Recorder, cupy: Any) -> None:
    """A product that was never run cannot be captured; the capture ends, and the stream can be used again."""
    choose_algorithms()
    x, out = to_device(draw(3, 9, WIDTH), "cuda"), to_device(np.zeros((WIDTH, WIDTH), np.float32), "cuda")
    stream, first = cupy.cuda.Stream(non_blocking=True), cupy.cuda.get_current_stream()

    def work() -> None:
        try:
            start(x.T, x, out)
        finally:
            wait_for_deferred_gradients()

    stream.wait_event(first.record())
    with stream:
        with pytest.raises(ProductError, match="run the same once before"):
            capture_graph(work, stream)
        assert not fake_streams.n_capturing()
        work()
        graph, _ = capture_graph(work, stream)
        out[...] = 0
        graph.launch(stream)
        near(to_host(out), draw(3, 9, WIDTH).T @ draw(3, 9, WIDTH), NEAR)
