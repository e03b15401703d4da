"""Adam in pieces that stay in the cache."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.optim import adam_update

PIECE = 65_536  # elements: values, gradients, m, v and two scratch arrays of float32 take 1.5 MiB of cache


@adam_update.kernel("cpu")
def adam_update_in_pieces(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    copies: Array | None = None,
    *,
    step_size: float,
    beta1: float,
    beta2: float,
    variance_correction: float,
    eps: float,
) -> None:
    """The reference's arithmetic, a piece at a time and without fresh arrays."""
    scratch, denominator = np.empty((2, min(PIECE, len(values))), values.dtype)
    for start in range(0, len(values), PIECE):
        piece = slice(start, start + PIECE)
        g, m_piece, v_piece = gradients[piece], m[piece], v[piece]
        a, b = scratch[: len(g)], denominator[: len(g)]
        m_piece *= beta1
        m_piece += np.multiply(g, 1 - beta1, out=a)
        v_piece *= beta2
        v_piece += np.multiply(np.multiply(g, 1 - beta2, out=a), g, out=a)
        np.sqrt(np.divide(v_piece, variance_correction, out=b), out=b)
        b += eps
        np.divide(np.multiply(m_piece, step_size, out=a), b, out=a)
        values[piece] -= a
        if copies is not None:
            copies[piece] = values[piece]
