"""The launches of an update, recorded without a GPU: kernels that compute nothing, on arrays of real shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gpu_card import Card
from gpu_ours import OurTraining
from workload import IdPairs, Workload

from autograd.array import namespace_of_device
from autograd.kernels.cuda import cublaslt, driver
from minitransformer import ModelConfig

TOKENS = (3_168, 6_336)  # of a side: from what is launched for both follows what is launched for any number
Found = dict[str, list[tuple[int, int, int]]]  # of every kernel its launches: warps, bytes of arrays, of the largest
OTHERS = "array operations of CuPy"


class Launches(NamedTuple):
    """All launches of a kernel in an update.

    Warps, bytes of all arrays that a launch is given, and bytes of the largest of them, are sums over the launches.
    """

    launches: float
    warps: float
    n_bytes: float
    largest: float


def recorded(config: ModelConfig, n_tokens: int) -> dict[str, Launches]:
    """Return the launches of an update of ``n_tokens`` a side, which grow with the tokens by a straight line.

    Afterwards this process can compute nothing on its stand-in for a GPU.
    """
    Card("cpu").open()
    found: Found = {}
    record_kernels(found)
    record_arrays(found)
    cublaslt.Product.run = lambda *of, **how: None
    (x0, of_few), (x1, of_many) = (of_update(config, tokens, found) for tokens in TOKENS)
    nothing = Launches(0, 0, 0, 0)
    return {
        name: Launches(
            *(a + (b - a) * (n_tokens - x0) / (x1 - x0) for a, b in zip(of_few.get(name, nothing), many, strict=True))
        )
        for name, many in of_many.items()
    }


def of_update(config: ModelConfig, batch_tokens: int, found: Found) -> tuple[int, dict[str, Launches]]:
    """Return the target tokens of a batch, and the launches of the second update, without a graph."""
    batches = Workload(config, batch_tokens, 1, zipf=True).batches()
    training = OurTraining(config, batches, batch_tokens, in_graphs=False)
    update(training)
    found.clear()
    update(training)
    sums = {name: Launches(len(rows), *map(sum, zip(*rows, strict=True))) for name, rows in found.items()}
    return count_tokens(batches[0]), sums


def update(training: OurTraining) -> None:
    """Make an update, whose numbers mean nothing."""
    training.trainer.step(next(training._batches))


def count_tokens(pairs: IdPairs) -> int:
    """Return the target tokens, end symbols included."""
    return sum(len(target) + 1 for _, target in pairs)


def record_kernels(found: Found) -> None:
    """Let the driver record launches instead of making them."""

    def function_of(source: str, kernel: str, device: int) -> Callable[..., None]:
        def run(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], **how: Any) -> None:
            sizes = [array.nbytes for array in arguments if not isinstance(array, np.generic)]
            warps = int(np.prod(grid)) * -(-int(np.prod(block)) // 32)
            found.setdefault(kernel, []).append((warps, sum(sizes), max(sizes, default=0)))

        return run

    driver._function = function_of


def record_arrays(found: Found) -> None:
    """Let the stand-in for CuPy record the new arrays that its own operations write."""
    import fake_streams  # noqa: PLC0415 (among the stand-ins, which are found once the card is open)

    cupy, make, is_allocating = namespace_of_device("cuda"), fake_streams.made, [False]

    def allocating(function: Callable[..., Any]) -> Callable[..., Any]:
        def allocate(*arguments: Any, **keywords: Any) -> Any:
            is_allocating[0] = True
            try:
                return function(*arguments, **keywords)
            finally:
                is_allocating[0] = False

        return allocate

    def made(compute: Callable[[], Any], sources: list[Any], wrap: Callable[[Any], Any]) -> Any:
        result = make(compute, sources, wrap)
        if not is_allocating[0] and not any(np.may_share_memory(result._values, source) for source in sources):
            found.setdefault(OTHERS, []).append((0, result.nbytes, result.nbytes))
        return result

    fake_streams.made = made
    for name in ("empty", "empty_like"):
        setattr(cupy, name, allocating(getattr(cupy, name)))
