"""Differentiable operations, and the choice between their reference and its faster kernels.

An operation is a function of arrays that returns ``(y, backward)``; ``backward(dy)`` returns one gradient per
positional argument (None for an argument without a gradient).  Parameters without a default count as positional, even
if they are given by keyword; all other keyword arguments are static.  ``@op`` makes the operation callable with
tensors.  A kernel is another function of the same signature, registered with ``@operation.kernel(...)`` in another
module (``autograd.kernel_registry``).  ``choose`` alone chooses between the reference and the kernels, and decides
whether arguments of 16 bits are converted to float32 first.
Code that checks, measures or times operations uses ``observed``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from autograd.array import Array
from autograd.kernel_registry import Implementation, Kernels
from autograd.precision import in_float32, is_16_bit
from autograd.tensor import Backward, Gradient, Node, Tensor, is_recording


class ArgumentError(ValueError):
    """An error: an argument of an operation is wrong; the message names the operation."""


class ShapeError(ArgumentError):
    """An error: the shapes of an operation's arguments do not fit together."""


class Dispatch(Kernels[Implementation]):
    """A function of arrays, whose Python code (the reference) defines the correct result, and its faster kernels.

    ``@Dispatch`` makes one of a function; ``kernel`` registers a kernel.  A call runs what ``choose`` returns.
    """

    def __init__(self, reference: Implementation) -> None:
        super().__init__(reference.__name__)
        self.reference = reference
        functools.update_wrapper(self, reference)

    def choose(self, arguments: tuple[Any, ...], static: dict[str, Any]) -> Implementation:
        """Return the latest registered kernel that supports these arguments, else the reference.

        ``arguments`` are the positional arguments, ``static`` those by keyword.
        """
        return self.first_that_supports(arguments, static) or self.reference

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        return self.choose(arguments, static)(*arguments, **static)


Run: TypeAlias = Callable[..., tuple[Array, Backward]]


class _Observation(threading.local):
    observer: Run | None = None


_observation = _Observation()


@contextmanager
def observed(observer: Run) -> Iterator[None]:
    """Let ``observer`` run each operation of this thread; other threads are not observed.

    ``observer(operation, run, *arguments, **static)`` receives the operation and its chosen implementation, and returns
    the ``(y, backward)`` of ``run(*arguments, **static)``, or wraps them.  Operations that an implementation calls are
    observed too.  If an operation on arrays of 16 bits is computed in float32, that computation is not observed.  Joint
    kernels do not run.
    """
    before, _observation.observer = _observation.observer, observer
    try:
        yield
    finally:
        _observation.observer = before


class Operation(Dispatch[Run]):
    """A differentiable operation on tensors, which runs forward and records its backward on the tape.

    With ``moves`` the operation only moves elements, so it runs on arrays of any dtype.
    """

    def __init__(self, reference: Run, *, moves: bool = False) -> None:
        super().__init__(reference)
        self.moves = moves
        self._required = tuple(
            name
            for name, parameter in inspect.signature(reference).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
        )

    def choose(self, arguments: tuple[Any, ...], static: dict[str, Any]) -> Run:
        """Choose as ``Dispatch`` does; without a kernel for 16 bits, compute in float32 and round the results."""
        run: Run
        if self.moves or not any(map(is_16_bit, arguments)):
            run = super().choose(arguments, static)
        else:
            kernel = self.first_that_supports(arguments, static, takes_16_bits=True)
            run = kernel or functools.partial(in_float32, super().choose)
        observer = _observation.observer
        return run if observer is None else functools.partial(observer, self, run)

    def of_arrays(self, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        """Return ``(y, backward)`` of arrays, from the chosen implementation."""
        return _pair(self.__name__, self.choose(arguments, static)(*arguments, **static))

    def __call__(self, *inputs: Any, **static: Any) -> Tensor:
        """Compute the result, and record its backward on the tape.

        Raises: ShapeError, or TypeError for a Tensor as a static argument and for an implementation that returns no
            ``(y, backward)``; both name the operation.
        """
        if len(inputs) < len(self._required):
            by_keyword = itertools.takewhile(static.__contains__, self._required[len(inputs) :])
            inputs += tuple(map(static.pop, by_keyword))
        arguments = tuple(map(_value, inputs))
        if static:
            _require_no_tensor(self.__name__, static)
        try:
            returned = self.choose(arguments, static)(*arguments, **static)
        except ArgumentError:
            raise
        except ValueError as error:  # of NumPy or CuPy, which do not know the operation
            shapes = ", ".join(str(getattr(x, "shape", type(x).__name__)) for x in arguments)
            raise ShapeError(f"{self.__name__}: {error}; got arguments of shapes {shapes}") from error
        value, backward = _pair(self.__name__, returned)
        result = Tensor(value)
        if is_recording():
            result.node = Node(self.__name__, tuple(map(_origin, inputs)), backward, result.value)
        return result

    __name__: str


BackwardOfSeveral: TypeAlias = Callable[[list[Array | None]], Sequence[Gradient | None]]


class JointKernels(Kernels[Callable[..., tuple[list[Array], BackwardOfSeveral]]]):
    """Kernels that compute several operations on the same tensors together.

    A kernel is a function of arrays that returns a list of arrays and ``backward``.  ``backward`` receives a list of
    gradients, None for an unused result, and returns one gradient per positional argument.  ``name`` is also the name
    of the node on the tape.
    """

    def kernel_of(self, arguments: tuple[Any, ...]) -> Callable[..., tuple[list[Array], BackwardOfSeveral]] | None:
        """Return the kernel that computes these operations together.

        Return None if there is no such kernel, or while operations are observed.
        """
        if _observation.observer is not None:
            return None
        return self.first_that_supports(arguments, {}, takes_16_bits=any(map(is_16_bit, arguments)))

    def compute(self, *inputs: Any) -> list[Tensor] | None:
        """Return the results; None if there is no kernel, so that the caller calls one operation after the other."""
        arguments = tuple(map(_value, inputs))
        together = self.kernel_of(arguments)
        if together is None:
            return None
        values, backward = _pair(self.name, together(*arguments))
        if not is_recording():
            return list(map(Tensor, values))
        return _results_of(self.name, inputs, backward, values)


def _results_of(name: str, inputs: Sequence[Any], backward: BackwardOfSeveral, values: Sequence[Array]) -> list[Tensor]:
    """Return a tensor for each result; the node of a tensor stores the tensor's gradient for the joint kernel's node.

    The joint kernel's node ignores its own ``dy``, which is the number of stored gradients.
    """
    gradients = dict[int, Array]()
    joint = Node(
        name, tuple(map(_origin, inputs)), lambda _: backward([gradients.pop(i, None) for i in range(len(values))])
    )

    def leave(index: int, dy: Array) -> tuple[int]:
        gradients[index] = dy
        return (1,)

    inputs_of_results = (None if joint.is_constant else joint,)
    return [
        Tensor(value, Node(f"{name}[{i}]", inputs_of_results, functools.partial(leave, i), value))
        for i, value in enumerate(values)
    ]


def _require_no_tensor(name: str, static: dict[str, Any]) -> None:
    for keyword, argument in static.items():
        if isinstance(argument, Tensor):
            raise TypeError(
                f"{name}: {keyword} is a Tensor given by keyword, which would have no gradient; give it by position"
                " (or, as a constant, its .value)"
            )


def _pair(name: str, returned: Any) -> tuple[Any, Any]:
    """Return ``(y, backward)``.  Raises: TypeError for anything else, such as an array whose first axis is 2."""
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[1]):
        return returned
    kinds = ", ".join(type(x).__name__ for x in returned) if isinstance(returned, tuple) else ""
    got = f"a tuple of ({kinds})" if isinstance(returned, tuple) else type(returned).__name__
    raise TypeError(f"{name}: must return (y, backward), a tuple of an array and a function; got {got}")


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Tensor) else x


def _origin(x: Any) -> Node | Tensor | None:
    return x.origin if isinstance(x, Tensor) else None


operations: dict[str, Operation] = {}


def op(reference: Run, *, moves: bool = False) -> Operation:
    """Turn a function of arrays that returns ``(y, backward)`` into an operation on tensors: a decorator.

    ``backward(dy)`` returns one gradient for each positional argument.  The operation is added to ``operations``, a
    dict of this module, under its name.  ``moves`` says that it only moves elements, which stay in 16 bits.
    """
    operation = Operation(reference, moves=moves)
    operations[operation.__name__] = operation
    return operation


def unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum ``gradient`` over the axes along which an argument of ``shape`` was broadcast: broadcasting's backward."""
    if tuple(gradient.shape) == shape:
        return gradient
    added = gradient.ndim - len(shape)
    stretched = tuple(
        axis for axis in range(added, gradient.ndim) if shape[axis - added] == 1 and gradient.shape[axis] != 1
    )
    return gradient.sum(tuple(range(added)) + stretched).reshape(shape)
