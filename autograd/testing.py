"""Gradients against central differences, for any operation, layer or model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autograd.array import Array
from autograd.tensor import Tensor, backward, no_tape

STEP = 1e-5
RELATIVE_TOLERANCE = 1e-7  # of what the results move
NOISE = 1e-13  # of the results, or of what cancelled in them: some hundred roundings in float64
CANCELLED = 0.1  # results may be small differences of numbers about 1: a loss near 0 is log(1 + …)
CURVATURE = 1e-4  # of the difference at h, by which that at h/2 may differ: extrapolated, the square of it is left


class GradientError(AssertionError):
    """A gradient differs from the central difference, or there is none because something is not finite."""


def check_gradients(
    function: Callable[..., Tensor],
    *inputs: Any,
    leaves: Mapping[str, Tensor] | None = None,
    name: str | None = None,
    step: float = STEP,
    max_coordinates: int = 60,
    seed: int = 0,
) -> None:
    """⟨ds/dx, u⟩ = (s(x + h u) − s(x − h u)) / 2h for s = ⟨w, function(*inputs)⟩, in float64.

    For every leaf x the direction u is first a random one, then single coordinates: all of them on small arrays, a
    random choice on larger ones.  Where the random direction fails, the coordinate at fault is searched for.
    ``function`` must be pure: draw the same dropout mask in every call.

    Args:
        function: takes the inputs, returns a tensor of any shape; its tape leads to the leaves.
        inputs: arrays of floating-point numbers, which must be float64, become leaves; everything else (integer ids,
            strings …) is passed as it is.
        leaves: further tensors that ``function`` depends on, by name: parameters of a layer.
        name: what to call ``function`` in an error.
        step: h, small against the scale on which the function varies (layer norm of tiny numbers: smaller) and large
            against the rounding of its arguments (huge ones: larger).  Where the function is linear any step is exact;
            where it proves too curved, h is halved a few times.
        max_coordinates: arrays of up to so many coordinates are checked at each, larger ones at a quarter as many.
        seed: of the weights w, the directions and the choice of coordinates.

    Raises:
        GradientError naming function, argument, coordinate and both numbers, or where something is not finite.
        TypeError if a leaf is not float64; ValueError if there is none, or ``step`` is lost in rounding x.
    """
    name = name or _name_of(function)
    arguments = [Tensor(x.copy()) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in inputs]
    checked = _tensors_by_name(function, arguments) | dict(leaves or {})
    _require_float64(name, checked)
    for leaf in checked.values():  # one that the result does not depend on would keep an old gradient
        if leaf.grad is not None:
            leaf.grad[...] = 0

    def value_at(leaf: Tensor, x: Array) -> Array:
        leaf.value[...] = x
        with no_tape():
            return _finite(np.array(function(*arguments).value), f"{name}: the value within a step of the given inputs")

    random = np.random.default_rng(seed)
    result = function(*arguments)
    _finite(result.value, f"{name}: the value at the given inputs")
    weight = _random_direction(result.shape, random)
    backward(result, weight)
    for leaf_name, leaf in checked.items():
        slope = _Slope(f"{name}: gradient of {leaf_name}", value_at, weight, leaf, step)
        _raise_the_worst(slope, max_coordinates, random)


class _Probe(NamedTuple):
    """Both numbers along one direction, and by how much they may differ."""

    got: float
    expected: float
    allowed: float

    @property
    def excess(self) -> float:
        return abs(self.got - self.expected) - self.allowed


@dataclass(frozen=True)
class _Slope:
    """The derivative of s = ⟨weight, function⟩ along directions in one leaf, by its gradient and by differences."""

    name: str
    value_at: Callable[[Tensor, Array], Array]
    weight: Array
    leaf: Tensor
    step: float

    def along(self, direction: Array) -> _Probe:
        """Where differences at h and h/2 differ, it is the function that is curved: a smaller h, and extrapolation."""
        coarse = self._probe(direction, self.step)
        if coarse.excess <= 0:
            return coarse
        for halvings in range(1, 9):
            fine = self._probe(direction, self.step / 2**halvings)
            if abs(coarse.expected - fine.expected) <= CURVATURE * abs(fine.expected) + fine.allowed:
                break
            coarse = fine
        got, expected = (4 * fine.got - coarse.got) / 3, (4 * fine.expected - coarse.expected) / 3  # Richardson's
        return _Probe(got, expected, (4 * fine.allowed + coarse.allowed) / 3)

    def _probe(self, direction: Array, step: float) -> _Probe:
        """Results are subtracted before they are summed, so that only those that move leave a rounding error."""
        x = self.leaf.value.copy()
        ends = x + step * direction, x - step * direction
        taken = (ends[0] - ends[1]) / (2 * step)  # the direction as float64 has rounded it
        if (abs(taken - direction) > 0.1 * abs(direction)).any():
            raise ValueError(f"check_gradients: {self.name}: step {step} is lost in rounding; choose a larger one")
        try:
            above, below = (self.value_at(self.leaf, end) for end in ends)
        finally:
            self.leaf.value[...] = x
        differences = self.weight * (above - below) / (2 * step)
        size = max(CANCELLED, float(abs(self.weight * above).sum()))
        allowed = RELATIVE_TOLERANCE * float(abs(differences).sum()) + NOISE * size / step
        return _Probe(float((self.gradient * taken).sum()), float(differences.sum()), allowed)

    @functools.cached_property
    def gradient(self) -> Array:
        gradient = np.zeros(self.leaf.shape) if self.leaf.grad is None else self.leaf.grad
        if gradient.shape != self.leaf.shape:
            raise GradientError(f"{self.name} has shape {gradient.shape}, expected {self.leaf.shape}")
        return _finite(gradient, self.name)


def _raise_the_worst(slope: _Slope, max_coordinates: int, random: np.random.Generator) -> None:
    """GradientError for the coordinate that is most wrong; for the direction only where no coordinate is."""
    along = slope.along(direction := _random_direction(slope.leaf.shape, random))
    size, few = direction.size, max_coordinates // 4
    coordinates: Any = range(size) if size <= max_coordinates else random.choice(size, few, replace=False)
    if along.excess > 0 and len(coordinates) < size:
        coordinates = [*coordinates, _bisect(slope, direction)]
    at = {i: slope.along(_only(np.ones(direction.shape), i)) for i in coordinates}
    wrong = {_place(i, direction.shape): probe for i, probe in at.items() if probe.excess > 0}
    place, worst = max(wrong.items(), key=lambda item: item[1].excess, default=("along a random direction", along))
    if worst.excess > 0:
        got = "None" if slope.leaf.grad is None else f"{worst.got:.12g}"
        numbers = f"backward gives {got}, central difference {worst.expected:.12g} (±{worst.allowed:.1g})"
        raise GradientError(f"{slope.name} {place}: {numbers}")


def _bisect(slope: _Slope, direction: Array) -> int:
    """The coordinate to which halving a wrong direction leads, always into the half that is more wrong."""
    places = np.arange(direction.size)
    while len(places) > 1:
        places = max(np.array_split(places, 2), key=lambda half: slope.along(_only(direction, half)).excess)
    return int(places[0])


def _only(direction: Array, places: Any) -> Array:
    """The direction in these coordinates, counted row by row, and 0 in all others."""
    return np.where(np.isin(np.arange(direction.size).reshape(direction.shape), places), direction, 0)


def _place(coordinate: int, shape: tuple[int, ...]) -> str:
    return f"at {tuple(map(int, np.unravel_index(coordinate, shape)))}"


def _random_direction(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Magnitudes between 1 and 2, so that no coordinate is nearly left out and no two cancel exactly."""
    return np.asarray(random.uniform(1, 2, shape) * random.choice([-1, 1], shape))


def _name_of(function: Any) -> str:
    function = getattr(function, "func", function)  # of a functools.partial
    return str(getattr(function, "__qualname__", type(function).__name__))


def _tensors_by_name(function: Callable[..., Any], arguments: list[Any]) -> dict[str, Tensor]:
    """The tensors among the arguments: "argument 1 (weight)", or "argument 1" where there is no name to learn."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a function of C need not have one
        parameters = []
    known = [f" ({parameter.name})" for parameter in parameters if parameter.kind <= parameter.POSITIONAL_OR_KEYWORD]
    names = [f"argument {i}{name}" for i, name in enumerate(known + [""] * len(arguments))]
    return {name: x for name, x in zip(names, arguments, strict=False) if isinstance(x, Tensor)}


def _finite(x: Array, what: str) -> Array:
    for place in np.argwhere(~np.isfinite(x))[:1].tolist():
        raise GradientError(f"{what} is not finite: {x[tuple(place)]} at {tuple(place)}")
    return x


def _require_float64(name: str, leaves: Mapping[str, Tensor]) -> None:
    if not leaves:
        raise ValueError(f"check_gradients: {name} has no float64 argument and no leaves to check")
    for leaf_name, leaf in leaves.items():
        if leaf.dtype != np.float64:
            raise TypeError(f"check_gradients: {name}: {leaf_name} must be float64, got {leaf.dtype}")
