"""All parameters of a model in one flat buffer of values and one of gradients.

Every ``Parameter`` is a view into both buffers.  So Adam needs one pass over memory, the gradient norm one reduction,
and a sum over processes a few contiguous slices.  The parameters lie in the reverse order of their declaration.  This
is nearly the order in which backward completes their gradients.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from autograd.array import Array, Device, device_of, namespace, namespace_of_device, persistent_pool, to_device
from autograd.precision import dtype_named
from autograd.random import StreamId, named_stream_id, normal, uniform
from autograd.tensor import Gradient, Origin, PendingGradient, Tensor, backward, put, wait_for_deferred_gradients

Initialiser: TypeAlias = Callable[[StreamId, tuple[int, ...]], Array]
Allocate: TypeAlias = Callable[[int, Any], tuple[Array, Array]]

ALIGNMENT = 64  # elements: 256 bytes of float32, so that every parameter is aligned like a separate allocation


class Parameter(Tensor):
    """A tensor that training changes; a view into the flat buffer once its layer has a ``ParameterBuffer``.

    ``initialise(stream_id, shape)`` returns the initial values, such as ``glorot_uniform`` of this module; the
    ``ParameterBuffer`` calls it.  Before, ``value`` is empty.
    A frozen parameter (``ParameterBuffer.freeze``) is a constant.
    """

    __slots__ = ("declared_shape", "initialise", "offset", "gradient_buffer", "is_frozen")

    def __init__(self, shape: tuple[int, ...], initialise: Initialiser) -> None:
        super().__init__(np.empty(0))
        self.declared_shape = shape
        self.initialise = initialise
        self.offset = -1
        self.gradient_buffer: _Gradients | None = None
        self.is_frozen = False

    @property
    def origin(self) -> Origin | None:
        """The parameter itself, or None if it is frozen."""
        return None if self.is_frozen else self

    @property
    def size(self) -> int:
        return math.prod(self.declared_shape)

    @property
    def neighbours(self) -> Sequence[Parameter]:
        """All parameters of this parameter's ``ParameterBuffer``; () before there is one."""
        return self.gradient_buffer.parameters if self.gradient_buffer else ()

    def view_of(self, flat: Array) -> Array:
        """Return this parameter's slice of ``flat``, an array laid out as its buffer, in the parameter's shape."""
        return flat[self.offset : self.offset + self.size].reshape(self.declared_shape)

    def receive_gradient(self, gradient: Gradient, destination: Array | None, *, first: bool) -> None:
        """Write ``gradient`` to this parameter's slice of the flat array ``destination``, or add it if not ``first``.

        Without a destination, use the buffer's gradients.  Raises: ValueError for a parameter without a buffer.
        """
        if self.gradient_buffer is None:
            raise ValueError("backward: a Parameter receives gradients only after a ParameterBuffer was made of it")
        view = self.view_of(self.gradient_buffer.array if destination is None else destination)
        if destination is None:
            self.grad = view
        if not first:
            wait_for_deferred_gradients()  # the first gradient may be deferred
        if isinstance(gradient, PendingGradient):
            gradient.into(view, not first)
        else:
            put(gradient, view, not first)

    def __repr__(self) -> str:
        return f"Parameter(shape {self.declared_shape}, {self.dtype})"


class _Gradients:
    """A flat gradient array, allocated on first use as zeros like ``like``, and the parameters with views of it."""

    def __init__(self, like: Array, parameters: Sequence[Parameter]) -> None:
        self._like, self.parameters = like, parameters

    @cached_property
    def array(self) -> Array:
        return namespace(self._like).zeros(self._like.shape, self._like.dtype)


class Layer:
    """The base class of layers and models.

    ``named_parameters`` finds the parameters in an object's attributes: ``Parameter``, ``Layer``, or lists of these.
    """


def named_parameters(layer: Layer, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
    """Yield every parameter of ``layer`` with its name, in the order of declaration.

    A name is the path of attributes, after ``prefix``, such as "encoder.layers.0.self_attention.query.weight".
    A parameter that several layers share appears once, under its first name.
    """
    seen: set[int] = set()
    for name, parameter in _walk(layer, prefix):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter


def _walk(thing: Any, name: str) -> Iterator[tuple[str, Parameter]]:
    if isinstance(thing, Parameter):
        yield name, thing
    elif isinstance(thing, Layer):
        for attribute, value in vars(thing).items():
            yield from _walk(value, f"{name}.{attribute}" if name else attribute)
    elif isinstance(thing, list | tuple):
        for index, value in enumerate(thing):
            yield from _walk(value, f"{name}.{index}")


class ParameterBuffer:
    """The flat buffers of all parameters of a layer.

    Shapes: ``values`` and ``gradients`` (size,), one dtype, one device; parameters begin at multiples of ALIGNMENT
    (64), and the padding between them stays zero.
    With dtype "bfloat16" or "float16", values (master weights) and gradients are float32; updates, checkpoints and sums
    use these.
    ``low_precision`` (size,) holds the rounded values (low-precision weights).  Operations read matrices from it, and
    gains and biases from ``values``.
    Initial values are a pure function of (seed, name), drawn in float64 whatever the dtype; zero without a seed.
    ``allocate(size, dtype)`` returns two arrays of at least ``size`` zeros, for values and gradients, for example in
    memory that processes share.  By default both lie on the device, and gradients are allocated on first use.

    Raises: ValueError if a parameter lies in another buffer already.
    """

    def __init__(
        self,
        layer: Layer,
        *,
        seed: int | None,
        dtype: Any = "float32",
        device: Device = "cpu",
        allocate: Allocate | None = None,
    ) -> None:
        self.named = dict(named_parameters(layer))
        for name, parameter in self.named.items():
            if parameter.gradient_buffer is not None:
                raise ValueError(f"ParameterBuffer: {name} lies in another buffer already, which would lose it")
        xp, size = namespace_of_device(device), 0
        for parameter in reversed(self.named.values()):
            parameter.offset = size
            size += -(-parameter.size // ALIGNMENT) * ALIGNMENT
        stored = dtype_named(dtype)
        is_narrow = stored.itemsize == 2
        value_dtype = np.dtype(np.float32) if is_narrow else stored
        self.values, gradients = (
            (xp.zeros(size, value_dtype), None) if allocate is None else allocate(size, value_dtype)
        )
        self.low_precision: Array | None = xp.zeros(len(self.values), stored) if is_narrow else None
        self.trained = [slice(0, len(self.values))]
        self._set_views()
        if gradients is not None:
            self._gradient_buffer.array = gradients
        if seed is not None:
            for name, values in self.named_values().items():
                values[...] = to_device(self.named[name].initialise(named_stream_id(seed, name), values.shape), device)
        self.refresh_low_precision()

    def _set_views(self) -> None:
        """Make each parameter's value a view of ``values`` or ``low_precision``, and prepare a new gradient array."""
        self._gradient_buffer = _Gradients(self.values, list(self.named.values()))
        for parameter in self.named.values():
            is_matrix = len(parameter.declared_shape) > 1
            home = self.low_precision if self.low_precision is not None and is_matrix else self.values
            parameter.gradient_buffer, parameter.value = self._gradient_buffer, parameter.view_of(home)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: all but the gradients."""
        return {name: value for name, value in vars(self).items() if name not in ("gradients", "_gradient_buffer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy: make its parameters views of its own buffer, because copied views are separate arrays."""
        vars(self).update(state)
        self._set_views()

    def refresh_low_precision(self) -> None:
        """Round the values into ``low_precision`` again, after code other than an ``Optimizer`` has changed them."""
        if self.low_precision is not None:
            self.low_precision[...] = self.values.astype(self.low_precision.dtype)

    @cached_property
    def vectors(self) -> Array | None:
        """The indices of gains and biases in ``values``, int64 on its device; None without low-precision weights."""
        if self.low_precision is None:
            return None
        vectors = [p for p in self.named.values() if len(p.declared_shape) < 2]
        device = device_of(self.values)
        with persistent_pool(device):
            return to_device(
                np.concatenate([np.empty(0, np.int64), *(np.arange(p.offset, p.offset + p.size) for p in vectors)]),
                device,
            )

    def freeze(self, names: Collection[str]) -> None:
        """Make the parameters with these names constants, and train all others.

        A frozen parameter has the gradient 0.  Optimizers change only the numbers in the slices ``trained`` of the flat
        buffer, which hold the other parameters.
        """
        in_order = list(reversed(self.named.items()))
        ends = [*(parameter.offset for _, parameter in in_order[1:]), len(self.values)]
        self.trained = []
        for (name, parameter), end in zip(in_order, ends, strict=True):
            parameter.is_frozen, start = name in names, parameter.offset
            if not parameter.is_frozen:
                continues = self.trained and self.trained[-1].stop == start
                self.trained.append(slice(self.trained.pop().start if continues else start, end))

    def named_values(self) -> dict[str, Array]:
        """Return every parameter's view of ``values``, by name."""
        return {name: parameter.view_of(self.values) for name, parameter in self.named.items()}

    @cached_property
    def gradients(self) -> Array:
        """dloss/dθ at the offset of θ in ``values``; allocated on first use, because translation needs no gradients."""
        for parameter in self.named.values():
            parameter.grad = parameter.view_of(self._gradient_buffer.array)
        return self._gradient_buffer.array

    @property
    def has_gradients(self) -> bool:
        """True once the array of gradients is allocated, which a backward pass does."""
        return "array" in vars(self._gradient_buffer)

    @property
    def n_parameters(self) -> int:
        """The number of learned numbers, without the padding between parameters."""
        return sum(parameter.size for parameter in self.named.values())


@dataclass(frozen=True)
class Buckets:
    """Slices (buckets) that cover the flat gradients in order, and a function to call with each.

    ``final(bucket, wait)`` is called with each bucket, in this order, once its gradients are final.  ``wait()`` makes
    the current stream wait for gradients that kernels have deferred.
    """

    slices: Sequence[slice]
    final: Callable[[slice, Callable[[], None]], object]

    def complete(self) -> None:
        """Call ``final`` with every bucket."""
        for bucket in self.slices:
            self.final(bucket, wait_for_deferred_gradients)

    def adding(self, summand: Array, out: Array) -> Buckets:
        """Return buckets whose ``final`` adds a bucket of ``summand`` to ``out``, then calls this ``final``."""

        def add(bucket: slice, wait: Callable[[], None]) -> None:
            wait()
            out[bucket] += summand[bucket]
            self.final(bucket, wait)

        return Buckets(self.slices, add)


ONE_BUCKET = Buckets((slice(None),), lambda bucket, wait: None)


def backward_in_buckets(loss: Tensor, parameters: ParameterBuffer, into: Array, buckets: Buckets) -> None:
    """Run ``backward``; call ``buckets.final`` with each bucket as soon as its gradients are final.

    Each call comes after those for earlier buckets, so the order of the calls does not depend on the tape.
    """
    early = deque(buckets.slices[:-1])
    missing = deque(reversed(parameters.named.values()))  # in the order of the buffer
    complete: set[Tensor] = set()

    def completed(leaf: Tensor) -> None:
        complete.add(leaf)
        while missing and missing[0] in complete:
            missing.popleft()
        while early and missing and early[0].stop <= missing[0].offset:
            buckets.final(early.popleft(), wait_for_deferred_gradients)

    backward(loss, into=into, completed=completed if early else None)
    Buckets((*early, buckets.slices[-1]), buckets.final).complete()


def zeros(stream_id: StreamId, shape: tuple[int, ...]) -> Array:
    """Return initial values 0, for biases."""
    return np.zeros(shape)


def ones(stream_id: StreamId, shape: tuple[int, ...]) -> Array:
    """Return initial values 1, for gains."""
    return np.ones(shape)


def glorot_uniform(stream_id: StreamId, shape: tuple[int, ...]) -> Array:
    """Draw uniformly in ±√(6 / (fan_in + fan_out)), for matrices (in, out).

    Source: Glorot & Bengio 2010, equation 16.
    """
    limit = math.sqrt(6 / sum(shape))
    return (2 * uniform(stream_id, shape) - 1) * limit


def scaled_normal(stream_id: StreamId, shape: tuple[int, ...]) -> Array:
    """Draw normal numbers of standard deviation D^−½, for embeddings (W, D) that are multiplied by √D on use."""
    return normal(stream_id, shape) / math.sqrt(shape[-1])
