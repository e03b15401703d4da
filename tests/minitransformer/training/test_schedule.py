"""The learning rate: the paper's against its equation 3, worked out to 50 digits, and the linear one."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.config import TrainingConfig
from minitransformer.training import update as schedule

FEW_ROUNDINGS = 10 * Decimal(2) ** -53  # of two or three powers, each within two units, and of their products


def learning_rate(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """That of the paper's schedule."""
    return schedule.learning_rate(step, d_model, TrainingConfig(warmup_steps=warmup_steps, learning_rate_factor=factor))


def linear(step: int, *, warmup_steps: int = 4, max_updates: int = 12) -> float:
    """The linear schedule of a model of width 64, whose greatest rate after four updates of warm-up is 1/16."""
    config = TrainingConfig(schedule="linear", warmup_steps=warmup_steps, max_updates=max_updates)
    return schedule.learning_rate(step, 64, config)


def base_rate(step: int) -> float:
    return learning_rate(step, d_model=512, warmup_steps=4_000)


def paper_rate(step: int, *, d_model: int = 512, warmup_steps: int = 4_000) -> Decimal:
    """d_model^−0.5 · min(step_num^−0.5, step_num · warmup_steps^−1.5), to 50 digits."""
    with localcontext(prec=50):
        step_num, half = Decimal(step), Decimal("0.5")
        return Decimal(d_model) ** -half * min(step_num**-half, step_num * Decimal(warmup_steps) ** (-3 * half))


def digits(rate: Decimal) -> str:
    """The first 17, which tell every float64 from its neighbours."""
    return f"{rate:.16e}"


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
    assert digits(paper_rate(step)) == expected
    assert relative_error(base_rate(step), paper_rate(step)) < FEW_ROUNDINGS


@given(d_model=st.integers(1, 4_096), warmup_steps=st.integers(1, 100_000), step=st.integers(1, 10**7))
def test_the_learning_rate_is_the_papers_at_all_steps_of_all_models(d_model: int, warmup_steps: int, step: int) -> None:
    got = learning_rate(step, d_model=d_model, warmup_steps=warmup_steps)
    assert relative_error(got, paper_rate(step, d_model=d_model, warmup_steps=warmup_steps)) < FEW_ROUNDINGS


@given(warmup_steps=st.integers(2, 10_000), step=st.integers(1, 200_000))
def test_it_rises_during_warm_up_and_falls_afterwards(warmup_steps: int, step: int) -> None:
    now, then = (learning_rate(s, d_model=64, warmup_steps=warmup_steps) for s in (step, step + 1))
    assert (now < then) == (step < warmup_steps)


def test_the_factor_scales_and_width_divides_by_its_root() -> None:
    assert learning_rate(7, d_model=512, warmup_steps=4_000, factor=2.5) == pytest.approx(2.5 * base_rate(7))
    assert learning_rate(7, d_model=2_048, warmup_steps=4_000) == pytest.approx(base_rate(7) / 2)


@pytest.mark.parametrize("step", [0, -1])
def test_steps_count_from_one(step: int) -> None:
    with pytest.raises(ValueError, match=f"steps count from 1, got {step}"):
        base_rate(step)


def test_the_linear_schedule_rises_and_falls_by_equal_steps() -> None:
    rising = [1 / 64, 2 / 64, 3 / 64, 4 / 64]
    falling = [n / 9 / 16 for n in range(8, 0, -1)]
    assert [linear(step) for step in range(1, 13)] == pytest.approx(rising + falling)
    assert [linear(step) for step in (13, 14, 100)] == [0, 0, 0]


def test_the_linear_schedule_of_a_training_that_ends_within_warm_up_only_rises() -> None:
    assert [linear(step, max_updates=3) for step in (1, 2, 3)] == pytest.approx([1 / 64, 2 / 64, 3 / 64])
