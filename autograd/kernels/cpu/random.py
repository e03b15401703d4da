"""Random words by NumPy's Philox, which is written in C."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.random import Site, random_words


@random_words.kernel("cpu")
def random_words_numpy(like: Array, *, site: Site, count: int) -> Array:
    """Return the reference's words, drawn by ``numpy.random.Philox``."""
    key = np.array([site.seed, site.site], np.uint64)
    counter = np.array([0, site.shard, site.update, 0], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)
