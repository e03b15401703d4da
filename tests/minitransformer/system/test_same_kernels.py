"""Ranks that compute with different kernels are refused; GPUs and processors may differ, with a warning."""

from typing import Any
from unittest.mock import Mock

import pytest

from autograd.kernels.cpu.library import Library
from minitransformer.system import ranks
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
    monkeypatch.setattr(ranks, "kernels_for", lambda device: {"softmax": None, "dropout": None})
    with pytest.raises(DisagreementError, match=r"CUDA kernels is none on rank 1 \(there\), dropout, softmax on rank"):
        require_same_kernels("cuda", "compiled", World(kernels="none"))
    require_same_kernels("cuda", "compiled", World(library="none", GPU="another"))
    require_same_kernels("cuda", "reference", World(kernels="none"))
    (warning,) = logged
    assert warning.startswith("warning: GPU differs: H100 on rank 0; another on rank 1: the last bits of the model ")
