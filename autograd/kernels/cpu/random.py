"""Random words by NumPy's Philox, which is written in C."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.random import StreamId, random_words


@random_words.kernel("cpu")
def random_words_numpy(like: Array, *, stream_id: StreamId, count: int) -> Array:
    """Return the reference's words, drawn by ``numpy.random.Philox``."""
    key = np.array([stream_id.seed, stream_id.stream], np.uint64)
    counter = np.array([0, stream_id.micro_batch, stream_id.update, 0], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)
