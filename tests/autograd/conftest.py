"""The stand-in for CuPy."""

import sys
from collections.abc import Iterator
from typing import Any

import fake_cupy
import fake_streams
import pytest

from autograd import graphs
from minitransformer.model import positions


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replace CuPy by its stand-in: device "cuda" without a GPU."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    fake_streams.reset()
    forget = positions._table.cache_clear, graphs._idle.clear  # they keep arrays and streams of a device
    for clear in forget:
        clear()
    yield fake_cupy
    for clear in forget:
        clear()
