"""Every operation: its value against a textbook formula, its gradient against central differences."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from draws import AXES, KINDS, SEEDS, SIZES, Draw, full_mask
from hypothesis import example, given, settings
from hypothesis import strategies as st
from op_cases import CASES, OpCase, is_float

from autograd import ShapeError, Tensor, ops
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
@settings(max_examples=10)
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
    for got, expected in zip(run(case, single, static), run(case, arguments, static), strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "by columns": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
}


@all_cases
def test_arrays_may_be_read_only_and_lie_in_memory_in_any_way(case: OpCase) -> None:
    arguments, static = various(case)
    dy = np.random.default_rng(2).standard_normal(run(case, arguments, static)[0].shape)
    expected = run(case, arguments, static, dy)
    for view in VIEWS.values():
        views = tuple(x if x is None else view(x) for x in arguments)
        incoming = view(dy) if dy.ndim else dy
        for x in (*views, *static.values(), incoming):
            if isinstance(x, np.ndarray):
                x.flags.writeable = False
        got = run(case, views, static, incoming)
        assert [x is None for x in got] == [x is None for x in expected]
        for x, y in zip(got, expected, strict=True):
            if y is not None:
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


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


def ones(*shapes: tuple[int, ...] | None) -> list[Any]:
    return [None if shape is None else np.ones(shape) for shape in shapes]


def ids(n: int) -> Any:
    return np.zeros(n, int)


SHAPES_OF_LOSS = r"linear_cross_entropy: expected x \(T, D\), weight.*"
SHAPES_OF_EMBEDDINGS = r"embedding_with_positions: expected table \(W, D\), ids \(T,\), encodings"
SHAPE_ERRORS: list[tuple[str, list[Any], str]] = [
    ("add", ones((2, 3), (4,)), r"add: .*broadcast.*; got arguments of shapes \(2, 3\), \(4,\)"),
    ("multiply", ones((2, 3), (2, 4)), r"multiply: .*; got arguments of shapes \(2, 3\), \(2, 4\)"),
    ("concatenate", ones((2, 3), (3, 4)), r"concatenate: .*; got arguments of shapes"),
    ("layer_norm", ones((2, 3), (1,), (3,)), r"layer_norm: expected .* gain \(1,\), bias"),
    ("layer_norm", ones((2, 3), (3,), (2, 3)), r"layer_norm: .* bias \(2, 3\)"),
    ("layer_norm", ones((), (), ()), r"layer_norm: expected x .*got x \(\)"),
    ("linear", ones((2, 3), (4, 5), None), r"linear: expected x \(T, I\).*\(2, 3\).*\(4, 5"),
    ("linear", ones((1, 2, 3), (2, 5), None), r"linear: expected x \(T, I\).*\(1, 2, 3"),
    ("linear", ones((2, 3), (3,), None), r"linear: expected x \(T, I\).*weight \(3,\)"),
    ("linear", ones((2, 3), (3, 5), (1,)), r"linear: expected .* bias \(1,\)"),
    ("linear", ones((2, 3), (3, 5), (2, 5)), r"linear: expected .* bias \(2, 5\)"),
    ("linear_maps", ones((2, 3), (3, 5), None, (4, 5), None), r"linear: expected x"),
    ("linear_maps", ones((2, 3), (3, 5), None, (3, 5)), r"linear_maps: expected a weight and .*got 3 arguments"),
    ("linear_relu", ones((2, 3), (4, 5), (5,)), r"linear_relu: expected x \(T, I\)"),
    ("linear_relu", ones((2, 3), (3, 5), None), r"linear_relu: .*bias \(O,\);.* None"),
    ("linear_relu", ones((2, 3), (3, 5), ()), r"linear_relu: expected .* bias \(\)"),
    ("linear_transposed", ones((2, 3), (4, 5)), r"linear_transposed: expected"),
    ("linear_transposed", ones((1, 2, 3), (4, 2)), r"linear_transposed: expected"),
    ("matmul", ones((2, 3), (4, 5)), r"matmul: expected x \(…, M, K\)"),
    ("matmul", ones((3,), (3, 2)), r"matmul: expected x \(…, M, K\).*got x \(3,\)"),
    ("matmul", ones((2, 3), (3,)), r"matmul: expected x \(…, M, K\)"),
    ("cross_entropy", [*ones((2, 3, 1)), ids(2)], r"cross_entropy: expected logits \(T, W\)"),
    ("cross_entropy", [*ones((2, 3)), ids(3)], r"cross_entropy: expected logits \(T, W\)"),
    ("linear_cross_entropy", [*ones((2, 3), (5, 4), None), ids(2)], SHAPES_OF_LOSS),
    ("linear_cross_entropy", [*ones((2, 3), (5, 3), (1,)), ids(2)], rf"{SHAPES_OF_LOSS} bias \(1,\)"),
    ("linear_cross_entropy", [*ones((2, 3, 3), (5, 3), None), ids(2)], rf"{SHAPES_OF_LOSS} got x \(2, 3, 3\)"),
    ("linear_cross_entropy", [*ones((2, 5), (1, 5, 3), None), ids(2)], rf"{SHAPES_OF_LOSS} weight \(1, 5, 3\)"),
    ("embedding_with_positions", [np.ones((4, 3)), ids(2), np.ones((5, 2)), ids(2)], SHAPES_OF_EMBEDDINGS),
    ("embedding_with_positions", [np.ones((4, 3)), ids(2), np.ones((5, 3)), ids(1)], SHAPES_OF_EMBEDDINGS),
    ("embedding_with_positions", [np.ones(4), ids(2), np.ones(5), ids(2)], SHAPES_OF_EMBEDDINGS),
    ("embedding_with_positions", [np.ones((4, 3)), ids(2)[None], np.ones((5, 3)), ids(2)[None]], SHAPES_OF_EMBEDDINGS),
    ("attention", ones((3, 2, 4), (5, 2, 4), (6, 2, 4)), "k and v must have the same number of tokens"),
    ("attention", ones((3, 2, 4), (5, 2, 3), (5, 2, 4)), r"expected q \(T, H, K\)"),
    ("attention", ones((3, 2, 4), (5, 3, 4), (5, 2, 4)), r"expected q \(T, H, K\)"),
    ("attention", ones((3, 2, 4, 1), (5, 2, 4, 1), (5, 2, 4, 1)), r"expected q \(T, H, K\)"),
    ("attention", ones((2, 2, 4), (5, 2, 4), (5, 2, 4)), "mask is for 3 queries"),
    ("attention", ones((3, 2, 4), (4, 2, 4), (4, 2, 4)), "mask reaches to key 5"),
]
STATIC: dict[str, dict[str, Any]] = {
    "attention": {"mask": full_mask([3], [5])}, "embedding_with_positions": {"scale": 1.0}
}  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), SHAPE_ERRORS)
def test_shape_errors_name_expected_and_given_shapes(name: str, arguments: list[Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        getattr(ops, name)(*arguments, **STATIC.get(name, {}))


@pytest.mark.parametrize("name", ["concatenate", "stack"])
def test_a_list_of_tensors_is_refused_with_the_call_that_is_meant(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}: expected tensors as arguments of their own, as in {name}\(x, y\)"):
        getattr(ops, name)([Tensor(np.ones(2)), Tensor(np.ones(2))])
