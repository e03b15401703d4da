"""PyTorch as an oracle: it computes in float64, from exactly the numbers that our operation gets.

So whatever differs is our own rounding, in float32 as well as in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import Tensor, backward

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install -e ".[oracles]"')
torch.set_num_threads(1)  # these arrays are too small to share out

DTYPES = ["float64", "float32"]
RELATIVE = {"float64": 1e-14, "float32": 1e-6}


def random_arrays(*shapes: tuple[int, ...], dtype: str) -> list[Any]:
    random = np.random.default_rng(11)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def twin_of(x: Any) -> Any:
    return torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)


def assert_near(got: Any, expected: Any, *, roundings: float = 1) -> None:
    """Within a few roundings of our dtype, by the Euclidean norm."""
    expected = expected.detach().numpy()
    assert got.shape == expected.shape
    error, size = np.linalg.norm(got.astype(np.float64) - expected), np.linalg.norm(expected)
    assert error <= roundings * RELATIVE[got.dtype.name] * size, f"relative error {error / size:.2g}"


def compare(
    ours: Callable[..., Tensor], theirs: Callable[..., Any], arrays: list[Any], *, roundings: float = 1
) -> None:
    """Values and, along a random direction of the result, the gradients of all arguments."""
    leaves, twins = [Tensor(x) for x in arrays], [twin_of(x) for x in arrays]
    result, expected = ours(*leaves), theirs(*twins)
    assert result.dtype == arrays[0].dtype
    assert_near(result.value, expected, roundings=roundings)
    (direction,) = random_arrays(result.shape, dtype=result.dtype.name)
    backward(result, direction)
    expected.backward(torch.tensor(direction, dtype=torch.float64))
    for leaf, twin in zip(leaves, twins, strict=True):
        assert leaf.grad is not None
        assert_near(leaf.grad, twin.grad, roundings=roundings)
