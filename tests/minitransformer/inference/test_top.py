"""The greatest of each row, ties and all, and the log-probabilities of the likeliest tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from textbook import log_softmax

from minitransformer.inference.top import DEPTH, likeliest, top

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
    """No class that is searched holds two of them: only the maxima of the others show that there are more."""
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

    values, columns = likeliest(logits.copy(), 2, forbid_the_first)
    assert (columns > 0).all()
    np.testing.assert_allclose(values, np.take_along_axis(expected, columns, 1), rtol=1e-12)
    np.testing.assert_allclose(values[:, 0], expected[:, 1:].max(1), rtol=1e-12)
