"""Faster kernels of the operations.  Without this package everything still works, from the references, more slowly."""

import autograd.kernels.cpu  # noqa: F401  (importing registers)
