"""Faster kernels of the operations.

Without this package the reference implementations run.  They give the same results, but more slowly.
"""

from autograd.kernel_registry import at_first_use
from autograd.kernels import cpu  # noqa: F401  (importing registers)
from autograd.kernels.cuda.check import register_checked

at_first_use("cuda", register_checked)
