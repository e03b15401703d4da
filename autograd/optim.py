"""The norm of the gradient, clipping, and optimizers, all on the flat buffers and on the device that holds them.

Only ``Optimizer.step`` and ``gradient_norm`` wait for the device.  Values that change with each update are arrays, not
Python numbers, so a CUDA graph can be captured once and launched for every update.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from autograd.array import Array, namespace, to_host
from autograd.blas import product
from autograd.op import Dispatch
from autograd.parameters import ALIGNMENT, ParameterBuffer

N_SCALARS = 3  # per update: see ``Optimizer.scalars``
AVERAGE = "ema"  # the name of the moving average among the arrays of an optimizer's state


class Optimizer:
    """A rule that updates all parameters, or this rank's shard of them: θ ← θ − α (d + λ θ), where d is a direction.

    A derived class names its arrays of state in ``arrays``, and computes d from the mean gradient in ``direction``.
    The direction of a number may depend on this number's gradients alone, so that ranks and threads can share the work.
    A class that needs whole matrices also overrides ``transform``.

    Args:
        buffer: the parameters, such as ``model.parameters``.
        beta1: β₁, for ``direction``.
        beta2: β₂.
        eps: ε.
        pieces: the slices of the flat buffer to update; other ranks update the rest.  The arrays of state have the
            numbers of these slices, one slice after the other.

    If the arrays are set to the state of another training, set ``earlier_updates`` to the number of updates of that
    training.  ``t`` counts these updates, too, so that corrections of bias fit the state.
    Raises: TypeError if ``buffer`` is no ParameterBuffer; ValueError unless 0 ≤ β₁, β₂ < 1 and ε > 0.
    """

    arrays: ClassVar[tuple[str, ...]] = ()
    """Names of the arrays of state, such as "m": attributes that begin as zeros, and that checkpoints save."""
    weight_decay: ClassVar[float] = 0.0
    """λ: how strongly each update draws the parameters to 0."""
    ema: Array | None = None
    """The moving average of the parameters, if ``begin_average`` has begun one; also an array of the state."""
    ema_decay = 0.0

    def __init__(
        self,
        buffer: ParameterBuffer,
        *,
        beta1: float = 0.9,
        beta2: float = 0.98,
        eps: float = 1e-9,
        pieces: Sequence[slice] = (slice(None),),
    ) -> None:
        if not isinstance(buffer, ParameterBuffer):
            raise TypeError(f"{self._name}: expected the parameters of a model, model.parameters; got {buffer!r:.80}")
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1 and eps > 0):
            raise ValueError(f"{self._name}: expected 0 ≤ beta1, beta2 < 1 and eps > 0; got {beta1}, {beta2} and {eps}")
        self.buffer, self.pieces, self.beta1, self.beta2, self.eps = buffer, pieces, beta1, beta2, eps
        self.size = sum(len(buffer.values[piece]) for piece in pieces)
        for name in self.arrays:
            setattr(self, name, namespace(buffer.values).zeros(self.size, buffer.values.dtype))
        self.earlier_updates = self.t = 0

    def direction(self, gradients: Array, *state: Array) -> Sequence[Array]:
        """Return the direction d of n parameters (numbers), and the new values of their state.

        ``gradients`` are their mean gradients; ``state`` has their numbers of each array in ``arrays``, in that order.
        ``self.t`` is the number of this update, from 1.
        Shapes: all (n,), dtype and device of the buffer's values.
        """
        raise NotImplementedError(f"{type(self).__qualname__}: define direction(self, gradients, *state)")

    def transform(self, name: str, direction: Array) -> Array:
        """Return the direction of the parameter ``name``, given the result of ``direction`` for it, in its shape.

        If a class overrides this method, every rank collects the directions of the whole buffer in each update.  It
        then calls the method for each parameter of which it updates a slice.
        """
        return direction

    @property
    def needs_whole_parameters(self) -> bool:
        """True if the class overrides ``transform``."""
        return type(self).transform is not Optimizer.transform

    @property
    def state(self) -> dict[str, Array]:
        """The arrays of state by name, with the moving average of the parameters if there is one."""
        names = self.arrays if self.ema is None else (*self.arrays, AVERAGE)
        return {name: getattr(self, name) for name in names}

    def of_all(self, state: Mapping[str, Array]) -> Optimizer:
        """Return a copy of this optimizer that updates the whole buffer, with ``state``, arrays of its size by name."""
        whole = copy.copy(self)
        whole.pieces, whole.size = (slice(None),), len(self.buffer.values)
        for name, array in state.items():
            setattr(whole, name, array)
        return whole

    def shard(self, flat: Array) -> Array:
        """Return the slices ``pieces`` of ``flat``, an array of the buffer's size, one after the other."""
        pieces = [flat[piece] for piece in self.pieces]
        return pieces[0] if len(pieces) == 1 else namespace(flat).concatenate(pieces)

    def scalars(self, learning_rate: float, step: int, n_tokens: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return 1 / ``n_tokens``, the learning rate α and t, the scalars of update number ``step`` (from 1).

        t is ``step`` plus ``earlier_updates``; ``direction`` reads it as ``self.t``.
        Shapes: returns (N_SCALARS,), N_SCALARS = 3, float64 on the host.
        """
        self.t = step + self.earlier_updates
        return np.array([1 / n_tokens, learning_rate, self.t])

    def step(self, learning_rate: float, step: int, n_tokens: int = 1, *, max_norm: float = math.inf) -> float:
        """Make update number ``step`` (from 1) with the mean gradients: the buffer's gradients / ``n_tokens``.

        ``learning_rate`` is α.  Return the norm of the mean gradients.  If it exceeds ``max_norm``, they are scaled
        down to this norm.  If it is not finite, nothing changes.
        Raises: ValueError if a number is out of bounds, or ``backward`` has not set the gradients.
        """
        self._check(learning_rate, step, n_tokens, max_norm)
        xp = namespace(self.buffer.values)
        scalars = xp.asarray(self.scalars(learning_rate, step, n_tokens))
        squares = sum_squares(self.shard(self.buffer.gradients))
        outcome = clip(squares, xp.zeros(()), scalars, max_norm=max_norm)
        self.update(scalars, outcome[2])
        self.update_average(step, outcome[2])
        return float(outcome[1])

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _check(self, learning_rate: float, step: int, n_tokens: int, max_norm: float) -> None:
        if not self.buffer.has_gradients:
            raise ValueError(f"{self._name}.step: there are no gradients; call backward(loss) before each step")
        if not (float(step).is_integer() and step >= 1):
            raise ValueError(f"{self._name}.step: step is the number of the update, 1, 2, …; got {step}")
        if not n_tokens > 0:
            raise ValueError(f"{self._name}.step: n_tokens divides the gradients and must be above 0; got {n_tokens}")
        if not 0 <= learning_rate < math.inf:
            raise ValueError(
                f"{self._name}.step: learning_rate must be a finite number of at least 0; got {learning_rate}"
            )
        if not max_norm > 0:
            raise ValueError(f"{self._name}.step: max_norm must be greater than 0; got {max_norm}")

    def update(
        self,
        scalars: Array,
        scale: Array,
        within: slice = slice(None),
        gather: Callable[[Array], Array] = lambda flat: flat,
    ) -> None:
        """Update all pieces, or the slice ``within`` of each, with ``scale`` times the buffer's gradients.

        Nothing changes if ``scale`` is 0.  ``gather(flat)`` returns a flat array with the pieces of all ranks, given
        one that has this rank's pieces; only a class with ``transform`` calls it.
        Shapes: scalars (N_SCALARS,), see ``scalars``; scale (), see ``clip``; float64, on the buffer's device.
        """
        directions = None
        if self.needs_whole_parameters:
            directions = namespace(self.buffer.values).zeros_like(self.buffer.values)
        for piece, own in self._slices(within):
            direction = self._next_direction(piece, own, scale)
            if directions is None:
                self._move(piece, direction, scalars, scale)
            else:
                directions[piece] = direction
        if directions is not None:
            directions = self._transformed(gather(directions))
            for piece, _ in self._slices(within):
                inside = slice(piece.start, min(piece.stop, len(directions)))
                self._move(inside, directions[inside], scalars, scale)

    def _slices(self, within: slice = slice(None)) -> Iterator[tuple[slice, slice]]:
        """Yield the slice ``within`` of each piece, without frozen parameters.

        Each is yielded as a slice of the buffer, and as a slice of the arrays of state.
        """
        end = 0
        for piece in self.pieces:
            first, last, _ = piece.indices(len(self.buffer.values))
            start, stop, _ = within.indices(last - first)
            for trained in self.buffer.trained:
                one, other = max(first + start, trained.start), min(first + stop, trained.stop)
                if one < other:
                    yield slice(one, other), slice(end + one - first, end + other - first)
            end += last - first

    def _next_direction(self, piece: slice, own: slice, scale: Array) -> Array:
        """Update the arrays of state of a piece, unless the scale is 0; return the piece's direction, then 0."""
        gradients = self.buffer.gradients[piece]
        xp, applies = namespace(gradients), scale > 0
        g = xp.where(applies, gradients * scale.astype(gradients.dtype), 0)
        state = [getattr(self, name)[own] for name in self.arrays]
        direction, *new_state = self.direction(g, *state)
        if len(new_state) != len(state):
            raise ValueError(
                f"{type(self).__qualname__}.direction: expected a tuple of {1 + len(state)} arrays: the direction"
                f"{''.join(f', {name}' for name in self.arrays)}; got {1 + len(new_state)}"
            )
        for array, new in zip(state, new_state, strict=True):
            array[...] = xp.where(applies, new, array)
        return xp.where(applies, direction, 0)

    def _transformed(self, flat: Array) -> Array:
        """Transform, in place, the directions of each parameter that this rank's pieces have numbers of."""
        mine = [piece.indices(len(self.buffer.values))[:2] for piece in self.pieces]
        for name, parameter in self.buffer.named.items():
            start, stop = parameter.offset, parameter.offset + parameter.size
            if not parameter.is_frozen and any(first < stop and start < last for first, last in mine):
                view = parameter.view_of(flat)
                view[...] = self.transform(name, view)
        return flat

    def _move(self, piece: slice, direction: Array, scalars: Array, scale: Array) -> None:
        """Move the values of a piece, and their low-precision copies, unless the scale is 0."""
        values, low_precision = self.buffer.values[piece], self.buffer.low_precision
        change = scalars[1].astype(values.dtype) * (direction + self.weight_decay * values)
        values -= namespace(values).where(scale > 0, change, 0)
        if low_precision is not None:
            low_precision[piece] = values.astype(low_precision.dtype)

    def begin_average(self, decay: float) -> None:
        """Begin a moving average of the parameters at their present values; ``update_average`` moves it.

        Raises: ValueError unless 0 ≤ ``decay`` < 1, or if the class has an array of state named "ema".
        """
        if not 0 <= decay < 1:
            raise ValueError(f"{self._name}.begin_average: expected 0 ≤ decay < 1; got {decay}")
        if AVERAGE in self.arrays:
            raise ValueError(
                f"{self._name}.arrays: {AVERAGE!r} is the name of the moving average of the parameters; choose another"
            )
        self.ema_decay, self.ema = decay, self.shard(self.buffer.values).copy()

    def update_average(self, step: int | Array, scale: Array, within: slice = slice(None)) -> None:
        """Move the average w̄ towards the updated parameters w: w̄ ← d w̄ + (1 − d) w.

        d = min(decay, (1 + t) / (10 + t)), where t is ``step``, the number of the update, from 1.  So the average
        forgets the first parameters early, and covers about the last tenth of the updates until d reaches the decay.
        Nothing changes without an average, or if ``scale`` is 0.  ``scale`` and ``within`` are those of ``update``.
        Sources: Polyak & Juditsky 1992; Kingma & Ba 2015, section 7.2 (the exponential average); TensorFlow's
        ``ExponentialMovingAverage`` (the growing decay).
        """
        if self.ema is None:
            return
        xp, dtype = namespace(self.ema), self.ema.dtype
        share = xp.maximum(1 - self.ema_decay, 9 / (10 + xp.asarray(step, np.float64))).astype(dtype)
        for piece, own in self._slices(within):
            average_update(self.ema[own], self.buffer.values[piece], share, scale)


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, algorithm 1) over all parameters at once, with the paper's β₁ = 0.9, β₂ = 0.98, ε = 1e−9.

    m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  θ ← θ − α · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)

    g is the mean gradient, α the learning rate, t the number of the update, from 1.  m and v begin as 0.
    Kernels make an update in one pass over memory.
    """

    arrays = ("m", "v")
    m: Array
    v: Array

    def scalars(self, learning_rate: float, step: int, n_tokens: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return 1 / ``n_tokens``, α/(1 − β₁ᵗ) and 1 − β₂ᵗ, the scalars of update number ``step`` (from 1).

        α is ``learning_rate``; t is ``step`` plus ``earlier_updates``.  Shapes: returns (3,), float64 on the host.
        """
        t = step + self.earlier_updates
        return np.array([1 / n_tokens, learning_rate / (1 - self.beta1**t), 1 - self.beta2**t])

    def update(
        self,
        scalars: Array,
        scale: Array,
        within: slice = slice(None),
        gather: Callable[[Array], Array] = lambda flat: flat,
    ) -> None:
        """Update all pieces, or the slice ``within`` of each; see ``Optimizer.update``."""
        low_precision = self.buffer.low_precision
        for piece, own in self._slices(within):
            adam_update(
                self.buffer.values[piece],
                self.buffer.gradients[piece],
                self.m[own],
                self.v[own],
                None if low_precision is None else low_precision[piece],
                scalars,
                scale,
                beta1=self.beta1,
                beta2=self.beta2,
                eps=self.eps,
            )


@Dispatch
def adam_update(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    low_precision: Array | None,
    scalars: Array,
    scale: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """Make one step of Adam in place, with g = scale · gradients; change nothing if the scale is 0.

    Shapes: all (n,) and of one dtype, except low_precision (another dtype), scalars (3,) of ``Adam.scalars``, and
    scale () of ``clip``.
    Changes values, m and v, and sets ``low_precision`` to the rounded values.
    """
    xp, applies = namespace(values), scale > 0
    factor, step_size, variance_correction = (x.astype(values.dtype) for x in (scale, scalars[1], scalars[2]))
    g = xp.where(applies, gradients * factor, 0)
    m[...] = xp.where(applies, beta1 * m + (1 - beta1) * g, m)
    v[...] = xp.where(applies, beta2 * v + (1 - beta2) * g * g, v)
    values -= xp.where(applies, step_size * m / (xp.sqrt(v / variance_correction) + eps), 0)
    if low_precision is not None:
        low_precision[...] = values.astype(low_precision.dtype)


@Dispatch
def average_update(average: Array, values: Array, share: Array, scale: Array) -> None:
    """Move a moving average in place by ``share`` of its distance to the values; change nothing if the scale is 0.

    Shapes: average and values (n,), share (), all of one dtype; scale ().
    """
    average -= namespace(average).where(scale > 0, share * (average - values), 0)


@Dispatch
def sum_squares(gradients: Array) -> Array:
    """Return partial sums of squares of the gradient; their total is the squared norm.

    Each partial sum is over ALIGNMENT (64) consecutive elements.  A shard begins at a multiple of ALIGNMENT, so the
    sums of all shards, concatenated, have the same bits however the gradient is divided.
    Shapes: gradients (n,) → (⌈n / 64⌉,).
    """
    runs, rest = in_runs(gradients)
    squares = (runs * runs).sum(1)
    return namespace(gradients).concatenate([squares, product(rest, rest)[None]]) if len(rest) else squares


def in_runs(gradients: Array) -> tuple[Array, Array]:
    """Return the first 64 k elements as k rows of ALIGNMENT (64) elements, and the r < 64 elements after them.

    Shapes: (n,) → (k, 64), (r,).
    """
    n_in_runs = len(gradients) // ALIGNMENT * ALIGNMENT
    return gradients[:n_in_runs].reshape(-1, ALIGNMENT), gradients[n_in_runs:]


@Dispatch
def clip(squares: Array, loss: Array, scalars: Array, *, max_norm: float = math.inf) -> Array:
    """Return (loss, ‖g‖, scale) for the mean gradient g = gradients · scalars[0]; scalars[0] is 1 / tokens.

    ``loss`` is returned as it is.  ``scale · gradients`` is g, scaled down so that its norm is at most ``max_norm``.
    The scale is 0 if the loss or the norm is not finite: the update must then change nothing.  Sums are float64.
    Shapes: squares (k,), the result of ``sum_squares`` for gradients; loss (); scalars (N_SCALARS,), see
    ``Optimizer.scalars``; returns (3,) float64.
    Source: Pascanu, Mikolov & Bengio 2013, algorithm 1.
    """
    xp, per_token = namespace(squares), scalars[0].astype(np.float64)
    norm = xp.sqrt(squares.sum(dtype=np.float64)) * per_token
    clipping = max_norm / xp.maximum(norm, max_norm) if max_norm < math.inf else 1.0
    scale = xp.where(xp.isfinite(norm) & xp.isfinite(loss), per_token * clipping, 0.0)
    return xp.stack([xp.asarray(loss, np.float64), norm, scale])


def gradient_norm(gradients: Array) -> float:
    """Return the Euclidean norm of a flat gradient; on a GPU this waits for the device."""
    return math.sqrt(float(to_host(sum_squares(gradients).sum(dtype=np.float64))))
