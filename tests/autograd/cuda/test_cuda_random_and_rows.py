"""CUDA kernels without a GPU: Philox, dropout, and the embedding's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import from_bf16, near, to_bf16

from autograd.kernels.cuda import dropout, embedding, layer_norm
from autograd.ops.dropout import dropout as dropout_operation
from autograd.ops.dropout import dropout_mask
from autograd.ops.embedding import embedding as embedding_operation
from autograd.precision import dtype_named, rounded, upcast
from autograd.random import StreamId, random_words
from autograd.tensor import written

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
    return [y, *backward(y)]


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
        dropout.SOURCE, dropout.kernel_name("forward", "float32"), 1, dropout.THREADS, x, np.empty_like(x), mask,
        np.int64(900), np.float32(2), *dropout.numbers_of(STREAM_IDS[1]), np.int32(2**15),
    )  # fmt: skip
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(bits[:900], dropout_mask(x, 0.5, STREAM_IDS[1]) > 0)


def ids_and_rows(n: int, n_words: int, width: int) -> tuple[Any, Any]:
    """Draw ids of few words, some often, some never, with the first and the last word; and their rows."""
    random = np.random.default_rng(n)
    ids = random.integers(0, n_words, n)
    ids[:2] = [n_words - 1, 0][:n]
    return ids, random.standard_normal((n, width)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 9, 256, 257, 700])
def test_ids_are_sorted_and_equal_ones_keep_their_order(n: int, launch: Callable[..., None]) -> None:
    ids, (sorted_ids, order) = ids_and_rows(n, 7, 1)[0], np.full((2, n), -1)
    launch(embedding.SOURCE, embedding.SORT, -(-n // embedding.THREADS), embedding.THREADS, ids, sorted_ids, order,
           np.int32(n))  # fmt: skip
    np.testing.assert_array_equal(order, np.argsort(ids, kind="stable"))
    np.testing.assert_array_equal(sorted_ids, np.sort(ids))


@pytest.mark.parametrize("width", [1, 32, 33, 128])
@pytest.mark.parametrize("n", [1, 9, 100])
def test_the_gradient_of_an_embedding(n: int, width: int) -> None:
    ids, dy = ids_and_rows(n, 7, width)
    table = np.random.default_rng(1).standard_normal((7, width)).astype(np.float32)
    y, backward = embedding.embedding_with_sorted_gradient(table, ids)
    expected, expected_backward = embedding_operation.reference(table, ids)
    np.testing.assert_array_equal(y, expected)
    gradient, of_ids = backward(dy)
    assert of_ids is None
    written, right = np.full((7, width), np.nan, np.float32), expected_backward(dy.astype(float))[0]
    gradient.write_to(written)
    near(written, right, 1e-6)
    assert ((written == 0) == (right == 0)).all()
    gradient.add_to(written)
    near(written, 2 * right, 1e-6)


def test_the_gradient_of_an_embedding_of_nothing() -> None:
    table, ids = np.ones((3, 2), np.float32), np.empty(0, np.int64)
    gradient, _ = embedding.embedding_with_sorted_gradient(table, ids)[1](np.empty((0, 2), np.float32))
    gradient.write_to(table)
    assert not table.any()


def test_a_gradient_of_another_type_becomes_one_that_a_kernel_can_read() -> None:
    ids, dy = ids_and_rows(9, 5, 32)
    table = np.zeros((5, 32), np.float32)
    gradient, _ = embedding.embedding_with_sorted_gradient(table, ids)[1](dy.astype(float))
    expected = np.zeros((5, 32))
    np.add.at(expected, ids, dy.astype(float))
    near(written(gradient), expected, 1e-6)
    _, backward = dropout.dropout_in_one_pass(dy, rate=0.5, stream_id=STREAM_IDS[1])
    np.testing.assert_array_equal(backward(dy.astype(float))[0], backward(dy)[0])


def test_rows_in_sixteen_bits(launch: Callable[..., None]) -> None:
    ids, rows = ids_and_rows(20, 5, 40)
    dy, order, table = to_bf16(rows), np.argsort(ids, kind="stable"), np.zeros((5, 40), np.float32)
    launch(
        embedding.SOURCE, embedding.kernel_name("bfloat16"), 20, embedding.THREADS, dy, ids[order], order, table,
        np.int64(20), np.int32(40),
    )  # fmt: skip
    expected = np.zeros((5, 40))
    np.add.at(expected, ids, from_bf16(dy).astype(float))
    near(table, expected, 1e-6)
