"""Check gradients against central differences, for any operation, layer or model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autograd.array import Array
from autograd.tensor import Backward, Gradient, Tensor, backward, no_tape, nodes_in_order

STEP = 1e-5
RELATIVE_TOLERANCE = 1e-7  # of the change of the results
NOISE = 1e-13  # relative error of results, or of terms that cancelled in them: some hundred roundings in float64
CANCELLED = 0.1  # results may be small differences of numbers about 1: a loss near 0 is log(1 + …)
CURVATURE = 1e-4  # relative difference allowed between slopes of h and h/2: extrapolation leaves its square


class GradientError(AssertionError):
    """An error: a gradient differs from the central difference, or a number is not finite."""


def check_gradients(
    function: Callable[..., Tensor],
    *inputs: Any,
    leaves: Mapping[str, Tensor] | None = None,
    name: str | None = None,
    step: float = STEP,
    max_coordinates: int = 60,
    seed: int = 0,
) -> None:
    """Check the gradients of a function by central differences, in float64; return if all agree.

    Check ⟨ds/dx, u⟩ = (s(x + h u) − s(x − h u)) / 2h for s = ⟨w, function(*inputs)⟩ with random weights w.
    For every leaf x, u is first a random direction, then a single coordinate at a time.  A small array is checked at
    every coordinate, a larger one at a random choice.  If the random direction fails, bisection finds a wrong
    coordinate.
    ``function`` must be pure: it must draw the same dropout mask in every call.  A backward function must not change
    ``dy`` in place: here dy is read-only, so NumPy raises ValueError where it is changed.

    Args:
        function: takes the inputs, returns a tensor of any shape; its tape leads to the leaves.
        inputs: floating-point arrays, which must be float64, become leaves; everything else (integer ids, strings …)
            is passed unchanged.
        leaves: further tensors that ``function`` depends on, by name, such as parameters of a layer.
        name: the name of ``function`` in errors.
        step: h.  Choose a smaller step if the function varies on a small scale (layer norm of tiny numbers).  Choose a
            larger step if arguments are rounded coarsely (huge numbers).  For a linear function any step is exact; if
            the function is too curved, h is halved up to eight times.
        max_coordinates: check every coordinate of arrays up to this size, and a quarter as many of larger arrays.
        seed: the seed of the weights w, the directions and the choice of coordinates.

    Raises: GradientError naming function, argument, coordinate and both numbers, or the number that is not finite;
        TypeError if a leaf is not float64; ValueError if there is no leaf, or ``step`` is lost in rounding x.
    """
    name = name or _name_of(function)
    arguments = [Tensor(x.copy()) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in inputs]
    checked = _tensors_by_name(function, arguments) | dict(leaves or {})
    _require_float64(name, checked)
    for leaf in checked.values():  # a leaf that the result does not depend on would keep an old gradient
        if leaf.grad is not None:
            leaf.grad[...] = 0

    def value_at(leaf: Tensor, x: Array) -> Array:
        leaf.value[...] = x
        with no_tape():
            return _require_finite(
                np.array(function(*arguments).value), f"{name}: the value within a step of the given inputs"
            )

    random = np.random.default_rng(seed)
    result = function(*arguments)
    _require_finite(result.value, f"{name}: the value at the given inputs")
    weight = _random_direction(result.shape, random)
    _pass_read_only_gradients(result)
    backward(result, weight)
    for leaf_name, leaf in checked.items():
        slope = _Slope(f"{name}: gradient of {leaf_name}", value_at, weight, leaf, step)
        _raise_the_worst(slope, max_coordinates, random)


def _pass_read_only_gradients(result: Tensor) -> None:
    """Let the backward functions of the tape receive read-only gradients."""
    for node in nodes_in_order(result.node) if result.node else []:
        node.backward = functools.partial(_backward_of_read_only, node.unconsumed())


def _backward_of_read_only(node_backward: Backward, dy: Array) -> Sequence[Gradient | None]:
    if isinstance(dy, np.ndarray):  # the node of a joint kernel receives a number
        dy = dy.view()
        dy.flags.writeable = False
    return node_backward(dy)


class _Probe(NamedTuple):
    """The slopes along one direction, by backward and by central difference, and their allowed difference."""

    got: float
    expected: float
    allowed: float

    @property
    def excess(self) -> float:
        return abs(self.got - self.expected) - self.allowed


@dataclass(frozen=True)
class _Slope:
    """The derivative of s = ⟨weight, function⟩ along directions in one leaf, by gradient and by differences."""

    name: str
    value_at: Callable[[Tensor, Array], Array]
    weight: Array
    leaf: Tensor
    step: float

    def along(self, direction: Array) -> _Probe:
        """Return the slopes along ``direction``: by the backward pass, and by a central difference.

        If the function is curved (h and h/2 disagree), halve h and extrapolate.
        """
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
        """Return both slopes along ``direction``, with one step size.

        Results are subtracted before they are summed, so that results that do not change add no rounding error.
        """
        x = self.leaf.value.copy()
        ends = x + step * direction, x - step * direction
        taken = (ends[0] - ends[1]) / (2 * step)  # the direction after rounding in float64
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
        return _require_finite(gradient, self.name)


def _raise_the_worst(slope: _Slope, max_coordinates: int, random: np.random.Generator) -> None:
    """Raise GradientError for the most wrong coordinate, or for the random direction if no coordinate is wrong."""
    along = slope.along(direction := _random_direction(slope.leaf.shape, random))
    size, few = direction.size, max_coordinates // 4
    coordinates: Any = range(size) if size <= max_coordinates else random.choice(size, few, replace=False)
    if along.excess > 0 and len(coordinates) < size:
        coordinates = [*coordinates, _bisect(slope, direction)]
    at = {i: slope.along(_only(np.ones(direction.shape), i)) for i in coordinates}
    wrong = {_coordinate(i, direction.shape): probe for i, probe in at.items() if probe.excess > 0}
    index, worst = max(wrong.items(), key=lambda item: item[1].excess, default=("along a random direction", along))
    if worst.excess > 0:
        got = "None" if slope.leaf.grad is None else f"{worst.got:.12g}"
        numbers = f"backward gives {got}, central difference {worst.expected:.12g} (±{worst.allowed:.1g})"
        raise GradientError(f"{slope.name} {index}: {numbers}")


def _bisect(slope: _Slope, direction: Array) -> int:
    """Find a wrong coordinate of a wrong direction: halve the direction repeatedly; keep the half with more error."""
    coordinates = np.arange(direction.size)
    while len(coordinates) > 1:
        coordinates = max(np.array_split(coordinates, 2), key=lambda half: slope.along(_only(direction, half)).excess)
    return int(coordinates[0])


def _only(direction: Array, coordinates: Any) -> Array:
    """Return ``direction`` with 0 everywhere but at ``coordinates``, which are counted row by row."""
    return np.where(np.isin(np.arange(direction.size).reshape(direction.shape), coordinates), direction, 0)


def _coordinate(coordinate: int, shape: tuple[int, ...]) -> str:
    return f"at {tuple(map(int, np.unravel_index(coordinate, shape)))}"


def _random_direction(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Draw magnitudes between 1 and 2, so that every coordinate counts and no two cancel exactly."""
    return np.asarray(random.uniform(1, 2, shape) * random.choice([-1, 1], shape))


def _name_of(function: Any) -> str:
    function = getattr(function, "func", function)  # of a functools.partial
    return str(getattr(function, "__qualname__", type(function).__name__))


def _tensors_by_name(function: Callable[..., Any], arguments: list[Any]) -> dict[str, Tensor]:
    """Return the tensors among the arguments by name: "argument 1 (weight)", or "argument 1" if it has no name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a C function may have no signature
        parameters = []
    known = [f" ({parameter.name})" for parameter in parameters if parameter.kind <= parameter.POSITIONAL_OR_KEYWORD]
    names = [f"argument {i}{name}" for i, name in enumerate(known + [""] * len(arguments))]
    return {name: x for name, x in zip(names, arguments, strict=False) if isinstance(x, Tensor)}


def _require_finite(x: Array, what: str) -> Array:
    for index in np.argwhere(~np.isfinite(x))[:1].tolist():
        raise GradientError(f"{what} is not finite: {x[tuple(index)]} at {tuple(index)}")
    return x


def _require_float64(name: str, leaves: Mapping[str, Tensor]) -> None:
    if not leaves:
        raise ValueError(f"check_gradients: {name} has no float64 argument and no leaves to check")
    for leaf_name, leaf in leaves.items():
        if leaf.dtype != np.float64:
            raise TypeError(f"check_gradients: {name}: {leaf_name} must be float64, got {leaf.dtype}")
