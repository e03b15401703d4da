"""Every operation: its value against a textbook formula, its gradient against central differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograd import Blocks, KeySpans, ShapeError, Tensor, ops
from autograd.op import operations
from autograd.random import Site
from autograd.testing import check_gradients

SITE = Site(seed=5, site=1)


@dataclass(frozen=True)
class Draw:
    """Small sizes from Hypothesis, and values from a seeded generator."""

    random: np.random.Generator
    sizes: dict[str, int]

    def __call__(self, *axes: str | int) -> Any:
        return self.random.standard_normal([self.sizes[axis] if isinstance(axis, str) else axis for axis in axes])

    def integers(self, below: int, *axes: str) -> Any:
        return self.random.integers(0, below, [self.sizes[axis] for axis in axes])

    def away_from_zero(self, *axes: str) -> Any:
        x = self(*axes)
        return x + np.copysign(0.1, x)


@dataclass(frozen=True)
class OpCase:
    """An operation with arguments for it, keyword arguments, and its value in plain NumPy."""

    op: str
    arguments: Callable[[Draw], tuple[Any, ...]]
    expected: Callable[..., Any]
    static: Callable[[Draw], dict[str, Any]] = lambda draw: {}
    name: str = ""


def softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) + bias


def smoothed_targets(logits: Any, targets: Any, smoothing: float) -> Any:
    n_classes = logits.shape[1]
    q = np.full(logits.shape, smoothing / (n_classes - 1))
    q[np.arange(len(targets)), targets] = 1 - smoothing
    return q


def cross_entropy(logits: Any, targets: Any, smoothing: float) -> Any:
    return -(smoothed_targets(logits, targets, smoothing) * np.log(softmax(logits))).sum()


def random_spans(draw: Draw) -> KeySpans:
    """Spans of B blocks of 1 … T queries over 1 … S keys each."""
    query_lengths = draw.random.integers(1, draw.sizes["T"] + 1, draw.sizes["B"])
    keys = Blocks.of_lengths(draw.random.integers(1, draw.sizes["S"] + 1, draw.sizes["B"]))
    queries = Blocks.of_lengths(query_lengths)
    start = np.repeat(keys.starts, query_lengths)
    length = np.repeat(keys.lengths, query_lengths)
    first = start + draw.random.integers(0, length)
    last = first + 1 + draw.random.integers(0, start + length - first)
    return KeySpans(first, last, queries, keys)


def attention_arguments(draw: Draw) -> tuple[Any, ...]:
    spans = random_spans(draw)
    draw.sizes["spans"] = spans  # type: ignore[assignment]
    n_queries, n_keys = spans.queries.n_tokens, spans.keys.n_tokens
    return draw(n_queries, "H", "K"), draw(n_keys, "H", "K"), draw(n_keys, "H", "V")


def attention_by_mask(q: Any, k: Any, v: Any, spans: KeySpans) -> Any:
    """The textbook: a boolean mask over all pairs of tokens."""
    scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(q.shape[-1])
    return np.einsum("hts,shv->thv", softmax(np.where(spans.mask(), scores, -np.inf)), v)


CASES = [
    OpCase("add", lambda d: (d("T", "D"), d("T", "D")), np.add),
    OpCase("add", lambda d: (d("T", "D"), d("D")), np.add, name="row"),
    OpCase("add", lambda d: (d("T", 1), d(1, "D")), np.add, name="outer"),
    OpCase("subtract", lambda d: (d("B", "T", "D"), d("T", 1)), np.subtract),
    OpCase("multiply", lambda d: (d("T", "D"), d("B", 1, "D")), np.multiply),
    OpCase("divide", lambda d: (d("T", "D"), d.away_from_zero("D")), np.divide),
    OpCase("scale", lambda d: (d("T"),), lambda x, factor: x * factor, lambda d: {"factor": -2.5}),
    OpCase("relu", lambda d: (d.away_from_zero("T", "D"),), lambda x: np.maximum(x, 0)),
    OpCase(
        "reshape", lambda d: (d("T", "D", "H"),), lambda x, shape: x.reshape(len(x), -1),
        lambda d: {"shape": (d.sizes["T"], -1)},
    ),
    OpCase("transpose", lambda d: (d("T", "D"),), lambda x: x.T),
    OpCase(
        "transpose", lambda d: (d("T", "D", "H"),), lambda x, axes: x.transpose(axes), lambda d: {"axes": (1, 2, 0)},
        name="axes",
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
    OpCase("matmul", lambda d: (d("T", "D"), d("D", "S")), np.matmul),
    OpCase("matmul", lambda d: (d("B", 1, "T", "D"), d("H", "D", "S")), np.matmul, name="batched"),
    OpCase("linear", lambda d: (d("T", "D"), d("D", "S"), d("S")), lambda x, w, b: x @ w + b),
    OpCase("linear", lambda d: (d("T", "D"), d("D", "S"), None), lambda x, w, b: x @ w, name="no bias"),
    OpCase("linear_transposed", lambda d: (d("T", "D"), d("S", "D")), lambda x, w: x @ w.T),
    OpCase("embedding", lambda d: (d("S", "D"), d.integers(d.sizes["S"], "T")), lambda table, ids: table[ids]),
    OpCase("softmax", lambda d: (d("T", "D"),), softmax),
    OpCase("log_softmax", lambda d: (d("T", "D"),), lambda x: np.log(softmax(x))),
    OpCase("layer_norm", lambda d: (d("T", 4), d(4), d(4)), layer_norm),
    OpCase("layer_norm", lambda d: (d("B", "T", 3), d(3), d(3)), layer_norm, name="three axes"),
    OpCase(
        "dropout", lambda d: (d("T", "D"),),
        lambda x, rate, site: x * ops.dropout(np.ones_like(x), rate=rate, site=site).value,
        lambda d: {"rate": 0.4, "site": SITE},
    ),
    OpCase(
        "cross_entropy", lambda d: (d("T", 5), d.integers(5, "T")), cross_entropy, lambda d: {"smoothing": 0.1},
    ),
    OpCase(
        "cross_entropy", lambda d: (d("T", 1), d.integers(1, "T")), lambda x, t: 0.0, name="one class",
    ),
    OpCase("attention", attention_arguments, attention_by_mask, lambda d: {"spans": d.sizes["spans"]}),
]  # fmt: skip

SIZES = st.fixed_dictionaries({axis: st.integers(1, 5) for axis in "BTSDHKV"})


def case_id(case: OpCase) -> str:
    return f"{case.op} {case.name}".strip()


@pytest.mark.parametrize("case", CASES, ids=case_id)
@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_value_and_gradient(case: OpCase, sizes: dict[str, int], seed: int) -> None:
    draw = Draw(np.random.default_rng(seed), dict(sizes))
    arguments = case.arguments(draw)
    static = case.static(draw)
    operation = operations[case.op]
    np.testing.assert_allclose(operation(*arguments, **static).value, case.expected(*arguments, **static), atol=1e-12)
    check_gradients(lambda *inputs: operation(*inputs, **static), *arguments, name=case_id(case), seed=seed)


def test_every_operation_has_a_case() -> None:
    assert {case.op for case in CASES} == set(operations)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_float32_in_float32_out(case: OpCase) -> None:
    draw = Draw(np.random.default_rng(1), dict.fromkeys("BTSDHKV", 3))
    arguments = tuple(x.astype(np.float32) if _is_float(x) else x for x in case.arguments(draw))
    leaves = tuple(Tensor(x) if _is_float(x) else x for x in arguments)
    result = operations[case.op](*leaves, **case.static(draw))
    assert result.dtype == np.float32
    node = result.node
    assert node is not None
    gradients = node.backward(np.ones_like(result.value))
    assert all(dx is None or dx.dtype == np.float32 for dx in gradients)


def _is_float(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float64


def test_dropout_keeps_the_expectation_and_drops_the_rate() -> None:
    y = ops.dropout(np.ones(200_000), rate=0.25, site=SITE).value
    assert abs((y == 0).mean() - 0.25) < 0.005
    assert set(np.unique(y)) == {0.0, 1 / 0.75}


def test_dropout_depends_on_seed_site_update_and_shard() -> None:
    masks = [
        ops.dropout(np.ones(64), rate=0.5, site=site).value.tobytes()
        for site in (Site(1, 1), Site(2, 1), Site(1, 2), Site(1, 1, update=1), Site(1, 1, shard=1))
    ]
    assert len(set(masks)) == len(masks)


def test_dropout_rate_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\), got 1.0"):
        ops.dropout(np.ones(3), rate=1.0, site=SITE)


def test_attention_dropout_gradient() -> None:
    spans = KeySpans(np.array([0, 0, 0]), np.array([1, 2, 4]), Blocks.of_lengths([3]), Blocks.of_lengths([4]))
    draw = Draw(np.random.default_rng(2), {})
    check_gradients(
        lambda q, k, v: ops.attention(q, k, v, spans=spans, rate=0.3, site=SITE),
        draw(3, 2, 3),
        draw(4, 2, 3),
        draw(4, 2, 2),
    )


def test_attention_over_blocks_with_room_between_them() -> None:
    """A cache of capacity 4 of which 2 keys are filled: what lies behind them is not seen."""
    keys = Blocks(np.array([0, 4]), np.array([2, 2]))
    spans = KeySpans(np.array([0, 4]), np.array([2, 6]), Blocks.of_lengths([1, 1]), keys)
    draw = Draw(np.random.default_rng(3), {})
    q, k, v = draw(2, 1, 3), draw(8, 1, 3), draw(8, 1, 2)
    k[[2, 3, 6, 7]] = v[[2, 3, 6, 7]] = 1e6
    np.testing.assert_allclose(ops.attention(q, k, v, spans=spans).value, _alone(q, k, v))
    check_gradients(lambda q, k, v: ops.attention(q, k, v, spans=spans), q, draw(8, 1, 3), draw(8, 1, 2))


def _alone(q: Any, k: Any, v: Any) -> Any:
    def one(i: int) -> Any:
        weights = softmax(q[i, 0] @ k[4 * i : 4 * i + 2, 0].T / np.sqrt(3))
        return weights @ v[4 * i : 4 * i + 2, 0]

    return np.stack([one(0), one(1)])[:, None]


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    np.testing.assert_allclose(ops.softmax(np.array([[1e4, 1e4, -1e4]])).value, [[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(ops.log_softmax(np.array([[1e4, 0.0]])).value, [[0.0, -1e4]])


def test_cross_entropy_at_its_least_is_the_entropy_of_the_smoothed_target() -> None:
    q = smoothed_targets(np.zeros((1, 4)), np.array([2]), 0.1)
    entropy = -(q * np.log(q)).sum()
    loss = ops.cross_entropy(np.log(q), np.array([2]), smoothing=0.1)
    assert float(loss) == pytest.approx(entropy, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.linear(np.ones((2, 3)), np.ones((4, 5))), r"linear: expected x \(T, I\).*\(2, 3\).*\(4, 5\)"),
        (lambda: ops.linear_transposed(np.ones((2, 3)), np.ones((4, 5))), r"linear_transposed: expected"),
        (lambda: ops.matmul(np.ones((2, 3)), np.ones((4, 5))), r"matmul: expected x \(…, M, K\)"),
        (lambda: ops.cross_entropy(np.ones((2, 3)), np.zeros(3, int)), r"cross_entropy: expected logits \(T, W\)"),
    ],
)  # fmt: skip
def test_shape_errors_say_what_was_expected_and_what_came(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    ("q", "k", "v", "message"),
    [
        ((3, 2, 4), (5, 2, 4), (6, 2, 4), "k and v must have the same number of tokens"),
        ((3, 2, 4), (5, 2, 3), (5, 2, 4), r"expected q \(T, H, K\)"),
        ((2, 2, 4), (5, 2, 4), (5, 2, 4), "spans are for 3 queries"),
        ((3, 2, 4), (4, 2, 4), (4, 2, 4), "spans reach to key 5"),
    ],
)
def test_attention_shape_errors(q: Any, k: Any, v: Any, message: str) -> None:
    spans = KeySpans(np.zeros(3, int), np.full(3, 5), Blocks.of_lengths([3]), Blocks.of_lengths([5]))
    with pytest.raises(ShapeError, match=message):
        ops.attention(np.ones(q), np.ones(k), np.ones(v), spans=spans)


def test_python_operators_are_the_operations() -> None:
    draw = Draw(np.random.default_rng(4), {})
    check_gradients(lambda x, y: (2.0 * x - y / 4.0 + (-x) * y) @ y, draw(3, 3), draw(3, 3))
    check_gradients(lambda x, y: (1.0 - x[0:2]) / y, draw(3, 2), draw(2, 2) + 5)
    array = np.ones((2, 2))
    assert isinstance(array + Tensor(array), Tensor)
    assert isinstance(array * Tensor(array), Tensor)
