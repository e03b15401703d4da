"""The feed-forward network of a layer."""

from __future__ import annotations

from autograd.op import JointKernels
from autograd.ops.linear import linear, linear_relu
from autograd.tensor import Tensor

joint_feed_forward = JointKernels("feed_forward")


def feed_forward(x: Tensor, weight1: Tensor, bias1: Tensor | None, weight2: Tensor, bias2: Tensor | None) -> Tensor:
    """Return y = max(0, x W₁ + b₁) W₂ + b₂.

    A joint kernel can apply the derivative of ReLU while it computes the product dy W₂ᵀ of the backward pass.  Without
    such a kernel ``linear_relu`` and ``linear`` run one after the other.
    Source: Vaswani et al. 2017, section 3.3, equation 2.
    Shapes: x (T, D), weight1 (D, F), bias1 (F,), weight2 (F, D), bias2 (D,) or None.  Returns (T, D).
    Saves: what ``linear_relu`` and ``linear`` save.
    Raises: ShapeError if the arguments do not fit together, or if bias1 is None.
    """
    together = joint_feed_forward.compute(x, weight1, bias1, weight2, bias2)
    return together[0] if together is not None else linear(linear_relu(x, weight1, bias1), weight2, bias2)
