"""Kernels for CuPy arrays, in CUDA C++, compiled on first use."""

import autograd.kernels.cuda.adam
import autograd.kernels.cuda.attention
import autograd.kernels.cuda.clip
import autograd.kernels.cuda.cross_entropy
import autograd.kernels.cuda.dropout
import autograd.kernels.cuda.embedding
import autograd.kernels.cuda.layer_norm
import autograd.kernels.cuda.linear
import autograd.kernels.cuda.linear_maps  # noqa: F401  (importing registers)
