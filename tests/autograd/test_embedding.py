"""Embedding: tables of any rank."""

from __future__ import annotations

import numpy as np
import pytest
from draws import normal

from autograd import ops
from autograd.testing import check_gradients


@pytest.mark.parametrize("shape", [(4,), (4, 2, 3)], ids=str)
def test_tables_of_any_number_of_axes_are_looked_up(shape: tuple[int, ...]) -> None:
    check_gradients(lambda table: ops.embedding(table, np.array([2, 0, 2])), normal(*shape))
