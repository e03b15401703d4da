"""Kernels for NumPy arrays."""

import autograd.kernels.cpu.adam
import autograd.kernels.cpu.philox  # noqa: F401  (importing registers)
