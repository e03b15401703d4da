"""Rows of a table of embeddings."""

from __future__ import annotations

from autograd.array import Array, namespace
from autograd.op import op
from autograd.tensor import Backward


@op
def embedding(table: Array, ids: Array) -> tuple[Array, Backward]:
    """Return rows of the table, y_t = E[ids_t]; the gradient is the scatter-add of dy over ids.

    Shapes: table (W, D), ids (T,) integers.  Returns (T, D).
    Saves: the ids and the shape of the table.
    """
    xp, shape = namespace(table), table.shape

    def backward(dy: Array) -> tuple[Array, None]:
        dtable = xp.zeros(shape, dy.dtype)
        xp.add.at(dtable, ids, dy)
        return dtable, None

    return table[ids], backward
