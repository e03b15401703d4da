"""Dropout, residual connection and layer normalisation in one operation."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import normal
from op_cases import STREAM_ID

from autograd import ops


def test_add_norm_drops_only_with_a_rate_and_a_stream_id() -> None:
    x, y, parameters = normal(4, 30), normal(4, 30, seed=1), (np.ones(30), np.zeros(30))
    expected = ops.layer_norm(x + y, *parameters).value
    undropped: list[dict[str, Any]] = [{}, {"rate": 0.5}, {"stream_id": STREAM_ID}]
    for static in undropped:
        np.testing.assert_array_equal(ops.add_norm(x, y, *parameters, **static).value, expected)
    assert (ops.add_norm(x, y, *parameters, rate=0.5, stream_id=STREAM_ID).value != expected).any()
