"""Counts what ufuncs are asked to do with arrays that descend from a model's parameters."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from minitransformer import Transformer


@dataclass
class Meter:
    products: list[tuple[int, ...]] = field(default_factory=list)  # M, K, N, and how many of these
    dtypes: set[str] = field(default_factory=set)


METER = Meter()


class Metered(np.ndarray):
    """An array whose descendants report what is done with them."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Metered) else x for x in inputs]
        buffers = tuple(x.view(np.ndarray) if isinstance(x, Metered) else x for x in out) if out else None
        result = getattr(ufunc, method)(*plain, **({"out": buffers} if buffers else {}), **more)
        if ufunc is np.matmul and min(np.ndim(x) for x in plain) > 1:
            (*stack, m, k), n = plain[0].shape, plain[1].shape[-1]
            METER.products.append((m, k, n, int(np.prod(stack, dtype=int))))
        if not isinstance(result, np.ndarray):
            return result
        METER.dtypes.add(result.dtype.name if result.ndim else "")
        if buffers is None:
            return result.view(Metered)
        return out[0]


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    fresh = Meter()
    monkeypatch.setitem(globals(), "METER", fresh)
    return fresh


def watched(model: Transformer) -> Transformer:
    """The model, with parameters that report what is done with them and their descendants, by references alone."""
    for _, parameter in model.named_parameters():
        parameter.value = parameter.value.view(Metered)
    return model


def flops(meter: Meter) -> int:
    """Multiplications and additions of all products."""
    return sum(2 * m * k * n * times for m, k, n, times in meter.products)
