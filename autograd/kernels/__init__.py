"""Faster kernels of the operations.  Without this package the references run: the same results, more slowly."""

import autograd.kernels.cpu  # noqa: F401  (importing registers)
