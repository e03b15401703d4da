"""CUDA kernels without a GPU: layer normalisation, alone and after dropout and residual connection."""

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import double, near

from autograd.kernels.cuda import layer_norm
from autograd.op import operations
from autograd.precision import is_bfloat16, rounded, upcast
from autograd.random import StreamId
from autograd.tensor import gradient_array

pytestmark = pytest.mark.usefixtures("launch")
KERNELS = {"layer_norm": layer_norm.layer_norm_in_registers, "add_norm": layer_norm.add_norm_in_registers}
STREAM_ID = StreamId(2**64 - 1, 2**64 - 2, 2**63, 2**64 - 3)
DROPPED = {"rate": 0.3, "stream_id": STREAM_ID, "eps": 1e-3}
every_norm = pytest.mark.parametrize(
    ("name", "static"), [("layer_norm", {}), ("add_norm", {}), ("add_norm", DROPPED)], ids=["alone", "sum", "dropped"]
)


def draw(name: str, n: int, width: int) -> list[Any]:
    """Draw x (and y), gain, bias and the gradient of the result."""
    random = np.random.default_rng(n)
    x, y, dy = random.standard_normal((3, n, width)).astype(np.float32)
    terms = [3 + 2 * x, y - 1][: 1 if name == "layer_norm" else 2]
    return [*terms, *random.standard_normal((2, width)).astype(np.float32), dy]


def compare(name: str, arguments: list[Any], static: dict[str, Any], tolerance: float) -> list[Any]:
    """Compare value and gradients with the reference in float64, within this tolerance."""
    *inputs, dy = arguments
    for array in arguments:
        array.flags.writeable = False
    expected, expected_backward = operations[name].reference(*double(*map(upcast, inputs)), **static)
    y, backward = KERNELS[name](*inputs, **static)
    results = [y, *map(gradient_array, backward(dy))]
    for got, exact in zip(results, (expected, *expected_backward(*double(upcast(dy)))), strict=True):
        near(upcast(got), exact, tolerance)
    return results


@every_norm
@pytest.mark.parametrize(
    ("n", "width"), [(1, 128), (8, 128), *((21, width) for width in (16, 192, 272, 768, *layer_norm.WIDTHS))]
)
def test_norms(n: int, width: int, name: str, static: dict[str, Any]) -> None:
    """In sixteen bits results are rounded once, by 2⁻⁹ at most; the sums over rows are not rounded."""
    *terms, gain, bias, dy = draw(name, n, width)
    compare(name, [*terms, gain, bias, dy], static, 2e-6)
    arguments = [*map(rounded, terms), gain, bias, rounded(dy)]
    *results, dgain, dbias = compare(name, arguments, static, 2**-8.5)
    assert all(map(is_bfloat16, results))
    assert dgain.dtype == dbias.dtype == np.float32
    np.testing.assert_allclose(dbias, upcast(rounded(dy)).sum(0), rtol=1e-5, atol=1e-5)


@every_norm
def test_norms_with_several_rows_for_a_warp(name: str, static: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_norm, "MOST_BLOCKS", 2)
    compare(name, draw(name, 45, 128), static, 2e-6)


@every_norm
def test_norms_of_a_gradient_of_another_type_and_of_no_rows(name: str, static: dict[str, Any]) -> None:
    *arguments, dy = draw(name, 3, 128)
    _, backward = KERNELS[name](*arguments, **static)
    for got, expected in zip(backward(dy.astype(float)), backward(dy), strict=True):
        np.testing.assert_array_equal(gradient_array(got), gradient_array(expected))
    *arguments, dy = draw(name, 0, 128)
    y, backward = KERNELS[name](*arguments, **static)
    *gradients, dgain, dbias = map(gradient_array, backward(dy))
    assert {x.shape for x in (y, *gradients)} == {(0, 128)}
    assert (dgain.shape, dbias.shape) == ((128,), (128,))
    assert not dgain.any()
    assert not dbias.any()
