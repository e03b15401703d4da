"""CUDA kernels without a GPU: the verdict on an update, and Adam as it says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import near

from autograd.judged import N_NUMBERS, N_VERDICTS, judge, judged_adam_update
from autograd.kernels.cuda import judgement
from autograd.optim import adam_update

pytestmark = pytest.mark.usefixtures("launch")
NUMBERS = np.array([1 / 37, 0.01, 0.1], np.float32)
STATIC = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
BOTH = (judgement.judge_in_two_launches, judge.reference)


def verdict_of(run: Any, gradients: Any, loss: float, max_norm: float) -> Any:
    verdict = np.full(N_VERDICTS, np.nan)
    run(gradients, np.array(loss), NUMBERS, verdict, max_norm=max_norm)
    return verdict


@pytest.mark.parametrize("run", BOTH)
@pytest.mark.parametrize("max_norm", [1e-3, 1e3, math.inf])
@pytest.mark.parametrize("size", [0, 1, 255, 1000])
def test_a_verdict_is_loss_norm_and_factor(size: int, max_norm: float, run: Any) -> None:
    gradients = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    norm = np.linalg.norm(gradients.astype(float)) / 37
    verdict = verdict_of(run, gradients, 3.5, max_norm)
    np.testing.assert_allclose(verdict, [3.5, norm, min(1, max_norm / max(norm, 1e-30)) / 37], rtol=1e-6)


def test_a_verdict_of_more_blocks_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgement, "MOST_BLOCKS", 3)
    gradients = np.random.default_rng(1).standard_normal(2000).astype(np.float32)
    near(verdict_of(BOTH[0], gradients, 0, 1.0), verdict_of(BOTH[1], gradients, 0, 1.0), 1e-6)


@pytest.mark.parametrize("run", BOTH)
@pytest.mark.parametrize("loss", [1.0, math.nan, math.inf])
@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("max_norm", [0.5, math.inf])
def test_what_is_not_finite_has_no_factor(max_norm: float, value: float, loss: float, run: Any) -> None:
    gradients = np.ones(300, np.float32)
    gradients[170] = value
    with np.errstate(invalid="ignore"):
        verdict = verdict_of(run, gradients, loss, max_norm)
    assert (verdict[2] > 0) == math.isfinite(value + loss)
    assert math.isfinite(verdict[1]) == math.isfinite(value)


def state(size: int) -> list[Any]:
    values, gradients, m, v = np.random.default_rng(size).random((4, size)).astype(np.float32)
    return [values, gradients, m, v]


RUNS = (judgement.judged_adam_update_in_one_pass, judged_adam_update.reference)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("size", [0, 1, 255, 1000])
def test_adam_by_a_scaled_gradient(size: int, run: Any) -> None:
    arrays, verdict = state(size), np.array([0, 0, 0.25])
    expected = [x.astype(float) for x in arrays]
    expected[1] *= 0.25
    adam_update.reference(*expected, step_size=0.01, variance_correction=0.1, **STATIC)
    arrays[1].flags.writeable = False
    run(*arrays, None, NUMBERS, verdict, **STATIC)
    for i in (0, 2, 3):
        near(arrays[i], expected[i], 1e-6)


@pytest.mark.parametrize("run", RUNS)
def test_adam_leaves_all_alone_without_a_factor(run: Any) -> None:
    arrays, verdict = state(300), np.array([np.nan, np.nan, 0])
    arrays[1][7] = np.nan
    before = [x.tobytes() for x in arrays]
    run(*arrays, None, NUMBERS, verdict, **STATIC)
    assert [x.tobytes() for x in arrays] == before
    assert len(NUMBERS) == N_NUMBERS
