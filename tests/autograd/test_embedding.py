"""Embedding: tables of any rank, ids that are no rows, and embedding with positions as the operations one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from draws import normal
from masks import STREAM_ID

from autograd import ShapeError, Tensor, backward, ops
from autograd.ops.embedding import order_of
from autograd.testing import check_gradients

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])  # the kernel, the reference


@pytest.mark.parametrize("shape", [(4,), (4, 2, 3)], ids=str)
def test_tables_of_any_number_of_axes_are_looked_up(shape: tuple[int, ...]) -> None:
    check_gradients(lambda table: ops.embedding(table, np.array([2, 0, 2])), normal(*shape))


@DTYPES
def test_a_negative_id_counts_from_the_end_and_one_beyond_the_table_is_an_error(dtype: str) -> None:
    table = Tensor(normal(4, 3).astype(dtype))
    y = ops.embedding(table, np.array([-1, 3]))
    backward(ops.sum(y))
    np.testing.assert_array_equal(y.value, table.value[[3, 3]])
    np.testing.assert_array_equal(table.grad, np.float32([0, 0, 0, 2])[:, None] * np.ones(3))
    for ids in ([0, 4], [0, -5]):
        with pytest.raises(IndexError):
            ops.embedding(table, np.array(ids))
        with pytest.raises(IndexError):
            ops.embedding_with_positions(table, np.array(ids), table, np.array([0, 0]), scale=2.0)
        with pytest.raises(IndexError):
            ops.embedding_with_positions(table, np.array([0, 0]), table, np.array(ids), scale=2.0)
    with pytest.raises(IndexError):
        ops.embedding_with_positions(table, np.array([1.7]), table, np.array([0]), scale=2.0)


@DTYPES
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_embedding_with_positions_is_its_operations_one_by_one(dtype: str, index_dtype: str) -> None:
    ids, positions = np.array([[3, 0, 3, 1], [0, 1, 2, 0]], index_dtype)
    tables = [[Tensor(normal(n, 33).astype(dtype)) for n in (4, 5)] for _ in range(2)]
    (table, encodings), (same_table, same_encodings) = tables
    y = ops.embedding_with_positions(table, ids, encodings, positions, scale=3.0, rate=0.4, stream_id=STREAM_ID)
    expected = ops.dropout(
        ops.embedding(same_table, ids) * 3.0 + ops.embedding(same_encodings, positions), rate=0.4, stream_id=STREAM_ID
    )
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    backward(y, dy)
    backward(expected, dy)
    assert 0 < np.count_nonzero(y.value) < y.value.size
    for found, one_by_one in (
        (y.value, expected.value),
        (table.grad, same_table.grad),
        (encodings.grad, same_encodings.grad),
    ):
        np.testing.assert_allclose(found, one_by_one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "shapes", [((4, 3), (2,), (5, 2), (2,)), ((4, 3), (2,), (5, 3), (1,)), ((4,), (2,), (5,), (2,)),
               ((4, 3), (1, 2), (5, 3), (1, 2))], ids=str,
)  # fmt: skip
def test_arguments_that_do_not_fit_are_an_error_that_names_their_shapes(shapes: Any) -> None:
    table, ids, encodings, positions = shapes
    with pytest.raises(ShapeError, match=r"embedding_with_positions: expected table \(W, D\), ids \(T,\), encodings"):
        ops.embedding_with_positions(
            np.ones(table), np.zeros(ids, int), np.ones(encodings), np.zeros(positions, int), scale=1.0
        )


@pytest.mark.parametrize("most", [3, 2**16 - 1, 2**16, 2**40])
@pytest.mark.parametrize("least", [0, -2])
def test_the_order_of_ids_sorts_them_and_keeps_that_of_equal_ones(least: int, most: int) -> None:
    ids = np.random.default_rng(1).permutation([most, least, 1, 2] * 9)
    order = order_of(ids)
    assert order.dtype == np.int32
    assert [(ids[i], i) for i in order] == sorted((id_, i) for i, id_ in enumerate(ids))
    assert order_of(ids[:0]).tolist() == []
