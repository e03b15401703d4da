"""Matrix products have one thread if they are small, and what NumPy uses outside of the engine does not change."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from autograd import blas
from autograd.blas import n_product_threads, product, product_threads

NUMBERS = np.random.default_rng(1).standard_normal((6, 5, 4)).astype(np.float32)


def n_threads() -> int:
    return next(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    with threadpool_limits(3, user_api="blas"):
        yield
        assert n_threads() == 3


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (NUMBERS[0], NUMBERS[1].T), (NUMBERS, NUMBERS.swapaxes(1, 2)), (NUMBERS[0, 0], NUMBERS[1].T),
        (NUMBERS[0, 0], NUMBERS[1, 0]), (NUMBERS[0], NUMBERS[1, 0]), (NUMBERS[:0], NUMBERS[0].T),
    ],
)  # fmt: skip
def test_a_product_is_that_of_numpy(x: np.ndarray, y: np.ndarray) -> None:
    np.testing.assert_array_equal(product(x, y), x @ y)
    out = np.empty_like(x @ y)
    if out.ndim:
        product(x, y, out=out)
        np.testing.assert_array_equal(out, x @ y)


def test_only_a_large_product_has_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    used, matmul = list[int](), np.matmul

    def noted(*arguments: Any, **keywords: Any) -> Any:
        used.append(n_threads())
        return matmul(*arguments, **keywords)

    monkeypatch.setattr(blas.np, "matmul", noted)
    monkeypatch.setattr(blas, "SMALL", 5 * 4 * 5)
    x, y = NUMBERS[0], NUMBERS[1].T
    product(x, y)
    product(x[:4], y)
    product(NUMBERS[:, :4], NUMBERS.swapaxes(1, 2))  # many small ones
    assert used == [3, 1, 1]
    with product_threads(2):
        product(x, y)
        product(x[:4], y)
    with product_threads(1):
        product(x, y)
    assert used[3:] == [2, 1, 1]


def test_contexts_of_threads_that_overlap_and_errors_leave_the_number_as_it_was() -> None:
    first, second = threading.Event(), threading.Event()

    def begins_first() -> int:
        with product_threads(2):
            first.set()
            assert second.wait(60)
            return n_threads()

    def ends_last(waiting: Any) -> list[int]:
        assert first.wait(60)
        with product_threads(1):
            second.set()
            return [waiting.result(60), n_threads(), n_product_threads()]

    with ThreadPoolExecutor(2) as executor:
        assert executor.submit(ends_last, executor.submit(begins_first)).result(60) == [1, 1, 1]
    assert n_product_threads() == 1
    with pytest.raises(ValueError, match="mismatch"):
        product(NUMBERS[0], NUMBERS[0])
    with pytest.raises(ZeroDivisionError), product_threads(1):
        assert 1 / (n_threads() - 1)
