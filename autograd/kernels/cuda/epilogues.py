"""Products with an epilogue, and a record of the epilogues that cuBLASLt refuses for some shapes."""

from __future__ import annotations

import logging
from typing import Any

from autograd.array import Array, namespace_of_device
from autograd.kernels.cuda import products
from autograd.kernels.cuda.cublaslt import Epilogue, ProductError

_log = logging.getLogger(__name__)
_refusals: set[tuple[Any, ...]] = set()  # by this process


def fused(left: Array, right: Array, out: Array, epilogue: Epilogue, *, bias: Array, mask: Array | None = None) -> bool:
    """Compute a product and its epilogue as ``product`` does, and return True.

    Return False if the library refuses this epilogue for factors of these shapes, or has refused it before.  The caller
    then computes the same by other operations.  The first refusal is logged.
    Raises: ProductError while a graph is being captured; refusals are found in the run before the capture.
    """
    of = epilogue, *((x.shape, x.strides, x.dtype) for x in (left, right))
    if of in _refusals:
        return False
    try:
        products.product(left, right, out, epilogue=epilogue, bias=bias, mask=mask)
    except ProductError as error:
        if namespace_of_device("cuda").cuda.get_current_stream().is_capturing():
            raise
        if not _refusals:
            _log.warning(f"cuBLASLt refuses an epilogue; more operations compute the same, more slowly: {error}")
        _refusals.add(of)
        return False
    return True
