"""Kernels of the CPU: what the reference says, faster; and in pieces as well as in one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from draws import AXES, KINDS, SEEDS, SIZES, Draw, whole_spans
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_cases import CASES, OpCase

from autograd import Blocks, KeySpans, ops
from autograd.kernels.cpu.head_rows import HeadRows
from autograd.op import Operation, operations
from autograd.ops.likeliest import linear_likeliest
from autograd.ops.normalisation import log_normaliser
from autograd.optim import adam_update
from autograd.random import Site, random_words
from autograd.tensor import written
from autograd.testing import check_gradients

SITE = Site(seed=1, site=1)
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


@pytest.fixture(params=["one run", "a row at a time"])
def runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Arrays of tests are far smaller than a run; so that there are several, a run is made smaller than a row."""
    if request.param == "a row at a time":
        for name, module in list(sys.modules.items()):
            if name.startswith("autograd.kernels.cpu") and hasattr(module, "RUN"):
                monkeypatch.setattr(module, "RUN", 1)
    return


KERNELS = {
    "adam_update": adam_update, "attention": ops.attention, "dropout": ops.dropout, "embedding": ops.embedding,
    "layer_norm": ops.layer_norm, "linear": ops.linear, "linear_cross_entropy": ops.linear_cross_entropy,
    "linear_likeliest": linear_likeliest, "linear_relu": ops.linear_relu, "log_normaliser": log_normaliser,
    "random_words": random_words,
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_it_has_a_kernel_for_the_cpu(name: str) -> None:
    assert [kernel.device for kernel in KERNELS[name].kernels] == ["cpu"]


def test_no_other_operation_has_one() -> None:
    assert set(WITH_KERNELS) == set(KERNELS) & set(operations)


def results(run: Any, arguments: tuple[Any, ...], static: dict[str, Any], seed: int) -> list[Any]:
    value, backward = run(*arguments, **static)
    dy = np.asarray(np.random.default_rng(seed).standard_normal(value.shape), value.dtype)
    return [value, *map(written, backward(dy))]


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
    """Everywhere else operations run with their kernels."""
    draw = Draw(np.random.default_rng(seed), sizes)
    arguments = case.arguments(draw)
    reference = functools.partial(Operation(operations[case.op].reference), **case.static(draw))
    check_gradients(reference, *arguments, name=case.id, step=case.step(*arguments), seed=seed)


@pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
@pytest.mark.parametrize("spread", [1.0, 100.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_with_large_scores_neither_overflows_nor_vanishes(shift: float, spread: float, dtype: str) -> None:
    spans = whole_spans([3, 20, 1], [5, 1, 30])
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((n, 2, 4)) for n in (24, 36, 36))
    q[..., 0], k[..., 0] = 1, 2 * shift  # the scores' common part
    arguments = tuple(x.astype(dtype) for x in (q, k * [1, spread, spread, spread], v))
    run = operations["attention"].choose(arguments, {"spans": spans})
    assert run is not operations["attention"].reference
    got = results(run, arguments, {"spans": spans}, 1)
    expected = results(operations["attention"].reference, arguments, {"spans": spans}, 1)
    for x, y in zip(got, expected, strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, y, rtol=0, atol=(1e-3 if dtype == "float32" else 1e-11) * np.abs(y).max())


@pytest.mark.parametrize("shift", [0.0, 39.0, 300.0, -39.0, -300.0])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_of_large_logits_neither_overflows_nor_vanishes(shift: float, spread: float, dtype: str) -> None:
    random = np.random.default_rng(1)
    x, weight = random.standard_normal((6, 5)), random.standard_normal((20, 5))
    x[:3, 0], x[:, 1:], weight[:, 0] = (
        shift,
        spread * x[:, 1:],
        1,
    )  # only three rows are shifted, and all that is common
    arguments = (*(a.astype(dtype) for a in (x, weight)), None, random.integers(0, 20, 6))
    operation = operations["linear_cross_entropy"]
    static = {"smoothing": 0.1, "over": "V-2", "impossible": 7}
    run = operation.choose(arguments, static)
    assert run is not operation.reference
    for got, expected in zip(
        results(run, arguments, static, 1), results(operation.reference, arguments, static, 1), strict=True
    ):
        if expected is not None:
            np.testing.assert_allclose(
                got, expected, rtol=0, atol=(1e-5 if dtype == "float32" else 1e-13) * np.abs(expected).max()
            )


BLOCKS = Blocks.of_lengths([3, 1, 6, 1])
LONE = {
    "one key a block": whole_spans([3, 1, 6, 1], [1, 1, 1, 1]),
    "itself alone, among others": KeySpans(BLOCKS.tokens, BLOCKS.tokens + 1, BLOCKS, BLOCKS),
    "blocks of one, among longer ones": whole_spans([3, 1, 6, 1], [3, 1, 6, 1]),
    "itself and those before": KeySpans(np.repeat(BLOCKS.starts, BLOCKS.lengths), BLOCKS.tokens + 1, BLOCKS, BLOCKS),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1.0, 30.0])  # of queries and keys; of the larger ones a score overflows exp
@pytest.mark.parametrize("rate", [0.0, 0.5])  # for which the reference runs
@pytest.mark.parametrize("name", LONE)
def test_the_weight_of_a_lone_key_is_exactly_1_and_its_score_has_no_gradient_at_all(
    name: str, rate: float, size: float, dtype: str
) -> None:
    random, spans = np.random.default_rng(1), LONE[name]
    q, k, v = (random.standard_normal((n, 2, 4)) for n in (11, spans.keys.end, spans.keys.end))
    arguments = tuple(x.astype(dtype) for x in (q * size, k * size, v))
    static = {"spans": spans, "rate": rate, "site": SITE}
    for run in (operations["attention"].choose(arguments, static), operations["attention"].reference):
        y, dq, dk, _ = results(run, arguments, static, 1)
        mask = spans.mask()
        is_lone = mask.sum(1) == 1
        of_lone = arguments[2][mask[is_lone].argmax(1)]
        assert is_lone.any()
        assert not dq[is_lone].any()
        assert not dk[~mask[~is_lone].any(0)].any()
        assert rate or (y[is_lone] == of_lone).all()
        assert ((y[is_lone] == of_lone / (1 - rate)) | (y[is_lone] == 0)).all()


@pytest.mark.parametrize(
    ("dropout", "is_kernel"),
    [({}, True), ({"rate": 0.5}, True), ({"site": SITE}, True), ({"rate": 0.5, "site": SITE}, False)],
)
def test_attention_without_dropout_has_a_kernel(dropout: dict[str, Any], is_kernel: bool) -> None:
    arguments, operation = tuple(np.ones((n, 2, 4)) for n in (3, 2, 2)), operations["attention"]
    chosen = operation.choose(arguments, {"spans": whole_spans([3], [2]), **dropout})
    assert (chosen is not operation.reference) is is_kernel


def test_attention_to_a_cache_copies_nothing() -> None:
    x = np.random.default_rng(1).standard_normal((12, 2, 4))
    cache, sentences = Blocks(np.array([0, 4, 8]), np.array([3, 3, 3])), Blocks.of_lengths([5, 7])
    assert np.shares_memory(HeadRows(cache, 2, 12).of(x), x)
    gathered = HeadRows(sentences, 2, 12).of(x)
    assert gathered.flags.c_contiguous
    assert not np.shares_memory(gathered, x)


@pytest.mark.parametrize("n_rows", [1, 8, 9])
@pytest.mark.parametrize(("n_columns", "n_pieces"), [(2_047, 0), (2_048, 1), (5_000, 3)])
def test_few_rows_of_linear_are_multiplied_one_by_one_in_pieces(
    n_rows: int, n_columns: int, n_pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(np, "matmul", lambda x, w, out: calls.append((x.shape, w.shape[1])))
    ops.linear(np.ones((n_rows, 5)), np.ones((5, n_columns)), None)
    assert len(calls) == (n_rows * n_pieces if n_rows <= 8 else 0)
    assert all(shape == (5,) for shape, _ in calls)
    assert sum(width for _, width in calls) in (0, n_rows * n_columns)


@pytest.mark.parametrize("n_rows", [1, 8, 9])
@pytest.mark.parametrize("n_columns", [2_047, 2_048, 5_000])
@pytest.mark.parametrize("name", ["linear", "linear_relu"])
def test_few_rows_times_a_wide_matrix(name: str, n_columns: int, n_rows: int) -> None:
    random = np.random.default_rng(n_rows)
    arguments = tuple(random.standard_normal(shape) for shape in ((n_rows, 5), (5, n_columns), (n_columns,)))
    operation = operations[name]
    kernel = results(operation.choose(arguments, {}), arguments, {}, 1)
    for x, y in zip(kernel, results(operation.reference, arguments, {}, 1), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@given(sizes=SIZES, kind=st.sampled_from(KINDS), seed=SEEDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_normaliser_is_its_references(runs: None, sizes: dict[str, int], kind: str, seed: int) -> None:
    x = Draw(np.random.default_rng(seed), sizes, kind)("B", "T", "W")
    for got, expected in zip(log_normaliser(x), log_normaliser.reference(x), strict=True):
        assert got.shape == expected.shape == (*x.shape[:-1], 1)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
