"""Operations that are several in one: linear maps, the feed-forward network, dropout with sum and norm, embeddings."""

from typing import Any

import numpy as np
import pytest
from draws import normal
from masks import STREAM_ID

from autograd import Tensor, backward, ops
from autograd.ops.embedding import order_of
from autograd.testing import check_gradients

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])  # the kernel, the reference


def gradients(leaves: list[Any], y: Tensor) -> list[Any]:
    """Return the gradients of leaves along a random direction of the result."""
    backward(y, np.random.default_rng(1).standard_normal(y.shape).astype(y.dtype))
    return [leaf.grad for leaf in leaves if leaf is not None]


@pytest.mark.parametrize("kernel", ["linear", "linear_relu"])
def test_a_gradient_of_a_linear_weight_is_as_wide_as_what_it_is_made_of(kernel: str) -> None:
    x, weight = normal(4, 3).astype(np.float32), Tensor(normal(3, 2))
    backward(ops.sum(getattr(ops, kernel)(x, weight, np.full(2, 9.0))))
    np.testing.assert_array_equal(weight.grad, x.astype(np.float64).T @ np.ones((4, 2)), strict=True)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_maps_are_linear_maps_one_after_the_other(bias: bool) -> None:
    """Results and gradients are equal bit for bit."""
    x, weights = normal(4, 3), [normal(3, width, seed=width) for width in (5, 2, 5)]
    maps = [argument for w in weights for argument in (w, normal(w.shape[1], seed=9) if bias else None)]
    found = []
    for together in (True, False):
        leaves = [None if array is None else Tensor(array) for array in (x, *maps)]
        x_leaf, *rest = leaves
        ys = ops.linear_maps(*leaves) if together else [ops.linear(x_leaf, *rest[i : i + 2]) for i in (0, 2, 4)]
        backward(ops.sum(ys[0] * ys[2]) + ops.sum(ys[1]))
        found.append([*(y.value for y in ys), *(leaf.grad for leaf in leaves if leaf is not None)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)


@DTYPES
def test_feed_forward_is_linear_relu_and_linear_with_the_same_bits(dtype: str) -> None:
    arrays = [normal(*shape).astype(dtype) for shape in ((7, 6), (6, 10), (10,), (10, 6), (6,))]
    together, apart = ([Tensor(array) for array in arrays] for _ in range(2))
    y, (x, weight1, bias1, weight2, bias2) = ops.feed_forward(*together), apart
    expected = ops.linear(ops.linear_relu(x, weight1, bias1), weight2, bias2)
    np.testing.assert_array_equal(y.value, expected.value)
    assert (y.node.name, y.node.inputs[0].name) == ("linear", "linear_relu")
    for one, other in zip(gradients(together, y), gradients(apart, expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_add_norm_drops_only_with_a_rate_and_a_stream_id() -> None:
    x, y, parameters = normal(4, 30), normal(4, 30, seed=1), (np.ones(30), np.zeros(30))
    expected = ops.layer_norm(x + y, *parameters).value
    undropped: list[dict[str, Any]] = [{}, {"rate": 0.5}, {"stream_id": STREAM_ID}]
    for static in undropped:
        np.testing.assert_array_equal(ops.add_norm(x, y, *parameters, **static).value, expected)
    assert (ops.add_norm(x, y, *parameters, rate=0.5, stream_id=STREAM_ID).value != expected).any()


@pytest.mark.parametrize("shape", [(4,), (4, 2, 3)], ids=str)
def test_embedding_tables_of_any_number_of_axes_are_looked_up(shape: tuple[int, ...]) -> None:
    check_gradients(lambda table: ops.embedding(table, np.array([2, 0, 2])), normal(*shape))


@DTYPES
def test_a_negative_id_of_an_embedding_counts_from_the_end_and_one_beyond_the_table_is_an_error(dtype: str) -> None:
    table, right = Tensor(normal(4, 3).astype(dtype)), np.array([0, 0])
    y = ops.embedding(table, np.array([-1, 3]))
    backward(ops.sum(y))
    np.testing.assert_array_equal(y.value, table.value[[3, 3]])
    np.testing.assert_array_equal(table.grad, np.float32([0, 0, 0, 2])[:, None] * np.ones(3))
    for wrong in ([0, 4], [0, -5], [0, 1.7]):
        ids = np.array(wrong)
        for arguments in ((table, ids, table, right), (table, right, table, ids)):
            with pytest.raises(IndexError):
                ops.embedding_with_positions(*arguments, scale=2.0)
        with pytest.raises(IndexError):
            ops.embedding(table, ids)


@DTYPES
def test_ids_of_embeddings_may_have_32_bits(dtype: str) -> None:
    found = []
    for index_dtype in ("int32", "int64"):
        ids, positions = np.array([[3, 0, 3, 1], [0, 1, 2, 0]], index_dtype)
        leaves = [Tensor(normal(n, 33).astype(dtype)) for n in (4, 5)]
        y = ops.embedding_with_positions(leaves[0], ids, leaves[1], positions, scale=3.0)
        found.append([y.value, *gradients(leaves, y)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("most", [3, 2**16 - 1, 2**16, 2**40])
@pytest.mark.parametrize("least", [0, -2])
def test_the_order_of_ids_of_an_embedding_sorts_them_and_keeps_that_of_equal_ones(least: int, most: int) -> None:
    ids = np.random.default_rng(1).permutation([most, least, 1, 2] * 9)
    order = order_of(ids)
    assert order.dtype == np.int32
    assert [(ids[i], i) for i in order] == sorted((id_, i) for i, id_ in enumerate(ids))
    assert order_of(ids[:0]).tolist() == []
