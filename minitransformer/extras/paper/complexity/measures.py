"""Measurements of a layer: seconds, multiply-adds, sequential operations, path lengths."""

from __future__ import annotations

import time
import timeit
from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd import Tensor, backward, no_tape
from autograd.array import Array
from autograd.blas import product_threads
from autograd.tensor import Node
from minitransformer.extras.paper.complexity.layers import SequenceLayer


def seconds(layer: SequenceLayer, x: Array, repeats: int) -> float:
    """Measure the CPU seconds of a forward pass on one BLAS thread.

    Return the least of ``repeats`` measurements, after a warm-up pass.  CPU time excludes the time of other processes.
    """
    with no_tape(), product_threads(1):
        layer.forward(x)
        return min(timeit.repeat(lambda: layer.forward(x), timer=time.thread_time, repeat=repeats, number=1))


def multiply_adds(layer: SequenceLayer, x: Array) -> int:
    """Run a forward pass and count the multiply-adds of all its matrix products."""
    counted: _CountingArray = x.view(_CountingArray)
    counted.tally = [0]
    with no_tape():
        layer.forward(counted)
    return counted.tally[0]


class _CountingArray(np.ndarray[Any, Any]):
    """An array that counts its matrix products in ``tally``; arrays computed from it share the tally."""

    tally: list[int]

    def __array_finalize__(self, origin: Any) -> None:
        self.tally = getattr(origin, "tally", [0])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, _CountingArray) else x for x in inputs]
        outputs = {"out": tuple(x.view(np.ndarray) for x in out)} if out else {}
        result = getattr(ufunc, method)(*plain, **outputs, **more)
        if ufunc is np.matmul:
            self.tally[0] += int(np.size(result)) * plain[0].shape[-1]
        counted: _CountingArray = np.asarray(result).view(_CountingArray)
        counted.tally = self.tally
        return counted


def longest_chain(result: Tensor) -> int:
    """Return the number of sequential operations: the length of the longest path through the tape to ``result``."""
    lengths: dict[Node, int] = {}
    waiting = [result.node] if result.node else []
    while waiting:
        node = waiting[-1]
        before = [origin for origin in node.inputs if isinstance(origin, Node)]
        missing = [origin for origin in before if origin not in lengths]
        if missing:
            waiting += missing
        else:
            lengths[waiting.pop()] = 1 + max((lengths[origin] for origin in before), default=0)
    return lengths[result.node] if result.node else 0


def path_length(layer: SequenceLayer, n: int, d: int) -> int:
    """Return the least number of steps after which the last of n positions depends on the first.

    The search doubles the number until it suffices, then bisects; n layers or n recurrent steps always suffice.  Inputs
    are random and in float64, so that the gradient is not 0 where a path exists.
    """
    too_few, enough = 0, 1
    while not reaches(layer, enough, n, d):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if reaches(layer, middle, n, d) else (middle, enough)
    return enough


def reaches(layer: SequenceLayer, steps: int, n: int, d: int) -> bool:
    """Return whether the last position after ``steps`` steps depends on the input at the first position."""
    x = Tensor(np.random.default_rng(1).standard_normal((n, d)))
    result = layer.after(steps, x)
    gradient = np.zeros(result.shape)
    gradient[-1] = 1
    backward(result, gradient)
    return x.grad is not None and bool(x.grad[0].any())


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return p of cost ≈ c · size^p: the slope of a least-squares line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])
