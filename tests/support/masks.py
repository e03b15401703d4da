"""Dropout masks, seen from outside."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from autograd import ops
from autograd.random import StreamId

STREAM_ID = StreamId(seed=5, stream=1)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
NUMBERS = 2**16  # what a 16-bit number can be
RATES = st.floats(0, 1, exclude_max=True)
STANDARD_ERRORS = 5  # what is counted may be so many off: a true statement fails one time in 1.7 million


def mask_of(rate: float, stream_id: StreamId, *shape: int, dtype: Any = "float64") -> Any:
    """What dropout multiplies with."""
    return ops.dropout(np.ones(shape, dtype), rate=rate, stream_id=stream_id).value


def bits(x: Any) -> tuple[Any, ...]:
    """An array so that == means the same in every bit."""
    return x.shape, x.dtype, x.tobytes()


def correlation(x: Any, y: Any) -> float:
    """Of two masks' zeros, in standard errors of what independent ones would show."""
    x, y = (x != 0) * 1.0, (y != 0) * 1.0
    products = (x - x.mean()) * (y - y.mean())
    return float(products.sum() / (x.std() * y.std() * math.sqrt(x.size)))
