"""Tensors, the tape that operations record, and the backward pass over it.

A ``Tensor`` made by an operation has a ``Node``: the operation's inputs and the closure that turns the gradient of the
output into the gradients of the inputs.  These nodes are the tape.  Only the result refers to the tape, which is freed
with the result.  Nothing is global, so threads record independently.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autograd.array import Array, Device, device_of, namespace, to_host


@dataclass(frozen=True, eq=False, slots=True)
class PendingGradient:
    """A gradient that is computed only when its destination is known, which saves a copy.

    ``into(out, add)`` adds it to ``out``, a contiguous array of its shape, or writes it there if ``add`` is false.
    """

    shape: tuple[int, ...]
    like: Array
    """An array with the gradient's dtype, on the gradient's device."""
    into: Callable[[Array, bool], None]
    is_deferred: bool = False
    """True if ``into`` only enqueues the work, on another CUDA stream.  Call ``wait_for_deferred_gradients`` of this
    module before anything reads ``out``."""
    is_new: bool = False
    """True if ``like`` is the gradient itself, in a new array, to which other gradients may be added in place."""


deferred_waits: list[Callable[[], None]] = []  # the kernels that defer gradients append theirs


def wait_for_deferred_gradients() -> None:
    """Make all work that this thread enqueues from now on wait for the gradients that kernels have deferred."""
    for wait in deferred_waits:
        wait()


Gradient: TypeAlias = Array | PendingGradient
Backward: TypeAlias = Callable[[Array], Sequence[Gradient | None]]


_REAL = "fiuV"  # kinds of dtypes; bfloat16 has kind V
_INTEGERS = "biu"


class TapeError(RuntimeError):
    """An error of ``backward``: there is no tape, it was consumed before, or ``gradient`` does not fit the result."""


class BackwardError(ValueError):
    """An error: the backward of an operation has not returned one gradient for each argument."""


class _Recording(threading.local):
    enabled = True


_recording = _Recording()


def is_recording() -> bool:
    """Return whether operations of this thread record a tape."""
    return _recording.enabled


@contextmanager
def no_tape() -> Iterator[None]:
    """Record no tape for operations of this thread in the context ``with no_tape():``; they keep nothing in memory."""
    before, _recording.enabled = _recording.enabled, False
    try:
        yield
    finally:
        _recording.enabled = before


class Node:
    """One recorded operation: its name, the origins of its inputs, its backward, and its result's shape and dtype.

    An input is the node of the operation that made it, a leaf tensor, or None for a constant.  A node holds no
    values: only the arrays that the closure ``backward`` refers to stay in memory for the backward pass.  Shape and
    dtype are None if there are several results.  ``is_constant`` is True if all inputs are constants.
    """

    __slots__ = ("name", "inputs", "backward", "shape", "dtype", "is_constant")

    def __init__(
        self, name: str, inputs: tuple[Origin | None, ...], backward: Backward, result: Array | None = None
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.backward: Backward | None = backward
        self.is_constant = all(origin is None for origin in inputs)
        self.shape: tuple[int, ...] | None = None if result is None else result.shape
        self.dtype: Any = None if result is None else result.dtype

    def consume(self) -> tuple[tuple[Origin | None, ...], Backward]:
        """Return inputs and backward, and release both.  Raises: TapeError at the second call."""
        inputs, backward = self.inputs, self.unconsumed()
        self.inputs, self.backward = (), None
        return inputs, backward

    def unconsumed(self) -> Backward:
        """Return the backward function.  Raises: TapeError if the node was consumed already."""
        if self.backward is None:
            raise TapeError(
                f"backward: the tape was consumed by an earlier call (at {self.name}); compute the loss again"
            )
        return self.backward


class Tensor:
    """An array with a gradient.

    A leaf is made from ``value``: an array of NumPy or CuPy, which is not copied, or numbers in lists.  Every other
    tensor is the result of an operation, which sets ``node``.  Plain arrays as arguments of an operation are constants.
    After ``backward(loss)`` the ``grad`` of a leaf is dloss/dleaf.
    Raises: TypeError for a Tensor as ``value``.
    """

    __slots__ = ("value", "grad", "node")
    __array_ufunc__: Any  # set by autograd.ops, too
    __array_function__: Callable[..., Any]

    # Operators and methods, which autograd.ops sets, because it defines the operations.
    __add__: Callable[[Tensor, Any], Tensor]
    __radd__: Callable[[Tensor, Any], Tensor]
    __sub__: Callable[[Tensor, Any], Tensor]
    __rsub__: Callable[[Tensor, Any], Tensor]
    __mul__: Callable[[Tensor, Any], Tensor]
    __rmul__: Callable[[Tensor, Any], Tensor]
    __truediv__: Callable[[Tensor, Any], Tensor]
    __rtruediv__: Callable[[Tensor, Any], Tensor]
    __pow__: Callable[[Tensor, float], Tensor]
    __rpow__: Callable[[Tensor, float], Tensor]
    __abs__: Callable[[Tensor], Tensor]
    __pos__: Callable[[Tensor], Tensor]
    __neg__: Callable[[Tensor], Tensor]
    __matmul__: Callable[[Tensor, Any], Tensor]
    __rmatmul__: Callable[[Tensor, Any], Tensor]
    __getitem__: Callable[[Tensor, Any], Tensor]
    sum: Callable[..., Tensor]
    mean: Callable[..., Tensor]
    max: Callable[..., Tensor]
    reshape: Callable[..., Tensor]
    transpose: Callable[..., Tensor]
    T: Tensor

    def __init__(self, value: Array, node: Node | None = None) -> None:
        if isinstance(value, Tensor):
            raise TypeError("Tensor: expected an array, got a Tensor; take its .value for a new leaf")
        self.value = value if hasattr(value, "dtype") else _as_numbers(value)
        self.grad: Any = None  # an array after ``backward``; users compute with it without a check for None
        self.node = node

    @property
    def origin(self) -> Origin | None:
        """The tensor's origin on the tape: the node that made it, or the leaf itself; None for a constant.

        The result of an operation on constants alone is a constant: no gradient is computed for it.
        """
        return self if self.node is None else None if self.node.is_constant else self.node

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def device(self) -> Device:
        return device_of(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Tensor]:
        """Return the parts along the first axis.  Raises: TypeError if there is none, as for NumPy's arrays."""
        if not self.shape:
            raise TypeError("iteration over a Tensor without axes; take float() of it, or its .value")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        """Raise TypeError: Python would otherwise use ``len``, so only an empty tensor would be false."""
        raise TypeError("a Tensor is neither true nor false; compare its .value")

    def __eq__(self, other: object) -> bool:
        """Raise TypeError: Python would otherwise compare identity, and NumPy's arrays compare elements."""
        raise TypeError("a Tensor is equal to nothing; compare its .value, or tensors with `is`")

    __hash__ = object.__hash__  # tensors are keys by their identity, which containers compare first

    def __array__(self, *_: object, **__: object) -> Any:
        """Raise TypeError: NumPy would otherwise make an array of objects."""
        raise TypeError("a Tensor is no array; take its .value")

    def __float__(self) -> float:
        """Return the value of a tensor of one element; on a GPU this waits for the device."""
        return float(to_host(self.value).item())

    def __repr__(self) -> str:
        maker = f", from {self.node.name}" if self.node else ""
        return f"Tensor(shape {self.shape}, {self.dtype}{maker})"

    @property
    def neighbours(self) -> Sequence[Tensor]:
        """The leaves that get the gradient 0 if this leaf gets a gradient and they do not; () but for parameters."""
        return ()

    def receive_gradient(self, gradient: Gradient, destination: Array | None, *, first: bool) -> None:
        """Set ``grad`` if this is the first gradient of a backward pass, else add to it.

        ``destination`` is ignored here; see ``Parameter.receive_gradient``.
        """
        del destination
        gradient = gradient_array(gradient)
        self.grad = gradient.copy() if first or self.grad is None else self.grad + gradient


def _as_numbers(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"Tensor: expected an array of numbers, got {value!r:.80}")
    return array


Origin: TypeAlias = Node | Tensor


def backward(
    result: Tensor,
    gradient: Array | None = None,
    *,
    into: Array | None = None,
    completed: Callable[[Tensor], None] | None = None,
) -> None:
    """Run the tape of ``result`` backwards and set d⟨gradient, result⟩/dleaf in every leaf that it depends on.

    Gradients are set, not added to those of an earlier call.  If a parameter receives a gradient, then all parameters
    of its buffer do: 0 if ``result`` does not depend on them.  All other leaves keep their old gradients.  The tape is
    consumed: saved arrays are released node by node, so memory use falls during the pass, and a second pass raises
    TapeError.

    Args:
        result: what to differentiate, usually a scalar loss.
        gradient: dy of the result's shape; may be left out for a scalar, where it is 1.
        into: a flat array, laid out as the buffer of the parameters, that receives the gradients of parameters
            instead of the buffer's ``gradients``.  So several threads can differentiate the same parameters at once.
        completed: a function that is called with a leaf as soon as the leaf's gradient is final, during the pass.
            Kernels may have deferred the gradient: see ``wait_for_deferred_gradients``.  The function is not called
            with leaves that receive no gradient.

    Raises: TapeError if there is no tape, a part of it was consumed, or ``gradient`` is missing or has the wrong shape,
        and TypeError if it is no array; then no gradient has changed.  BackwardError if the backward of an operation
        does not return one gradient for each argument, of the argument's shape.
    """
    if not isinstance(result, Tensor):
        raise TypeError(f"backward: expected a Tensor, such as model.loss(batch); got {type(result).__name__}")
    if result.node is None:
        raise TapeError("backward: the tensor is a leaf or was computed under no_tape(); there is no tape to walk")
    gradients: dict[Node, Array] = {result.node: _check_seed(result, gradient)}
    nodes = nodes_in_order(result.node)
    try:
        reached = _walk(nodes, gradients, into, completed)
        for leaves in {id(leaf.neighbours): leaf.neighbours for leaf in reached}.values():
            for leaf in leaves:
                if leaf not in reached:
                    leaf.receive_gradient(0.0, into, first=True)
    finally:
        wait_for_deferred_gradients()


def _walk(
    nodes: list[Node], gradients: dict[Node, Array], into: Array | None, completed: Callable[[Tensor], None] | None
) -> set[Tensor]:
    """Run the backward functions of the nodes, the last one first; ``gradients`` holds the gradient of the last node.

    Return the leaves that have received a gradient.
    """
    n_uses = _count_uses(nodes) if completed else None
    own: set[Node] = set()  # nodes whose gradient is an array made here, which may be changed in place
    reached: set[Tensor] = set()
    while nodes:
        node = nodes.pop()
        dy = gradients.pop(node, None)
        inputs, node_backward = node.consume()
        if dy is None:  # the operations that used it returned no gradient for it
            _report_completed(inputs, reached, n_uses, completed)
            continue
        input_gradients = node_backward(dy)
        if not (_is_sequence_of(input_gradients, len(inputs)) and all(map(_fits, input_gradients, inputs))):
            raise BackwardError(_explain(node.name, input_gradients, inputs))
        for origin, dx in zip(inputs, input_gradients, strict=True):
            if dx is None or origin is None:
                continue
            if isinstance(origin, Tensor):
                origin.receive_gradient(dx, into, first=origin not in reached)
                reached.add(origin)
            elif origin in own:
                gradients[origin] = _add_to(gradients[origin], dx)
            elif origin in gradients:
                gradients[origin] = _sum(gradients[origin], dx)
                own.add(origin)
            else:
                gradients[origin] = gradient_array(dx)
                if gradients[origin] is not dx:
                    own.add(origin)
        dx = None
        del input_gradients  # free these arrays before the next ones are computed
        _report_completed(inputs, reached, n_uses, completed)
    return reached


def _count_uses(nodes: list[Node]) -> Counter[Tensor]:
    """Return how often each leaf is an input of the nodes."""
    return Counter(origin for node in nodes for origin in node.inputs if isinstance(origin, Tensor))


def _report_completed(
    inputs: tuple[Origin | None, ...],
    reached: set[Tensor],
    n_uses: Counter[Tensor] | None,
    completed: Callable[[Tensor], None] | None,
) -> None:
    """Count down the uses of a node's leaves after its backward; call ``completed`` with each leaf without further use.

    Leaves that have received no gradient are left out.
    """
    if n_uses is None or completed is None:
        return
    for origin in inputs:
        if isinstance(origin, Tensor):
            n_uses[origin] -= 1
            if not n_uses[origin] and origin in reached:
                completed(origin)


def _is_sequence_of(gradients: Any, n: int) -> bool:
    return isinstance(gradients, (tuple, list)) and len(gradients) == n


def _fits(gradient: Gradient | None, origin: Origin | None) -> bool:
    """Return whether a gradient has the shape of its argument, and real numbers if the argument has."""
    if gradient is None or origin is None:
        return True
    argument: Any = origin.value if isinstance(origin, Tensor) else origin  # for a Tensor, .shape is slower
    if argument.shape is None:
        return True
    if getattr(gradient, "shape", None) != argument.shape:
        return False
    dtype = _dtype(gradient)
    return dtype is argument.dtype or dtype.kind in _REAL or argument.dtype.kind not in _REAL


def _dtype(gradient: Gradient) -> Any:
    return (gradient.like if isinstance(gradient, PendingGradient) else gradient).dtype


def _explain(name: str, gradients: Any, inputs: Sequence[Origin | None]) -> str:
    n = f"{len(inputs)} gradients, one for each argument" if len(inputs) > 1 else "one gradient"
    expected = f"backward of {name}: expected a tuple of {n}"
    if not isinstance(gradients, (tuple, list)):
        return f"{expected}; got {_description(gradients)}"
    if len(gradients) != len(inputs):
        return f"{expected}, or None for an argument without; got {len(gradients)}"
    i = [_fits(*pair) for pair in zip(gradients, inputs, strict=True)].index(False)
    argument: Any = inputs[i]
    return (
        f"backward of {name}: expected a gradient of argument {i} like the argument, an array of shape"
        f" {argument.shape}, {argument.dtype}; got {_description(gradients[i])}"
    )


def _description(x: Any) -> str:
    return f"an array of shape {x.shape}, {_dtype(x)}" if hasattr(x, "shape") else type(x).__name__


def gradient_array(gradient: Gradient) -> Array:
    """Return the gradient as an array; a pending gradient is computed."""
    if not isinstance(gradient, PendingGradient):
        return gradient
    if gradient.is_new:
        return gradient.like
    array = namespace(gradient.like).empty(gradient.shape, gradient.like.dtype)
    _complete(gradient, array, add=False)
    return array


def _complete(gradient: PendingGradient, out: Array, *, add: bool) -> None:
    gradient.into(out, add)
    if gradient.is_deferred:
        wait_for_deferred_gradients()


def put(array: Array, out: Array, add: bool) -> None:
    """Write an array to ``out``, or add it there."""
    if add:
        out += array
    else:
        out[...] = array


def _sum(one: Array, other: Gradient) -> Array:
    """Return the sum in a new array."""
    return _add_to(one.copy(), other) if isinstance(other, PendingGradient) else one + other


def _add_to(total: Array, gradient: Gradient) -> Array:
    """Return the sum, added in place to ``total`` unless that is a NumPy scalar, which is immutable."""
    if isinstance(gradient, PendingGradient):
        _complete(gradient, total, add=True)
    else:
        total += gradient
    return total


def _check_seed(result: Tensor, gradient: Array | None) -> Array:
    if gradient is None:
        if result.value.size != 1:
            raise TapeError(
                f"backward: only a scalar has a gradient of its own; got shape {result.shape}: pass gradient="
            )
        gradient = namespace(result.value).ones_like(result.value)
    if isinstance(gradient, Tensor) or not hasattr(gradient, "shape"):
        raise TypeError(f"backward: gradient must be an array, got {type(gradient).__name__}")
    if tuple(gradient.shape) != result.shape:
        raise TapeError(f"backward: gradient must have the result's shape {result.shape}, got {gradient.shape}")
    if gradient.dtype.kind not in _INTEGERS:
        return gradient
    return gradient.astype(np.float64 if result.dtype.kind in _INTEGERS else result.dtype)  # halves are no integers


def nodes_in_order(last: Node) -> list[Node]:
    """Return all nodes on which ``last`` depends, in topological order, inputs first (depth-first, without recursion).

    A node's inputs are visited from the last to the first.  The encoder's output is a later argument of attention than
    the decoder's queries.  So the encoder comes first in the order, and the backward pass completes the decoder first.
    Raises: TapeError if a node was consumed.
    """
    finished: list[Node] = []
    visited = {last}
    stack: list[tuple[Node, Iterator[Origin | None]]] = [(last, reversed(last.inputs))]
    while stack:
        node, inputs = stack[-1]
        for origin in inputs:
            if isinstance(origin, Node) and origin not in visited:
                visited.add(origin)
                stack.append((origin, reversed(origin.inputs)))
                break
        else:
            node.unconsumed()
            finished.append(node)
            stack.pop()
    return finished
