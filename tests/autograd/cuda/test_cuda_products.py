"""Matrix products by a stand-in for cuBLASLt on the CPU, or by cuBLASLt if there is a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import near
from placed import TOLERANCE, TYPES, Placed, draw, nothing

from autograd import to_device, to_host
from autograd.array import namespace
from autograd.kernels.cuda.products import mask_shape, multiplied, product, weight_gradients
from autograd.op import ShapeError
from autograd.tensor import wait_for_deferred_gradients

pytestmark = pytest.mark.usefixtures("device_products")

SHAPES = [(1, 1, 1), (1, 5, 3), (3, 1, 5), (5, 3, 1), (7, 13, 9), (16, 8, 24), (33, 64, 17)]


@pytest.mark.parametrize(("dtype", "dtype_out"), TYPES, ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_is_written_and_added(
    shape: tuple[int, int, int], transposed: tuple[bool, bool], dtype: str, dtype_out: str
) -> None:
    m, k, n = shape
    x, y = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
    left, right = Placed(x, dtype, transposed=transposed[0]), Placed(y, dtype, transposed=transposed[1])
    out = nothing(m, n, dtype=dtype_out)
    product(left.array, right.array, out.array)
    near(out.values(), x @ y, TOLERANCE[dtype_out])
    before = out.values()
    product(left.array, right.array, out.array, add=True)
    near(out.values(), before + x @ y, TOLERANCE[dtype_out])
    near(left.values() if not transposed[0] else left.values().T, x, 0)


@pytest.mark.parametrize(("dtype", "dtype_out"), TYPES, ids=str)
def test_a_product_is_written_to_a_transposed_matrix(dtype: str, dtype_out: str) -> None:
    x, y = draw(7, 13, dtype=dtype), draw(13, 9, dtype=dtype)
    out = nothing(9, 7, dtype=dtype_out)
    product(Placed(x, dtype).array, Placed(y, dtype).array, out.array.T)
    product(Placed(x, dtype).array, Placed(y, dtype).array, out.array.T, add=True)
    near(out.values(), 2 * (x @ y).T, TOLERANCE[dtype_out])


@pytest.mark.parametrize(("dtype", "dtype_out"), TYPES, ids=str)
@pytest.mark.parametrize("n", [1, 8, 130])
def test_epilogues_of_the_forward_pass(n: int, dtype: str, dtype_out: str) -> None:
    x, y, b = draw(9, 5, dtype=dtype), draw(5, n, dtype=dtype), draw(n, dtype=dtype_out)
    left, right, bias = Placed(x, dtype), Placed(y, dtype), to_device(b.astype(np.dtype(dtype_out)), "cuda")
    for epilogue, expected in {"bias": x @ y + b, "relu_bias": np.maximum(x @ y + b, 0)}.items():
        out = nothing(9, n, dtype=dtype_out)
        product(left.array, right.array, out.array, epilogue=epilogue, bias=bias)
        near(out.values(), expected, TOLERANCE[dtype_out])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("n", [1, 8, 130])
def test_the_mask_of_the_forward_pass_is_read_by_the_backward_pass(n: int, dtype: str) -> None:
    """Two layers: h = max(0, x W₁ + b₁), and backward dz = dy W₂ᵀ where h > 0, db₁ = Σ dz."""
    x, w, b = draw(9, 5, dtype=dtype), draw(5, n, dtype=dtype), draw(n, dtype=dtype)
    dy, v = draw(9, 6, dtype=dtype), draw(n, 6, dtype=dtype)
    of = np.dtype(dtype)
    mask, bias = (to_device(values, "cuda") for values in (np.zeros(mask_shape(9, n), np.uint8), b.astype(of)))
    h, dz = nothing(9, n, dtype=dtype), nothing(9, n, dtype=dtype)
    product(Placed(x, dtype).array, Placed(w, dtype).array, h.array, epilogue="relu_mask_bias", bias=bias, mask=mask)
    expected = np.where(x @ w + b > 0, dy @ v.T, 0)
    near(h.values(), np.maximum(x @ w + b, 0), TOLERANCE[dtype])
    factors = Placed(dy, dtype).array, Placed(v, dtype).array.T
    product(*factors, dz.array, epilogue="relu_backward", mask=mask)
    near(dz.values(), expected, TOLERANCE[dtype])
    dbias = to_device(np.full(n, np.nan).astype(of), "cuda")
    product(*factors, dz.array, epilogue="relu_bias_backward", bias=dbias, mask=mask)
    near(dz.values(), expected, TOLERANCE[dtype])
    near(to_host(dbias).astype(float), expected.sum(0), 2 * TOLERANCE[dtype])


def test_products_of_nothing() -> None:
    left, right = to_device(np.ones((3, 0), np.float32), "cuda"), to_device(np.ones((0, 4), np.float32), "cuda")
    out = nothing(3, 4, dtype="float32")
    product(left, right, out.array)
    assert not out.values().any()
    out.array[...] = 2
    product(left, right, out.array, add=True)
    assert (out.values() == 2).all()
    assert multiplied(left[:0], right).shape == (0, 4)


def test_a_pending_product_of_sixteen_bits_is_added_up_in_float32() -> None:
    pytest.importorskip("ml_dtypes")
    x = to_device(np.full((1000, 1), 1.0078125).astype(np.dtype("bfloat16")), "cuda")
    (pending,) = weight_gradients(x.T, x)
    out = to_device(np.full((1, 1), np.nan, np.float32), "cuda")
    pending.into(out, False)
    wait_for_deferred_gradients()
    assert float(out[0, 0]) == pytest.approx(1000 * 1.0078125**2, rel=1e-6)
    pending.into(out, True)
    wait_for_deferred_gradients()
    assert float(out[0, 0]) == pytest.approx(2000 * 1.0078125**2, rel=1e-6)


def floats(*shape: int, dtype: str = "float32") -> Any:
    return to_device(np.ones(shape, np.dtype(dtype)), "cuda")


def test_arguments_that_do_not_fit_are_refused_with_their_shapes() -> None:
    x, y, out, bias = floats(2, 3), floats(3, 4), floats(2, 4), floats(4)
    mask = floats(2, 16, dtype="uint8")
    for arguments in (
        (y, x, out),
        (x, y, floats(3, 4)),
        (x, y, floats(2, 4, dtype="float64")),
        (x, floats(3, 4, dtype="float64"), out),
        (x, y, out, floats(3)),
        (x, y, out, floats(8)[::2]),
        (x, y, out, bias, mask[:1]),
        (x, y, out, bias, mask[:, ::2]),
    ):
        names = dict(zip(("bias", "mask"), arguments[3:], strict=False))
        with pytest.raises(ShapeError, match=r"product: expected left \(M, K\).* got left \("):
            product(*arguments[:3], **names)


def test_what_is_dense_in_no_direction_is_refused() -> None:
    wide, y = floats(4, 12), floats(3, 4)
    with pytest.raises(ShapeError, match=r"must be dense, .* got shape \(4, 3\), strides \(48, 16\)"):
        product(wide[:, ::4], y, floats(4, 4))
    with pytest.raises(ShapeError, match=r"must be dense, .* got shape \(4, 3\), strides \(0, 4\)"):
        product(namespace(wide).broadcast_to(wide[0, :3], (4, 3)), y, floats(4, 4))
    with pytest.raises(ShapeError, match="out must lie by rows"):
        product(floats(4, 3), y, floats(4, 4).T, epilogue="bias", bias=floats(4))
