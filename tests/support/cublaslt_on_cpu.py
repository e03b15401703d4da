"""A stand-in for cuBLASLt that computes on the CPU, compiled by the C++ compiler of this machine."""

import ctypes
import functools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_streams
import pytest
from cuda_on_cpu import COMPILER, F16, built

from autograd.kernels.cuda import algorithms, cublaslt, epilogues, products, side_stream

SOURCE = Path(__file__).with_suffix(".cpp")


@functools.cache
def library() -> ctypes.CDLL:
    """The stand-in, declared as the library itself."""
    return cublaslt.declared(built("cublaslt", [SOURCE, F16], _build))


def _build(compiled: Path) -> None:
    assert COMPILER is not None
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILER, *flags, str(SOURCE), "-o", str(compiled)], check=True, capture_output=True)


class Recorder:
    """The stand-in, which keeps the name and the arguments of every call, and can be told to fail one."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._attributes: dict[int, dict[int, Any]] = {}
        self._kept: set[int | None] = set()  # descriptors that the stand-in needs when it computes, as no GPU does
        self.refuse: Callable[[str, tuple[Any, ...]], bool] = lambda name, arguments: False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            short = name.removeprefix("cublasLt")
            self.calls.append((short, arguments))
            if self.refuse(short, arguments):
                return 15
            if short == "MatmulDescSetAttribute":
                operation, attribute, value, _ = arguments
                self._attributes.setdefault(operation.value, {})[attribute] = value._obj
            if short.endswith("Destroy") and arguments[0].value in self._kept:
                return 0
            if short == "MatmulDescDestroy":
                self._attributes.pop(arguments[0].value, None)
            if short == "Matmul" and fake_streams.is_late(arguments[-1]):
                attributes = dict(self._attributes[arguments[1].value])
                self._kept |= {x.value for x in arguments if isinstance(x, ctypes.c_void_p)}
                fake_streams.do(functools.partial(self._multiply, arguments, attributes), arguments[-1])
                return 0
            if short == "Matmul":
                fake_streams.begin(arguments[-1])
            return getattr(library(), name)(*arguments)

        return call

    @staticmethod
    def _multiply(arguments: tuple[Any, ...], attributes: dict[int, Any]) -> None:
        """With the addresses that the operation had when the product was enqueued."""
        for attribute, value in attributes.items():
            library().cublasLtMatmulDescSetAttribute(arguments[1], attribute, ctypes.byref(value), ctypes.sizeof(value))
        assert library().cublasLtMatmul(*arguments) == 0

    def refuse_epilogues(self, *refused: cublaslt.Epilogue) -> None:
        """Find no algorithm for products with these epilogues, as the library says it."""
        numbers = {cublaslt.EPILOGUES[epilogue] for epilogue in refused}
        self.refuse = lambda name, arguments: (
            name in ("MatmulAlgoGetHeuristic", "MatmulAlgoCheck")
            and self._attributes[arguments[1].value][cublaslt.EPILOGUE].value in numbers
        )

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of all calls of one function."""
        return [arguments for called, arguments in self.calls if called == name]


def forget() -> None:
    """What products keep for the whole process: of another library, or of another stand-in for CuPy, it is wrong."""
    cached_of_products = products._prepare, products._workspace, products._multiplies_tf32
    for cached in (cublaslt.handle, *cached_of_products, algorithms.choices_of):
        cached.cache_clear()
    epilogues._refusals.clear()
    side_stream.thread_stream.__dict__.clear()
    side_stream.thread_stream.__init__()


def install(monkeypatch: pytest.MonkeyPatch, directory: Path) -> Recorder:
    """Put the stand-in in the library's place, and remembered algorithms into ``directory``."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (g++)")
    recorder = Recorder()
    monkeypatch.setattr(cublaslt, "library", lambda: recorder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    forget()
    return recorder
