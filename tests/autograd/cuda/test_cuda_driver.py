"""How kernels are launched, on a driver that writes down what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autograd.kernels.cuda import driver
from autograd.kernels.cuda.compiler import Program


class RecordingDriver:
    """The part of CuPy that launching needs."""

    def __init__(self) -> None:
        self.compute_capability = "90"
        self.compiled: list[tuple[str, str]] = []
        self.launches: list[tuple[bytes, str, Any, Any, Any]] = []
        self.cuda = SimpleNamespace(
            Device=lambda: SimpleNamespace(compute_capability=self.compute_capability),
            function=SimpleNamespace(Module=lambda: _Module(self)),
        )

    def compile(self, source: str, architecture: str) -> Program:
        self.compiled.append((source, architecture))
        return Program(f"{source} for {architecture}".encode(), "")


class _Module:
    def __init__(self, recorder: RecordingDriver) -> None:
        self.recorder, self.code = recorder, b""

    def load(self, code: bytes) -> None:
        self.code = code

    def get_function(self, name: str) -> Any:
        return lambda *launch: self.recorder.launches.append((self.code, name, *launch))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    recorder = RecordingDriver()
    monkeypatch.setattr(driver, "namespace_of_device", {"cuda": recorder}.__getitem__)
    monkeypatch.setattr(driver, "compile_source", recorder.compile)
    yield recorder
    driver._function.cache_clear()
    driver._module.cache_clear()


def test_a_launch_is_a_grid_a_block_and_the_arguments(recorder: RecordingDriver) -> None:
    x, n = np.zeros(3), np.int64(3)
    driver.launch("a.cu", "kernel", 7, 256, x, None, n)
    ((code, name, grid, block, (array, null, scalar)),) = recorder.launches
    assert (code, name, grid, block) == (b"a.cu for sm_90", "kernel", (7,), (256,))
    assert array is x
    assert scalar is n
    assert null == 0
    assert null.dtype == np.uintp


def test_a_source_is_compiled_once_for_every_architecture(recorder: RecordingDriver) -> None:
    for kernel in ("f", "g", "f"):
        driver.launch("a.cu", kernel, 1, 32)
    recorder.compute_capability = "80"
    driver.launch("a.cu", "f", 1, 32)
    assert recorder.compiled == [("a.cu", "sm_90"), ("a.cu", "sm_80")]
    assert [(code, name) for code, name, *_ in recorder.launches] == [
        (b"a.cu for sm_90", "f"), (b"a.cu for sm_90", "g"), (b"a.cu for sm_90", "f"), (b"a.cu for sm_80", "f"),
    ]  # fmt: skip
