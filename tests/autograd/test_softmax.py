"""Softmax, log-softmax and the logarithm of the denominator."""

from __future__ import annotations

import numpy as np
from draws import KINDS, SEEDS, SIZES, Draw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograd import ops
from autograd.ops.softmax import log_normaliser


def test_softmax_of_large_numbers_does_not_overflow() -> None:
    np.testing.assert_allclose(ops.softmax(np.array([[1e4, 1e4, -1e4]])).value, [[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(ops.log_softmax(np.array([[1e4, 0.0]])).value, [[0.0, -1e4]])


@given(sizes=SIZES, kind=st.sampled_from(KINDS), seed=SEEDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_normaliser_is_its_references(runs: None, sizes: dict[str, int], kind: str, seed: int) -> None:
    x = Draw(np.random.default_rng(seed), sizes, kind)("B", "T", "W")
    for got, expected in zip(log_normaliser(x), log_normaliser.reference(x), strict=True):
        assert got.shape == expected.shape == (*x.shape[:-1], 1)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
