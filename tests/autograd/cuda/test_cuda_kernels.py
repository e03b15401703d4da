"""CUDA kernels without a GPU: Adam, layer normalisation, cross-entropy; and the stand-in for the GPU itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from cuda_on_cpu import double, from_bf16, near, to_bf16

from autograd.kernels.cuda import adam, cross_entropy, layer_norm
from autograd.ops.cross_entropy import linear_cross_entropy
from autograd.ops.layer_norm import layer_norm as layer_norm_operation
from autograd.optim import adam_update
from autograd.precision import rounded
from autograd.tensor import gradient_array

pytestmark = pytest.mark.usefixtures("launch")


# Adam.

STATIC = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-9}
CONSTANTS = [np.float32(x) for x in (0.9, 0.999, 1 - 0.9, 1 - 0.999, 1e-9)]
SCALARS, SCALE = np.array([1, 0.01, 0.1]), np.array(0.25)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 1000])
def test_adam(size: int) -> None:
    random = np.random.default_rng(size)
    values, gradients, m = random.standard_normal((3, size)).astype(np.float32)
    v = random.random(size).astype(np.float32)
    expected = double(values, gradients, m, v)
    adam_update.reference(*expected, None, SCALARS, SCALE, **STATIC)
    gradients.flags.writeable = False
    adam.adam_update_in_one_pass(values, gradients, m, v, None, SCALARS, SCALE, **STATIC)
    for got, of_reference in zip((values, gradients, m, v), expected, strict=True):
        near(got, of_reference, 1e-6)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("size", [300, 1025])
def test_adam_leaves_a_copy_in_sixteen_bits(size: int, offset: int, launch: Callable[..., None]) -> None:
    """Buffers may begin behind an aligned address, as the shard of a rank does."""
    arrays = np.random.default_rng(1).random((4, size + offset)).astype(np.float32)
    values, gradients, m, v = (array.copy()[offset:] for array in arrays)
    copy, expected = np.zeros(size + offset, np.uint16)[offset:], double(values, gradients, m, v)
    adam_update.reference(*expected, None, SCALARS, SCALE, **STATIC)
    n_blocks = -(-size // (adam.THREADS * adam.ELEMENTS_OF_A_THREAD))
    launch(
        adam.SOURCE,
        adam.KERNEL,
        n_blocks,
        adam.THREADS,
        values,
        gradients,
        m,
        v,
        copy,
        np.int64(size),
        SCALARS,
        SCALE,
        *CONSTANTS,
    )
    near(values, expected[0], 1e-6)
    np.testing.assert_array_equal(copy, to_bf16(values))


def test_low_precision_weights_are_rounded_as_by_ml_dtypes(launch: Callable[..., None]) -> None:
    """Ties, subnormal numbers, infinities and NaN, also some whose bits would carry; no gradient moves them."""
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 1, 0x80008001, 0x7F7FFFFF, 0x7F800000, 0xFF800000]
    nans = [0x7F800001, 0xFFFFFFFF, 0x7FC00000]
    values = np.array([*bits, *nans] + [0x80000000] * 3, np.uint32).view(np.float32)
    zeros, copy = np.zeros((3, 15), np.float32), np.zeros(15, np.uint16)
    launch(adam.SOURCE, adam.KERNEL, 1, adam.THREADS, values, *zeros, copy, np.int64(15), SCALARS, SCALE, *CONSTANTS)
    with np.errstate(invalid="ignore"):
        expected = rounded(values)
    is_nan = np.isnan(values)
    assert is_nan.sum() == len(nans)
    np.testing.assert_array_equal(copy[~is_nan], expected.view(np.uint16)[~is_nan])
    assert np.isnan(from_bf16(copy[is_nan])).all()


# Layer normalisation.


def rows(n: int, width: int) -> Any:
    random = np.random.default_rng(n)
    return (3 + 2 * random.standard_normal((n, width))).astype(np.float32)


@pytest.mark.parametrize("width", layer_norm.WIDTHS)
@pytest.mark.parametrize("n", [1, 8, 21])
def test_layer_norm(n: int, width: int) -> None:
    arguments = rows(n, width), *np.random.default_rng(1).standard_normal((2, width)).astype(np.float32)
    dy = rows(n + 1, width)[:n]
    expected, expected_backward = layer_norm_operation.reference(*double(*arguments))
    y, backward = layer_norm.layer_norm_in_registers(*arguments)
    for got, of_reference in zip((y, *backward(dy)), (expected, *expected_backward(dy.astype(float))), strict=True):
        near(got, of_reference, 2e-6)


def test_layer_norm_whose_blocks_have_several_rows_for_a_warp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_norm, "MOST_BLOCKS", 2)
    test_layer_norm(45, 128)


def test_layer_norm_of_a_gradient_of_another_type() -> None:
    x, gain = rows(3, 128), np.ones(128, np.float32)
    y, backward = layer_norm.layer_norm_in_registers(x, gain, gain)
    for got, of_same in zip(backward(y.astype(float)), backward(y), strict=True):
        np.testing.assert_array_equal(got, of_same)


def test_layer_norm_of_no_rows() -> None:
    y, backward = layer_norm.layer_norm_in_registers(rows(0, 128), *np.ones((2, 128), np.float32))
    dx, dgain, dbias = backward(y)
    assert (y.shape, dx.shape) == ((0, 128), (0, 128))
    assert not dgain.any()
    assert not dbias.any()


def test_layer_norm_in_sixteen_bits(launch: Callable[..., None]) -> None:
    x, dy, gain = to_bf16(rows(5, 128)), to_bf16(rows(6, 128)[:5]), np.float32(np.linspace(-1, 2, 128))
    y, dx, statistics, sums = (
        np.zeros_like(x), np.zeros_like(x), np.zeros((5, 2), np.float32), np.zeros((1, 2, 128), np.float32),
    )  # fmt: skip
    n, eps = np.int64(5), np.float32(1e-6)
    launch("layer_norm.cu", "layer_norm_forward_bf16_128", 1, 256, x, gain, gain, y, statistics, n, eps)
    launch("layer_norm.cu", "layer_norm_backward_bf16_128", 1, 256, dy, x, gain, statistics, dx, sums, n)
    expected, backward = layer_norm_operation.reference(*double(from_bf16(x), gain, gain))
    expected_dx, dgain, dbias = backward(from_bf16(dy).astype(float))
    near(from_bf16(y), expected, 4e-3)
    near(from_bf16(dx), expected_dx, 4e-3)
    near(sums[0], [dgain, dbias], 1e-6)


# Cross-entropy.

SMOOTHINGS = [
    {},
    {"smoothing": 0.1},
    {"smoothing": 0.1, "over": "V"},
    {"smoothing": 0.1, "over": "V-2", "impossible": 0},
]


@pytest.mark.parametrize("static", SMOOTHINGS, ids=str)
@pytest.mark.parametrize("n_words", [3, 1000, 1025, 8193])
def test_cross_entropy(n_words: int, static: dict[str, Any]) -> None:
    random = np.random.default_rng(n_words)
    x, weight = (3 * random.standard_normal((n, 4)).astype(np.float32) for n in (3, n_words))
    arguments = x, weight, random.standard_normal(n_words).astype(np.float32), np.array([1, n_words - 1, 2])
    expected, expected_backward = linear_cross_entropy.reference(*double(*arguments), **static)
    loss, backward = cross_entropy.linear_cross_entropy_in_place(*arguments, **static)
    near(loss, expected, 1e-6)
    *gradients, of_targets = backward(np.float32(2))
    *expected_gradients, _ = expected_backward(np.float64(2))
    assert of_targets is None
    for got, of_reference in zip(gradients, expected_gradients, strict=True):
        near(gradient_array(got), of_reference, 3e-6)


def test_cross_entropy_of_large_logits() -> None:
    x, weight = np.float32([[1000.0], [-1000.0]]), np.float32([[1.0], [0.5], [-1.0]])
    loss, backward = cross_entropy.linear_cross_entropy_in_place(x, weight, None, np.array([0, 0]))
    assert loss == 2000
    assert backward(np.float32(1))[0].tolist() == [[0], [-2]]


@pytest.mark.parametrize("static", [{}, {"smoothing": 0.1, "over": "V-2", "impossible": 1}], ids=str)
def test_cross_entropy_of_a_class_without_any_probability(static: dict[str, Any]) -> None:
    x, weight, targets = np.float32([[0.5], [-0.5]]), np.float32([[1], [2], [-3], [0.5]]), np.array([0, 3])
    arguments = x, weight, np.float32([0, -np.inf, 1, -1]), targets
    loss, backward = cross_entropy.linear_cross_entropy_in_place(*arguments, **static)
    expected, expected_backward = linear_cross_entropy.reference(*double(*arguments), **static)
    near(loss, expected, 1e-6)
    near(backward(np.float32(1))[0], expected_backward(np.float64(1))[0], 1e-6)


@pytest.mark.parametrize("n_words", [3, 7, 50, 4999])
def test_cross_entropy_in_sixteen_bits(n_words: int, launch: Callable[..., None]) -> None:
    """With an odd number of words the rows begin at all distances from 16 bytes."""
    logits = to_bf16(3 * np.random.default_rng(1).standard_normal((9, n_words)))
    targets, losses, x = np.arange(9) % n_words, np.zeros(9, np.float32), from_bf16(logits).astype(float)
    share, of_target = 0.1 / n_words, 0.9 + 0.1 / n_words
    launch(
        "cross_entropy.cu",
        cross_entropy.kernel_name("bfloat16"),
        9,
        64,
        logits,
        targets,
        losses,
        np.int64(n_words),
        np.float32(share),
        np.float32(of_target - share),
        np.int32(-1),
    )
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    q = np.full((9, n_words), share)
    q[np.arange(9), targets] = of_target
    near(from_bf16(logits), p - q, 4e-3)
    near(losses, -(q * np.log(p)).sum(1), 1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("word", [0, 5, 1023])  # of the vectors, of the single words
def test_a_logit_that_is_not_finite_spoils_its_row_only(word: int, wrong: float, launch: Callable[..., None]) -> None:
    logits, losses = np.random.default_rng(1).standard_normal((3, 1025)).astype(np.float32), np.zeros(3, np.float32)
    logits[1, word] = wrong
    launch(
        "cross_entropy.cu",
        cross_entropy.kernel_name("float32"),
        3,
        64,
        logits,
        np.array([3, 3, 3]),
        losses,
        np.int64(1025),
        np.float32(0),
        np.float32(1),
        np.int32(-1),
    )
    assert np.isnan(losses).tolist() == [False, True, False]
    assert np.isnan(logits).all(1).tolist() == [False, True, False]


@pytest.mark.parametrize("static", SMOOTHINGS, ids=str)
def test_rows_without_a_target_become_nothing_whatever_is_in_them(static: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    x, weight = (random.standard_normal((n, 4)).astype(np.float32) for n in (5, 30))
    targets = np.array([3, -1, 29, -1, 7])
    has_target = targets >= 0
    expected, expected_backward = linear_cross_entropy.reference(
        *double(x[has_target], weight), None, targets[has_target], **static
    )
    expected_dx = expected_backward(np.float64(1))[0]
    x[~has_target] = np.nan
    for run in (cross_entropy.linear_cross_entropy_in_place, linear_cross_entropy.reference):
        loss, backward = run(x, weight, None, targets, **static)
        near(loss, expected, 1e-6)
        dx = backward(np.float32(1))[0]
        near(gradient_array(dx)[has_target], expected_dx, 3e-6)
        assert (gradient_array(dx)[~has_target] == 0).all()


# The stand-in itself.


@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, 1.00390625, 1.01171875, -3.3e38, 1e-40, np.inf, -np.inf])
def test_numbers_are_rounded_to_sixteen_bits_to_the_nearest_and_ties_to_even(x: float, launch: Any) -> None:
    """1.00390625 and 1.01171875 are halfway between two numbers of bfloat16."""
    values, zero, copy = np.float32([x]), np.zeros(1, np.float32), np.zeros(1, np.uint16)
    launch(
        adam.SOURCE,
        adam.KERNEL,
        1,
        32,
        values,
        zero,
        zero.copy(),
        zero.copy(),
        copy,
        np.int64(1),
        np.array([1.0, 0, 1]),
        np.array(1.0),
        *map(np.float32, (0.9, 0.98, 0.1, 0.02, 1)),
    )
    assert copy[0] == to_bf16(values)[0]
    middle = {1.00390625: 1.0, 1.01171875: 1.015625}
    assert from_bf16(copy)[0] == middle.get(x, from_bf16(to_bf16(x)))


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)")
def test_a_write_outside_of_an_array_is_noticed() -> None:
    short = np.zeros(9, np.float32)
    with pytest.raises(AssertionError, match="behind the end"):
        cuda_on_cpu.launch(
            adam.SOURCE,
            adam.KERNEL,
            1,
            32,
            short,
            *np.ones((3, 10), np.float32),
            None,
            np.int64(10),
            SCALARS,
            SCALE,
            *CONSTANTS,
        )
