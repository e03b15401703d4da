"""CUDA kernels without a GPU: Philox, dropout, and embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import double, from_bf16, near, to_bf16

from autograd.kernels.cuda import dropout, embedding, layer_norm
from autograd.ops.dropout import dropout as dropout_operation
from autograd.ops.dropout import dropout_mask
from autograd.ops.embedding import embedding as embedding_operation
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


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.9999999])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (16, 32), (513,), (4096,), (3, 1500)], ids=str)
def test_dropout(shape: tuple[int, ...], rate: float) -> None:
    x, dy = np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)
    y, backward = dropout.dropout_in_one_pass(x, rate=rate, stream_id=STREAM_IDS[1])
    expected, expected_backward = dropout_operation.reference(x, rate=rate, stream_id=STREAM_IDS[1])
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(backward(dy)[0], expected_backward(dy)[0])


def test_the_number_of_the_update_may_lie_in_memory() -> None:
    x, number = np.random.default_rng(1).standard_normal((40, 128)).astype(np.float32), np.array(7, np.uint64)
    in_memory, known = StreamId(5, 1, number, 2), StreamId(5, 1, 7, 2)
    for stream_id, expected in ((in_memory, known), (StreamId(5, 1, np.array(8, np.uint64), 2), StreamId(5, 1, 8, 2))):
        np.testing.assert_array_equal(
            dropout.random_words_by_blocks(x, stream_id=stream_id, count=99),
            random_words.reference(x, stream_id=expected, count=99),
        )
        np.testing.assert_array_equal(
            dropout.dropout_in_one_pass(x, rate=0.3, stream_id=stream_id)[0], x * dropout_mask(x, 0.3, expected)
        )
        np.testing.assert_array_equal(dropout_mask(x, 0.3, stream_id), dropout_mask(x, 0.3, expected))
        gain, zero = np.ones(128, np.float32), np.zeros(128, np.float32)
        for of_memory, of_known in zip(
            *(
                both_ways(layer_norm.add_norm_in_registers, x, x, gain, zero, rate=0.3, stream_id=s)
                for s in (stream_id, expected)
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(of_memory, of_known)


def both_ways(run: Callable[..., Any], *arguments: Any, **static: Any) -> list[Any]:
    y, backward = run(*arguments, **static)
    return [y, *map(gradient_array, backward(y))]


def test_dropout_of_nothing_and_of_what_lies_apart() -> None:
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    nothing, _ = dropout.dropout_in_one_pass(x[:0], rate=0.5, stream_id=STREAM_IDS[1])
    assert nothing.shape == (0, 6)
    y, _ = dropout.dropout_in_one_pass(x[:, ::2], rate=0.5, stream_id=STREAM_IDS[1])
    np.testing.assert_array_equal(y, x[:, ::2] * dropout_mask(x[:, ::2], 0.5, STREAM_IDS[1]))


@pytest.mark.parametrize("n", [700, 4099])
def test_dropout_in_sixteen_bits(n: int) -> None:
    """A half of the scale 2 is exact, so each result is a number of x or 0."""
    x, dy = (rounded(np.random.default_rng(seed).standard_normal(n)) for seed in (1, 2))
    y, backward = dropout.dropout_in_one_pass(x, rate=0.5, stream_id=STREAM_IDS[1])
    mask = dropout_mask(upcast(x), 0.5, STREAM_IDS[1])
    np.testing.assert_array_equal(upcast(y), upcast(x) * mask)
    np.testing.assert_array_equal(upcast(backward(dy)[0]), upcast(dy) * mask)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_of_arrays_that_are_not_aligned(dtype: str) -> None:
    """Arrays begin one element behind an aligned address."""
    x, dy = np.random.default_rng(1).standard_normal((2, 601)).astype(dtype_named(dtype))[:, 1:]
    y, backward = dropout.dropout_in_one_pass(x, rate=0.3, stream_id=STREAM_IDS[1])
    aligned, of_aligned = dropout.dropout_in_one_pass(x.copy(), rate=0.3, stream_id=STREAM_IDS[1])
    np.testing.assert_array_equal(upcast(y), upcast(aligned))
    np.testing.assert_array_equal(upcast(backward(dy)[0]), upcast(of_aligned(dy.copy())[0]))


def test_the_saved_mask_has_one_bit_per_element(launch: Callable[..., None]) -> None:
    """Bits are in the order of elements, the lowest first; those behind the end are drawn, too."""
    x, mask = np.ones(900, np.float32), np.zeros(256, np.uint16)
    launch(
        dropout.SOURCE,
        dropout.kernel_name("forward", "float32"),
        1,
        dropout.THREADS,
        x,
        np.empty_like(x),
        mask,
        np.int64(900),
        np.float32(2),
        *dropout.numbers_of(STREAM_IDS[1]),
        np.int32(2**15),
    )
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(bits[:900], dropout_mask(x, 0.5, STREAM_IDS[1]) > 0)


def ids_and_rows(n: int, n_words: int, width: int) -> tuple[Any, Any]:
    """Draw ids of few words, some often, some never, with the first and the last word; and their rows."""
    random = np.random.default_rng(n)
    ids = random.integers(0, n_words, n)
    ids[:2] = [n_words - 1, 0][:n]
    return ids, random.standard_normal((n, width)).astype(np.float32)


# 8 columns of float32 and 16 of bfloat16 are 32 bytes: whole vectors; runs end before, at and behind 32 in the order.
LENGTHS = pytest.mark.parametrize("n", [1, 9, 32, 33, 100, 400])


@pytest.mark.parametrize("has_order", [True, False])
@pytest.mark.parametrize(("width", "n_words"), [(1, 7), (33, 2), (128, 7), (8, 300)])
@LENGTHS
def test_the_gradient_of_an_embedding(n: int, width: int, n_words: int, has_order: bool) -> None:
    ids, dy = ids_and_rows(n, n_words, width)
    table = np.random.default_rng(1).standard_normal((n_words, width)).astype(np.float32)
    order = order_of(ids) if has_order else None
    y, backward = embedding.embedding_with_ordered_gradient(table, ids, order=order)
    expected, expected_backward = embedding_operation.reference(table, ids)
    np.testing.assert_array_equal(y, expected)
    gradient, of_ids = backward(dy)
    assert of_ids is None
    written, right = np.full((n_words, width), np.nan, np.float32), expected_backward(dy.astype(float))[0]
    gradient.into(written, False)
    near(written, right, 1e-6)
    assert ((written == 0) == (right == 0)).all()
    gradient.into(written, True)
    near(written, 2 * right, 1e-6)


def test_one_id_may_own_all_rows_or_begin_at_any_index_of_the_order() -> None:
    dy = np.random.default_rng(1).standard_normal((1200, 4)).astype(np.float32)
    for n_before in (0, 1, 31, 32, 33):
        ids = np.where(np.arange(1200) < n_before, np.arange(1200) % 40, 41)
        gradient, _ = embedding.embedding_with_ordered_gradient(
            np.zeros((43, 4), np.float32), ids, order=order_of(ids)
        )[1](dy)
        expected = np.zeros((43, 4))
        np.add.at(expected, ids, dy.astype(float))
        near(gradient_array(gradient), expected, 1e-6)


def test_a_row_that_the_order_leaves_out_is_not_read() -> None:
    ids, dy = ids_and_rows(100, 5, 8)
    dy[70:] = np.nan
    order = np.append(order_of(ids[:70]), np.full(30, -1, np.int32))
    gradient, _ = embedding.embedding_with_ordered_gradient(np.zeros((5, 8), np.float32), ids, order=order)[1](dy)
    expected = np.zeros((5, 8))
    np.add.at(expected, ids[:70], dy[:70].astype(float))
    near(gradient_array(gradient), expected, 1e-6)


def test_the_gradient_of_an_embedding_of_nothing() -> None:
    table, ids = np.ones((3, 2), np.float32), np.empty(0, np.int64)
    gradient, _ = embedding.embedding_with_ordered_gradient(table, ids)[1](np.empty((0, 2), np.float32))
    gradient.into(table, False)
    assert not table.any()


def test_a_gradient_of_another_type_becomes_one_that_a_kernel_can_read() -> None:
    ids, dy = ids_and_rows(9, 5, 32)
    table = np.zeros((5, 32), np.float32)
    gradient, _ = embedding.embedding_with_ordered_gradient(table, ids)[1](dy.astype(float))
    expected = np.zeros((5, 32))
    np.add.at(expected, ids, dy.astype(float))
    near(gradient_array(gradient), expected, 1e-6)
    _, backward = dropout.dropout_in_one_pass(dy, rate=0.5, stream_id=STREAM_IDS[1])
    np.testing.assert_array_equal(backward(dy.astype(float))[0], backward(dy)[0])


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize(("n", "width"), [(1, 8), (70, 24), (41, 33), (3, 512), (2, 1030)])
def test_embedding_with_positions(n: int, width: int, rate: float) -> None:
    """Its widths are those of vectors, of single numbers, and of less, as many and more than a warp computes."""
    random = np.random.default_rng(n)
    table, encodings = (random.standard_normal((rows, width)).astype(np.float32) for rows in (7, 5))
    (ids, dy), positions = ids_and_rows(n, 7, width), random.integers(0, 5, n)
    static = {"scale": 3.0, "rate": rate, "stream_id": STREAM_IDS[1]}
    y, backward = embedding.embedding_with_positions_in_one_pass(
        table, ids, encodings, positions, order=order_of(ids), order_of_positions=order_of(positions), **static
    )
    expected, expected_backward = positions_operation.reference(*double(table, ids, encodings, positions), **static)
    near(y, expected, 1e-6)
    assert ((y == 0) == (expected == 0)).all()
    for got, right in zip(backward(dy), expected_backward(dy.astype(float)), strict=True):
        if right is not None:
            near(gradient_array(got), right, 1e-6)


def test_the_update_of_an_embeddings_mask_may_lie_in_memory() -> None:
    table, (ids, _) = np.ones((7, 40), np.float32), ids_and_rows(30, 7, 1)
    in_memory, known = (
        embedding.embedding_with_positions_in_one_pass(
            table, ids, 0 * table, ids, scale=1.0, rate=0.5, stream_id=StreamId(5, 1, update, 2)
        )[0]
        for update in (np.array(9, np.uint64), 9)
    )
    np.testing.assert_array_equal(in_memory, known)
    np.testing.assert_array_equal(known, dropout_mask(known, 0.5, StreamId(5, 1, 9, 2)))


def test_embedding_with_positions_of_nothing() -> None:
    table, ids = np.ones((3, 2), np.float32), np.empty(0, np.int64)
    y, backward = embedding.embedding_with_positions_in_one_pass(table, ids, table, ids, scale=2.0)
    assert y.shape == (0, 2)
    assert not gradient_array(backward(y)[0]).any()


@pytest.mark.parametrize("width", [40, 33])
def test_embeddings_in_sixteen_bits(width: int, launch: Callable[..., None]) -> None:
    (ids, rows), positions = ids_and_rows(70, 5, width), np.arange(70) % 3
    dy, order, stream_id = to_bf16(rows), order_of(ids), STREAM_IDS[1]
    table, encodings = (to_bf16(np.random.default_rng(i).standard_normal((5, width))) for i in (1, 2))
    y, kept = np.zeros_like(dy), np.zeros(-(-dy.size // 512) * 64, np.uint8)
    n, of_width, half = np.int32(70), np.int32(width), np.int32(2**15)
    launch(
        embedding.SOURCE,
        embedding.kernel_name("embed", "bfloat16"),
        1,
        embedding.THREADS,
        table,
        ids,
        encodings,
        positions,
        y,
        kept,
        np.int64(dy.size),
        of_width,
        np.float32(3),
        *dropout.numbers_of(stream_id),
        half,
        np.float32(2),
    )
    mask = dropout_mask(rows, 0.5, stream_id)
    near(from_bf16(y), mask * (3 * from_bf16(table)[ids] + from_bf16(encodings)[positions]), 4e-3)
    gradient, sums = np.zeros((5, width), np.float32), np.zeros((3, 2, width), np.float32)
    launch(
        embedding.SOURCE,
        embedding.kernel_name("add_rows", "bfloat16"),
        9,
        embedding.THREADS,
        dy,
        kept,
        ids,
        order,
        gradient,
        sums,
        n,
        of_width,
        np.float32(6),
    )
    launch(embedding.SOURCE, embedding.SUMS, 1, embedding.THREADS, sums, ids, order, gradient, n, of_width)
    expected = np.zeros((5, width))
    np.add.at(expected, ids, 3 * mask * from_bf16(dy).astype(float))
    near(gradient, expected, 1e-6)
