"""Adam: the textbook's formula, its kernel, and updates that change nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer
from autograd.optim import Adam, adam_update
from autograd.parameters import glorot_uniform, scaled_normal


class Weights(Layer):
    """Two parameters, of 210 and 12 numbers."""

    def __init__(self) -> None:
        self.embedding = Parameter((70, 3), scaled_normal)
        self.weight = Parameter((3, 4), glorot_uniform)


def textbook_adam(gradients: list[Any], rates: list[float], theta: Any) -> Any:
    m = v = 0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        theta = theta - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
    return theta


def test_adam_is_the_textbooks_whole_or_in_parts() -> None:
    random = np.random.default_rng(0)
    buffer = ParameterBuffer(Weights(), seed=1, dtype="float64")
    start, adam = buffer.values.copy(), Adam(buffer)
    gradients = [random.standard_normal(buffer.values.shape) for _ in range(5)]
    rates = [0.1, 0.2, 0.05, 0.3, 0.1]
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        buffer.gradients[:] = gradient
        for within in (slice(0, 100), slice(100, None)):
            adam.update(adam.scalars(rate, step), np.float64(1), within)
    np.testing.assert_allclose(buffer.values, textbook_adam(gradients, rates, start), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", [1, 7, 65_536, 140_001])
def test_adam_kernel_equals_its_reference(size: int) -> None:
    random = np.random.default_rng(size)
    arrays = [np.abs(random.standard_normal(size)).astype(np.float32) for _ in range(4)]
    fast, slow = [x.copy() for x in arrays], [x.copy() for x in arrays]
    static, scalars = {"beta1": 0.9, "beta2": 0.98, "eps": 0.1}, np.array([1, 0.01, 0.3])
    for scale in map(np.float64, (0.37, 1)):
        adam_update(*fast, None, scalars, scale, **static)
        adam_update.reference(*slow, None, scalars, scale, **static)
    assert adam_update.choose((*fast, None, scalars, scale), static) is not adam_update.reference
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("run", [adam_update, adam_update.reference])
def test_adam_changes_nothing_with_a_scale_of_zero(run: Any) -> None:
    arrays = list(np.random.default_rng(1).random((4, 300)))
    arrays[1][7] = np.nan
    before = [x.tobytes() for x in arrays]
    run(*arrays, None, np.ones(3), np.float64(0), beta1=0.9, beta2=0.98, eps=1e-9)
    assert [x.tobytes() for x in arrays] == before
