"""Faster kernels of the operations.

Without this package the reference implementations run.  They give the same results, but more slowly.
"""

import autograd.kernels.cpu  # noqa: F401  (importing registers)
