"""Every operation: its value against a textbook formula, its gradient against central differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import AXES, KINDS, SEEDS, SIZES, Draw
from hypothesis import example, given, settings
from hypothesis import strategies as st
from op_cases import CASES, OpCase, is_float

from autograd import Tensor
from autograd.op import operations
from autograd.tensor import gradient_array
from autograd.testing import check_gradients

SINGLE = dict.fromkeys(AXES, 1)  # one token, one head, one number
VARIOUS = {"B": 2, "T": 3, "S": 4, "D": 5, "H": 1, "K": 3, "V": 2, "W": 4}
all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def certain_examples(test: Any) -> Any:
    """Add fixed examples: every kind of values, with all sizes 1 and with various sizes."""
    for kind in KINDS:
        for sizes in (SINGLE, VARIOUS):
            test = example(sizes=sizes, kind=kind, seed=1)(test)
    return test


@all_cases
@certain_examples
@given(sizes=SIZES, kind=st.sampled_from(KINDS), seed=SEEDS)
@settings(max_examples=25)
def test_value_and_gradient(case: OpCase, sizes: dict[str, int], kind: str, seed: int) -> None:
    draw = Draw(np.random.default_rng(seed), sizes, kind)
    arguments = case.arguments(draw)
    operation = functools.partial(operations[case.op], **case.static(draw))
    expected = np.asarray(case.expected(*arguments, **operation.keywords))
    rounding = 1e-14 + 1e-11 * np.abs(expected).max(initial=0)
    np.testing.assert_allclose(operation(*arguments).value, expected, rtol=1e-10, atol=rounding)
    check_gradients(operation, *arguments, name=case.id, step=case.step(*arguments), seed=seed)


def test_every_operation_has_a_case() -> None:
    assert {case.op for case in CASES} == set(operations)


def run(case: OpCase, arguments: tuple[Any, ...], static: dict[str, Any], dy: Any = None) -> list[Any]:
    """Return the value, and the gradient of every argument along dy (ones if not given)."""
    node = (result := operations[case.op](*arguments, **static)).node
    assert node is not None
    return [result.value, *map(gradient_array, node.backward(np.ones_like(result.value) if dy is None else dy))]


def various(case: OpCase, **sizes: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    draw = Draw(np.random.default_rng(1), VARIOUS | sizes)
    return case.arguments(draw), case.static(draw)


@all_cases
def test_float32_in_float32_out(case: OpCase) -> None:
    arguments, static = various(case)
    single = tuple(Tensor(x.astype(np.float32)) if is_float(x) else x for x in arguments)
    assert all(x is None or x.dtype == np.float32 for x in run(case, single, static))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "by columns": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
}


@all_cases
@pytest.mark.parametrize("view", VIEWS)
def test_how_an_array_lies_in_memory_does_not_matter(case: OpCase, view: str) -> None:
    arguments, static = various(case)
    expected = run(case, arguments, static)
    dy = np.random.default_rng(2).standard_normal(expected[0].shape)
    expected = run(case, arguments, static, dy)
    views = tuple(x if x is None else VIEWS[view](x) for x in arguments)
    dy = VIEWS[view](dy) if dy.ndim else dy
    got = run(case, views, static, dy)
    assert [x is None for x in got] == [x is None for x in expected]
    for x, y in zip(got, expected, strict=True):
        if y is not None:
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@all_cases
def test_arguments_and_incoming_gradients_are_only_read(case: OpCase) -> None:
    arguments, static = various(case)
    dy = np.ones_like(run(case, arguments, static)[0])
    arrays = [x for x in (*arguments, *static.values(), dy) if isinstance(x, np.ndarray)]
    before = [x.copy() for x in arrays]
    for x in arrays:
        x.flags.writeable = False
    run(case, arguments, static, dy)
    for x, y in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, y)


NEEDS_TOKENS = {"getitem gather": "no rows to gather from", "reshape": "−1 is any number"}


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op != "attention" and c.id not in NEEDS_TOKENS], ids=lambda case: case.id
)
def test_no_tokens_are_no_exception(case: OpCase) -> None:
    arguments, static = various(case, T=0)
    value, *gradients = run(case, arguments, static)
    assert value.shape == np.shape(case.expected(*arguments, **static))
    for x, dx in zip(arguments, gradients, strict=True):
        assert dx is None or dx.shape == x.shape
