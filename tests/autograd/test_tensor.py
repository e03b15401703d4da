"""The tape."""

import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import BackwardError, TapeError, Tensor, backward, no_tape, ops
from autograd.array import namespace
from autograd.op import Operation
from autograd.precision import dtype_named
from autograd.tensor import PendingGradient, put


def test_sums_leave_alone_what_others_hold() -> None:
    """The gradient of z is passed unchanged to x and to y, and each gets two more."""
    x, y = Tensor(np.array([2.0])), Tensor(np.array([5.0]))
    a, b = x * 1.0, y * 1.0
    backward(ops.sum((a + b) + a * 2.0 + a * 10.0 + b * 100.0 + b * 1000.0))
    assert (x.grad, y.grad) == (13, 1101)


def test_diamond_visits_every_node_once_after_all_its_uses() -> None:
    x = Tensor(np.array(3.0))
    y = x * x
    z = y * y + y
    backward(z + y * x + x)
    assert x.grad == 4 * 3**3 + 2 * 3 + 3 * 3**2 + 1


def test_a_leaf_is_completed_once_after_its_last_use() -> None:
    x, y = Tensor(np.array(3.0)), Tensor(np.array(5.0))
    final: list[tuple[Tensor, Any]] = []
    backward(x * y + x, completed=lambda leaf: final.append((leaf, leaf.grad)))
    assert final == [(x, 6), (y, 3)]


def test_long_chains_need_no_recursion() -> None:
    x = y = Tensor(np.array(1.0))
    for _ in range(20_000):
        y = y + 1.0
    backward(y)
    assert x.grad == 1


def test_a_tape_is_read_once_and_a_part_that_was_consumed_changes_no_gradient() -> None:
    x, y = Tensor(np.ones(2)), Tensor(np.ones(2))
    shared = x * 2.0
    loss = ops.sum(shared)
    backward(loss)
    for again in (loss, ops.sum(shared + y * 3.0)):
        with pytest.raises(TapeError, match="consumed by an earlier call.*compute the loss again"):
            backward(again)
    assert y.grad is None


def test_a_backward_pass_needs_a_tape_and_a_gradient_of_the_results_shape() -> None:
    with pytest.raises(TapeError, match="no tape to walk"):
        backward(Tensor(np.array(1.0)))
    y = Tensor(np.ones(3)) * 2.0
    with pytest.raises(TapeError, match=r"got shape \(3,\): pass gradient="):
        backward(y)
    with pytest.raises(TapeError, match=r"must have the result's shape \(3,\), got \(2,\)"):
        backward(y, np.ones(2))


def test_no_tape_records_nothing_and_holds_for_its_own_thread_until_an_error() -> None:
    x, recorded = Tensor(np.ones(2)), list[bool]()
    with pytest.raises(RuntimeError, match="out"), no_tape():
        assert (x * 2.0).node is None
        thread = threading.Thread(target=lambda: recorded.append((x * 2.0).node is not None))
        thread.start()
        thread.join()
        raise RuntimeError("out")
    assert (x * 2.0).node is not None
    assert recorded == [True]


def test_values_that_no_backward_needs_are_freed_while_the_tape_stands() -> None:
    y = Tensor(np.ones(1000)) + 1.0
    value = weakref.ref(y.value)
    loss = ops.sum(y + 1.0)
    del y
    gc.collect()
    assert value() is None
    backward(loss)


def test_saved_values_are_freed_as_backward_goes() -> None:
    """When the first operation's backward runs, arrays saved by later ones are freed already."""
    alive: list[bool] = []

    def first(x: Any) -> Any:
        def run_backward(dy: Any) -> Any:
            gc.collect()
            alive.append(saved() is not None)
            return (dy,)

        return x.copy(), run_backward

    x = Tensor(np.ones(10))
    y = Operation(first)(x)
    z = ops.softmax(y)
    saved = weakref.ref(z.value)
    loss = ops.sum(z * 2.0)
    del z
    assert saved() is not None
    backward(loss)
    assert alive == [False]


def test_a_gradient_that_was_handed_on_is_freed_before_the_next_is_computed() -> None:
    alive: list[bool] = []
    given: list[Any] = []

    def scaled(x: Any) -> Any:
        def run_backward(dy: Any) -> Any:
            alive.extend(ref() is not None for ref in given)
            gradient = dy * 2.0
            given.append(weakref.ref(gradient))
            return (gradient,)

        return x * 2.0, run_backward

    leaf = Tensor(np.ones(10))
    inner = Operation(scaled)(Tensor(np.ones(10)))
    backward(ops.sum(Operation(scaled)(leaf) + inner))
    assert alive == [False]


@pytest.mark.parametrize("is_result", [False, True])
def test_a_pending_gradient_is_added_in_place_to_what_nobody_else_holds(is_result: bool) -> None:
    """It goes to a leaf and to the result of an operation, before other gradients and after them."""
    calls: list[str] = []

    def gradient(dy: Any) -> PendingGradient:
        def into(out: Any, add: bool) -> None:
            calls.append("add" if add else "write")
            put(dy, out, add)

        return PendingGradient(dy.shape, dy, into)

    pending = Operation(lambda x: (x + 0, lambda dy: (gradient(dy),)))
    for function, expected in (
        (lambda x: pending(x) + (pending(x) + pending(x)), ["write", "add", "add"]),
        (lambda x: pending(x) + (pending(x) + x), ["write", "add"]),
        (lambda x: x + pending(x) + pending(x), ["add", "add"]),
    ):
        leaf, dy = Tensor(np.ones(3)), np.arange(3.0)
        calls.clear()
        backward(function(leaf * 1.0 if is_result else leaf), dy)
        np.testing.assert_array_equal(leaf.grad, 3 * np.arange(3.0))
        np.testing.assert_array_equal(dy, np.arange(3.0))
        assert not is_result or sorted(calls, reverse=True) == expected


def test_where_one_way_ends_the_others_go_on() -> None:
    without_gradient = Operation(lambda x: (x + 1, lambda dy: (None,)))
    for is_first in (True, False):
        a, b = Tensor(np.ones(2)), Tensor(np.ones(2))
        ends, goes_on = without_gradient(a * 2.0), b * 3.0
        backward(ops.sum(goes_on + ends if is_first else ends + goes_on))
        assert a.grad is None
        np.testing.assert_array_equal(b.grad, [3.0, 3.0])
    backward(ops.sum(without_gradient(a)))
    assert a.grad is None


def twice(dy: Any, shape: tuple[int, ...]) -> PendingGradient:
    """Return twice dy, of another shape than dy's if that is wrong."""
    return PendingGradient(shape, dy, functools.partial(put, 2 * dy))


ARGUMENT = r"expected a gradient of argument 1 like the argument, an array of shape \(3, 2\), float32; got "
TUPLE = "expected a tuple of 2 gradients, one for each argument"


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda dy: dy, rf"{TUPLE}; got an array of shape \(3, 2\), float32"),
        (lambda dy: np.stack([dy, dy]), rf"{TUPLE}; got an array of shape \(2, 3, 2\), float32"),
        (lambda dy: None, f"{TUPLE}; got NoneType"),
        (lambda dy: (x for x in (dy, dy)), f"{TUPLE}; got generator"),
        (lambda dy: (dy,), f"{TUPLE}, or None for an argument without; got 1"),
        (lambda dy: (dy, dy, None), f"{TUPLE}, or None for an argument without; got 3"),
        (lambda dy: (dy, dy.T), rf"{ARGUMENT}an array of shape \(2, 3\), float32"),
        (lambda dy: [None, dy.sum()], rf"{ARGUMENT}an array of shape \(\), float32"),
        (lambda dy: (dy, twice(dy, (2, 3))), rf"{ARGUMENT}an array of shape \(2, 3\), float32"),
        (lambda dy: (dy, dy.astype(np.complex64)), rf"{ARGUMENT}an array of shape \(3, 2\), complex64"),
        (lambda dy: (dy, dy > 0), rf"{ARGUMENT}an array of shape \(3, 2\), bool"),
        (lambda dy: (dy, 2.0), f"{ARGUMENT}float"),
    ],
)
def test_a_wrong_backward_is_refused_with_the_name_of_its_operation(wrong: Any, message: str, is_leaf: bool) -> None:
    def plus(x: Any, y: Any) -> Any:
        return x + y, wrong

    x, y = (Tensor(np.ones((3, 2), np.float32)) for _ in range(2))
    if not is_leaf:
        x, y = x * 2.0, y * 2.0
    with pytest.raises(BackwardError, match=f"^backward of plus: {message}$"):
        backward(ops.sum(Operation(plus)(x, y)))


def test_a_wrong_backward_on_bfloat16_is_refused_too() -> None:
    x = Tensor(np.ones(2).astype(dtype_named("bfloat16")))
    for wrong in (lambda x: (x * 1, lambda dy: dy), lambda x: (x * 1, lambda dy: (dy, dy))):
        with pytest.raises(BackwardError, match="^backward of <lambda>: expected a tuple of one gradient"):
            backward(ops.sum(Operation(wrong)(x)))


@pytest.mark.parametrize("right", [lambda dy: (dy.astype(int), dy), lambda dy: [twice(dy, dy.shape), None]])
def test_gradients_may_be_integers_pending_or_missing(right: Any) -> None:
    x, mask = Tensor(np.ones(2)), Tensor(np.array([True, False]))
    backward(ops.sum(Operation(lambda x, mask: (x * mask, right))(x, mask)))
    assert x.grad is not None


def test_what_is_no_array_becomes_one() -> None:
    assert Tensor([1.0, 2.0]).value.dtype == np.float64  # type: ignore[arg-type]
    array = np.ones(3, np.float32)
    assert Tensor(array).value is array


@pytest.mark.parametrize(
    ("use", "remedy"),
    [
        (np.asarray, "take its .value"),
        (bool, "compare its .value"),
        (Tensor, "take its .value"),
        (lambda x: x == Tensor(x.value), "compare its .value"),
        (lambda x: x != x.value, "compare its .value"),
        (lambda x: x.value == x, "compare its .value"),
        (lambda x: x != None, "compare its .value"),  # noqa: E711
    ],
)
@pytest.mark.parametrize("value", [np.ones(2), np.ones(0), np.array(0.5)], ids=["two", "none", "scalar"])
def test_a_tensor_is_not_taken_for_something_else(use: Callable[..., Any], remedy: str, value: Any) -> None:
    with pytest.raises(TypeError, match=remedy):
        use(Tensor(value))


def test_a_tensor_is_iterated_over_its_first_axis_and_without_one_is_refused() -> None:
    x = Tensor(np.array([2.0, 3.0]))
    first, second = x
    backward(first * 5.0 + second * second)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad, [5, 6])
    for use in (iter, list, sum):
        with pytest.raises(TypeError, match="iteration over a Tensor without axes"):
            use(Tensor(np.array(5.0)))


def test_a_gradient_that_is_no_array_is_refused_before_the_tape_is_read() -> None:
    x = Tensor(np.ones(2))
    y = x * 3.0
    for gradient in (Tensor(np.ones(2)), [1.0, 1.0], 1.0):
        with pytest.raises(TypeError, match="backward: gradient must be an array, got"):
            backward(y, gradient)
    backward(y, np.ones(2))
    np.testing.assert_array_equal(x.grad, [3, 3])


def test_an_integer_gradient_of_the_result_becomes_one_of_its_type() -> None:
    x = Tensor(np.ones(2, np.float32))
    y = x + np.float32(0)
    backward(y + y + y * 0.5, np.array([2, 4]))
    assert x.grad is not None
    assert x.grad.dtype == np.float32
    np.testing.assert_array_equal(x.grad, [5, 10])


def test_a_number_leaves_the_type_as_it_is_and_one_element_is_a_number() -> None:
    x = Tensor(np.ones(2, np.float32))
    for factor in (0.125, np.float64(0.125), 8):
        assert {y.dtype for y in (x * factor, factor * x, x / factor)} == {np.dtype(np.float32)}
    for shape in ((), (1,), (1, 1)):
        assert float(Tensor(np.full(shape, 2.5))) == 2.5


def test_what_is_no_array_has_no_namespace() -> None:
    for thing in (Tensor(np.ones(2)), "text", None, [1.0]):
        with pytest.raises(TypeError, match="expected an array of NumPy or CuPy, got"):
            namespace(thing)


def test_a_tensor_tells_shape_length_dtype_device_and_maker() -> None:
    x = Tensor(np.ones((2, 3), np.float32))
    assert (x.shape, len(x), x.dtype, x.device) == ((2, 3), 2, np.float32, "cpu")
    assert repr(x) == "Tensor(shape (2, 3), float32)"
    assert repr(x * 2.0) == "Tensor(shape (2, 3), float32, from scale)"
