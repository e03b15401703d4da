"""Kernels of the CPU: equal to their references, in one run of rows and in several."""

from typing import Any

import numpy as np
import pytest
from draws import AXES, SEEDS, Draw
from guarded import guarded_allocations
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import CASES, OpCase, is_float, results

from autograd.kernels.cpu.library import Function, library
from autograd.op import operations
from autograd.tensor import gradient_array

WITH_KERNELS = sorted(name for name, operation in operations.items() if operation.kernels)
LENGTHS = st.sampled_from([1, 2, 3, 5, 17, 31, 32, 33, 70])  # around the number of lanes, and twice that


def in_float32(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.astype(np.float32) if is_float(x) else x for x in arguments)


def is_for_a_kernel(case: OpCase) -> bool:
    draw = Draw(np.random.default_rng(1), dict.fromkeys(AXES, 5))
    arguments = in_float32(case.arguments(draw))
    return operations[case.op].choose(arguments, case.static(draw)) is not operations[case.op].reference


cases_for_kernels = pytest.mark.parametrize(
    "case", [case for case in CASES if case.op in WITH_KERNELS and is_for_a_kernel(case)], ids=lambda case: case.id
)


def test_of_their_cases_dropout_of_attention_alone_has_no_kernel() -> None:
    left = {case.id for case in CASES if case.op in WITH_KERNELS and not is_for_a_kernel(case)}
    assert left == {"attention dropout"}


# With one column of results, OpenBLAS 0.3.31 (sgemv of processors with AVX-512) reads memory of its own stack that it
# has not written, and throws the result away: it warns if that memory happens to be a signalling NaN.
@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul:RuntimeWarning")
@cases_for_kernels
@given(sizes=st.fixed_dictionaries(dict.fromkeys(AXES, LENGTHS)), kind=st.sampled_from(["normal", "ties"]), seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_kernel_errors_are_at_most_twice_references(case: OpCase, sizes: dict[str, int], kind: str, seed: int) -> None:
    """Arguments and results lie between guards and are not aligned; results are NaN before they are written.

    The greatest errors are compared; below a few roundings of the greatest number, or of 1, errors are chance.
    """
    draw = Draw(np.random.default_rng(seed), sizes, kind)
    arguments, static = in_float32(case.arguments(draw)), case.static(draw)
    operation = operations[case.op]
    wide = tuple(x.astype(np.float64) if getattr(x, "dtype", None) == np.float32 else x for x in arguments)
    exact, reference_result = (results(operation.reference, each, static, seed) for each in (wide, arguments))
    with guarded_allocations() as guarded:
        arguments = tuple(guarded.copy_of(x) if isinstance(x, np.ndarray) else x for x in arguments)
        kernel_result = results(operation.choose(arguments, static), arguments, static, seed)
    for x, y, correct in zip(kernel_result, reference_result, exact, strict=True):
        assert (x is None) == (correct is None)
        if correct is not None:
            assert x.dtype == np.float32
            few_roundings = 8 * np.finfo(np.float32).eps * np.abs(correct).max(initial=1)
            allowed = 2 * np.abs(y - correct).max(initial=0) + few_roundings
            assert np.abs(x - correct).max(initial=0) <= allowed


@cases_for_kernels
@pytest.mark.parametrize("empty", ["T", "B", "S"])
def test_a_kernel_takes_empty_arrays_as_its_reference_does(case: OpCase, empty: str) -> None:
    draw = Draw(np.random.default_rng(1), dict.fromkeys(AXES, 3) | {empty: 0})
    try:
        arguments, static = in_float32(case.arguments(draw)), case.static(draw)
        expected = results(operations[case.op].reference, arguments, static, 1)
    except ValueError:
        pytest.skip("the reference does not take such arguments")
    with guarded_allocations():
        found = results(operations[case.op].choose(arguments, static), arguments, static, 1)
    for x, y in zip(found, expected, strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@cases_for_kernels
def test_a_kernel_takes_a_gradient_in_float64(case: OpCase) -> None:
    """A gradient has this dtype if a constant of the graph, or what the user passes to ``backward``, has it."""
    draw = Draw(np.random.default_rng(1), dict.fromkeys(AXES, 5))
    arguments, static = in_float32(case.arguments(draw)), case.static(draw)
    value, backward = operations[case.op].choose(arguments, static)(*arguments, **static)
    dy = np.random.default_rng(1).standard_normal(value.shape)
    reference_result = operations[case.op].reference(*arguments, **static)[1](dy)
    for x, expected in zip(map(gradient_array, backward(dy)), map(gradient_array, reference_result), strict=True):
        if expected is not None:
            np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not library().functions, reason="no C compiler")
def test_an_array_of_another_type_is_refused() -> None:
    out, mask = np.zeros(3, np.float32), np.ones(3, np.uint8)
    for x in (np.zeros(3), np.zeros(6, np.float32)[::2], np.zeros(3, np.int32)):
        with pytest.raises(Exception, match="expected a contiguous array of float32"):
            Function("apply_mask")(x, mask, out, 3, 1.0)
