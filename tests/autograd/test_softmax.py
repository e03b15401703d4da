"""The normaliser of softmax: its kernel against its reference."""

import numpy as np
from draws import KINDS, SEEDS, SIZES, Draw
from hypothesis import given
from hypothesis import strategies as st

from autograd.ops.softmax import log_normaliser


@given(sizes=SIZES, kind=st.sampled_from(KINDS), seed=SEEDS)
def test_the_normaliser_is_its_references(sizes: dict[str, int], kind: str, seed: int) -> None:
    x = Draw(np.random.default_rng(seed), sizes, kind)("B", "T", "W").astype(np.float32)
    for got, expected in zip(log_normaliser(x), log_normaliser.reference(x.astype(np.float64)), strict=True):
        assert got.shape == expected.shape == (*x.shape[:-1], 1)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
