"""Products by cuBLASLt on a GPU: the base model's shapes, the same bits twice, and in a graph."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_kernels import needs_gpu

from autograd.array import namespace_of_device
from autograd.kernels.cuda.products import multiplied, product

SHAPES = {"attention": (3_001, 512, 512), "hidden": (3_001, 512, 2_048), "vocabulary": (3_001, 512, 37_000)}


def draw(dtype: str, *shape: int) -> Any:
    return namespace_of_device("cuda").random.standard_normal(shape, "float32").astype(dtype)


def assert_near(got: Any, left: Any, right: Any, relative: float) -> None:
    xp = namespace_of_device("cuda")
    exact = left.astype("float64") @ right.astype("float64")
    assert float(xp.linalg.norm(got.astype("float64") - exact) / xp.linalg.norm(exact)) < relative


@needs_gpu
@pytest.mark.parametrize(("dtype", "relative"), [("float32", 1e-6), ("bfloat16", 4e-3)])
@pytest.mark.parametrize("name", SHAPES)
def test_products_of_the_model(name: str, dtype: str, relative: float) -> None:
    n_tokens, d_in, d_out = SHAPES[name]
    x, weight, dy = draw(dtype, n_tokens, d_in), draw(dtype, d_in, d_out), draw(dtype, n_tokens, d_out)
    assert_near(multiplied(x, weight), x, weight, relative)
    assert_near(multiplied(dy, weight.T), dy, weight.T, relative)
    gradient = draw("float32", d_in, d_out)
    product(x.T, dy, gradient)
    assert_near(gradient, x.T, dy, 1e-6)
    once = gradient.copy()
    product(x.T, dy, gradient)
    assert (gradient == once).all()


@needs_gpu
def test_a_captured_product_computes_with_what_is_there_when_it_is_launched() -> None:
    stream = namespace_of_device("cuda").cuda.Stream(non_blocking=True)
    with stream:
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
        assert all(bool((of_graph == x).all()) for of_graph, x in zip(replayed, (y, gradient), strict=True))
