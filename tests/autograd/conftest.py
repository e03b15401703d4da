"""The stand-in for CuPy."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autograd import graphs
from minitransformer.model import positions


def load_fake_cupy() -> Any:
    """Load fake_cupy.py as the module cupy."""
    spec = importlib.util.spec_from_file_location("cupy", Path(__file__).with_name("fake_cupy.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replace CuPy by its stand-in: device "cuda" without a GPU."""
    module = load_fake_cupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    forget = positions._table.cache_clear, graphs._idle.clear  # they keep arrays and streams of a device
    for clear in forget:
        clear()
    yield module
    for clear in forget:
        clear()
