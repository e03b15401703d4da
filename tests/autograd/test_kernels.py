"""Kernels of the CPU: equal to their references, in one run of rows and in several."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from draws import AXES, KINDS, SEEDS, SIZES, Draw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_cases import CASES, OpCase, results

from autograd import ops
from autograd.op import Operation, operations
from autograd.ops.softmax import log_normaliser
from autograd.ops.top_k import linear_top_k
from autograd.optim import adam_update
from autograd.random import random_words
from autograd.testing import check_gradients

WITH_KERNELS = sorted(name for name, operation in operations.items() if operation.kernels)
cases_with_kernels = pytest.mark.parametrize(
    "case", [case for case in CASES if case.op in WITH_KERNELS], ids=lambda case: case.id
)


def is_for_a_kernel(case: OpCase) -> bool:
    draw = Draw(np.random.default_rng(1), dict.fromkeys(AXES, 5))
    arguments = case.arguments(draw)
    return operations[case.op].choose(arguments, case.static(draw)) is not operations[case.op].reference


cases_for_kernels = pytest.mark.parametrize(
    "case", [case for case in CASES if case.op in WITH_KERNELS and is_for_a_kernel(case)], ids=lambda case: case.id
)


KERNELS = {
    "adam_update": adam_update, "attention": ops.attention, "dropout": ops.dropout, "embedding": ops.embedding,
    "layer_norm": ops.layer_norm, "linear": ops.linear, "linear_cross_entropy": ops.linear_cross_entropy,
    "linear_top_k": linear_top_k, "linear_relu": ops.linear_relu, "log_normaliser": log_normaliser,
    "random_words": random_words,
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_it_has_a_kernel_for_the_cpu(name: str) -> None:
    assert [kernel.device for kernel in KERNELS[name].kernels] == ["cpu"]


def test_no_other_operation_has_one() -> None:
    assert set(WITH_KERNELS) == set(KERNELS) & set(operations)


def test_of_their_cases_dropout_of_attention_alone_has_no_kernel() -> None:
    left = {case.id for case in CASES if case.op in WITH_KERNELS and not is_for_a_kernel(case)}
    assert left == {"attention dropout"}


@cases_for_kernels
@given(sizes=SIZES, kind=st.sampled_from(KINDS), seed=SEEDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_kernel_gives_what_its_reference_gives(
    runs: None, case: OpCase, sizes: dict[str, int], kind: str, seed: int
) -> None:
    draw = Draw(np.random.default_rng(seed), sizes, kind)
    arguments, static = case.arguments(draw), case.static(draw)
    operation = operations[case.op]
    expected = results(operation.reference, arguments, static, seed)
    largest = max(1.0, *(float(np.abs(x).max(initial=0)) for x in arguments if x is not None))
    for x, y in zip(results(operation.choose(arguments, static), arguments, static, seed), expected, strict=True):
        assert (x is None) == (y is None)
        if y is not None:
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11 * max(largest, np.abs(y).max(initial=0)))


@cases_with_kernels
@given(sizes=SIZES, seed=SEEDS)
@settings(max_examples=10)
def test_the_reference_has_the_right_gradient_too(case: OpCase, sizes: dict[str, int], seed: int) -> None:
    """Elsewhere operations run with their kernels."""
    draw = Draw(np.random.default_rng(seed), sizes)
    arguments = case.arguments(draw)
    reference = functools.partial(Operation(operations[case.op].reference), **case.static(draw))
    check_gradients(reference, *arguments, name=case.id, step=case.step(*arguments), seed=seed)
