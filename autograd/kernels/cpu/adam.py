"""Adam in slices that fit in the cache."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.optim import adam_update

PIECE = 65_536  # elements: values, gradients, m, v and three scratch arrays of float32 take 1.75 MiB of cache


@adam_update.kernel("cpu")
def adam_update_in_pieces(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    low_precision: Array | None,
    scalars: Array,
    scale: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """Compute the reference's result slice by slice, without temporary arrays of the full size."""
    factor, step_size, variance_correction = float(scale), float(scalars[1]), float(scalars[2])
    if not factor > 0:
        return
    scaled, scratch, denominator = np.empty((3, min(PIECE, len(values))), values.dtype)
    for start in range(0, len(values), PIECE):
        piece = slice(start, start + PIECE)
        m_piece, v_piece = m[piece], v[piece]
        g, a, b = (x[: len(m_piece)] for x in (scaled, scratch, denominator))
        np.multiply(gradients[piece], factor, out=g)
        m_piece *= beta1
        m_piece += np.multiply(g, 1 - beta1, out=a)
        v_piece *= beta2
        v_piece += np.multiply(np.multiply(g, 1 - beta2, out=a), g, out=a)
        np.sqrt(np.divide(v_piece, variance_correction, out=b), out=b)
        b += eps
        np.divide(np.multiply(m_piece, step_size, out=a), b, out=a)
        values[piece] -= a
        if low_precision is not None:
            low_precision[piece] = values[piece]
