"""CUDA kernels without a GPU: dropout, residual connection and layer normalisation in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import double, near

from autograd.kernels.cuda import layer_norm
from autograd.kernels.cuda.dropout import numbers_of
from autograd.ops.add_norm import add_norm
from autograd.ops.dropout import dropout_mask, threshold_and_scale
from autograd.precision import is_bfloat16, rounded, upcast
from autograd.random import StreamId
from autograd.tensor import gradient_array

pytestmark = pytest.mark.usefixtures("launch")
STREAM_ID = StreamId(2**64 - 1, 2**64 - 2, 2**63, 2**64 - 3)
UNDROPPED: dict[str, Any] = {}
DROPPED = {"rate": 0.3, "stream_id": STREAM_ID, "eps": 1e-3}


def draw(n: int, width: int) -> tuple[Any, ...]:
    """Draw x, y, gain, bias and the gradient of the result."""
    random = np.random.default_rng(n)
    x, y, dy = random.standard_normal((3, n, width)).astype(np.float32)
    return 3 + 2 * x, y - 1, *random.standard_normal((2, width)).astype(np.float32), dy


def compare(arguments: tuple[Any, ...], static: dict[str, Any], tolerance: float) -> list[Any]:
    """Compare value and gradients with the reference in float64, within this tolerance."""
    *inputs, dy = arguments
    expected, expected_backward = add_norm.reference(*double(*map(upcast, inputs)), **static)
    y, backward = layer_norm.add_norm_in_registers(*inputs, **static)
    results = [y, *map(gradient_array, backward(dy))]
    for got, of_reference in zip(results, (expected, *expected_backward(*double(upcast(dy)))), strict=True):
        near(upcast(got), of_reference, tolerance)
    return results


@pytest.mark.parametrize("static", [UNDROPPED, DROPPED], ids=["undropped", "dropped"])
@pytest.mark.parametrize("width", layer_norm.WIDTHS)
@pytest.mark.parametrize("n", [1, 8, 21])
def test_add_norm(n: int, width: int, static: dict[str, Any]) -> None:
    compare(draw(n, width), static, 2e-6)


@pytest.mark.parametrize("static", [UNDROPPED, DROPPED], ids=["undropped", "dropped"])
@pytest.mark.parametrize("width", layer_norm.WIDTHS)
def test_add_norm_in_sixteen_bits(width: int, static: dict[str, Any]) -> None:
    """Results are rounded once, by 2⁻⁹ at most; the sums over rows are not rounded."""
    x, y, gain, bias, dy = draw(9, width)
    result, dx, of_y, dgain, dbias = compare((rounded(x), rounded(y), gain, bias, rounded(dy)), static, 2**-8.5)
    assert all(map(is_bfloat16, (result, dx, of_y)))
    assert dgain.dtype == dbias.dtype == np.float32
    np.testing.assert_allclose(dbias, upcast(rounded(dy)).sum(0), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_what_was_dropped_is_zero_and_of_the_rest_scaled() -> None:
    *arguments, dy = draw(21, 256)
    dx, of_y = map(gradient_array, layer_norm.add_norm_in_registers(*arguments, **DROPPED)[1](dy)[:2])
    np.testing.assert_allclose(of_y, dx * dropout_mask(dx, 0.3, STREAM_ID), rtol=1e-6)
    assert ((of_y == 0) == (dropout_mask(dx, 0.3, STREAM_ID) == 0)).all()


def test_add_norm_whose_blocks_have_several_rows_for_a_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_norm, "MOST_BLOCKS", 2)
    compare(draw(45, 128), DROPPED, 2e-6)


def test_add_norm_with_a_gradient_of_another_type_and_of_no_rows() -> None:
    *arguments, dy = draw(3, 128)
    _, backward = layer_norm.add_norm_in_registers(*arguments, **DROPPED)
    for got, of_same in zip(backward(dy.astype(float)), backward(dy), strict=True):
        np.testing.assert_array_equal(gradient_array(got), gradient_array(of_same))
    *arguments, dy = draw(0, 128)
    y, backward = layer_norm.add_norm_in_registers(*arguments, **DROPPED)
    assert [x.shape for x in (y, *backward(dy))] == [(0, 128)] * 3 + [(128,)] * 2
    assert not np.any(backward(dy)[2:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_number_of_the_results_is_written(dtype: str, launch: Callable[..., None]) -> None:
    *terms, gain, bias, dy = draw(11, 128)
    x, y, dy = (a if dtype == "float32" else rounded(a) for a in (*terms, dy))
    threshold, scale = threshold_and_scale(0.5)
    result, dx, of_y = (np.full_like(x, np.nan) for _ in range(3))
    statistics, sums = np.full((11, 2), np.nan, np.float32), np.full((2, 2, 128), np.nan, np.float32)
    forward, backward = (layer_norm.kernel_name("add_norm", way, dtype, 128) for way in layer_norm.DIRECTIONS)
    for array in (x, y, dy, gain, bias):
        array.flags.writeable = False
    of_mask = np.zeros(11 * layer_norm.mask_bytes(128), np.uint8), np.float32(scale)
    launch(
        layer_norm.SOURCE,
        forward,
        2,
        layer_norm.THREADS,
        x,
        y,
        gain,
        bias,
        result,
        statistics,
        np.int64(11),
        np.float32(1e-6),
        *of_mask,
        *numbers_of(STREAM_ID),
        np.int32(threshold),
    )
    of_mask[0].flags.writeable = False
    launch(
        layer_norm.SOURCE,
        backward,
        2,
        layer_norm.THREADS,
        dy,
        x,
        y,
        gain,
        statistics,
        dx,
        of_y,
        sums,
        np.int64(11),
        *of_mask,
    )
    for array in (result, statistics, dx, of_y, sums):
        assert np.isfinite(upcast(array)).all()


@pytest.mark.parametrize("width", layer_norm.WIDTHS)
def test_the_saved_mask_holds_the_elements_of_the_references_draws(width: int, launch: Callable[..., None]) -> None:
    """A lane has four neighbours of every 128 elements; its bits fill one to four bytes."""
    x, y, gain, bias, _ = draw(5, width)
    mask = np.zeros(5 * layer_norm.mask_bytes(width), np.uint8)
    threshold, scale = threshold_and_scale(0.3)
    launch(
        layer_norm.SOURCE,
        layer_norm.kernel_name("add_norm", "forward", "float32", width),
        1,
        layer_norm.THREADS,
        x,
        y,
        gain,
        bias,
        np.empty_like(x),
        np.empty((5, 2), np.float32),
        np.int64(5),
        np.float32(1e-6),
        mask,
        np.float32(scale),
        *numbers_of(STREAM_ID),
        np.int32(threshold),
    )
    bits = np.unpackbits(mask.reshape(5, 32, -1), axis=2, bitorder="little")[:, :, : width // 32]
    kept = bits.reshape(5, 32, width // 128, 4).swapaxes(1, 2).reshape(5, width)
    np.testing.assert_array_equal(kept, dropout_mask(x, 0.3, STREAM_ID) > 0)
