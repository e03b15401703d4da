"""Kernels for NumPy arrays."""

import autograd.kernels.cpu.adam
import autograd.kernels.cpu.attention
import autograd.kernels.cpu.cross_entropy
import autograd.kernels.cpu.dropout
import autograd.kernels.cpu.embedding
import autograd.kernels.cpu.likeliest
import autograd.kernels.cpu.linear
import autograd.kernels.cpu.normalisation
import autograd.kernels.cpu.philox  # noqa: F401  (importing registers)
