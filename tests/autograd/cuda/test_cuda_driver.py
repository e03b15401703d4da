"""Launches of kernels, on a driver that records its calls."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autograd.kernels.cuda import driver


class RecordingDriver:
    """A driver that records its calls: the part of CuPy that a launch uses."""

    def __init__(self) -> None:
        self.current, self.capabilities = 0, ["90", "80", "90"]
        self.n_loaded = 0
        self.compiled: list[tuple[str, str]] = []
        self.launches: list[tuple[bytes, str, Any, Any, Any]] = []
        self.cuda = SimpleNamespace(
            Device=lambda number=None: SimpleNamespace(
                id=self.current, compute_capability=self.capabilities[self.current if number is None else number]
            ),
            function=SimpleNamespace(Module=lambda: _Module(self)),
        )

    def compile(self, source: str, architecture: str) -> bytes:
        self.compiled.append((source, architecture))
        return f"{source} for {architecture}".encode()


class _Module:
    def __init__(self, recorder: RecordingDriver) -> None:
        self.recorder, self.code = recorder, b""

    def load(self, code: bytes) -> None:
        self.code = code
        self.recorder.n_loaded += 1

    def get_function(self, name: str) -> Any:
        return lambda *launch: self.recorder.launches.append((self.code, name, *launch))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    recorder = RecordingDriver()
    monkeypatch.setattr(driver, "namespace_of_device", {"cuda": recorder}.__getitem__)
    monkeypatch.setattr(driver, "machine_code", recorder.compile)
    yield recorder
    for function in (driver._function, driver._module):
        function.cache_clear()


def test_a_launch_is_a_grid_a_block_and_the_arguments(recorder: RecordingDriver) -> None:
    x, n = np.zeros(3), np.int64(3)
    driver.launch("a.cu", "kernel", 7, 256, x, None, n)
    ((code, name, grid, block, (array, null, scalar)),) = recorder.launches
    assert (code, name, grid, block) == (b"a.cu for sm_90", "kernel", (7,), (256,))
    assert array is x
    assert scalar is n
    assert null == 0
    assert null.dtype == np.uintp


def test_a_source_is_compiled_and_loaded_once_on_every_device(recorder: RecordingDriver) -> None:
    for device, kernel in ((0, "f"), (0, "g"), (0, "f"), (1, "f"), (2, "f"), (2, "f")):
        recorder.current = device
        driver.launch("a.cu", kernel, 1, 32)
    assert recorder.compiled == [("a.cu", "sm_90"), ("a.cu", "sm_80"), ("a.cu", "sm_90")]
    assert recorder.n_loaded == 3
    codes = ["90 f", "90 g", "90 f", "80 f", "90 f", "90 f"]
    assert [(code, name) for code, name, *_ in recorder.launches] == [
        (f"a.cu for sm_{architecture}".encode(), name) for architecture, name in map(str.split, codes)
    ]
