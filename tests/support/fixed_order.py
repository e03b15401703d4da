"""Products whose order of summation does not depend on the sizes of their arguments.

A BLAS chooses its order by the number of rows, so a row that is computed alone differs in its last bits from the same
row among others.  With these kernels in its place whatever differs between two ways of computing the same thing is a
difference of method.  They are slow, and for comparisons only.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from autograd import AttentionMask, ops
from autograd.op import Dispatch


def no_backward(dy: Any) -> Any:
    raise NotImplementedError("these kernels are for comparisons of values")


def product(x: Any, w: Any) -> Any:
    """x W, one term after the other.  Shapes: x (T, I), w (I, O) → (T, O)."""
    y = np.zeros((len(x), w.shape[1]))
    for i in range(w.shape[0]):
        y += x[:, i, None] * w[i]
    return y


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    y = product(x, weight)
    return (y if bias is None else y + bias), no_backward


def mask_of_all(mask: AttentionMask, n_keys: int) -> Any:
    """Which of all keys each query sees.  Shapes: returns (T, n_keys), True where it does."""
    queries, keys = mask.queries, mask.keys
    allowed = np.zeros((queries.n_tokens, n_keys), bool)
    for i, (b, position) in enumerate(zip(queries.segment_of_token, queries.position_in_segment, strict=True)):
        sees = slice(keys.starts[b], keys.starts[b] + keys.lengths[b])
        allowed[i, sees] = True if mask.padded_mask is None else mask.padded_mask[b, position, : keys.lengths[b]]
    return allowed


def attention(q: Any, k: Any, v: Any, *, mask: AttentionMask, **no_dropout: Any) -> Any:
    """Over all keys of the batch, key after key; those outside a range contribute an exact zero."""
    assert not any(no_dropout.values())
    scores = np.zeros((len(q), q.shape[1], len(k)))
    for i in range(q.shape[2]):
        scores += q[:, :, i, None] * k[:, :, i].T
    sees = mask_of_all(mask, len(k))
    scores = np.where(sees[:, None], scores / math.sqrt(q.shape[2]), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    total, y = np.zeros(q.shape[:2]), np.zeros((*q.shape[:2], v.shape[2]))
    for j in range(len(k)):
        total += weights[:, :, j]
        y += weights[:, :, j, None] * v[j]
    return y / total[..., None], no_backward


@contextmanager
def fixed_order() -> Iterator[None]:
    """Within this context the model's products are computed by the functions above."""
    replaced: dict[Dispatch[Any], Any] = {
        ops.linear: linear,
        ops.linear_relu: lambda x, weight, bias: (np.maximum(product(x, weight) + bias, 0), no_backward),
        ops.linear_transposed: lambda x, weight: linear(x, weight.T),
        ops.attention: attention,
        ops.layer_norm: ops.layer_norm.reference,  # its kernel sums by products
    }
    for operation, kernel in replaced.items():
        operation.kernel("cpu")(kernel)
    try:
        yield
    finally:
        for operation in replaced:
            del operation.kernels[0]
