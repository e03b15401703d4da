"""The processor is known by its model and instruction sets, BLAS by its version and type of processor."""

import platform
from pathlib import Path

import pytest

from minitransformer.system import provenance
from minitransformer.system.provenance import blas_libraries, processor


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
