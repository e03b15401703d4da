"""What replaces a kept figure: only a strictly better one."""

from __future__ import annotations

import math

import pytest

from minitransformer.inference.bleu import is_better


@pytest.mark.parametrize(
    ("figure", "kept", "is_greater", "is_lower"),
    [
        (2.0, 1.0, True, False),
        (1.0, 2.0, False, True),
        (1.0, 1.0, False, False),
        (0.0, -0.0, False, False),
        (math.nan, 1.0, False, False),
        (1.0, None, True, True),
        (math.nan, None, False, False),
    ],
)
def test_only_what_is_strictly_better_replaces_what_is_kept(
    figure: float, kept: float | None, is_greater: bool, is_lower: bool
) -> None:
    assert is_better(figure, kept, greatest=True) == is_greater
    assert is_better(figure, kept, greatest=False) == is_lower
