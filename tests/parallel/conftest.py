"""The stand-in for CuPy, with its stand-in for NCCL."""

import sys
from typing import Any

import fake_cuda
import pytest


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Device "cuda" without a GPU."""
    for name in ("cupy", "cupy.cuda.nccl"):  # so that what is there now comes back
        monkeypatch.setitem(sys.modules, name, None)
    fake_cuda.CALLS.clear()
    return fake_cuda.stand_in_for_cupy()
