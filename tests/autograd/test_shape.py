"""Slices and gathered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from draws import normal

from autograd import Tensor, backward, ops


@pytest.mark.parametrize("index", [((0, 0),), [0, 0], np.array([0, 0]), (slice(None), (1, 1)), ([0, 0], None)], ids=str)
def test_what_is_gathered_twice_gets_both_gradients(index: Any) -> None:
    x = normal(3, 2)
    counts = np.zeros((3, 2))
    np.add.at(counts, index, 1.0)
    leaf = Tensor(x)
    backward(ops.sum(leaf[index]))
    assert counts.max() == 2
    np.testing.assert_array_equal(leaf.grad, counts)
