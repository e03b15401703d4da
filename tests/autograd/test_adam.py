"""Adam: the textbook's formula, its kernel, and updates that change nothing."""

import itertools
from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer
from autograd.kernels.cpu.library import library
from autograd.optim import Adam, adam_update, average_update
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


@pytest.mark.parametrize(
    "shards",
    [[(slice(None),)], [(slice(0, 64), slice(128, 192)), (slice(64, 128), slice(192, None))]],
    ids=["one rank", "two ranks, each with two pieces"],
)
def test_adam_is_the_textbooks_whole_or_in_parts(shards: list[tuple[slice, ...]]) -> None:
    random = np.random.default_rng(0)
    buffer = ParameterBuffer(Weights(), seed=1, dtype="float64")
    start, adams = buffer.values.copy(), [Adam(buffer, pieces=pieces) for pieces in shards]
    gradients = [random.standard_normal(buffer.values.shape) for _ in range(5)]
    rates = [0.1, 0.2, 0.05, 0.3, 0.1]
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        buffer.gradients[:] = gradient
        for adam, within in itertools.product(adams, (slice(0, 40), slice(40, None))):
            adam.update(adam.scalars(rate, step), np.float64(1), within)
    assert sum(len(adam.m) for adam in adams) == len(buffer.values)
    np.testing.assert_allclose(buffer.values, textbook_adam(gradients, rates, start), rtol=1e-12, atol=1e-14)


def test_moments_of_an_earlier_training_are_corrected_for_all_updates_that_they_contain() -> None:
    gradients = np.random.default_rng(1).standard_normal((5, len(ParameterBuffer(Weights(), seed=1).values)))
    buffer = ParameterBuffer(Weights(), seed=1, dtype="float64")
    start, first = buffer.values.copy(), Adam(buffer)
    for step in (1, 2, 3):
        buffer.gradients[:] = gradients[step - 1]
        assert first.step(0.1, step) == pytest.approx(np.linalg.norm(gradients[step - 1]))
    second = Adam(buffer)
    second.m[...], second.v[...], second.earlier_updates = first.m, first.v, 3
    for step in (1, 2):
        buffer.gradients[:] = gradients[2 + step]
        second.step(0.1, step)
    np.testing.assert_allclose(buffer.values, textbook_adam(list(gradients), [0.1] * 5, start), rtol=1e-12, atol=1e-14)


STATIC = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
SCALARS = np.array([1, 0.01, 0.3])


def drawn_arrays(size: int) -> Any:
    """Return values, gradients, m and v."""
    arrays = np.random.default_rng(size).standard_normal((4, size), np.float32)
    arrays[3] **= 2
    return arrays


@pytest.mark.parametrize("size", [0, 1, 7, 33, 1_000, 140_001])
def test_adam_kernel_is_at_most_twice_as_inexact_as_its_reference(size: int) -> None:
    fast, slow, exact = drawn_arrays(size), drawn_arrays(size), drawn_arrays(size).astype(np.float64)
    arguments = (*fast, None, SCALARS, np.float64(0.37))
    assert (adam_update.choose(arguments, STATIC) is not adam_update.reference) == bool(library().functions)
    for scale in map(np.float64, (0.37, 1)):
        adam_update(*fast, None, SCALARS, scale, **STATIC)
        adam_update.reference(*slow, None, SCALARS, scale, **STATIC)
        adam_update.reference(*exact, None, SCALARS, scale, **STATIC)
    for found, reference_result, correct in zip(fast, slow, exact, strict=True):
        allowed = 2 * np.abs(reference_result - correct).max(initial=0)
        assert np.abs(found - correct).max(initial=0) <= allowed + np.finfo(np.float32).eps


@pytest.mark.parametrize("cut", [1, 7, 64, 100, 129])
def test_an_update_has_the_same_bits_however_the_buffer_is_divided(cut: int) -> None:
    whole, divided = drawn_arrays(131), drawn_arrays(131)
    adam_update(*whole, None, SCALARS, np.float64(0.37), **STATIC)
    for part in (slice(0, cut), slice(cut, None)):
        adam_update(*(x[part] for x in divided), None, SCALARS, np.float64(0.37), **STATIC)
    assert whole.tobytes() == divided.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("run", [adam_update, adam_update.reference])
def test_adam_changes_nothing_with_a_scale_of_zero(run: Any, dtype: str) -> None:
    arrays = list(np.random.default_rng(1).random((4, 300)).astype(dtype))
    arrays[1][7] = np.nan
    before = [x.tobytes() for x in arrays]
    run(*arrays, None, np.ones(3), np.float64(0), **STATIC)
    assert [x.tobytes() for x in arrays] == before


@pytest.mark.parametrize("run", [average_update, average_update.reference])
@pytest.mark.parametrize("cut", [0, 1, 7, 64, 131])
def test_an_average_moves_by_its_share_in_parts_as_in_whole(run: Any, cut: int) -> None:
    values, start, *_ = drawn_arrays(131)
    whole, divided, share = start.copy(), start.copy(), np.float32(0.1)
    arguments = whole, values, share, np.float64(1)
    assert (average_update.choose(arguments, {}) is not average_update.reference) == bool(library().functions)
    run(*arguments)
    for part in (slice(0, cut), slice(cut, None)):
        run(divided[part], values[part], share, np.float64(0.37))
    assert whole.tobytes() == divided.tobytes()
    np.testing.assert_allclose(whole, start + 0.1 * (values.astype(np.float64) - start), rtol=0, atol=3e-7)
    run(whole, values, share, np.float64(0))
    assert whole.tobytes() == divided.tobytes()
