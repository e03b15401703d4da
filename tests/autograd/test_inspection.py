"""Planted faults are found in the array that has them: an argument, a result, or a gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import Tensor, backward, no_tape, ops
from autograd.inspection import first_not_finite
from autograd.ops.linear import pack_weight
from autograd.ops.linear_maps import joint_linear_maps
from autograd.precision import dtype_named


def chain(x: Tensor, scale: float = 1.0) -> Tensor:
    return ops.layer_norm(ops.scale(x, factor=scale) + x, np.ones(3, np.float32), np.zeros(3, np.float32))


def leaf(*rows: tuple[float, ...]) -> Tensor:
    return Tensor(np.array(rows, np.float32))


def found_in(compute: Callable[[], Any]) -> tuple[str, int, str, int]:
    """Return where the first number is that is not finite, and how many there are."""
    found = first_not_finite(compute)
    assert found is not None
    return found.operation, found.number, found.array, found.n_wrong


def test_what_overflows_is_the_result_of_its_operation() -> None:
    assert first_not_finite(lambda: backward(chain(leaf((1, 2, 3))), np.ones((1, 3), np.float32))) is None
    found = first_not_finite(lambda: chain(leaf((1, 2e38, 3)), scale=2.0))
    assert str(found) == "result of operation 1, scale of (1, 3): 1 not finite"
    # The sum comes after what was still finite.
    assert found_in(lambda: chain(leaf((1, 2e38, 3)))) == ("add", 2, "result", 1)


def test_a_number_that_was_wrong_from_the_start_is_an_argument() -> None:
    x, gain = leaf((1, 2, 3)), np.array([1, np.nan, np.nan], np.float32)
    found = first_not_finite(lambda: ops.layer_norm(x, gain, np.zeros(3, np.float32)))
    assert found is not None
    assert (found.operation, found.array, found.n_wrong) == ("layer_norm", "argument 1", 2)
    assert found.arguments[1] is gain


def test_a_gradient_that_overflows_is_that_of_an_argument() -> None:
    dy = np.full((1, 2), 1e20, np.float32)
    assert first_not_finite(lambda: backward(ops.scale(ops.scale(leaf((1, 2)), factor=1e30), factor=1e-30), dy)) is None
    found = found_in(lambda: backward(ops.scale(leaf((1e-30, 0)), factor=1e30), dy))
    assert found == ("scale", 1, "gradient of argument 0", 2)
    pending = found_in(lambda: backward(ops.linear(leaf((3e38, 1)), leaf((1, 0), (0, 1)), None), dy))
    assert pending == ("linear", 1, "gradient of argument 1", 2)


def test_numbers_in_bfloat16_are_looked_at_and_their_operations_counted_once() -> None:
    wrong, large = (np.array(numbers).astype(dtype_named("bfloat16")) for numbers in ([1, np.nan], [1, 3e38]))
    assert found_in(lambda: ops.reshape(wrong, shape=(2, 1))) == ("reshape", 1, "argument 0", 1)
    found = found_in(lambda: ops.scale(ops.scale(Tensor(large), factor=1.0), factor=2.0))
    assert found == ("scale", 2, "result", 1)


def test_without_a_tape_the_forward_pass_is_watched_but_not_integers_and_masks() -> None:
    with no_tape():
        assert first_not_finite(lambda: ops.scale(leaf((3e38,)), factor=10.0)) is not None
    assert first_not_finite(lambda: ops.embedding(leaf((1, 2), (3, 4)), np.array([0, 1]))) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_packed_weights_are_looked_at(dtype: Any) -> None:
    x, weight = leaf((1, 2)), np.ones((2, 3), np.float32)
    assert first_not_finite(lambda: ops.linear(x, Tensor(pack_weight(weight, dtype=dtype)), None)) is None
    weight[0, 1] = np.nan
    found = found_in(lambda: ops.linear(x, Tensor(pack_weight(weight, dtype=dtype)), None))
    assert (found[0], found[2]) == ("linear", "argument 1")


def test_afterwards_nothing_is_watched_even_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        first_not_finite(lambda: 1 // 0)
    assert np.isnan(ops.scale(leaf((np.nan,)), factor=10.0).value)


def test_operations_that_a_kernel_computes_together_are_looked_at_one_by_one(kernels_kept: None) -> None:
    def together(*arguments: object) -> None:
        raise AssertionError("nobody would see what is computed here")

    x, good, large = leaf((1, 2e38)), np.ones((2, 1), np.float32), np.full((2, 1), 2, np.float32)
    joint_linear_maps.kernel("cpu")(together)
    assert found_in(lambda: ops.linear_maps(x, good, None, large, None)) == ("linear", 2, "result", 1)
