"""Embedding and positions in one pass; gradients of tables are added to their destination, in a fixed order."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.kernels.cuda.dropout import numbers_of
from autograd.ops.dropout import threshold_and_scale
from autograd.ops.embedding import check_embedding_with_positions, embedding, embedding_with_positions
from autograd.precision import as_gradient_of
from autograd.random import StreamId
from autograd.tensor import Backward, Gradient, PendingGradient

SOURCE, SUMS = "embedding.cu", "add_sums_of_pieces"
PASSES = ("embed", "add_rows")
THREADS, WARPS = 256, 8  # of a block
ELEMENTS_OF_A_WARP = 512
PIECE = 32  # the most rows of equal ids that a warp adds


def kernel_name(pass_name: str, dtype: object) -> str:
    """Return the name of the kernel of one of ``PASSES`` for numbers of this dtype."""
    return f"{pass_name}_{STORAGE[str(dtype)]}"


def _is_supported(table: Array, ids: Array, **static: object) -> bool:
    return str(table.dtype) in STORAGE and ids.dtype == np.int64 and table.ndim == 2


@embedding.kernel("cuda", supports=_is_supported, takes_16_bits=True)
def embedding_with_ordered_gradient(table: Array, ids: Array, *, order: Array | None = None) -> tuple[Array, Backward]:
    """Compute the reference's result with a fixed order of addition; the reference's atomic additions run in any order.

    Saves: what the reference saves.
    """
    return table[ids], lambda dy: (as_gradient_of(table, rows_to_add(table, ids.reshape(-1), order, dy)), None)


def _are_supported(table: Array, ids: Array, encodings: Array, positions: Array, **static: object) -> bool:
    are_rows = all(x.ndim == 2 and x.dtype == table.dtype and x.flags.c_contiguous for x in (table, encodings))
    return are_rows and str(table.dtype) in STORAGE and ids.dtype == positions.dtype == np.int64


@embedding_with_positions.kernel("cuda", supports=_are_supported, takes_16_bits=True)
def embedding_with_positions_in_one_pass(
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
    """Compute the reference's result, rounded once; backward reads dy and the mask, and adds to gradients in place.

    Saves: the ids, the positions, and the dropout mask, one bit per element.
    """
    check_embedding_with_positions(table, ids, encodings, positions)
    xp = namespace(table)
    ids, positions = xp.ascontiguousarray(ids), xp.ascontiguousarray(positions)
    y, kept = xp.empty((len(ids), table.shape[1]), table.dtype), None
    threshold, scale_of_kept = threshold_and_scale(rate) if rate and stream_id else (0, 1.0)
    n_warps = -(-y.size // ELEMENTS_OF_A_WARP)
    if threshold:
        kept = xp.empty((n_warps, ELEMENTS_OF_A_WARP // 8), np.uint8)
    if n_warps:
        launch(
            SOURCE,
            kernel_name("embed", table.dtype),
            -(-n_warps // WARPS),
            THREADS,
            table,
            ids,
            encodings,
            positions,
            y,
            kept,
            np.int64(y.size),
            np.int32(table.shape[1]),
            np.float32(scale),
            *numbers_of(stream_id or StreamId(0, 0)),
            np.int32(threshold),
            np.float32(scale_of_kept),
        )

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dtable = rows_to_add(table, ids, order, dy, kept, scale * scale_of_kept)
        dencodings = rows_to_add(encodings, positions, order_of_positions, dy, kept, scale_of_kept)
        return as_gradient_of(table, dtable), None, as_gradient_of(encodings, dencodings), None

    return y, backward


def rows_to_add(
    table: Array, ids: Array, order: Array | None, rows: Array, kept: Array | None = None, scale: float = 1.0
) -> PendingGradient:
    """Return the float32 gradient of a table: for each t, scale · kept[t] · rows[t] is added to row ids[t].

    ``rows`` are float32, bfloat16 or float16.  ``order`` sorts the ids; rows are added in this order.  If it is None,
    the device sorts the ids, and the host waits.  ``kept`` has a bit for every element of ``rows``, or is None: all are
    kept.
    """
    xp = namespace(table)
    ids, rows = (
        xp.ascontiguousarray(ids),
        xp.ascontiguousarray(rows if str(rows.dtype) in STORAGE else rows.astype(np.float32)),
    )

    def into(out: Array, add: bool) -> None:
        if not add:
            out[...] = 0
        _add_rows(out, ids, xp.argsort(ids) if order is None else order, rows, kept, scale)

    return PendingGradient(table.shape, xp.empty(0, np.float32), into)


def _add_rows(out: Array, ids: Array, order: Array, rows: Array, kept: Array | None, scale: float) -> None:
    xp, n, width = namespace(out), len(ids), out.shape[1]
    order, sums = xp.asarray(order, dtype=np.int32), xp.empty((-(-n // PIECE), 2, width), np.float32)
    if n:
        launch(
            SOURCE,
            kernel_name("add_rows", rows.dtype),
            -(-n // WARPS),
            THREADS,
            rows,
            kept,
            ids,
            order,
            out,
            sums,
            np.int32(n),
            np.int32(width),
            np.float32(scale),
        )
    if n > PIECE:
        n_blocks = -(-n // (WARPS * PIECE))
        launch(SOURCE, SUMS, n_blocks, THREADS, sums, ids, order, out, np.int32(n), np.int32(width))
