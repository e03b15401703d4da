"""Operations with a wrong gradient, and arguments to find it with."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from draws import full_mask

from autograd.op import Operation, operations
from autograd.random import StreamId

STREAM_ID = StreamId(seed=5, stream=1)
MASK = full_mask([1, 2], [2, 1])
Spoil = Callable[..., tuple[Any, ...]]  # of the right gradients, the incoming one and the arguments


def arguments_of(name: str, seed: int = 0) -> tuple[Any, ...]:
    """Square where they may be, so that a transposed gradient, or that of another argument, has the right shape."""
    random = np.random.default_rng(seed)
    x, y, heads = random.standard_normal((3, 3)), random.standard_normal((3, 3)), random.standard_normal((3, 3, 2, 3))
    away_from_zero = y + np.copysign(0.1, y)
    other: dict[str, tuple[Any, ...]] = {
        "relu": (away_from_zero,),
        "divide": (x, away_from_zero),
        "log": (abs(away_from_zero),),
        "sqrt": (abs(away_from_zero),),
        "power": (abs(away_from_zero),),
        "concatenate": (x, y),
        "stack": (x, y),
        "linear": (x, y, x[0] + y[0]),
        "linear_relu": (x, y, np.array([9.0, 9.0, -9.0])),
        "linear_cross_entropy": (x, y, x[0] + y[0], np.array([2, 0, 2])),
        "layer_norm": (x, y[0], y[1]),
        "add_norm": (x, y, y[0], y[1]),
        "embedding": (x, np.array([2, 0, 2])),
        "embedding_with_positions": (x, np.array([2, 0, 2]), y, np.array([1, 0, 1])),
        "cross_entropy": (x, np.array([2, 0, 2])),
        "attention": tuple(heads),
    }
    parameters = inspect.signature(operations[name].reference).parameters.values()
    n_arrays = sum(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)
    return other.get(name, (x, y)[:n_arrays])


STATIC: dict[str, dict[str, Any]] = {
    "scale": {"factor": -2.5}, "power": {"exponent": -1.5}, "reshape": {"shape": (9,)},
    "getitem": {"index": np.array([2, 0, 2])},
    "embedding_with_positions": {"scale": 3.0, "rate": 0.4, "stream_id": STREAM_ID},
    "dropout": {"rate": 0.4, "stream_id": STREAM_ID}, "add_norm": {"rate": 0.4, "stream_id": STREAM_ID},
    "cross_entropy": {"smoothing": 0.1}, "linear_cross_entropy": {"smoothing": 0.1},
    "attention": {"mask": MASK, "rate": 0.4, "stream_id": STREAM_ID},
}  # fmt: skip


def planted(name: str, spoil: Spoil) -> Operation:
    """The operation ``name``, whose backward returns ``spoil(gradients, dy, *arguments)``."""
    reference = operations[name].reference

    @functools.wraps(reference)
    def spoiled(*arguments: Any, **static: Any) -> Any:
        y, backward = reference(*arguments, **static)
        return y, lambda dy: spoil(backward(dy), dy, *arguments)

    return Operation(spoiled)


def spoil_one(argument: int, spoil: Callable[[Any], Any]) -> Spoil:
    return lambda gradients, dy, *arguments: (
        *gradients[:argument],
        spoil(gradients[argument]),
        *gradients[argument + 1 :],
    )
