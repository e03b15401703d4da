"""Kernels for NumPy arrays."""

import autograd.kernels.cpu.adam
import autograd.kernels.cpu.add_norm
import autograd.kernels.cpu.attention
import autograd.kernels.cpu.clip
import autograd.kernels.cpu.cross_entropy
import autograd.kernels.cpu.dropout
import autograd.kernels.cpu.embedding
import autograd.kernels.cpu.feed_forward
import autograd.kernels.cpu.layer_norm
import autograd.kernels.cpu.linear
import autograd.kernels.cpu.linear_maps
import autograd.kernels.cpu.random
import autograd.kernels.cpu.softmax
import autograd.kernels.cpu.top_k  # noqa: F401  (importing registers)
