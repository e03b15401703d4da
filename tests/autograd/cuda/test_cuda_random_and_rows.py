"""CUDA kernels without a GPU: Philox, dropout, embeddings, and layer normalisation, alone and after dropout and sum."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import double, near

from autograd.kernels.cuda import dropout, embedding, layer_norm, linear
from autograd.kernels.cuda.driver import STORAGE
from autograd.op import operations
from autograd.ops.dropout import dropout_mask
from autograd.ops.embedding import embedding_with_positions as positions_operation
from autograd.ops.embedding import order_of
from autograd.precision import dtype_named, rounded, upcast
from autograd.random import StreamId, random_words
from autograd.tensor import gradient_array

pytestmark = pytest.mark.usefixtures("launch")
STREAM_IDS = [StreamId(0, 0), StreamId(5, 1, 3, 2), StreamId(2**64 - 1, 2**64 - 2, 2**63, 2**64 - 3)]


@pytest.mark.parametrize("stream_id", STREAM_IDS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 4, 1023, 1024, 4100])
def test_words_are_those_of_numpys_philox(count: int, stream_id: StreamId) -> None:
    words = dropout.random_words_by_blocks(np.empty(0), stream_id=stream_id, count=count)
    np.testing.assert_array_equal(words, random_words.reference(np.empty(0), stream_id=stream_id, count=count))


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9999999])
@pytest.mark.parametrize("shape", [(0, 6), (1,), (3, 7), (16, 32), (513,), (4099,)], ids=str)
def test_dropout(shape: tuple[int, ...], rate: float, dtype: str) -> None:
    """Twice a number is exact in sixteen bits, too; the other rates keep all or, of so few numbers, nothing."""
    x, dy = np.random.default_rng(1).standard_normal((2, *shape)).astype(dtype_named(dtype))
    y, backward = dropout.dropout_in_one_pass(x, rate=rate, stream_id=STREAM_IDS[1])
    mask = dropout_mask(upcast(x), rate, STREAM_IDS[1])
    np.testing.assert_array_equal(upcast(y), upcast(x) * mask)
    np.testing.assert_array_equal(upcast(backward(dy)[0]), upcast(dy) * mask)


def test_the_number_of_the_update_may_lie_in_memory() -> None:
    x, rows = np.random.default_rng(1).standard_normal((40, 128)).astype(np.float32), np.ones((2, 128), np.float32)
    table, ids = x[:7], np.arange(40) % 7
    for update in (7, 8):
        in_memory, known = (StreamId(5, 1, u, 2) for u in (np.array(update, np.uint64), update))
        mask = dropout_mask(x, 0.3, known)
        np.testing.assert_array_equal(
            dropout.random_words_by_blocks(x, stream_id=in_memory, count=99),
            random_words.reference(x, stream_id=known, count=99),
        )
        np.testing.assert_array_equal(dropout_mask(x, 0.3, in_memory), mask)
        np.testing.assert_array_equal(dropout.dropout_in_one_pass(x, rate=0.3, stream_id=in_memory)[0], x * mask)
        for run, arguments in (
            (layer_norm.add_norm_in_registers, (x, x, *rows)),
            (functools.partial(embedding.embedding_with_positions_in_one_pass, scale=1.0), (table, ids, table, ids)),
        ):
            (y, backward), (expected, expected_backward) = (
                run(*arguments, rate=0.3, stream_id=stream_id) for stream_id in (in_memory, known)
            )
            np.testing.assert_array_equal(y, expected)
            for got, right in zip(backward(y), expected_backward(y), strict=True):
                if right is not None:
                    np.testing.assert_array_equal(gradient_array(got), gradient_array(right))


@pytest.mark.parametrize("part", [slice(None, None, 2), slice(1, None)], ids=["apart", "not aligned"])
@pytest.mark.parametrize("dtype", STORAGE)
def test_dropout_of_what_lies_apart_or_is_not_aligned(dtype: str, part: slice) -> None:
    x, dy = np.random.default_rng(1).standard_normal((2, 601)).astype(dtype_named(dtype))[:, part]
    y, backward = dropout.dropout_in_one_pass(x, rate=0.5, stream_id=STREAM_IDS[1])
    mask = dropout_mask(upcast(x), 0.5, STREAM_IDS[1])
    np.testing.assert_array_equal(upcast(y), upcast(x) * mask)
    np.testing.assert_array_equal(upcast(backward(dy)[0]), upcast(dy) * mask)


def ids_and_rows(n: int, n_words: int, width: int) -> tuple[Any, Any]:
    """Draw ids of few words, some often, some never, with the first and the last word; and their rows."""
    random = np.random.default_rng(n)
    ids = random.integers(0, n_words, n)
    ids[:2] = [n_words - 1, 0][:n]
    return ids, random.standard_normal((n, width)).astype(np.float32)


def added_rows(n_words: int, ids: Any, dy: Any) -> Any:
    table = np.zeros((n_words, dy.shape[1]))
    np.add.at(table, ids, dy.astype(float))
    return table


# 8 columns of float32 and 16 of bfloat16 are 32 bytes: whole vectors; runs end before, at and behind 32 in the order.
@pytest.mark.parametrize(("dtype", "has_order"), [("float32", False), *((dtype, True) for dtype in STORAGE)])
@pytest.mark.parametrize(("width", "n_words"), [(1, 7), (33, 2), (128, 7), (8, 300)])
@pytest.mark.parametrize("n", [0, 1, 32, 33, 100, 400])
def test_the_gradient_of_an_embedding(n: int, width: int, n_words: int, dtype: str, has_order: bool) -> None:
    ids, dy = ids_and_rows(n, n_words, width)
    table = np.random.default_rng(1).standard_normal((n_words, width))
    table, dy = (x.astype(dtype_named(dtype)) for x in (table, dy))
    y, backward = embedding.embedding_with_ordered_gradient(table, ids, order=order_of(ids) if has_order else None)
    np.testing.assert_array_equal(y, table[ids])
    gradient, dids = backward(dy)
    assert dids is None
    written, right = np.full((n_words, width), np.nan, np.float32), added_rows(n_words, ids, dy)
    gradient.into(written, False)
    near(written, right, 1e-6)
    assert ((written == 0) == (right == 0)).all()
    gradient.into(written, True)
    near(written, 2 * right, 1e-6)


def test_one_id_may_own_all_rows_or_begin_at_any_index_of_the_order() -> None:
    dy, table = np.random.default_rng(1).standard_normal((1200, 4)).astype(np.float32), np.zeros((43, 4), np.float32)
    for n_before in (0, 1, 31, 32, 33):
        ids = np.where(np.arange(1200) < n_before, np.arange(1200) % 40, 41)
        gradient, _ = embedding.embedding_with_ordered_gradient(table, ids, order=order_of(ids))[1](dy)
        near(gradient_array(gradient), added_rows(43, ids, dy), 1e-6)


def test_a_row_that_the_order_leaves_out_is_not_read() -> None:
    ids, dy = ids_and_rows(100, 5, 8)
    dy[70:] = np.nan
    order = np.append(order_of(ids[:70]), np.full(30, -1, np.int32))
    gradient, _ = embedding.embedding_with_ordered_gradient(np.zeros((5, 8), np.float32), ids, order=order)[1](dy)
    near(gradient_array(gradient), added_rows(5, ids[:70], dy[:70]), 1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 4e-3), ("float16", 5e-4)])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize(("n", "width"), [(0, 2), (1, 8), (70, 24), (41, 33), (3, 516), (2, 1030)])
def test_embedding_with_positions(n: int, width: int, rate: float, dtype: str, tolerance: float) -> None:
    """Its widths are those of vectors, of single numbers, and of less, as many and more than a warp computes."""
    random = np.random.default_rng(n)
    (ids, dy), positions = ids_and_rows(n, 7, width), random.integers(0, 5, n)
    table, encodings = (random.standard_normal((rows, width)) for rows in (7, 5))
    table, encodings, dy = (x.astype(dtype_named(dtype)) for x in (table, encodings, dy))
    static = {"scale": 3.0, "rate": rate, "stream_id": STREAM_IDS[1]}
    y, backward = embedding.embedding_with_positions_in_one_pass(
        table, ids, encodings, positions, order=order_of(ids), order_of_positions=order_of(positions), **static
    )
    wide = double(*map(upcast, (table, ids, encodings, positions)))
    expected, expected_backward = positions_operation.reference(*wide, **static)
    assert y.dtype == dtype
    near(upcast(y), expected, tolerance)
    assert ((upcast(y) == 0) == (expected == 0)).all()
    for got, right in zip(backward(dy), expected_backward(dy.astype(float)), strict=True):
        if right is not None:
            written = np.full(right.shape, np.nan, np.float32)
            got.into(written, False)
            near(written, right, 1e-6)


# Layer normalisation.

KERNELS = {"layer_norm": layer_norm.layer_norm_in_registers, "add_norm": layer_norm.add_norm_in_registers}
DROPPED = {"rate": 0.3, "stream_id": STREAM_IDS[2], "eps": 1e-3}
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
    ("n", "width"), [(0, 128), (1, 128), (8, 128), *((21, width) for width in (16, 192, 272, 768, *layer_norm.WIDTHS))]
)
def test_norms(n: int, width: int, name: str, static: dict[str, Any]) -> None:
    """In sixteen bits results are rounded once, by 2⁻⁹ or 2⁻¹² at most; the sums over rows are not rounded."""
    *terms, gain, bias, dy = draw(name, n, width)
    compare(name, [*terms, gain, bias, dy], static, 2e-6)
    for dtype, tolerance in (("bfloat16", 2**-8.5), ("float16", 2**-11.5)):
        *few, dy16 = (rounded(x, dtype) for x in (*terms, dy))
        *results, dgain, dbias = compare(name, [*few, gain, bias, dy16], static, tolerance)
        assert {str(x.dtype) for x in results} == {dtype}
        assert dgain.dtype == dbias.dtype == np.float32
        np.testing.assert_allclose(dbias, upcast(dy16).sum(0), rtol=1e-5, atol=1e-5)


@every_norm
def test_norms_with_several_rows_for_a_warp(name: str, static: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_norm, "MOST_BLOCKS", 2)
    compare(name, draw(name, 45, 128), static, 2e-6)


@pytest.mark.parametrize("name", ["embedding", "dropout", "linear", "layer_norm", "add_norm"])
def test_a_gradient_that_is_a_view_of_another_type_becomes_one_that_a_kernel_can_read(name: str) -> None:
    *terms, gain, bias, dy = draw("add_norm", 9, 128)
    runs: dict[str, Callable[[], Any]] = {
        "embedding": lambda: embedding.embedding_with_ordered_gradient(terms[0], np.arange(9) % 5),
        "dropout": lambda: dropout.dropout_in_one_pass(terms[0], rate=0.5, stream_id=STREAM_IDS[1]),
        "linear": lambda: linear.linear_with_epilogue(terms[0], np.outer(gain, bias), bias),
        "layer_norm": lambda: layer_norm.layer_norm_in_registers(terms[0], gain, bias),
        "add_norm": lambda: layer_norm.add_norm_in_registers(*terms, gain, bias, **DROPPED),
    }
    _, backward = runs[name]()
    wide = np.repeat(dy.astype(float), 2, axis=1)[:, ::2]
    for got, expected in zip(backward(wide), backward(dy), strict=True):
        if expected is not None:
            np.testing.assert_array_equal(gradient_array(got), gradient_array(expected))
