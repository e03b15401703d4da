"""Products by cuBLASLt on a GPU: the base model's shapes, the same bits twice, and in a graph."""

from typing import Any

import numpy as np
import pytest
from cuda_kernels import needs_gpu

from autograd.array import namespace_of_device, to_device
from autograd.kernels.cuda.products import multiplied, product
from autograd.precision import rounded, upcast

OFF = {"float32": 2e-5, "bfloat16": 4e-3}  # a sum of 37,000 products, one after the other in float32, is off by 3e-6
SHAPES = {"attention": (3_001, 512, 512), "hidden": (3_001, 512, 2_048), "vocabulary": (3_001, 512, 37_000)}


RANDOM = np.random.default_rng(3)


def draw(dtype: str, *shape: int) -> Any:
    values = to_device(RANDOM.standard_normal(shape, np.float32), "cuda")
    return rounded(values) if dtype == "bfloat16" else values


def assert_near(got: Any, left: Any, right: Any, relative: float) -> None:
    xp = namespace_of_device("cuda")
    exact = left.astype("float64") @ right.astype("float64")
    assert float(xp.linalg.norm(got.astype("float64") - exact) / xp.linalg.norm(exact)) < relative


@needs_gpu
@pytest.mark.parametrize("dtype", OFF)
@pytest.mark.parametrize("name", SHAPES)
def test_products_of_the_model(name: str, dtype: str) -> None:
    n_tokens, d_in, d_out = SHAPES[name]
    x, weight, dy = draw(dtype, n_tokens, d_in), draw(dtype, d_in, d_out), draw(dtype, n_tokens, d_out)
    assert_near(multiplied(x, weight), x, weight, OFF[dtype])
    assert_near(multiplied(dy, weight.T), dy, weight.T, OFF[dtype])
    gradient = draw("float32", d_in, d_out)
    product(x.T, dy, gradient)
    assert_near(gradient, x.T, dy, OFF["float32"])
    once = gradient.copy()
    product(x.T, dy, gradient)
    assert (gradient == once).all()


@needs_gpu
def test_a_captured_product_computes_with_what_is_there_when_it_is_launched() -> None:
    cuda = namespace_of_device("cuda").cuda
    stream, before = cuda.Stream(non_blocking=True), cuda.get_current_stream().record()
    with stream:
        stream.wait_event(before)
        x, weight, bias = draw("bfloat16", 300, 64), draw("bfloat16", 64, 128), draw("bfloat16", 128)
        y, gradient = draw("bfloat16", 300, 128), draw("float32", 64, 128)

        def compute() -> None:
            product(x, weight, y, epilogue="relu_bias", bias=bias)
            product(x.T, y, gradient, add=True)

        compute()
        stream.begin_capture()
        compute()
        graph = stream.end_capture()
        x[...], gradient[...] = draw("bfloat16", 300, 64), 0
        graph.launch(stream)
        replayed = y.copy(), gradient.copy()
        gradient[...] = 0
        compute()
        for of_graph, x in zip(replayed, (y, gradient), strict=True):
            assert bool((upcast(of_graph) == upcast(x)).all())
