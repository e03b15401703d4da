"""What a tape keeps in memory: the arrays that its closures hold, each counted once."""

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np

from autograd import Tensor
from autograd.tensor import Node

_HOLDERS = ("autograd.masks",)


def saved_arrays(result: Tensor) -> dict[int, np.ndarray[Any, Any]]:
    """The arrays that own what the closures below ``result`` hold, by their identity."""
    owners: dict[int, np.ndarray[Any, Any]] = {}
    nodes, seen = [result.node], set[int]()
    while nodes:
        node = nodes.pop()
        if not isinstance(node, Node) or id(node) in seen:
            continue
        seen.add(id(node))
        nodes += node.inputs
        for array in _arrays(node.backward, seen):
            owners[id(array)] = array
    return owners


def _arrays(thing: Any, seen: set[int]) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(thing, np.ndarray):
        while isinstance(thing.base, np.ndarray):
            thing = thing.base
        yield thing
        return
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, FunctionType):
        for cell in thing.__closure__ or ():
            yield from _arrays(cell.cell_contents, seen)
    elif isinstance(thing, dict | list | tuple):
        for element in thing.values() if isinstance(thing, dict) else thing:
            yield from _arrays(element, seen)
    elif type(thing).__module__ in _HOLDERS:
        yield from _arrays(vars(thing), seen)
