"""The greatest of each row, ties and all, and the k greatest log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from textbook import log_softmax

from autograd.kernels.cpu import panels
from autograd.kernels.cpu import top_k as tiles
from autograd.kernels.cpu.panels import PackedWeight
from autograd.ops.top_k import DEPTH, linear_top_k, top, top_k

SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = st.integers(1, 12) | st.integers(1, 30 * DEPTH)


@given(SEEDS, WIDTHS, st.integers(1, 6), st.sampled_from([2, 5, 10**6]))
@example(1, 13 * DEPTH + 5, 6, 10**6)
@example(1, 20 * DEPTH, 2, 2)
def test_of_equal_numbers_the_first_are_taken(seed: int, n_columns: int, n: int, n_values: int) -> None:
    random = np.random.default_rng(seed)
    x = np.where(random.random((5, n_columns)) < 0.2, -np.inf, random.integers(0, n_values, (5, n_columns)))
    values, columns = top(x, n)
    order = np.argsort(-x, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    possible = values > -np.inf  # which of the impossible ones come along does not matter
    np.testing.assert_array_equal(columns[possible], order[possible])


def test_an_equal_number_in_a_class_that_is_not_searched_is_found() -> None:
    x = np.zeros((2, 40 * DEPTH))
    x[0, [700, 900, 1000]] = 3
    x[1, [100, 1000]] = 3
    values, columns = top(x, 4)
    np.testing.assert_array_equal(values, [[3, 3, 3, 0], [3, 3, 0, 0]])
    np.testing.assert_array_equal(columns, [[700, 900, 1000, 0], [100, 1000, 0, 1]])


@given(SEEDS, st.integers(1, 6), st.integers(1, 3))
def test_of_equals_that_are_each_alone_in_their_class_the_first_are_taken(seed: int, n: int, n_more: int) -> None:
    """No searched column group holds two of them: only the maxima of the other groups show that there are more."""
    n_classes = 20
    random = np.random.default_rng(seed)
    x = -random.random((4, n_classes * DEPTH))
    classes = random.permutation(n_classes)[: n + n_more]
    columns = np.sort(classes + n_classes * random.integers(0, DEPTH, n + n_more))
    x[:, columns] = 1
    np.testing.assert_array_equal(top(x, n)[1], np.broadcast_to(columns[:n], (4, n)))


@given(SEEDS, WIDTHS.filter(lambda width: width > 2))
def test_log_probabilities_are_over_all_tokens_also_those_that_may_not_follow(seed: int, n_columns: int) -> None:
    logits = 3 * np.random.default_rng(seed).standard_normal((3, n_columns))
    expected = log_softmax(logits)

    def forbid_the_first(x: np.ndarray) -> None:
        x[:, 0] = -np.inf

    values, columns = top_k(logits.copy(), 2, forbid_the_first)
    assert (columns > 0).all()
    rounding = 1e-14  # of logits up to 15: a log-probability near 0 is a difference of two of them
    np.testing.assert_allclose(values, np.take_along_axis(expected, columns, 1), rtol=1e-12, atol=rounding)
    np.testing.assert_allclose(values[:, 0], expected[:, 1:].max(1), rtol=1e-12, atol=rounding)


@pytest.fixture
def in_panels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set sizes so that 100 columns have several chunks, blocks, groups, slices of terms and a remainder."""
    for module, name, value in (
        (panels, "COLUMNS", 4), (tiles, "COLUMNS", 4), (panels, "ROWS", 3), (panels, "TERMS", 5), (tiles, "DEPTH", 3),
        (tiles, "ROWS_IN_CACHE", 6),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    return


@pytest.mark.usefixtures("in_panels")
@given(
    seed=SEEDS, n_rows=st.integers(1, 8), n_terms=st.integers(1, 12), n_columns=st.integers(24, 110),
    n=st.integers(1, 7), n_values=st.sampled_from([2, 5, 10**6]), with_bias=st.booleans(),
    never=st.lists(st.integers(0, 23), max_size=3), dtype=st.sampled_from([np.float32, np.float64]),
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example(
    seed=1, n_rows=7, n_terms=11, n_columns=103, n=2, n_values=2, with_bias=True, never=[0, 3, 99], dtype=np.float64
)
@example(seed=2, n_rows=2, n_terms=6, n_columns=36, n=7, n_values=10**6, with_bias=False, never=[35], dtype=np.float32)
def test_top_k_of_a_projection_in_panels_are_those_of_the_reference(
    seed: int, n_rows: int, n_terms: int, n_columns: int, n: int, n_values: int, with_bias: bool, never: list[int],
    dtype: type,
) -> None:  # fmt: skip
    """Products of integers are exact: ties are the same in every order of summation."""
    random = np.random.default_rng(seed)
    x, weight, bias = (
        random.integers(-n_values, n_values, shape).astype(dtype) / (1 if n_values < 10 else n_values)
        for shape in ((n_rows, n_terms), (n_terms, n_columns), n_columns)
    )
    bias = bias if with_bias else None
    matrix = PackedWeight.of(weight.copy())
    run = linear_top_k.choose((x, matrix, bias), {"n": n, "never": never})
    assert run is (tiles.linear_top_k_in_tiles if n_columns // 12 * 4 > n else linear_top_k.reference)
    np.asarray(matrix)[:, : n_columns // 4 * 4] = np.nan  # so that only the panels can give the product
    values, columns = run(x, matrix, bias, n=n, never=never)
    expected = log_softmax(x.astype(np.float64) @ weight + (0 if bias is None else bias))
    expected[:, never] = -np.inf
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(values, -np.sort(-expected, axis=1)[:, :n], rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(values, np.take_along_axis(expected, columns, 1), rtol=tolerance, atol=10 * tolerance)
    if n_values < 10:
        possible = values > -np.inf
        np.testing.assert_array_equal(columns[possible], np.argsort(-expected, 1, "stable")[:, :n][possible])


@pytest.mark.usefixtures("in_panels")
@pytest.mark.parametrize("column", [0, 13, 59, 61], ids=["first chunk", "second", "last", "rest"])
@pytest.mark.parametrize("greatest", [-300.0, 30.0, 60.0, 2_000.0])
@pytest.mark.parametrize("never", [[], [0], [61]], ids=str)
def test_exponentials_do_not_overflow_wherever_the_greatest_number_comes(
    column: int, greatest: float, never: list[int]
) -> None:
    logits = np.random.default_rng(1).standard_normal((2, 62)).astype(np.float32)
    logits[0, column] = greatest
    with np.errstate(over="raise", invalid="raise"):
        values, columns = tiles.linear_top_k_in_tiles(
            np.eye(2, dtype=np.float32), PackedWeight.of(logits), None, n=3, never=never
        )
    expected = log_softmax(logits.astype(np.float64))
    expected[:, never] = -np.inf
    np.testing.assert_array_equal(columns, np.argsort(-expected, 1)[:, :3])
    np.testing.assert_allclose(values, np.take_along_axis(expected, columns, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("in_panels")
def test_numbers_that_are_not_finite_give_no_log_probability() -> None:
    logits = np.zeros((2, 50), np.float32)
    logits[0, 30] = np.nan
    with np.errstate(invalid="ignore"):
        values, _ = tiles.linear_top_k_in_tiles(
            np.eye(2, dtype=np.float32), PackedWeight.of(np.nan_to_num(logits)), logits[0], n=3, never=[]
        )
    assert not (values > -np.inf).any()


@pytest.mark.usefixtures("in_panels")
def test_a_part_of_a_matrix_has_no_panels_and_goes_the_references_way() -> None:
    x, weight = np.random.default_rng(1).standard_normal((2, 5)), np.random.default_rng(2).standard_normal((9, 60))
    of_part = linear_top_k(x, PackedWeight.of(weight)[2:7], None, n=3, never=[4])
    for found, expected in zip(of_part, linear_top_k.reference(x, weight[2:7], None, n=3, never=[4]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_of_no_rows_nothing_is_likely() -> None:
    matrix = PackedWeight.of(np.ones((3, 2_000)))
    values, columns = linear_top_k(np.ones((0, 3)), matrix, None, n=4, never=[0])
    assert values.shape == columns.shape == (0, 4)
