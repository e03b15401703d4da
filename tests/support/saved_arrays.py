"""What a tape keeps in memory: the arrays that its closures hold, each counted once."""

from collections.abc import Iterable
from types import FunctionType
from typing import Any

import numpy as np

from autograd import Tensor
from autograd.tensor import Node

_HOLDERS = ("autograd.masks",)


def saved_arrays(result: Tensor) -> dict[int, np.ndarray[Any, Any]]:
    """The arrays that own what the closures below ``result`` hold, by their identity."""
    owners: dict[int, np.ndarray[Any, Any]] = {}
    things, seen = [result.node], set[int]()
    while things:
        thing: Any = things.pop()
        if isinstance(thing, np.ndarray):
            while isinstance(thing.base, np.ndarray):
                thing = thing.base
            owners[id(thing)] = thing
        elif id(thing) not in seen:
            seen.add(id(thing))
            things += _held_by(thing)
    return owners


def _held_by(thing: Any) -> Iterable[Any]:
    if isinstance(thing, Node):
        return [*thing.inputs, thing.backward]
    if isinstance(thing, FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    if isinstance(thing, list | tuple):
        return thing
    if isinstance(thing, dict):
        return thing.values()
    return vars(thing).values() if type(thing).__module__ in _HOLDERS else ()
