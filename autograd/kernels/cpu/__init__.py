"""Kernels for NumPy arrays."""

from autograd.kernels.cpu import (  # noqa: F401  (importing registers)
    adam,
    add_norm,
    attention,
    clip,
    cross_entropy,
    dropout,
    embedding,
    feed_forward,
    layer_norm,
    linear,
    linear_maps,
    random,
    softmax,
    top_k,
)
