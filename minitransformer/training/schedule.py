"""The learning rate: Vaswani et al. 2017, section 5.3, equation 3."""

from __future__ import annotations


def learning_rate(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """Return factor · d_model^−½ · min(step^−½, step · warmup_steps^−3/2) for update ``step``, counted from 1."""
    if step < 1:
        raise ValueError(f"learning_rate: steps count from 1, got {step}")
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
