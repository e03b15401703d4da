"""Sums in bfloat16 on a GPU, on the stand-in for CuPy, and on a GPU if there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_kernels import KERNELS, registered

from autograd import Tensor, backward, ops, to_device, to_host
from autograd.precision import rounded, upcast

pytestmark = pytest.mark.usefixtures("device_products")


def draw(seed: int, *shape: int) -> Any:
    return rounded(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 100)


def test_a_sum_of_bfloat16_is_rounded_once_and_its_gradients_are_not_changed() -> None:
    x, y, dz = (draw(seed, 300, 7) for seed in range(3))
    with registered():
        leaves = [Tensor(to_device(array, "cuda")) for array in (x, y)]
        z = ops.add(*leaves)
        backward(z, to_device(dz, "cuda"))
    np.testing.assert_array_equal(upcast(to_host(z.value)), upcast(rounded(upcast(x) + upcast(y))))
    for leaf in leaves:
        np.testing.assert_array_equal(upcast(to_host(leaf.grad)), upcast(dz))


def test_both_gradients_are_the_given_array() -> None:
    ((run, *_),) = KERNELS["add"]
    x, dz = to_device(draw(1, 3), "cuda"), to_device(draw(2, 3), "cuda")
    dx, dy = run(x, x)[1](dz)
    assert dx is dy is dz
