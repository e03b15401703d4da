"""Adam, and the moving average of the parameters, each in one pass over memory."""

from __future__ import annotations

from autograd.array import Array
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.optim import adam_update, average_update

_adam_step, _average_step = Function("adam_step"), Function("average_step")


def _is_supported(
    values: Array, gradients: Array, m: Array, v: Array, low_precision: Array | None, *scalars: Array, **static: float
) -> bool:
    return is_for_c(values, gradients, m, v)


@adam_update.kernel("cpu", supports=_is_supported)
def adam_update_in_c(
    values: Array,
    gradients: Array,
    m: Array,
    v: Array,
    low_precision: Array | None,
    scalars: Array,
    scale: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """Compute the reference's result without temporary arrays."""
    if not scale > 0:
        return
    _adam_step(
        values,
        gradients,
        m,
        v,
        len(values),
        float(scale),
        float(scalars[1]),
        float(scalars[2]),
        beta1,
        1 - beta1,
        beta2,
        1 - beta2,
        eps,
    )
    if low_precision is not None:
        low_precision[...] = values


@average_update.kernel("cpu", supports=lambda average, values, *scalars: is_for_c(average, values))
def average_update_in_c(average: Array, values: Array, share: Array, scale: Array) -> None:
    """Compute the reference's result without temporary arrays."""
    if scale > 0:
        _average_step(average, values, len(values), float(share))
