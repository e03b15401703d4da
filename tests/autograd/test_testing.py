"""``check_gradients`` names planted faults in any operation, and accepts correct gradients."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planting import STATIC, Spoil, arguments_of, planted, spoil_one

from autograd import Tensor, ops
from autograd.op import Operation, operations
from autograd.testing import GradientError, check_gradients

LEAVES = [
    (name, i, rf" \({parameter.name}\)" if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else "")
    for name in operations
    for i, (x, parameter) in enumerate(
        zip(arguments_of(name), inspect.signature(operations[name].reference).parameters.values(), strict=False)
    )
    if x.dtype == float
]


def check(operation: Operation, seed: int = 0) -> None:
    name = operation.__name__
    bound = functools.partial(operation, **STATIC.get(name, {}))
    check_gradients(bound, *arguments_of(name, seed), seed=seed)


@pytest.mark.parametrize("name", operations)
def test_right_gradients_pass_with_any_numbers(name: str) -> None:
    for seed in range(5):
        check(operations[name], seed)


# What is planted is found, and called by its name.

ERRORS: dict[str, Callable[[Any], Any]] = {
    "factor 1.0005": lambda dx: 1.0005 * dx,
    "wrong sign": lambda dx: -dx,
    "a constant too much": lambda dx: dx + 1e-3,
    "None": lambda dx: None,
    "the largest coordinate missing": lambda dx: np.where(abs(dx) == abs(dx).max(), 0, dx),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("name", "argument", "named"), LEAVES)
def test_a_wrong_gradient_is_found_in_any_argument_of_any_op(name: str, argument: int, named: str, error: str) -> None:
    got = "None" if error == "None" else r"[-\d.e]+"
    with pytest.raises(
        GradientError,
        match=rf"^{name}: gradient of argument {argument}{named} at \([\d, ]+\):"
        rf" backward gives {got}, central difference [-\d.e]+ \(±[-\d.e]+\)$",
    ):
        check(planted(name, spoil_one(argument, ERRORS[error])))


def embedding_set_not_added(gradients: Any, dy: Any, table: Any, ids: Any) -> Any:
    dtable = np.zeros_like(table)
    dtable[ids] = dy
    return dtable, None


softmax = operations["softmax"].reference
TERMS: dict[str, tuple[str, Spoil]] = {
    "softmax without −⟨dy, y⟩": ("softmax", lambda right, dy, x: (dy * softmax(x)[0],)),
    "log-softmax without −exp(y) Σ dy": ("log_softmax", lambda right, dy, x: (dy,)),
    "embedding, of a repeated id the last alone": ("embedding", embedding_set_not_added),
    "dX = dZ Y, not dZ Yᵀ": ("matmul", lambda right, dz, x, y: (dz @ y, right[1])),
    "linear's dW transposed": ("linear", lambda right, dy, x, w, b: (right[0], right[1].T, right[2])),
}


@pytest.mark.parametrize("error", TERMS)
def test_a_dropped_term_and_a_transposed_factor_are_found(error: str) -> None:
    name, spoil = TERMS[error]
    with pytest.raises(GradientError, match=rf"^{name}: gradient of argument \d \(\w+\) at \("):
        check(planted(name, spoil))


@pytest.mark.parametrize("name", ["subtract", "multiply", "divide", "matmul", "linear_transposed", "attention"])
def test_the_gradient_of_another_argument_is_found(name: str) -> None:
    with pytest.raises(GradientError, match=rf"^{name}: gradient of argument 0 \(\w+\) at \("):
        check(planted(name, lambda gradients, dy, *arguments: (gradients[1], gradients[0], *gradients[2:])))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_a_missing_sum_over_a_broadcast_axis_is_found(name: str) -> None:
    def unsummed(gradients: Any, dy: Any, x: Any, row: Any) -> Any:
        _, backward = operations[name].reference(x, np.broadcast_to(row, x.shape))
        return gradients[0], backward(dy)[1][0]

    with pytest.raises(GradientError, match=rf"^{name}: gradient of argument 1 \(y\) at \(\d,\): backward gives"):
        check_gradients(planted(name, unsummed), np.ones((3, 4)), np.arange(1.0, 5.0))


@pytest.mark.parametrize("name", ["scale", "mean", "softmax"])
def test_one_wrong_coordinate_among_thousands_is_found(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((50, 80))
    for index in ((0, 0), (31, 7), (49, 79)):
        factors = np.ones(x.shape)
        factors[index] = 1.5
        wrong = planted(name, spoil_one(0, functools.partial(np.multiply, factors)))
        with pytest.raises(GradientError, match=re.escape(f"gradient of argument 0 (x) at {index}: ")):
            check_gradients(functools.partial(wrong, **STATIC.get(name, {})), x)


def test_what_no_coordinate_shows_is_reported_along_the_direction() -> None:
    nothing = functools.partial(planted("scale", spoil_one(0, lambda dx: dx + 5e-10)), factor=0.0)
    with pytest.raises(GradientError, match=r"scale: gradient of argument 0 \(x\) along a random direction: backward"):
        check_gradients(nothing, np.zeros(4000))


class Forgetful(Tensor):
    """A leaf that keeps the last gradient instead of the sum."""

    def receive_gradient(self, gradient: Any, destination: Any, *, first: bool) -> None:
        super().receive_gradient(gradient, destination, first=True)


@pytest.mark.parametrize("twice", [lambda x: x * x, lambda x: x @ x, lambda x: ops.softmax(x) - x / 2.0])
def test_a_leaf_that_is_used_twice_must_get_the_sum(twice: Callable[[Tensor], Tensor]) -> None:
    x = arguments_of("scale")[0]
    check_gradients(twice, x)
    leaf = Forgetful(x)
    with pytest.raises(GradientError, match=r"gradient of leaf at \("):
        check_gradients(lambda: twice(leaf), leaves={"leaf": leaf})


def test_a_gradient_that_is_not_finite_is_named() -> None:
    wrong = planted("relu", spoil_one(0, lambda dx: np.where(np.arange(9).reshape(3, 3) == 5, np.nan, dx)))
    with pytest.raises(GradientError, match=r"^relu: gradient of argument 0 \(x\) is not finite: nan at \(1, 2\)$"):
        check(wrong)


@pytest.mark.parametrize(
    ("x", "where"), [([0.0, 2.0], r"at the given inputs is not finite: inf at \(1,\)"),
                     ([0.0, 1.0], r"within a step of the given inputs is not finite: inf at \(1,\)")],
)  # fmt: skip
def test_a_value_that_is_not_finite_is_an_error_of_its_own(x: list[float], where: str) -> None:
    def pole(x: Any) -> Any:
        return np.where(x > 1, np.inf, x), lambda dy: (dy,)

    with pytest.raises(GradientError, match=rf"pole: the value {where}$"):
        check_gradients(Operation(pole), np.array(x))


@pytest.mark.parametrize("around", [lambda y: y, lambda y: y * 2.0], ids=["seed", "gradient between operations"])
def test_a_gradient_that_is_changed_in_place_is_refused_at_that_line(around: Callable[[Tensor], Tensor]) -> None:
    def relu(x: Any) -> Any:
        def backward(dy: Any) -> Any:
            dy *= x > 0
            return (dy,)

        return np.maximum(x, 0), backward

    with pytest.raises(ValueError, match="read-only") as raised:
        check_gradients(lambda x: around(Operation(relu)(x)), np.array([-1.0, 2.0]))
    assert str(raised.traceback[-1].statement).strip() == "dy *= x > 0"


# Whom an error names, and what may be checked.


WRONG_SCALE = functools.partial(planted("scale", spoil_one(0, lambda dx: 2 * dx)), factor=3.0)


def tripled(x: Tensor) -> Tensor:
    return WRONG_SCALE(x)


class Tripling:
    def __call__(self, numbers: Tensor) -> Tensor:
        return WRONG_SCALE(numbers)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (tripled, r"^tripled: gradient of argument 0 \(x\) at"),
        (lambda *inputs: WRONG_SCALE(inputs[0]), r"^<lambda>: gradient of argument 0 at"),
        (Tripling(), r"^Tripling: gradient of argument 0 \(numbers\) at"),
        (WRONG_SCALE, r"^scale: gradient of argument 0 \(x\) at"),
    ],
)
def test_functions_and_arguments_are_named_as_far_as_they_can_be(function: Any, name: str) -> None:
    with pytest.raises(GradientError, match=name):
        check_gradients(function, np.ones(3))


def test_a_name_that_is_given_stands_first_and_arrays_may_be_read_only() -> None:
    x = np.ones(3)
    x.flags.writeable = False
    check_gradients(ops.softmax, x)
    with pytest.raises(GradientError, match=r"^third layer: gradient of argument 0 \(x\) at"):
        check_gradients(tripled, x, name="third layer")


def test_leaves_are_checked_by_their_names_and_left_as_they_were() -> None:
    leaf, unused = Tensor(np.arange(3.0)), Tensor(np.ones(2))
    unused.grad = np.full(2, 7.0)
    check_gradients(lambda: leaf * leaf, leaves={"the leaf": leaf, "unused": unused})
    np.testing.assert_array_equal(leaf.value, np.arange(3.0))
    with pytest.raises(GradientError, match="gradient of the leaf at"):
        check_gradients(lambda: tripled(leaf), leaves={"the leaf": leaf})


def test_only_float64_can_be_checked() -> None:
    leaf = Tensor(np.ones(2, np.float32))
    with pytest.raises(TypeError, match="the leaf must be float64, got float32"):
        check_gradients(lambda: leaf * 2.0, leaves={"the leaf": leaf})
    with pytest.raises(ValueError, match="nothing has no float64 argument"):
        check_gradients(lambda: Tensor(np.ones(1)) * 1.0, name="nothing")


# The step.


def test_a_step_must_suit_the_scale_of_the_function() -> None:
    equal = np.full((2, 3), 0.3), np.ones(3), np.ones(3)
    check_gradients(ops.layer_norm, *equal, step=1e-8)
    check_gradients(ops.layer_norm, *equal)  # by itself it comes down to a hundredth
    with pytest.raises(GradientError):
        check_gradients(ops.layer_norm, *equal, step=1.0)
    with pytest.raises(GradientError):
        check_gradients(planted("layer_norm", spoil_one(0, lambda dx: 1.0005 * dx)), *equal)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cross_entropy", "attention"])
def test_curvature_is_no_error_and_hides_none(name: str) -> None:
    operation = functools.partial(operations[name], **STATIC.get(name, {}))
    wrong = functools.partial(planted(name, spoil_one(0, lambda dx: 1.0005 * dx)), **operation.keywords)
    for step in (1e-6, 1e-4, 0.02, 0.1):
        check_gradients(operation, *arguments_of(name), step=step)
        with pytest.raises(GradientError):
            check_gradients(wrong, *arguments_of(name), step=step)


def test_a_step_that_rounding_swallows_is_refused() -> None:
    huge = np.full(3, 1e13)
    check_gradients(functools.partial(ops.scale, factor=2.0), huge, step=1e10)
    with pytest.raises(ValueError, match=r"argument 0 \(x\): step 1e-05 is lost in rounding; choose a larger one"):
        check_gradients(functools.partial(ops.scale, factor=2.0), huge)


def test_as_many_coordinates_are_checked_as_was_said() -> None:
    for size, at_most, n_coordinates in ((8, 8, 8), (9, 8, 2), (100, 60, 15)):
        calls: list[Any] = []

        def counted(x: Tensor, calls: list[Any] = calls) -> Tensor:
            calls.append(x.value.copy())
            return x * 2.0

        check_gradients(counted, np.zeros(size), max_coordinates=at_most)
        assert len(calls) == 1 + 2 * (1 + n_coordinates)
        assert sum(np.count_nonzero(x) == 1 for x in calls) == 2 * n_coordinates
