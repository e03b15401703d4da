"""What one operation promises and the table of test_ops.py has no column for: limits, edges, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import Draw, whole_spans
from textbook import attention, smoothed_targets, softmax

from autograd import Blocks, KeySpans, ShapeError, Tensor, backward, ops
from autograd.random import Site
from autograd.testing import check_gradients

SITE = Site(seed=5, site=1)
CONVENTIONS: list[dict[str, Any]] = [{}, {"over": "V"}, {"over": "V-2", "impossible": 1}]


def draw(*shape: int, seed: int = 0) -> Any:
    return Draw(np.random.default_rng((seed, *shape)), {})(*shape)


@pytest.mark.parametrize("rate", [-0.5, 1.0])
def test_dropout_rate_out_of_range(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"rate must be in \[0, 1\), got {rate}"):
        ops.dropout(np.ones(3), rate=rate, site=SITE)


def test_add_norm_drops_only_with_a_rate_and_a_site() -> None:
    x, y, parameters = draw(4, 30), draw(4, 30, seed=1), (np.ones(30), np.zeros(30))
    expected = ops.layer_norm(x + y, *parameters).value
    undropped: list[dict[str, Any]] = [{}, {"rate": 0.5}, {"site": SITE}]
    for static in undropped:
        np.testing.assert_array_equal(ops.add_norm(x, y, *parameters, **static).value, expected)
    assert (ops.add_norm(x, y, *parameters, rate=0.5, site=SITE).value != expected).any()


def test_attention_over_blocks_with_room_between_them() -> None:
    """A cache of capacity 4 of which 2 keys are filled: what lies behind them is not seen."""
    keys = Blocks(np.array([0, 4]), np.array([2, 2]))
    spans = KeySpans(np.array([0, 4]), np.array([2, 6]), Blocks.of_lengths([1, 1]), keys)
    q, k, v = draw(2, 1, 3), draw(8, 1, 3, seed=1), draw(8, 1, 2)
    check_gradients(lambda q, k, v: ops.attention(q, k, v, spans=spans), q, k, v)
    k[[2, 3, 6, 7]] = v[[2, 3, 6, 7]] = 1e6
    np.testing.assert_allclose(ops.attention(q, k, v, spans=spans).value, _alone(q, k, v))


def _alone(q: Any, k: Any, v: Any) -> Any:
    def one(i: int) -> Any:
        weights = softmax(q[i, 0] @ k[4 * i : 4 * i + 2, 0].T / np.sqrt(3))
        return weights @ v[4 * i : 4 * i + 2, 0]

    return np.stack([one(0), one(1)])[:, None]


@pytest.mark.parametrize(("query_lengths", "key_lengths"), [([0], [3]), ([0, 2], [3, 1]), ([0, 2, 0], [0, 1, 4])])
@pytest.mark.parametrize("dropout", [{}, {"rate": 0.4, "site": SITE}], ids=["", "dropout"])
def test_attention_of_blocks_without_queries(
    query_lengths: list[int], key_lengths: list[int], dropout: dict[str, Any]
) -> None:
    spans = whole_spans(query_lengths, key_lengths)
    n_queries, n_keys = sum(query_lengths), sum(key_lengths)
    arguments = draw(n_queries, 2, 3), draw(n_keys, 2, 3), draw(n_keys, 2, 2)
    result = ops.attention(*arguments, spans=spans, **dropout)
    np.testing.assert_allclose(result.value, attention(*arguments, spans, **dropout))
    check_gradients(lambda q, k, v: ops.attention(q, k, v, spans=spans, **dropout), *arguments)


@pytest.mark.parametrize("has_kernels", [True, False], ids=["kernels", "reference"])
@pytest.mark.parametrize("half", [{"rate": 0.5}, {"site": SITE}], ids=["a rate", "a site"])
def test_attention_drops_nothing_without_both_rate_and_site(
    half: dict[str, Any], has_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_kernels:
        monkeypatch.setattr(ops.attention, "kernels", [])
    spans, arguments = whole_spans([3], [5]), (draw(3, 2, 4), draw(5, 2, 4), draw(5, 2, 2))
    result = ops.attention(*arguments, spans=spans, **half)
    np.testing.assert_array_equal(result.value, ops.attention(*arguments, spans=spans).value)
    check_gradients(lambda q, k, v: ops.attention(q, k, v, spans=spans, **half), *arguments)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_maps_are_linear_maps_one_after_the_other(bias: bool) -> None:
    """Bit for bit."""
    x, weights = draw(4, 3), [draw(3, width, seed=width) for width in (5, 2, 5)]
    maps = [argument for w in weights for argument in (w, draw(w.shape[1], seed=9) if bias else None)]

    def together(x: Tensor, *maps: Any) -> list[Tensor]:
        return ops.linear_maps(x, *maps)

    def one_by_one(x: Tensor, *maps: Any) -> list[Tensor]:
        return [ops.linear(x, *maps[i : i + 2]) for i in (0, 2, 4)]

    found = []
    for compute in (together, one_by_one):
        leaves = [None if array is None else Tensor(array) for array in (x, *maps)]
        ys = compute(*leaves)
        backward(ops.sum(ys[0] * ys[2]) + ops.sum(ys[1]))
        found.append([*(y.value for y in ys), *(leaf.grad for leaf in leaves if leaf is not None)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)

    def curved(x: Tensor, *weights: Tensor) -> Tensor:
        ys = ops.linear_maps(x, *(argument for i, w in enumerate(weights) for argument in (w, maps[2 * i + 1])))
        return ys[0] * ys[2]

    check_gradients(curved, x, *weights)


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    np.testing.assert_allclose(ops.softmax(np.array([[1e4, 1e4, -1e4]])).value, [[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(ops.log_softmax(np.array([[1e4, 0.0]])).value, [[0.0, -1e4]])


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
def test_cross_entropy_at_its_least_is_the_entropy_of_the_smoothed_target(convention: dict[str, Any]) -> None:
    q = smoothed_targets((1, 4), np.array([2]), 0.1, **convention)
    possible = q[q > 0]
    logits = np.log(np.maximum(q, 1e-300))
    loss = ops.cross_entropy(logits, np.array([2]), smoothing=0.1, **convention)
    assert float(loss) == pytest.approx(-(possible * np.log(possible)).sum(), rel=1e-12)
    gradient, _ = ops.cross_entropy.reference(logits, np.array([2]), smoothing=0.1, **convention)[1](np.ones(()))
    np.testing.assert_allclose(gradient, 0, atol=1e-15)


@pytest.mark.parametrize("run", ["reference", "kernel"])
@pytest.mark.parametrize("static", [{}, {"smoothing": 0.1, "over": "V-2", "impossible": 1}], ids=str)
def test_a_class_that_gets_nothing_may_have_no_probability(run: str, static: dict[str, Any]) -> None:
    x, bias, targets = np.array([[0.5], [-0.5]]), np.array([0.0, -np.inf, 1.0, -1.0]), np.array([0, 3])
    arguments = x, np.ones((4, 1)), bias, targets
    operation = ops.linear_cross_entropy
    loss, backward = (operation.reference if run == "reference" else operation.choose(arguments, static))(
        *arguments, **static
    )
    without = x, np.ones((3, 1)), bias[[0, 2, 3]], np.array([0, 2])
    expected, expected_backward = operation.reference(*without, smoothing=static.get("smoothing", 0.0))
    assert float(loss) == pytest.approx(float(expected), rel=1e-12)
    np.testing.assert_allclose(backward(np.ones(()))[0], expected_backward(np.ones(()))[0], rtol=1e-9, atol=1e-12)


def test_finite_logits_whose_sum_is_not_have_a_finite_loss() -> None:
    logits = np.float32([[1e38, -2e38, -2e38]])
    assert float(ops.cross_entropy(logits, np.array([0]))) == 0


@pytest.mark.parametrize(
    "static", [{}, {"smoothing": 0.1}, {"smoothing": 0.2, "over": "V-2", "impossible": 0}], ids=str
)
def test_rows_without_a_target_add_nothing_whatever_their_logits_are(static: dict[str, Any]) -> None:
    x, weight = np.random.default_rng(1).standard_normal((2, 4, 3))
    targets = np.array([-1, 2, 1, -1])
    rows = Tensor(x), Tensor(x[1:3])
    losses = [
        ops.linear_cross_entropy(of, weight, None, t, **static)
        for of, t in zip(rows, (targets, targets[1:3]), strict=True)
    ]
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-12)
    for loss in losses:
        backward(loss)
    np.testing.assert_allclose(rows[0].grad[1:3], rows[1].grad, rtol=1e-12)
    assert not rows[0].grad[[0, 3]].any()


@pytest.mark.parametrize("index", [((0, 0),), [0, 0], np.array([0, 0]), (slice(None), (1, 1)), ([0, 0], None)], ids=str)
def test_what_is_gathered_twice_gets_both_gradients(index: Any) -> None:
    x = draw(3, 2)
    counts = np.zeros((3, 2))
    np.add.at(counts, index, 1.0)
    leaf = Tensor(x)
    backward(ops.sum(leaf[index]))
    assert counts.max() == 2
    np.testing.assert_array_equal(leaf.grad, counts)


@pytest.mark.parametrize("shape", [(4,), (4, 2, 3)], ids=str)
def test_tables_of_any_number_of_axes_are_looked_up(shape: tuple[int, ...]) -> None:
    check_gradients(lambda table: ops.embedding(table, np.array([2, 0, 2])), draw(*shape))


def test_attention_over_no_blocks_is_empty() -> None:
    blocks = Blocks.of_lengths([])
    nothing = np.zeros(0, np.int64)
    q, v = Tensor(np.ones((0, 2, 3))), Tensor(np.ones((0, 2, 5)))
    y = ops.attention(q, q, v, spans=KeySpans(nothing, nothing, blocks, blocks))
    assert y.shape == (0, 2, 5)
    backward(y, np.ones((0, 2, 5)))
    assert (q.grad.shape, v.grad.shape) == ((0, 2, 3), (0, 2, 5))


@pytest.mark.parametrize("kernel", ["linear", "linear_relu"])
def test_a_weights_gradient_is_as_wide_as_what_it_is_made_of(kernel: str) -> None:
    x, weight = draw(4, 3).astype(np.float32), Tensor(draw(3, 2))
    y = getattr(ops, kernel)(x, weight, np.full(2, 9.0))
    backward(ops.sum(y))
    assert weight.grad is not None
    np.testing.assert_array_equal(weight.grad, x.astype(np.float64).T @ np.ones((4, 2)), strict=True)


def linear_cross_entropy(x: tuple[int, ...], weight: tuple[int, ...], bias: Any = None) -> Tensor:
    return ops.linear_cross_entropy(np.ones(x), np.ones(weight), bias, np.zeros(2, int))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.linear(np.ones((2, 3)), np.ones((4, 5)), None), r"linear: expected x \(T, I\).*\(2, 3\).*\(4, 5"),
        (lambda: ops.linear_maps(np.ones((2, 3)), np.ones((3, 5)), None, np.ones((4, 5)), None), r"linear: expected x"),
        (lambda: ops.linear_transposed(np.ones((2, 3)), np.ones((4, 5))), r"linear_transposed: expected"),
        (lambda: ops.linear(np.ones((1, 2, 3)), np.ones((2, 5)), None), r"linear: expected x \(T, I\).*\(1, 2, 3"),
        (lambda: ops.linear_transposed(np.ones((1, 2, 3)), np.ones((4, 2))), r"linear_transposed: expected"),
        (lambda: ops.linear_relu(np.ones((2, 3)), np.ones((4, 5)), np.ones(5)), r"linear_relu: expected x \(T, I\)"),
        (lambda: ops.linear_relu(np.ones((2, 3)), np.ones((3, 5)), None), r"linear_relu: .*bias \(O,\);.* None"),
        (lambda: ops.linear(np.ones((2, 3)), np.ones(3), None), r"linear: expected x \(T, I\).*weight \(3,\)"),
        (lambda: ops.linear(np.ones((2, 3)), np.ones((3, 5)), np.ones(1)), r"linear: expected .* bias \(1,\)"),
        (lambda: ops.linear(np.ones((2, 3)), np.ones((3, 5)), np.ones((2, 5))), r"linear: expected .* bias \(2, 5\)"),
        (lambda: ops.linear_relu(np.ones((2, 3)), np.ones((3, 5)), np.ones(())), r"linear_relu: expected .* bias \(\)"),
        (lambda: ops.layer_norm(np.ones((2, 3)), np.ones(1), np.ones(3)), r"layer_norm: expected .* gain \(1,\), bias"),
        (lambda: ops.layer_norm(np.ones((2, 3)), np.ones(3), np.ones((2, 3))), r"layer_norm: .* bias \(2, 3\)"),
        (lambda: ops.layer_norm(np.ones(()), np.ones(()), np.ones(())), r"layer_norm: expected x .*got x \(\)"),
        (lambda: linear_cross_entropy((2, 3), (5, 4)), r"linear_cross_entropy: expected x \(T, D\), weight"),
        (lambda: linear_cross_entropy((2, 3), (5, 3), np.ones(1)), r"linear_cross_entropy: .* bias \(1,\)"),
        (lambda: linear_cross_entropy((2, 3, 3), (5, 3)), r"linear_cross_entropy: .* got x \(2, 3, 3\)"),
        (lambda: linear_cross_entropy((2, 5), (1, 5, 3)), r"linear_cross_entropy: .* weight \(1, 5, 3\)"),
        (lambda: ops.matmul(np.ones((2, 3)), np.ones((4, 5))), r"matmul: expected x \(…, M, K\)"),
        (lambda: ops.matmul(np.ones(3), np.ones((3, 2))), r"matmul: expected x \(…, M, K\).*got x \(3,\)"),
        (lambda: ops.matmul(np.ones((2, 3)), np.ones(3)), r"matmul: expected x \(…, M, K\)"),
        (lambda: ops.cross_entropy(np.ones((2, 3, 1)), np.zeros(2, int)), r"cross_entropy: expected logits \(T, W\)"),
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
        ((3, 2, 4), (5, 3, 4), (5, 2, 4), r"expected q \(T, H, K\)"),
        ((3, 2, 4, 1), (5, 2, 4, 1), (5, 2, 4, 1), r"expected q \(T, H, K\)"),
        ((2, 2, 4), (5, 2, 4), (5, 2, 4), "spans are for 3 queries"),
        ((3, 2, 4), (4, 2, 4), (4, 2, 4), "spans reach to key 5"),
    ],
)
def test_attention_shape_errors(q: Any, k: Any, v: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ops.attention(np.ones(q), np.ones(k), np.ones(v), spans=whole_spans([3], [5]))


@pytest.mark.parametrize(
    ("n_classes", "convention", "message"),
    [
        (3, {"smoothing": 1.0}, r"smoothing must be in \[0, 1\).*got 1.0"),
        (3, {"smoothing": -0.5}, r"smoothing must be in \[0, 1\).*got -0.5"),
        (1, {"smoothing": 0.1}, "over V-1 = 0 of 1 classes"),
        (2, {"smoothing": 0.1, "over": "V-2", "impossible": 0}, "over V-2 = 0 of 2 classes"),
        (3, {"over": "V-2", "impossible": 3}, "the impossible class must be one of 3, got 3"),
        (3, {"over": "V-2", "impossible": -1}, "the impossible class must be one of 3, got -1"),
        (3, {"over": "V-2"}, "needs an impossible class"),
        (3, {"impossible": 0}, '"V-2", and only it'),
        (3, {"over": "V-3"}, "over must be one of"),
    ],
)
def test_smoothing_that_no_classes_can_share(n_classes: int, convention: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.cross_entropy(np.zeros((1, n_classes)), np.zeros(1, int), **convention)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x + 2": lambda x, y: x + np.full(3, 2.0),
    "2 + x": lambda x, y: np.full(3, 2.0) + x,
    "x - y": lambda x, y: x - y,
    "2 - x": lambda x, y: 2.0 - x,
    "x * y": lambda x, y: x * y,
    "x * 3": lambda x, y: x * 3,
    "2.5 * x": lambda x, y: 2.5 * x,
    "x / y": lambda x, y: x / y,
    "x / 4": lambda x, y: x / 4,
    "2 / x": lambda x, y: 2.0 / x,
    "-x": lambda x, y: -x,
    "x @ y": lambda x, y: x @ y,
    "array @ x": lambda x, y: np.eye(3)[::-1] @ x,
    "x[1:]": lambda x, y: x[1:],
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_pythons_operators_mean_what_they_mean_for_arrays(operator: Callable[[Any, Any], Any]) -> None:
    x, y = 5 + draw(3, 3), 5 + draw(3, 3, seed=1)
    result = operator(Tensor(x), Tensor(y))
    assert isinstance(result, Tensor)
    np.testing.assert_allclose(result.value, operator(x, y), rtol=1e-14)
    check_gradients(operator, x, y)
