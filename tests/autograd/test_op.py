"""The choice of an operation's implementation, and the nodes that it records."""

import functools
import threading
from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer, Tensor, backward, no_tape, ops, tensor
from autograd.op import ArgumentError, Dispatch, JointKernels, Operation, observed, operations
from autograd.parameters import zeros
from autograd.precision import dtype_named
from autograd.random import StreamId
from autograd.tensor import PendingGradient, TapeError, put

X = np.arange(3.0)


def named(name: str) -> Any:
    return lambda x, *, factor=1: (name, factor)


def test_the_kernel_registered_last_is_asked_first_and_runs_what_it_supports() -> None:
    double: Dispatch[Any] = Dispatch(lambda x, *, factor=1: ("reference", factor))
    asked = list[Any]()
    assert double(X, factor=3) == ("reference", 3)
    double.kernel("cuda", supports=lambda *arguments, **static: bool(asked.append(arguments)) or True)(named("cuda"))
    assert double(X) == ("reference", 1)
    assert asked == []
    double.remove_kernels("cuda")  # other tests require that none is registered
    double.kernel("cpu", supports=lambda x, factor=1: len(x) > 2)(named("long"))
    double.kernel("cpu", supports=lambda x, factor=1: factor == 7)(named("seven"))
    assert [double(X[:n], factor=factor)[0] for n, factor in ((3, 1), (2, 1), (2, 7))] == ["long", "reference", "seven"]
    for name in ("first", "second"):
        assert double.kernel("cpu")(function := named(name)) is function
        assert double(X) == (name, 1)


def test_arguments_that_are_none_have_no_device(kernels_kept: None) -> None:
    linear = operations["linear"]
    linear.kernel("cpu", supports=lambda x, w, b: b is None)(lambda x, w, b: (x, lambda dy: (dy, None, None)))
    np.testing.assert_array_equal(linear(X[None], np.eye(3) * 2, None).value, X[None])
    np.testing.assert_array_equal(linear(X[None], np.eye(3) * 2, X).value, 3 * X[None])


LOGITS, IDS = np.arange(6.0).reshape(2, 3), np.array([0, 2])


@pytest.mark.parametrize(
    ("by_keyword", "by_position"),
    [
        (lambda x: ops.cross_entropy(x, targets=IDS), lambda x: ops.cross_entropy(x, IDS)),
        (lambda x: ops.maximum(x, y=2.5), lambda x: ops.maximum(x, 2.5)),
        (lambda x: ops.linear(x, LOGITS.T, bias=None), lambda x: ops.linear(x, LOGITS.T, None)),
        (lambda x: ops.matmul(x, y=Tensor(LOGITS.T)), lambda x: ops.matmul(x, Tensor(LOGITS.T))),
        (lambda x: ops.multiply(y=x, x=LOGITS), lambda x: ops.multiply(LOGITS, x)),
    ],
)
def test_an_argument_without_a_default_may_be_given_by_keyword(by_keyword: Any, by_position: Any) -> None:
    results, leaves = [], [Tensor(LOGITS), Tensor(LOGITS)]
    for function, x in zip((by_keyword, by_position), leaves, strict=True):
        results.append(ops.sum(function(x)))
        backward(results[-1])
    assert float(results[0]) == float(results[1])
    np.testing.assert_array_equal(leaves[0].grad, leaves[1].grad)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        ops.multiply(y=X)


def test_an_argument_with_a_default_is_static_if_given_by_keyword() -> None:
    x = Tensor(X)
    backward(ops.sum(Operation(lambda x, factor=2: (x * factor, lambda dy: (dy * factor,)))(x, factor=3)))
    np.testing.assert_array_equal(x.grad, [3, 3, 3])


def test_a_tensor_as_a_static_argument_is_refused_because_its_gradient_would_be_lost() -> None:
    def tempered(x: Any, tau: Any = 1.0) -> Any:
        return x / tau, lambda dy: (dy / tau, -dy * x / tau**2)

    x, tau = Tensor(X), Tensor(np.full(3, 2.0))
    with pytest.raises(TypeError, match="^tempered: tau is a Tensor given by keyword.*give it by position"):
        Operation(tempered)(x, tau=tau)
    backward(ops.sum(Operation(tempered)(x, tau)))
    np.testing.assert_array_equal(tau.grad, -X / 4)


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        (np.ones((2, 3)), "ndarray"),
        (np.ones(3), "ndarray"),
        ([X, lambda dy: (dy,)], "list"),
        ((X, X), r"a tuple of \(ndarray, ndarray\)"),
        ((X,), r"a tuple of \(ndarray\)"),
    ],
)
def test_an_operation_without_a_backward_is_refused_by_name(returned: Any, got: str) -> None:
    def half(x: Any) -> Any:
        return returned

    joint = JointKernels("half")
    joint.kernel("cpu")(half)
    for call in (Operation(half), Operation(half).of_arrays, joint.compute):
        with pytest.raises(TypeError, match=rf"^half: must return \(y, backward\), .*; got {got}$"):
            call(X)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_result_may_be_a_number(dtype: str) -> None:
    x = Tensor(X.astype(dtype_named(dtype)))
    total = Operation(lambda x: (float(x.sum()), lambda dy: (np.full(3, dy),)))(x)
    backward(total * 2.0)
    assert float(total) == 3
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.astype(float), [2, 2, 2])


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda x: ops.dropout(x, rate=1.5, stream_id=StreamId(1, 2)), r"dropout: rate must be in \[0, 1\), got 1.5"),
        (lambda x: ops.cross_entropy(x, IDS, smoothing=2.0), "cross_entropy: smoothing must be in .* 2 of 3 classes"),
    ],
)
def test_a_wrong_static_argument_is_no_matter_of_shapes(compute: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}$") as raised:
        compute(LOGITS)
    assert type(raised.value) is ArgumentError


# The hook for who observes operations.


class Seen:
    """An observer that lists what it sees: arguments and results of operations, and gradients of arguments."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def __call__(self, operation: Operation, run: Any, *arguments: Any, **static: Any) -> Any:
        value, backward_of_run = run(*arguments, **static)
        self.events.append((operation.__name__, (*arguments, static, value)))

        def seen_backward(dy: Any) -> Any:
            gradients = backward_of_run(dy)
            self.events.append((f"d {operation.__name__}", gradients))
            return gradients

        return value, seen_backward


def test_an_observer_sees_arguments_results_and_gradients() -> None:
    seen, x = Seen(), Tensor(np.array([2.0]))
    with observed(seen):
        y = ops.scale(x, factor=3.0)
    backward(y + 1.0)
    assert seen.events == [("scale", (x.value, {"factor": 3.0}, y.value)), ("d scale", ([3.0],))]
    assert x.grad == [3.0]


def test_an_observer_may_change_what_it_returns() -> None:
    x = Tensor(X)
    with observed(lambda operation, run, *arguments, **static: (run(*arguments, **static)[0], lambda dy: [None])):
        y = ops.scale(x, factor=3.0)
    backward(ops.sum(y + x))
    np.testing.assert_array_equal(x.grad, np.ones(3))


def test_observers_see_operations_inside_operations_and_those_on_bfloat16_once() -> None:
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (pip install ml_dtypes)")
    seen, x, row = Seen(), np.ones((2, 3), dtype_named("bfloat16")), np.ones(3, np.float32)
    outer = Operation(lambda x: ops.scale.of_arrays(x, factor=2.0))
    with observed(seen):
        ops.layer_norm(x, row, row)
        outer(X)
    assert [name for name, _ in seen.events] == ["layer_norm", "scale", "<lambda>"]


def test_an_observer_sees_its_own_thread_and_only_until_its_block_ends() -> None:
    outer, inner, of_other = Seen(), Seen(), Seen()

    def compute_beside() -> None:
        ops.relu(X)
        with observed(of_other):
            ops.tanh(X)

    with observed(outer):
        with pytest.raises(ZeroDivisionError), observed(inner):
            ops.scale(X, factor=1 / int(X[0]))
        ops.transpose(X[None])
        thread = threading.Thread(target=compute_beside)
        thread.start()
        thread.join()
    ops.relu(X)
    assert [[name for name, _ in seen.events] for seen in (outer, inner, of_other)] == [["transpose"], [], ["tanh"]]


# Operations that a kernel may compute together.


class Together:
    """Two operations whose joint kernel keeps the arguments of its backward."""

    def __init__(self) -> None:
        self.joint = JointKernels("doubled_and_tripled")
        self.given: list[Any] = []
        self.joint.kernel("cpu", supports=lambda x: len(x) > 2)(self.run)

    def operation(self, x: Any) -> list[Any]:
        return self.joint.compute(x) or [x * 2.0, x * 3.0]

    def run(self, x: Any) -> tuple[list[Any], Any]:
        def backward(dys: list[Any]) -> list[Any]:
            self.given.append(dys)
            return [sum(factor * dy for factor, dy in zip((2, 3), dys, strict=True) if dy is not None)]

        return [2 * x, 3 * x], backward


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda ys: ys[0] + ys[1], 5),
        (lambda ys: ys[1] * 1.0, 3),
        (lambda ys: ys[0] - ys[1] + ys[0], 1),
        (lambda ys: ys[1], 3),
    ],
)
@pytest.mark.parametrize("n", [2, 3])
def test_results_computed_together_have_the_gradients_of_separate_ones(function: Any, expected: int, n: int) -> None:
    together, x = Together(), Tensor(np.arange(float(n)))
    ys = together.operation(x)
    np.testing.assert_array_equal([y.value for y in ys], np.outer([2, 3], x.value))
    backward(ops.sum(function(ys)))
    np.testing.assert_array_equal(x.grad, np.full(n, expected))
    assert len(together.given) == (n > 2)


def test_results_computed_together_are_walked_once_and_unused_ones_have_no_gradient() -> None:
    together = Together()
    loss = ops.sum(together.operation(Tensor(X))[1])
    backward(loss)
    ((first, second),) = together.given
    assert first is None
    assert second.tolist() == [1, 1, 1]
    with pytest.raises(TapeError, match="consumed by an earlier call"):
        backward(loss)
    with no_tape():
        assert [y.node for y in together.operation(Tensor(X))] == [None, None]


def test_numbers_of_sixteen_bits_go_to_kernels_that_take_them() -> None:
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (pip install ml_dtypes)")
    x = np.ones(3, dtype_named("bfloat16"))
    joint = Together().joint
    assert joint.kernel_of((x,)) is None
    taking = joint.kernel("cpu", takes_16_bits=True)(lambda x: ([x, x], lambda dys: dys[:1]))
    assert joint.kernel_of((x,)) is taking


def test_a_deferred_gradient_is_waited_for_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter's is read after the backward pass, others at once."""
    started: list[Any] = []
    monkeypatch.setattr(tensor, "deferred_waits", [lambda: [started.pop(0)() for _ in started[:]]])

    def deferred(dy: Any) -> PendingGradient:
        def into(out: Any, add: bool) -> None:
            started.append(functools.partial(put, dy, out, add))

        return PendingGradient(dy.shape, dy, into, is_deferred=True)

    late = Operation(lambda x, y: (x + y, lambda dy: (deferred(dy), deferred(dy))))
    observing = Operation(lambda x: (x + 0, lambda dy: (dy * len(started),)))
    pair, dy = Pair(), np.ones(2, np.float32)
    buffer = ParameterBuffer(pair, seed=None)
    y = pair.y * 1.0
    for x_and_y, expected in (
        ((pair.x, observing(pair.y * 3.0)), [0, 1]),
        ((observing(pair.x * 3.0), pair.y), [1, 3]),
        ((pair.x, pair.x), [0, 2]),
        ((pair.y * 3.0, pair.y), [4, 0]),
        ((y, y), [2, 0]),
    ):
        backward(late(*x_and_y), dy)
        assert buffer.gradients.reshape(2, -1)[:, :2].tolist() == [[gradient] * 2 for gradient in expected]


class Pair(Layer):
    """A layer of two parameters."""

    def __init__(self) -> None:
        self.x, self.y = Parameter((2,), zeros), Parameter((2,), zeros)
