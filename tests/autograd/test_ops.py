"""Every operation: its value against a textbook formula, its gradient against central differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from draws import AXES, KINDS, SEEDS, SIZES, Draw, whole_spans
from hypothesis import example, given, settings
from hypothesis import strategies as st
from textbook import attention, cross_entropy, layer_norm, log_softmax, softmax

from autograd import Blocks, Tensor, ops
from autograd.op import operations
from autograd.random import Site
from autograd.testing import STEP, check_gradients

SITE = Site(seed=5, site=1)
UNEQUAL = whole_spans([1, 30, 2], [30, 1, 3])


@dataclass(frozen=True)
class OpCase:
    """An operation with arguments for it, keyword arguments, its value in plain NumPy, and a step for differences."""

    op: str
    arguments: Callable[[Draw], tuple[Any, ...]]
    expected: Callable[..., Any]
    static: Callable[[Draw], dict[str, Any]] = lambda draw: {}
    name: str = ""
    step: Callable[..., float] = lambda *arguments: STEP

    @property
    def id(self) -> str:
        return f"{self.op} {self.name}".strip()


def tenth_of_the_largest(*arguments: Any) -> float:
    """Where an operation is linear in each argument any step is exact, and a large one drowns rounding."""
    return 0.1 * max([1.0, *(float(np.abs(x).max()) for x in arguments if is_float(x))])


def quarter_of_the_smallest(x: Any) -> float:
    """ReLU: a direction's coordinates reach 2, so nothing comes nearer to the kink than half way."""
    return 0.25 * float(np.abs(x).min())


def layer_norm_step(x: Any, gain: Any, bias: Any) -> float:
    """Layer norm varies on the scale on which it divides: in a row of equal numbers √eps."""
    return STEP * float(np.sqrt(x.var(-1).min() + 1e-6))


def attention_step(q: Any, k: Any, v: Any) -> float:
    """Scores are products: how far a step in one factor moves them depends on the other factor."""
    return STEP / max(1e-6, float(np.abs(q).max(initial=0)), float(np.abs(k).max(initial=0)))


def is_float(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float64


LINEAR = [
    OpCase("add", lambda d: (d("T", "D"), d("T", "D")), np.add),
    OpCase("add", lambda d: (d("T", "D"), d("D")), np.add, name="row"),
    OpCase("add", lambda d: (d("T", 1), d(1, "D")), np.add, name="outer"),
    OpCase("subtract", lambda d: (d("B", "T", "D"), d("T", 1)), np.subtract),
    OpCase("multiply", lambda d: (d("T", "D"), d("B", 1, "D")), np.multiply),
    OpCase("scale", lambda d: (d("T"),), lambda x, factor: x * factor, lambda d: {"factor": -2.5}),
    OpCase(
        "reshape", lambda d: (d("T", "D", "H"),), lambda x, shape: x.reshape(len(x), -1),
        lambda d: {"shape": (d.sizes["T"], -1)},
    ),
    OpCase("transpose", lambda d: (d("T", "D"),), lambda x: x.T),
    OpCase(
        "transpose", lambda d: (d("T", "D", "H"),), lambda x, axes: x.transpose(axes), lambda d: {"axes": (1, 2, 0)},
        name="axes",
    ),
    OpCase(
        "transpose", lambda d: (d("T", "D", "H"),), lambda x, axes: x.transpose(axes), lambda d: {"axes": (-1, 0, -2)},
        name="axes from the end",
    ),
    OpCase("getitem", lambda d: (d("T", "D"),), lambda x, index: x[index], lambda d: {"index": slice(0, None, 2)}),
    OpCase(
        "getitem", lambda d: (d("T", "D"),), lambda x, index: x[index],
        lambda d: {"index": d.integers(d.sizes["T"], "S")}, name="gather",
    ),
    OpCase("sum", lambda d: (d("T", "D"),), lambda x: x.sum()),
    OpCase("sum", lambda d: (d("T", "D"),), lambda x, axis: x.sum(axis), lambda d: {"axis": 0}, name="axis"),
    OpCase(
        "mean", lambda d: (d("B", "T", "D"),), lambda x, axis, keepdims: x.mean(axis, keepdims=True),
        lambda d: {"axis": (0, 2), "keepdims": True},
    ),
    OpCase("mean", lambda d: (d("S", "D"),), lambda x: x.mean(), name="of all"),
    OpCase("mean", lambda d: (d("T", "D"),), lambda x, axis: x.mean(axis), lambda d: {"axis": 1}, name="axis"),
    OpCase("matmul", lambda d: (d("T", "D"), d("D", "S")), np.matmul),
    OpCase("matmul", lambda d: (d("B", 1, "T", "D"), d("H", "D", "S")), np.matmul, name="batched"),
    OpCase("linear", lambda d: (d("T", "D"), d("D", "S"), d("S")), lambda x, w, b: x @ w + b),
    OpCase("linear", lambda d: (d("T", "D"), d("D", "S"), None), lambda x, w, b: x @ w, name="no bias"),
    OpCase("linear_transposed", lambda d: (d("T", "D"), d("S", "D")), lambda x, w: x @ w.T),
    OpCase("embedding", lambda d: (d("S", "D"), d.integers(d.sizes["S"], "T")), lambda table, ids: table[ids]),
    OpCase(
        "dropout", lambda d: (d("T", "D"),),
        lambda x, rate, site: x * ops.dropout(np.ones_like(x), rate=rate, site=site).value,
        lambda d: {"rate": 0.4, "site": SITE},
    ),
]  # fmt: skip


def logits_and_targets(n_classes: int | str, below: int) -> Callable[[Draw], tuple[Any, ...]]:
    """Targets among the last ``below`` classes: the first may be impossible."""

    def arguments(d: Draw) -> tuple[Any, ...]:
        logits = d.logits("T", n_classes)
        return logits, logits.shape[1] - 1 - d.integers(below, "T")

    return arguments


def attention_arguments(d: Draw, queries: Blocks, keys: Blocks) -> tuple[Any, ...]:
    return d.mild(queries.n_tokens, "H", "K"), d.mild(keys.n_tokens, "H", "K"), d(keys.n_tokens, "H", "V")


def of_drawn_spans(d: Draw) -> tuple[Any, ...]:
    return attention_arguments(d, d.spans.queries, d.spans.keys)


CURVED = [
    OpCase("relu", lambda d: (d.away_from_zero("T", "D"),), lambda x: np.maximum(x, 0), step=quarter_of_the_smallest),
    OpCase(
        "divide", lambda d: (d("T", "D"), d.mild("D")), np.divide, step=lambda x, y: STEP * float(np.abs(y).min()),
    ),
    OpCase("softmax", lambda d: (d.logits("T", "D"),), softmax),
    OpCase("softmax", lambda d: (d.logits("B", "T", "D"),), softmax, name="three axes"),
    OpCase("log_softmax", lambda d: (d.logits("T", "D"),), log_softmax),
    OpCase("log_softmax", lambda d: (d.logits("B", "T", "D"),), log_softmax, name="three axes"),
    OpCase("layer_norm", lambda d: (d("T", "D"), d("D"), d("D")), layer_norm, step=layer_norm_step),
    OpCase(
        "layer_norm", lambda d: (d("B", "T", "D"), d("D"), d("D")), layer_norm, lambda d: {"eps": 1e-5},
        name="three axes", step=layer_norm_step,
    ),
    OpCase("cross_entropy", logits_and_targets("W", 1), cross_entropy, name="without smoothing"),
    OpCase("cross_entropy", logits_and_targets(1, 1), lambda x, t: 0.0, name="one class"),
    OpCase("cross_entropy", logits_and_targets(5, 5), cross_entropy, lambda d: {"smoothing": 0.1}),
    OpCase("cross_entropy", logits_and_targets(2, 2), cross_entropy, lambda d: {"smoothing": 0.3}, name="two classes"),
    OpCase(
        "cross_entropy", logits_and_targets("W", 1), cross_entropy, lambda d: {"smoothing": 0.1, "over": "V"},
        name="over V",
    ),
    OpCase(
        "cross_entropy", logits_and_targets(5, 4), cross_entropy,
        lambda d: {"smoothing": 0.1, "over": "V-2", "impossible": 0}, name="over V-2",
    ),
    OpCase(
        "cross_entropy", logits_and_targets(3, 2), cross_entropy,
        lambda d: {"smoothing": 0.4, "over": "V-2", "impossible": 0}, name="over V-2 of three",
    ),
    OpCase("attention", of_drawn_spans, attention, lambda d: {"spans": d.spans}, step=attention_step),
    OpCase(
        "attention", lambda d: attention_arguments(d, UNEQUAL.queries, UNEQUAL.keys), attention,
        lambda d: {"spans": UNEQUAL}, name="blocks of 1 and 30", step=attention_step,
    ),
    OpCase(
        "attention", of_drawn_spans, attention, lambda d: {"spans": d.spans, "rate": 0.4, "site": SITE},
        name="dropout", step=attention_step,
    ),
]  # fmt: skip

CASES = [replace(case, step=tenth_of_the_largest) for case in LINEAR] + CURVED
SINGLE = dict.fromkeys(AXES, 1)  # one token, one head, one number
VARIOUS = {"B": 2, "T": 3, "S": 4, "D": 5, "H": 1, "K": 3, "V": 2, "W": 4}
all_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def certain_examples(test: Any) -> Any:
    """What must not depend on luck: every kind of values, in single and in various sizes."""
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
    """The value, and the gradient of every argument along dy (ones if not given)."""
    node = (result := operations[case.op](*arguments, **static)).node
    assert node is not None
    return [result.value, *node.backward(np.ones_like(result.value) if dy is None else dy)]


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
