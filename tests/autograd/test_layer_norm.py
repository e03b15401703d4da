"""Layer normalisation: rejected shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import ShapeError, ops


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.layer_norm(np.ones((2, 3)), np.ones(1), np.ones(3)), r"layer_norm: expected .* gain \(1,\), bias"),
        (lambda: ops.layer_norm(np.ones((2, 3)), np.ones(3), np.ones((2, 3))), r"layer_norm: .* bias \(2, 3\)"),
        (lambda: ops.layer_norm(np.ones(()), np.ones(()), np.ones(())), r"layer_norm: expected x .*got x \(\)"),
    ],
)
def test_shape_errors_name_expected_and_given_shapes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()
