"""The learning rate: the paper's against its equation 3, worked out to 50 digits, and others."""

import math
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.config import ConfigError, TrainingConfig
from minitransformer.training import update as schedule
from minitransformer.training.run import train
from tests.support.training import run_of

FEW_ROUNDINGS = 10 * Decimal(2) ** -53  # of two or three powers, each within two units, and of their products


def learning_rate(step: int, d_model: int = 512, **settings: Any) -> float:
    """That of the paper's schedule."""
    return schedule.learning_rate(step, d_model, TrainingConfig(**settings))


def after_warm_up(step: int, name: str, *, max_updates: int = 12) -> float:
    """The rate of a model of width 64; the greatest one, after four updates of warm-up, is 1/16."""
    return schedule.learning_rate(step, 64, TrainingConfig(schedule=name, warmup_steps=4, max_updates=max_updates))


def halving(step: int, training: TrainingConfig) -> float:
    return training.learning_rate_factor / 2**step


def negative(step: int, training: TrainingConfig) -> float:
    return -1.0


def several(step: int, training: TrainingConfig) -> Any:
    return np.full(2, 1e-3)


def paper_rate(step: int, d_model: int = 512, warmup_steps: int = 4_000) -> Decimal:
    """d_model^−0.5 · min(step_num^−0.5, step_num · warmup_steps^−1.5), to 50 digits."""
    with localcontext(prec=50):
        step_num, half = Decimal(step), Decimal("0.5")
        return Decimal(d_model) ** -half * min(step_num**-half, step_num * Decimal(warmup_steps) ** (-3 * half))


def relative_error(got: float, exact: Decimal) -> Decimal:
    with localcontext(prec=50):
        return abs(Decimal(got) / exact - 1)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, "1.7469281074217107e-7"),
        (3_999, "6.9859655015794211e-4"),
        (4_000, "6.9877124296868428e-4"),
        (4_001, "6.9868391293735298e-4"),
        (100_000, "1.3975424859373686e-4"),
    ],
)
def test_the_base_models_learning_rate(step: int, expected: str) -> None:
    """The 17 digits tell every float64 from its neighbours."""
    assert f"{paper_rate(step):.16e}" == expected
    assert relative_error(learning_rate(step), paper_rate(step)) < FEW_ROUNDINGS


@given(d_model=st.integers(1, 4_096), warmup_steps=st.integers(1, 100_000), step=st.integers(1, 10**7))
def test_the_learning_rate_is_the_papers_at_all_steps_of_all_models(d_model: int, warmup_steps: int, step: int) -> None:
    got = learning_rate(step, d_model, warmup_steps=warmup_steps)
    assert relative_error(got, paper_rate(step, d_model, warmup_steps)) < FEW_ROUNDINGS


def test_the_factor_scales_and_steps_count_from_one() -> None:
    assert learning_rate(7, learning_rate_factor=2.5) == pytest.approx(2.5 * learning_rate(7))
    with pytest.raises(ValueError, match="steps count from 1, got 0"):
        learning_rate(0)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("linear", [n / 9 for n in range(8, 0, -1)]),
        ("cosine", [(1 + math.cos(math.pi * n / 9)) / 2 for n in range(1, 9)]),
        ("constant", [1.0] * 8),
    ],
)
def test_other_schedules_rise_alike_and_then_have_their_shape(name: str, shares: list[float]) -> None:
    rising, after = [1 / 64, 2 / 64, 3 / 64, 4 / 64], [share / 16 for share in shares]
    assert [after_warm_up(step, name) for step in range(1, 13)] == pytest.approx(rising + after)
    assert [after_warm_up(step, name, max_updates=3) for step in (1, 2, 3)] == pytest.approx(rising[:3])
    end = 1 / 16 if name == "constant" else 0
    assert [after_warm_up(step, name) for step in (13, 14, 100)] == [end] * 3


def test_a_schedule_of_ones_own_is_a_function_by_name() -> None:
    config = TrainingConfig(schedule=f"{__name__}:halving", learning_rate_factor=3.0)
    assert [schedule.learning_rate(step, 64, config) for step in (1, 2)] == [1.5, 0.75]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("cosinus", "training.schedule must be one of paper, linear, cosine, constant, or package.module:function"),
        ("no_such_module:f", r"training.schedule: .* cannot be imported \(ModuleNotFoundError: .*in PYTHONPATH"),
        (f"{__name__}:negative", "training.schedule must be a function that returns a rate for update 1; got -1.0"),
        (f"{__name__}:several", r"must be a function that returns a rate for update 1; got array\(\[0.001, 0.001\]\)"),
    ],
)
def test_a_schedule_that_is_none_is_refused_before_text_is_prepared(name: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        train(run_of(tmp_path, schedule=name), callbacks=[])
    assert not (tmp_path / "run" / "data").exists()
