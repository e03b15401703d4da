"""Rows of a table of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograd.array import Array, IntArray, namespace
from autograd.op import ShapeError, op
from autograd.ops.arithmetic import add
from autograd.ops.arithmetic import scale as scale_by
from autograd.ops.dropout import dropout
from autograd.random import StreamId
from autograd.tensor import Backward, Gradient, gradient_array


@op
def embedding(table: Array, ids: Array, *, order: Array | None = None) -> tuple[Array, Backward]:
    """Return rows of the table, y_t = E[ids_t]; the gradient is the scatter-add of dy over ids.

    With ``order`` (see ``order_of``), a kernel that adds the rows of equal ids together need not sort the ids.  The
    result is the same.  If ``order`` leaves a token out, dy of this token must be 0.
    Shapes: table (W, D), ids (T,) integers, order (T,).  Returns (T, D).
    Saves: the ids and the shape of the table.
    Raises: IndexError on a CPU if an id is not a row of the table.
    """
    del order
    xp, shape = namespace(table), table.shape

    def backward(dy: Array) -> tuple[Array, None]:
        dtable = xp.zeros(shape, dy.dtype)
        xp.add.at(dtable, ids, dy)
        return dtable, None

    try:
        return table[ids], backward
    except IndexError as error:  # of NumPy
        beyond = ids[(ids < -len(table)) | (ids >= len(table))]
        if not beyond.size:
            raise
        raise IndexError(
            f"embedding: id {beyond[0]} is not in the table (the vocabulary) of {len(table)} rows; take the tokenizer"
            " for which the model was made, or make the model with a greater vocabulary_size"
        ) from error


def order_of(ids: IntArray) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the indices that sort the ids in ascending order; equal ids keep their order.

    If you copy the result into a longer array, as CUDA graphs need, fill the rest of that array with −1.
    Shapes: (T,) integers → (T,) int32.
    """
    if ids.size and ids.min() >= 0 and ids.max() < 2**16:
        ids = ids.astype(np.uint16)  # NumPy has a radix sort for this dtype
    return np.argsort(ids, kind="stable").astype(np.int32)


@op
def embedding_with_positions(
    table: Array,
    ids: Array,
    encodings: Array,
    positions: Array,
    *,
    scale: float,
    rate: float = 0.0,
    stream_id: StreamId | None = None,
    order: Array | None = None,
    order_of_positions: Array | None = None,
) -> tuple[Array, Backward]:
    """Return Dropout(scale · E[ids_t] + P[positions_t]); without a random stream id drop nothing.

    As one operation it can have a kernel that writes no intermediate results to memory.  Without such a kernel the
    operations run one after the other, each with its own kernel.
    ``order`` and ``order_of_positions`` are the orders of ids and positions; see ``embedding``.
    Source: Vaswani et al. 2017, sections 3.4, 3.5 and 5.4.
    Shapes: table E (W, D), ids (T,) integers, encodings P (N, D), positions (T,) integers.  Returns (T, D).
    Saves: what ``embedding`` and ``dropout`` save.
    Raises: ShapeError if the arguments do not fit; with a random stream id, ValueError unless 0 ≤ rate < 1.
    """
    check_embedding_with_positions(table, ids, encodings, positions)
    words, words_backward = embedding.of_arrays(table, ids, order=order)
    scaled, scale_backward = scale_by.of_arrays(words, factor=scale)
    rows, rows_backward = embedding.of_arrays(encodings, positions, order=order_of_positions)
    y, sum_backward = add.of_arrays(scaled, rows)
    dropout_backward: Backward | None = None
    if rate and stream_id:
        y, dropout_backward = dropout.of_arrays(y, rate=rate, stream_id=stream_id)

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dsum = gradient_array(dropout_backward(dy)[0]) if dropout_backward else dy
        dscaled, drows = map(gradient_array, sum_backward(dsum))
        return words_backward(gradient_array(scale_backward(dscaled)[0]))[0], None, rows_backward(drows)[0], None

    return y, backward


def check_embedding_with_positions(table: Array, ids: Array, encodings: Array, positions: Array) -> None:
    """Check the arguments of ``embedding_with_positions``.  Raises: ShapeError if they do not fit together."""
    if not (
        table.ndim == encodings.ndim == 2
        and table.shape[1] == encodings.shape[1]
        and ids.ndim == 1
        and ids.shape == positions.shape
    ):
        raise ShapeError(
            "embedding_with_positions: expected table (W, D), ids (T,), encodings (N, D) and positions (T,);"
            f" got {table.shape}, {ids.shape}, {encodings.shape} and {positions.shape}"
        )
