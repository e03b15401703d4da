"""Every operation with arguments to draw for it, and its value in plain NumPy: written for clearness alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from draws import Draw, full_mask

from autograd import KeyIndices, KeyRanges, Segments, ops
from autograd.random import StreamId
from autograd.tensor import gradient_array
from autograd.testing import STEP

STREAM_ID = StreamId(seed=5, stream=1)
DROPOUT = {"rate": 0.4, "stream_id": STREAM_ID}
UNEQUAL = full_mask([1, 30, 2], [30, 1, 3])
EQUAL = full_mask([2, 1], [4, 4])
EQUAL_BY_INDICES = KeyIndices(EQUAL.first[:, None] + np.arange(4), EQUAL.queries, EQUAL.keys)


# The operations.


def log_softmax(x: Any) -> Any:
    """−log Σ_j exp(x_j − x_i): only differences matter, so large numbers do not either."""
    return -np.logaddexp.reduce(x[..., None, :] - x[..., :, None], axis=-1)


def softmax(x: Any) -> Any:
    return np.exp(log_softmax(x))


def gelu(x: Any) -> Any:
    return x * np.vectorize(lambda each: (1 + math.erf(each / math.sqrt(2))) / 2, otypes=[float])(x)


def layer_norm(x: Any, gain: Any, bias: Any, eps: float = 1e-6) -> Any:
    return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + bias


def cross_entropy(
    logits: Any, targets: Any, smoothing: float = 0.0, over: str = "V-1", impossible: int | None = None
) -> Any:
    """Write the smoothed distribution class by class, token by token."""
    q = np.zeros(logits.shape)
    for row, target in zip(q, targets, strict=True):
        sharing = [w for w in range(len(row)) if over == "V" or w not in (target, impossible)]
        row[target] = 1 - smoothing
        row[sharing] += smoothing / max(1, len(sharing))
    return -(q * log_softmax(logits)).sum()


def dropped(y: Any, rate: float, stream_id: StreamId) -> Any:
    return y * ops.dropout(np.ones_like(y), rate=rate, stream_id=stream_id).value


def attention(q: Any, k: Any, v: Any, mask: KeyRanges, rate: float = 0.0, stream_id: StreamId = STREAM_ID) -> Any:
    """By a boolean mask over all pairs of tokens.

    Dropout is drawn for (segment, head, position of query, position of key), and read for (query, key, head).
    """
    queries, keys = mask.queries, mask.keys
    scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(q.shape[-1])
    allowed = np.where(mask.matrix(), np.exp(scores), 0)
    weights = allowed / allowed.sum(-1, keepdims=True)
    drawn = dropped(np.ones((len(queries), q.shape[1], queries.longest, keys.longest)), rate, stream_id)
    kept = drawn[queries.segment_of_token[:, None], :, queries.position_in_segment[:, None], keys.position_in_segment]
    return np.einsum("hts,tsh,shv->thv", weights, kept, v)


# Their cases.


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


def positive(d: Draw) -> tuple[Any, ...]:
    return (np.abs(d.away_from_zero("T", "D")),)


def short_of_zero(x: Any) -> float:
    """Logarithm, roots and quotients vary on the scale of their argument."""
    return STEP * float(np.abs(x).min(initial=1))


def layer_norm_step(x: Any, gain: Any, bias: Any) -> float:
    """Layer norm varies on the scale on which it divides: in a row of equal numbers √eps."""
    return STEP * float(np.sqrt(x.var(-1).min() + 1e-6))


def attention_step(q: Any, k: Any, v: Any) -> float:
    """Scores are products: how far a step in one factor moves them depends on the other factor."""
    return STEP / max(1e-6, float(np.abs(q).max(initial=0)), float(np.abs(k).max(initial=0)))


def is_float(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float64


def embedded_arguments(d: Draw) -> tuple[Any, ...]:
    return d("S", "D"), d.integers(d.sizes["S"], "T"), d("W", "D"), d.integers(d.sizes["W"], "T")


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
        "transpose", lambda d: (d("T", "D", "H"),), lambda x, axes: x.transpose(axes), lambda d: {"axes": (-1, 0, -2)},
        name="axes",
    ),
    OpCase("getitem", lambda d: (d("T", "D"),), lambda x, index: x[index], lambda d: {"index": slice(0, None, 2)}),
    OpCase(
        "getitem", lambda d: (d("T", "D"),), lambda x, index: x[index],
        lambda d: {"index": d.integers(d.sizes["T"], "S")}, name="gather",
    ),
    OpCase(
        "concatenate", lambda d: (d("T", "D"), d("T", 1), d("T", "K")), lambda *x, axis: np.concatenate(x, axis),
        lambda d: {"axis": -1},
    ),
    OpCase("stack", lambda d: (d("T", "D"), d("T", "D")), lambda *x, axis: np.stack(x, axis), lambda d: {"axis": 1}),
    OpCase("sum", lambda d: (d("T", "D"),), lambda x: x.sum()),
    OpCase("sum", lambda d: (d("T", "D"),), lambda x, axis: x.sum(axis), lambda d: {"axis": 1}, name="axis"),
    OpCase(
        "mean", lambda d: (d("B", "T", "D"),), lambda x, axis, keepdims: x.mean(axis, keepdims=True),
        lambda d: {"axis": (0, 2), "keepdims": True},
    ),
    OpCase("mean", lambda d: (d("S", "D"),), lambda x: x.mean(), name="of all"),
    OpCase("matmul", lambda d: (d("T", "D"), d("D", "S")), np.matmul),
    OpCase("matmul", lambda d: (d("B", 1, "T", "D"), d("H", "D", "S")), np.matmul, name="batched"),
    OpCase("linear", lambda d: (d("T", "D"), d("D", "S"), d("S")), lambda x, w, b: x @ w + b),
    OpCase("linear", lambda d: (d("T", "D"), d("D", "S"), None), lambda x, w, b: x @ w, name="no bias"),
    OpCase("linear_transposed", lambda d: (d("T", "D"), d("S", "D")), lambda x, w: x @ w.T),
    OpCase("embedding", lambda d: (d("S", "D"), d.integers(d.sizes["S"], "T")), lambda table, ids: table[ids]),
    OpCase(
        "embedding_with_positions", embedded_arguments, lambda table, ids, encodings, positions, scale: (
            scale * table[ids] + encodings[positions]
        ), lambda d: {"scale": 3.0},
    ),
    OpCase(
        "embedding_with_positions", embedded_arguments, lambda table, ids, encodings, positions, scale, **dropout: (
            dropped(scale * table[ids] + encodings[positions], **dropout)
        ), lambda d: {"scale": 3.0} | DROPOUT, name="dropout",
    ),
    OpCase("dropout", lambda d: (d("T", "D"),), dropped, lambda d: DROPOUT),
]  # fmt: skip


def logits_and_targets(n_classes: int | str, below: int) -> Callable[[Draw], tuple[Any, ...]]:
    """Targets among the last ``below`` classes: the first may be impossible."""

    def arguments(d: Draw) -> tuple[Any, ...]:
        logits = d.logits("T", n_classes)
        return logits, logits.shape[1] - 1 - d.integers(below, "T")

    return arguments


def projected_targets(n_classes: int, below: int, *, bias: bool) -> Callable[[Draw], tuple[Any, ...]]:
    """Values, a matrix of classes and its bias, whose products are as mild as the values are."""

    def arguments(d: Draw) -> tuple[Any, ...]:
        weight = d.random.uniform(-1, 1, d.shape((n_classes, "D")))
        return d.mild("T", "D"), weight, d.mild(n_classes) if bias else None, n_classes - 1 - d.integers(below, "T")

    return arguments


def linear_cross_entropy(x: Any, weight: Any, bias: Any, targets: Any, **static: Any) -> Any:
    return cross_entropy(x @ weight.T + (0 if bias is None else bias), targets, **static)


def linear_relu_arguments(d: Draw) -> tuple[Any, ...]:
    """Sums away from the kink: a bias that puts every second column above, the others below it."""
    x, weight = d.mild("T", "D"), d.random.uniform(-1, 1, d.shape(("D", "S")))
    signs = np.where(np.arange(weight.shape[1]) % 2, -1.0, 1.0)
    return x, weight, signs * (0.1 + np.abs(x).sum(1).max(initial=0))


def linear_relu_step(x: Any, weight: Any, bias: Any) -> float:
    """Too short to reach the kink from a tenth above or below it."""
    return 1e-3 / (1 + np.abs(x).sum(1).max(initial=0) + x.shape[1])


def attention_arguments(d: Draw, queries: Segments, keys: Segments) -> tuple[Any, ...]:
    return d.mild(queries.n_tokens, "H", "K"), d.mild(keys.n_tokens, "H", "K"), d(keys.n_tokens, "H", "V")


def of_drawn_mask(d: Draw) -> tuple[Any, ...]:
    return attention_arguments(d, d.mask.queries, d.mask.keys)


CURVED = [
    OpCase("relu", lambda d: (d.away_from_zero("T", "D"),), lambda x: np.maximum(x, 0), step=quarter_of_the_smallest),
    OpCase("divide", lambda d: (d("T", "D"), d.mild("D")), np.divide, step=lambda x, y: short_of_zero(y)),
    OpCase("tanh", lambda d: (d.mild("T", "D"),), np.tanh),
    OpCase("exp", lambda d: (d.mild("T", "D"),), np.exp),
    OpCase("log", positive, np.log, step=short_of_zero),
    OpCase("sqrt", positive, np.sqrt, step=short_of_zero),
    OpCase("power", positive, lambda x, exponent: x**exponent, lambda d: {"exponent": -1.5}, step=short_of_zero),
    OpCase("power", lambda d: (d.mild("T", "D"),), lambda x, exponent: x * x * x, lambda d: {"exponent": 3}, "cube"),
    OpCase(
        "maximum", lambda d: (d.away_from_zero("T", "D"), np.zeros(d.sizes["D"])), np.maximum,
        step=lambda x, y: quarter_of_the_smallest(x),
    ),
    OpCase(
        "max", lambda d: (d.random.permuted(np.tile(np.arange(d.sizes["D"]) * 0.5, (d.sizes["T"], 1)), axis=1),),
        lambda x, axis, keepdims: x.max(axis, keepdims=keepdims), lambda d: {"axis": -1, "keepdims": True},
    ),
    OpCase("max", lambda d: (d.random.permutation(d.sizes["D"] * 1.0 + np.arange(9)),), np.max, name="of all"),
    OpCase("swish", lambda d: (d.mild("T", "D"),), lambda x: x / (1 + np.exp(-x))),
    OpCase("gelu", lambda d: (d.mild("T", "D"),), gelu),
    OpCase(
        "gelu_tanh", lambda d: (d.mild("T", "D"),),
        lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
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
    OpCase(
        "add_norm", lambda d: (d("T", "D"), d("T", "D"), d("D"), d("D")), lambda x, y, g, b: layer_norm(x + y, g, b),
        step=lambda x, y, gain, bias: layer_norm_step(x + y, gain, bias),
    ),
    OpCase(
        "add_norm", lambda d: (d("B", "T", "D"), d("B", "T", "D"), d("D"), d("D")),
        lambda x, y, gain, bias, eps, **dropout: layer_norm(x + dropped(y, **dropout), gain, bias, eps),
        lambda d: {"eps": 1e-5} | DROPOUT, name="dropout",
        step=lambda x, y, gain, bias: layer_norm_step(x + dropped(y, **DROPOUT), gain, bias),
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
    OpCase(
        "linear_relu", linear_relu_arguments, lambda x, w, b: np.maximum(x @ w + b, 0), step=linear_relu_step,
    ),
    OpCase("linear_cross_entropy", projected_targets(4, 1, bias=False), linear_cross_entropy, name="without smoothing"),
    OpCase(
        "linear_cross_entropy", projected_targets(5, 5, bias=True), linear_cross_entropy,
        lambda d: {"smoothing": 0.1}, name="bias",
    ),
    OpCase(
        "linear_cross_entropy", projected_targets(5, 4, bias=False), linear_cross_entropy,
        lambda d: {"smoothing": 0.1, "over": "V-2", "impossible": 0}, name="over V-2",
    ),
    OpCase("attention", of_drawn_mask, attention, lambda d: {"mask": d.mask}, step=attention_step),
    OpCase(
        "attention", lambda d: attention_arguments(d, UNEQUAL.queries, UNEQUAL.keys), attention,
        lambda d: {"mask": UNEQUAL}, name="segments of 1 and 30", step=attention_step,
    ),
    OpCase(
        "attention", lambda d: attention_arguments(d, EQUAL.queries, EQUAL.keys),
        lambda q, k, v, mask: attention(q, k, v, EQUAL), lambda d: {"mask": EQUAL_BY_INDICES}, name="key indices",
        step=attention_step,
    ),
    OpCase(
        "attention", of_drawn_mask, attention, lambda d: {"mask": d.mask} | DROPOUT, name="dropout",
        step=attention_step,
    ),
]  # fmt: skip

CASES = [replace(case, step=tenth_of_the_largest) for case in LINEAR] + CURVED


def results(run: Any, arguments: tuple[Any, ...], static: dict[str, Any], seed: int) -> list[Any]:
    """Return the value, and the gradient of each argument for a random gradient of the value."""
    value, backward = run(*arguments, **static)
    dy = np.asarray(np.random.default_rng(seed).standard_normal(value.shape), value.dtype)
    return [value, *map(gradient_array, backward(dy))]
