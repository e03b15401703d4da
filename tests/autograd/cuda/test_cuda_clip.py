"""CUDA kernels without a GPU: the norm of the gradient, and the scale of an update."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import near

from autograd import optim
from autograd.kernels.cuda import clip

pytestmark = pytest.mark.usefixtures("launch")
SCALARS = np.array([1 / 37, 0.01, 0.1])
BOTH = ((clip.sum_squares_by_blocks, clip.clip_in_one_block), (optim.sum_squares.reference, optim.clip.reference))


def outcome_of(run: Any, gradients: Any, loss: float, max_norm: float) -> Any:
    sum_squares, clip_by = run
    return clip_by(sum_squares(gradients), np.array(loss), SCALARS, max_norm=max_norm)


@pytest.mark.parametrize("run", BOTH)
@pytest.mark.parametrize("max_norm", [1e-3, 1e3, math.inf])
@pytest.mark.parametrize("size", [0, 1, 255, 1000])
def test_an_outcome_is_loss_norm_and_scale(size: int, max_norm: float, run: Any) -> None:
    gradients = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    norm = np.linalg.norm(gradients.astype(float)) / 37
    outcome = outcome_of(run, gradients, 3.5, max_norm)
    np.testing.assert_allclose(outcome, [3.5, norm, min(1, max_norm / max(norm, 1e-30)) / 37], rtol=1e-6)


def test_a_norm_of_more_blocks_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip, "MOST_BLOCKS", 3)
    gradients = np.random.default_rng(1).standard_normal(2000).astype(np.float32)
    near(outcome_of(BOTH[0], gradients, 0, 1.0), outcome_of(BOTH[1], gradients, 0, 1.0), 1e-6)


@pytest.mark.parametrize("run", BOTH)
@pytest.mark.parametrize("loss", [1.0, math.nan, math.inf])
@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("max_norm", [0.5, math.inf])
def test_numbers_that_are_not_finite_have_a_scale_of_zero(max_norm: float, value: float, loss: float, run: Any) -> None:
    gradients = np.ones(300, np.float32)
    gradients[170] = value
    outcome = outcome_of(run, gradients, loss, max_norm)
    assert (outcome[2] > 0) == math.isfinite(value + loss)
    assert math.isfinite(outcome[1]) == math.isfinite(value)
