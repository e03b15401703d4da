"""Weighted sums over the last axis."""

from __future__ import annotations

import numpy as np
import pytest

from autograd.kernels.cpu.sums import weighted_sums


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 4, 6), (0, 3), (4,)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_last_axis_is_summed_with_weights(shape: tuple[int, ...], dtype: str) -> None:
    generator = np.random.default_rng(1)
    x, weight = generator.random(shape).astype(dtype), generator.random(shape[-1]).astype(dtype)
    sums = weighted_sums(x, weight)
    assert sums.shape == shape[:-1]
    assert sums.dtype == x.dtype
    np.testing.assert_allclose(sums, (x * weight).sum(-1), rtol=1e-6)


def test_a_flag_that_the_library_raises_is_no_warning() -> None:
    """OpenBLAS can raise the flag for finite numbers, depending on earlier calls; here inf − inf always raises it."""
    with np.errstate(invalid="raise"):
        sums = weighted_sums(np.array([[np.inf, -np.inf], [1, 2]]), np.ones(2))
    np.testing.assert_array_equal(sums, [np.nan, 3])
