"""Several linear maps of the same tensor."""

from __future__ import annotations

from functools import partial
from itertools import starmap

from autograd.op import JointKernels, ShapeError
from autograd.ops.linear import linear
from autograd.tensor import Tensor

joint_linear_maps = JointKernels("linear_maps")


def linear_maps(x: Tensor, *maps: Tensor | None) -> list[Tensor]:
    """Return yᵢ = x Wᵢ + bᵢ for several linear maps of the same x, such as queries, keys and values.

    Shapes: x (T, I), then weight (I, O) and bias (O,) or None for each map in turn.  Returns a list of (T, O).
    Saves: what ``linear`` saves.
    """
    if len(maps) % 2:
        raise ShapeError(f"linear_maps: expected a weight and a bias (or None) for each map; got {len(maps)} arguments")
    together = joint_linear_maps.compute(x, *maps)
    if together is not None:
        return together
    return list(starmap(partial(linear, x), zip(maps[::2], maps[1::2], strict=True)))
