"""Gradients against central differences, for any operation, layer or model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from autograd.tensor import Tensor, backward, no_tape

STEP = 1e-5
RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-8  # times the size of the result: what rounding leaves of a difference over 2 · STEP
MAX_COORDINATES = 60


class GradientError(AssertionError):
    """A gradient differs from the central difference."""


def check_gradients(
    function: Callable[..., Tensor],
    *inputs: Any,
    leaves: Mapping[str, Tensor] | None = None,
    name: str | None = None,
    seed: int = 0,
) -> None:
    """Check every gradient of ``function(*inputs)`` against central differences in float64.

    The result, of any shape, is contracted with a random array to one number s.  For every leaf x: ⟨ds/dx, u⟩ for a
    random direction u must equal (s(x + h u) − s(x − h u)) / 2h; then single coordinates, all of them on small arrays
    and a random choice on larger ones.  ``function`` must be pure: draw the same dropout mask in every call.

    Args:
        function: takes the inputs, returns a tensor; its tape leads to the leaves.
        inputs: float64 arrays become leaves; everything else (integer ids, strings …) is passed as it is.
        leaves: further tensors that ``function`` depends on, by name: parameters of a layer.
        name: what to call ``function`` in an error.
    Raises:
        GradientError naming function, argument, coordinate and both numbers.
        TypeError if a leaf is not float64, ValueError if there is none.
    """
    name = name or str(getattr(function, "__name__", "function"))
    arguments = [Tensor(x.copy()) if _is_float_array(x) else x for x in inputs]
    checked = {f"argument {i}": x for i, x in enumerate(arguments) if isinstance(x, Tensor)} | dict(leaves or {})
    _require_float64(name, checked)
    random = np.random.default_rng(seed)
    for leaf in checked.values():  # one that the result does not depend on would keep an old gradient
        if leaf.grad is not None:
            leaf.grad[...] = 0
    first = function(*arguments)
    weight = random.standard_normal(first.shape)

    def contracted() -> float:
        with no_tape():
            return float((function(*arguments).value * weight).sum())

    backward(first, weight)
    size = float(np.abs(first.value * weight).sum())
    for leaf_name, leaf in checked.items():
        gradient = np.zeros(leaf.shape) if leaf.grad is None else np.array(leaf.grad)
        if gradient.shape != leaf.shape:
            raise GradientError(f"{name}: gradient of {leaf_name} has shape {gradient.shape}, expected {leaf.shape}")
        for place, direction in _directions(leaf.shape, random):
            expected = _central_difference(contracted, leaf, direction)
            _compare(f"{name}: gradient of {leaf_name} {place}", float((gradient * direction).sum()), expected, size)


def _is_float_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.floating)


def _require_float64(name: str, leaves: Mapping[str, Tensor]) -> None:
    if not leaves:
        raise ValueError(f"check_gradients: {name} has no float64 argument and no leaves to check")
    for leaf_name, leaf in leaves.items():
        if leaf.dtype != np.float64:
            raise TypeError(f"check_gradients: {name}: {leaf_name} must be float64, got {leaf.dtype}")


def _directions(shape: tuple[int, ...], random: np.random.Generator) -> Iterator[tuple[str, Any]]:
    yield "along a random direction", random.standard_normal(shape)
    coordinates = list(itertools.product(*map(range, shape)))
    if len(coordinates) > MAX_COORDINATES:
        chosen = random.choice(len(coordinates), MAX_COORDINATES // 4, replace=False)
        coordinates = [coordinates[i] for i in chosen]
    for coordinate in coordinates:
        direction = np.zeros(shape)
        direction[coordinate] = 1
        yield f"at {coordinate}", direction


def _central_difference(value: Callable[[], float], leaf: Tensor, direction: Any) -> float:
    original = leaf.value.copy()
    leaf.value[...] = original + STEP * direction
    above = value()
    leaf.value[...] = original - STEP * direction
    below = value()
    leaf.value[...] = original
    return (above - below) / (2 * STEP)


def _compare(what: str, got: float, expected: float, size: float) -> None:
    allowed = RELATIVE_TOLERANCE * max(abs(got), abs(expected)) + ABSOLUTE_TOLERANCE * max(1.0, size)
    if not abs(got - expected) <= allowed:
        raise GradientError(f"{what}: backward gives {got:.12g}, central difference {expected:.12g} (±{allowed:.1g})")
