"""Several linear maps of the same tensor."""

from __future__ import annotations

from autograd.op import JointOperation
from autograd.ops.linear import linear
from autograd.tensor import Tensor


@JointOperation
def linear_maps(x: Tensor, *maps: Tensor | None) -> list[Tensor]:
    """Return yᵢ = x Wᵢ + bᵢ for several linear maps of the same x, such as queries, keys and values.

    Shapes: x (T, I), then weight (I, O) and bias (O,) or None for each map in turn.  Returns a list of (T, O).
    Saves: what ``linear`` saves.
    """
    return [linear(x, weight, bias) for weight, bias in zip(maps[::2], maps[1::2], strict=True)]
