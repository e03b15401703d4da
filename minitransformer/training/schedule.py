"""The learning rate of an update."""

from __future__ import annotations

from minitransformer.config import TrainingConfig


def learning_rate(step: int, d_model: int, config: TrainingConfig) -> float:
    """Return the learning rate of update ``step``, counted from 1.

    "paper": factor · d_model^−½ · min(step^−½, step · warmup_steps^−3/2).
    "linear": the same up to ``warmup_steps``; then it falls linearly, to 0 after ``max_updates``.
    Source: Vaswani et al. 2017, section 5.3, equation 3.
    """
    if step < 1:
        raise ValueError(f"learning_rate: steps count from 1, got {step}")
    warmup_steps, scale = config.warmup_steps, config.learning_rate_factor * d_model**-0.5
    rising = step * warmup_steps**-1.5
    if config.schedule == "paper" or step <= warmup_steps:
        return float(scale * min(step**-0.5, rising))
    left = (config.max_updates + 1 - step) / (config.max_updates + 1 - warmup_steps)
    return float(scale * warmup_steps**-0.5 * max(0.0, left))
