"""CUDA kernels without a GPU: Adam, clipping, cross-entropy, the greatest numbers; and the stand-in for the GPU."""

import math
from collections.abc import Callable
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from cuda_on_cpu import double, from_bf16, near, to_bf16

from autograd.kernels.cuda import adam, clip, cross_entropy, top_k
from autograd.ops.cross_entropy import linear_cross_entropy
from autograd.optim import adam_update
from autograd.precision import dtype_named, rounded
from autograd.tensor import gradient_array

pytestmark = pytest.mark.usefixtures("launch")


# Adam.

STATIC = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-9}
SCALARS, SCALE = np.array([1, 0.01, 0.1]), np.array(0.25)


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 1025])
def test_adam(size: int, offset: int, has_copy: bool) -> None:
    """Buffers may begin behind an aligned address, as the shard of a rank does; a copy has sixteen bits."""
    random = np.random.default_rng(size)
    drawn = *random.standard_normal((3, size + offset)), random.random(size + offset)
    values, gradients, m, v = (x.astype(np.float32)[offset:] for x in drawn)
    copy = np.zeros(size + offset, np.uint16)[offset:] if has_copy else None
    expected = double(values, gradients, m, v)
    adam_update.reference(*expected, None, SCALARS, SCALE, **STATIC)
    gradients.flags.writeable = False
    adam.adam_update_in_one_pass(values, gradients, m, v, copy, SCALARS, SCALE, **STATIC)
    for got, exact in zip((values, gradients, m, v), expected, strict=True):
        near(got, exact, 1e-6)
    if copy is not None:
        np.testing.assert_array_equal(copy, to_bf16(values))


def test_low_precision_weights_are_rounded_as_by_ml_dtypes() -> None:
    """Ties, subnormal numbers, infinities and NaN, also some whose bits would carry; no gradient moves them."""
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 1, 0x80008001, 0x7F7FFFFF, 0x7F800000, 0xFF800000]
    nans = [0x7F800001, 0xFFFFFFFF, 0x7FC00000]
    values = np.array([*bits, *nans] + [0x80000000] * 3, np.uint32).view(np.float32)
    copy, is_nan = np.zeros(15, np.uint16), np.isnan(values)
    adam.adam_update_in_one_pass(values, *np.zeros((3, 15), np.float32), copy, SCALARS, SCALE, **STATIC)
    with np.errstate(invalid="ignore"):
        expected = rounded(values).view(np.uint16)
    assert is_nan.sum() == len(nans)
    np.testing.assert_array_equal(copy[~is_nan], expected[~is_nan])
    np.testing.assert_array_equal(copy[~is_nan], to_bf16(values)[~is_nan])
    assert np.isnan(from_bf16(copy[is_nan])).all()
    assert from_bf16(copy[:2]).tolist() == [1.0, 1.015625]  # halfway between two numbers of bfloat16


# Clipping.


def clipped(gradients: Any, loss: float, max_norm: float) -> Any:
    squares = clip.sum_squares_by_blocks(gradients)
    return clip.clip_in_one_block(squares, np.array(loss), np.array([1 / 37, 0.01, 0.1]), max_norm=max_norm)


@pytest.mark.parametrize("max_norm", [1e-3, 1e3, math.inf])
@pytest.mark.parametrize("size", [0, 1, 255, 1000])
def test_an_outcome_is_loss_norm_and_scale(size: int, max_norm: float) -> None:
    gradients = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    norm = np.linalg.norm(gradients.astype(float)) / 37
    expected = [3.5, norm, min(1, max_norm / max(norm, 1e-30)) / 37]
    np.testing.assert_allclose(clipped(gradients, 3.5, max_norm), expected, rtol=1e-6)


def test_a_norm_of_several_runs_has_the_same_bits_if_they_are_added_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip, "RUN", 600)
    gradients = np.random.default_rng(1).standard_normal(2000).astype(np.float32)
    assert clipped(gradients, 0, 1.0)[1] == pytest.approx(np.linalg.norm(gradients.astype(float)) / 37, rel=1e-6)
    apart = [clip.sum_squares_by_blocks(gradients[part]) for part in (slice(0, 1200), slice(1200, 2000))]
    assert np.array_equal(np.concatenate(apart), clip.sum_squares_by_blocks(gradients))


@pytest.mark.parametrize("loss", [1.0, math.nan, math.inf])
@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("max_norm", [0.5, math.inf])
def test_numbers_that_are_not_finite_have_a_scale_of_zero(max_norm: float, value: float, loss: float) -> None:
    gradients = np.ones(300, np.float32)
    gradients[170] = value
    _, norm, scale = clipped(gradients, loss, max_norm)
    assert (scale > 0) == math.isfinite(value + loss)
    assert math.isfinite(norm) == math.isfinite(value)


# Cross-entropy.

SMOOTHINGS = [{}, {"smoothing": 0.1}, {"smoothing": 0.1, "over": "V"},
              {"smoothing": 0.1, "over": "V-2", "impossible": 0}]  # fmt: skip
with_every_smoothing = pytest.mark.parametrize("static", SMOOTHINGS, ids=str)


def compare_cross_entropy(arguments: tuple[Any, ...], static: dict[str, Any], tolerance: float = 3e-6) -> None:
    """Compare the loss within 1e-6, and gradients within a tolerance."""
    expected, expected_backward = linear_cross_entropy.reference(*double(*arguments), **static)
    loss, backward = cross_entropy.linear_cross_entropy_in_place(*arguments, **static)
    near(loss, expected, 1e-6)
    for got, exact in zip(backward(np.float32(2)), expected_backward(np.float64(2)), strict=True):
        assert (got is None) == (exact is None)
        if got is not None:
            near(gradient_array(got), exact, tolerance)


@with_every_smoothing
@pytest.mark.parametrize("n_words", [3, 1000, 1025, 4099])
def test_cross_entropy(n_words: int, static: dict[str, Any]) -> None:
    random = np.random.default_rng(n_words)
    x, weight = (3 * random.standard_normal((n, 4)).astype(np.float32) for n in (3, n_words))
    bias, targets = random.standard_normal(n_words).astype(np.float32), np.array([1, n_words - 1, 2])
    compare_cross_entropy((x, weight, bias, targets), static)


@with_every_smoothing
@pytest.mark.parametrize("n_words", [31, 1025])
def test_cross_entropy_of_large_logits(n_words: int, static: dict[str, Any]) -> None:
    """They are ordered so that the running maximum changes always, never, or once; the first row's are all low."""
    normal = np.random.default_rng(1).standard_normal(n_words)
    one_high = np.where(np.arange(n_words) == n_words // 2, 1e4, normal)
    rows = [normal - 1e4, np.where(normal > 0, 1e4, -1e4), np.sort(1e3 * normal), -np.sort(1e3 * normal), one_high]
    targets = np.array([n_words - 1, 1, 2, n_words - 1, 3])
    compare_cross_entropy((np.eye(5, dtype=np.float32), np.float32(rows).T.copy(), None, targets), static)


@pytest.mark.parametrize("static", [{}, {"smoothing": 0.1, "over": "V-2", "impossible": 1}], ids=str)
def test_cross_entropy_of_a_class_without_any_probability(static: dict[str, Any]) -> None:
    x, weight, targets = np.float32([[0.5], [-0.5]]), np.float32([[1], [2], [-3], [0.5]]), np.array([0, 3])
    compare_cross_entropy((x, weight, np.float32([0, -np.inf, 1, -1]), targets), static, 1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_words", [3, 7, 50, 4999])
def test_cross_entropy_in_sixteen_bits(n_words: int, bias: bool, dtype: str) -> None:
    """With an odd number of words the rows begin at all distances from 16 bytes.  Without a bias logits are exact."""
    x, weight = np.eye(9), 3 * np.random.default_rng(1).standard_normal((n_words, 9))
    x, weight = (array.astype(dtype_named(dtype)) for array in (x, weight))
    b, targets = np.linspace(-1, 1, n_words, dtype=np.float32) if bias else None, np.arange(9) % n_words
    static = {"smoothing": 0.1, "over": "V"}
    loss, backward = cross_entropy.linear_cross_entropy_in_place(x, weight, b, targets, **static)
    wide = x.astype(float), weight.astype(float), None if b is None else b.astype(float)
    exact, exact_backward = linear_cross_entropy.reference(*wide, targets, **static)
    assert (loss.dtype, loss.shape) == (np.float32, ())
    near(loss, exact, 6e-3 if bias else 1e-6)
    dx, dweight, dbias, dtargets = backward(np.float32(2))
    assert dtargets is None
    gradient = np.zeros((n_words, 9), np.float32)
    dweight.into(gradient, False)
    for got, right in zip((dx.astype(float), gradient, dbias), exact_backward(2.0)[:3], strict=True):
        assert (got is None) == (right is None)
        if got is not None:
            near(got, right, 1.5e-2 if bias else 4e-3)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("word", [0, 5, 1023])  # of the vectors, of the single words
def test_a_logit_that_is_not_finite_spoils_its_row_only(word: int, wrong: float, launch: Callable[..., None]) -> None:
    logits = np.random.default_rng(1).standard_normal((3, 1025)).astype(np.float32)
    logits[1, word] = wrong
    losses, numbers = np.zeros(3, np.float32), (np.int64(1025), np.float32(0), np.float32(1), np.int32(-1))
    kernel = cross_entropy.kernel_name("float32")
    launch(cross_entropy.SOURCE, kernel, 3, 64, logits, np.array([3, 3, 3]), losses, *numbers)
    assert np.isnan(losses).tolist() == [False, True, False]
    assert np.isnan(logits).all(1).tolist() == [False, True, False]


@with_every_smoothing
def test_rows_without_a_target_become_nothing_whatever_is_in_them(static: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    x, weight = (random.standard_normal((n, 4)).astype(np.float32) for n in (5, 30))
    targets = np.array([3, -1, 29, -1, 7])
    has_target = targets >= 0
    counted = x[has_target], weight, None, targets[has_target]
    expected, expected_backward = linear_cross_entropy.reference(*double(*counted), **static)
    x[~has_target] = np.nan
    loss, backward = cross_entropy.linear_cross_entropy_in_place(x, weight, None, targets, **static)
    near(loss, expected, 1e-6)
    dx = gradient_array(backward(np.float32(1))[0])
    near(dx[has_target], expected_backward(np.float64(1))[0], 3e-6)
    assert (dx[~has_target] == 0).all()


# The greatest numbers of each row.


@pytest.mark.parametrize("dtype", top_k.KERNELS)
@pytest.mark.parametrize("n_values", [2, 10**6])
@pytest.mark.parametrize(
    ("n_rows", "width", "n"),
    [(0, 5, 2), (1, 1, 1), (3, 7, 9), (4, 32, 8), (3, 33, 10), (2, 1_023, 5), (2, 1_025, 40), (1, 5_003, 3)],
)
def test_of_equal_numbers_the_first_are_taken(n_rows: int, width: int, n: int, n_values: int, dtype: str) -> None:
    random = np.random.default_rng(width)
    x = np.where(random.random((n_rows, width)) < 0.2, -np.inf, random.integers(0, n_values, (n_rows, width)))
    x = x.astype(dtype)
    values, columns = top_k.top_in_one_block(x, n=n)
    order = np.argsort(-x, axis=1, kind="stable")[:, :n]
    assert (values.dtype, columns.dtype) == (dtype, np.int64)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    finite = values > -np.inf
    np.testing.assert_array_equal(columns[finite], order[finite])
    assert ((columns >= 0) & (columns < width)).all()


@pytest.mark.parametrize("dtype", top_k.KERNELS)
@pytest.mark.parametrize("rest", [np.nan, -np.inf])
def test_the_greatest_of_numbers_that_are_not_finite(rest: float, dtype: Any) -> None:
    x = np.full((2, 70), rest, dtype)
    x[0, 3], x[0, 68], x[1, 34] = 1, np.inf, -3
    values, columns = top_k.top_in_one_block(x, n=4)
    np.testing.assert_array_equal(values, [[np.inf, 1, -np.inf, -np.inf], [-3, -np.inf, -np.inf, -np.inf]])
    assert (columns[0, :2].tolist(), columns[1, 0]) == ([68, 3], 34)
    assert ((columns >= 0) & (columns < 70)).all()


# The stand-in itself.


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)")
def test_a_write_outside_of_an_array_is_noticed() -> None:
    with pytest.raises(AssertionError, match="behind the end"):
        arrays = np.zeros(9, np.float32), *np.ones((3, 10), np.float32), None
        constants = map(np.float32, (0.9, 0.999, 0.1, 0.001, 1e-9))
        cuda_on_cpu.launch(adam.SOURCE, adam.KERNEL, 1, 32, *arrays, np.int64(10), SCALARS, SCALE, *constants)
