"""Ranks with different kernels are refused; processors, known by model and instruction sets, and GPUs may differ."""

import platform
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from autograd.kernel_registry import Kernels
from autograd.kernels.cpu.library import Library
from minitransformer.system import provenance, ranks
from minitransformer.system.provenance import blas_libraries, processor
from minitransformer.system.ranks import require_same_kernels
from parallel.agreement import DisagreementError
from parallel.communicator import SerialCommunicator

OBSTACLE = "no C compiler was found: install GCC"


class World(SerialCommunicator):
    """Rank 0 of two; ``other`` has those values of rank 1 that differ from the values of rank 0."""

    size = 2

    def __init__(self, **other: str) -> None:
        self.other = other

    def allgather(self, value: Any) -> list[Any]:
        if isinstance(value, tuple):
            return [value, ("there", self._facts_of_rank_1(value[1]))]
        if isinstance(value, dict):
            return [value, self._facts_of_rank_1(value)]
        return [value, value if isinstance(value, list) else self.other.get("obstacle", value)]

    def _facts_of_rank_1(self, facts: dict[str, str]) -> dict[str, str]:
        return {name: self.other.get(name.split()[-1], fact) for name, fact in facts.items()}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "library", lambda: Library({"f": print}, "cc", "4f2a" * 16))


def test_ranks_with_the_same_kernels_and_processors_pass_in_silence(logged: list[str]) -> None:
    require_same_kernels("cpu", "compiled", World())
    require_same_kernels("cpu", "compiled", SerialCommunicator())
    assert logged == []


def test_a_rank_without_a_library_is_refused_with_its_reason() -> None:
    with pytest.raises(DisagreementError) as error:
        require_same_kernels("cpu", "compiled", World(library="none", obstacle=OBSTACLE))
    assert "kernel library is none on rank 1 (there), 4f2a4f2a4f on rank 0" in str(error.value)
    assert f"{OBSTACLE}. Use the same compiler" in str(error.value)
    require_same_kernels("cpu", "reference", World(library="none", obstacle=OBSTACLE))


def test_another_processor_is_a_warning(logged: list[str]) -> None:
    require_same_kernels("cpu", "compiled", World(processor="another"))
    assert len(logged) == 1
    assert " on rank 0; another on rank 1: the last bits of the model depend on" in logged[0]


def test_cuda_kernels_must_be_the_same_and_gpus_may_differ(monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    cupy = Mock(__version__="13")
    cupy.cuda.runtime.getDeviceProperties.return_value = {"name": b"H100"}
    monkeypatch.setattr(ranks, "namespace_of_device", lambda device: cupy)
    monkeypatch.setattr(ranks, "register_kernels", lambda device: None)
    kernels = {name: Kernels[Any](name) for name in ("softmax", "dropout")}
    kernels["softmax"].kernel("cuda")(print)
    kernels["softmax"].remove_kernels("cuda", "float16")
    monkeypatch.setattr(ranks, "kernels_for", lambda device: kernels)
    there = r"CUDA kernels is none on rank 1 \(there\), dropout, softmax not in float16 on rank"
    with pytest.raises(DisagreementError, match=there):
        require_same_kernels("cuda", "compiled", World(kernels="none"))
    require_same_kernels("cuda", "compiled", World(library="none", GPU="another"))
    require_same_kernels("cuda", "reference", World(kernels="none"))
    kernels["softmax"].remove_kernels("cuda")  # other tests require that none is registered
    (warning,) = logged
    assert warning.startswith("warning: GPU differs: H100 on rank 0; another on rank 1: the last bits of the model ")


def test_processors_of_other_instruction_sets_have_other_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def named(text: str) -> str:
        (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
        return processor()

    monkeypatch.setattr(provenance, "PROCESSOR", tmp_path / "cpuinfo")
    assert processor() == (platform.processor() or platform.machine())
    model = "processor\t: 0\nmodel name\t: EPYC: new\nflags\t\t: sse avx"
    assert named(f"{model}\n").startswith("EPYC: new, instruction sets ")
    assert named(f"{model}\n\nprocessor\t: 1\nmodel name\t: other\n") == named(f"{model}\n")
    assert named(f"{model} avx512f\n") != named(f"{model}\n")
    assert named("Features\t: fp asimd\n") != named("Features\t: fp asimd sve\n")


def test_blas_is_named_with_its_type_of_processor_if_it_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    openblas = {"user_api": "blas", "internal_api": "openblas", "version": "0.3", "architecture": "Zen"}
    mkl = {"user_api": "blas", "internal_api": "mkl", "version": "2024"}
    openmp = {"user_api": "openmp", "internal_api": "openmp", "version": None}
    monkeypatch.setattr(provenance, "threadpool_info", lambda: [openblas, openmp, mkl])
    assert blas_libraries() == "openblas 0.3 for Zen and mkl 2024"
    monkeypatch.setattr(provenance, "threadpool_info", lambda: [openmp])
    assert blas_libraries() is None
