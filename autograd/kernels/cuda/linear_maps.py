"""Several linear maps of the same x, computed by one call as a stack of products.

This is possible if the weights are at equal distances in memory.  The flat buffer of a model has such distances between
the weights of equal layers.
"""

from __future__ import annotations

from autograd.array import Array, namespace
from autograd.kernels.cuda.epilogues import fused
from autograd.kernels.cuda.linear import affine, is_supported, sum_of_rows
from autograd.kernels.cuda.products import address, distance, pending_sum, product, stack_of, weight_gradients
from autograd.op import BackwardOfSeveral
from autograd.ops.linear import check_linear
from autograd.ops.linear_maps import joint_linear_maps
from autograd.tensor import Gradient


def _form_a_stack(x: Array, *maps: Array) -> bool:
    """Return whether the weights form a stack, and whether all maps have a bias or none has one."""
    weights, with_bias = maps[::2], [bias is not None for bias in maps[1::2]]
    if not all(is_supported(x, weight) for weight in weights) or any(with_bias) != all(with_bias):
        return False
    return distance(sorted(weights, key=address)) is not None


@joint_linear_maps.kernel("cuda", supports=_form_a_stack, takes_16_bits=True)
def linear_maps_as_a_stack(x: Array, *maps: Array) -> tuple[list[Array], BackwardOfSeveral]:
    """Compute the reference's result with one stack of products.

    If the gradients of the results form a stack, the gradients of the weights are computed as one stack of products,
    too.  The gradient of x is summed in the order of the reference's tape, the first map first.

    Saves: x and the weights.
    """
    xp, weights, biases = namespace(x), maps[::2], maps[1::2]
    for weight, bias in zip(weights, biases, strict=True):
        check_linear("linear_maps", x, weight, bias)
    order = sorted(range(len(weights)), key=lambda i: address(weights[i]))
    ys = xp.empty((len(order), len(x), weights[0].shape[1]), x.dtype)
    _multiply(x, [weights[i] for i in order], [biases[i] for i in order], ys)

    def backward(dys: list[Array | None]) -> list[Gradient | None]:
        dys = [None if dy is None else xp.ascontiguousarray(dy, dtype=x.dtype) for dy in dys]
        factors = [(dy, weight.T) for dy, weight in zip(dys, weights, strict=True) if dy is not None]
        dweights = iter(weight_gradients(x.T, *(dy for dy in dys if dy is not None)))
        gradients: list[Gradient | None] = [pending_sum(*factors)]
        for dy, bias in zip(dys, biases, strict=True):
            gradients.append(None if dy is None else next(dweights))
            gradients.append(None if dy is None or bias is None else sum_of_rows(dy))
        return gradients

    return [ys[order.index(i)] for i in range(len(order))], backward


def _multiply(x: Array, weights: list[Array], biases: list[Array], ys: Array) -> None:
    if biases[0] is None:
        product(x, stack_of(weights), ys)
        return
    bias = namespace(x).empty((len(ys), ys.shape[2]), x.dtype)
    for i, map_bias in enumerate(biases):
        bias[i] = map_bias
    if not fused(x, stack_of(weights), ys, "bias", bias=bias):
        for i, weight in enumerate(weights):
            ys[i] = affine(x, weight, bias[i], "bias")
