"""Every CUDA kernel compiles, by old and new versions of NVRTC, for common GPUs without spills; needs no GPU."""

import re
import sys
from pathlib import Path

import pytest
from nvrtc_versions import compiled_by, install, installed, ptx_of

from autograd.kernels.compiler import CompilerError
from autograd.kernels.cuda import (
    adam,
    attention,
    beam,
    clip,
    cross_entropy,
    dropout,
    embedding,
    layer_norm,
    linear,
    nvrtc,
    top_k,
)
from autograd.kernels.cuda.driver import STORAGE
from autograd.kernels.cuda.library import paths_of
from autograd.kernels.cuda.nvrtc import compile_source, machine_code

KERNELS: dict[str, tuple[int, set[str]]] = {  # the most registers, and every name that Python can form
    adam.SOURCE: (48, {adam.KERNEL}),
    attention.SOURCE: (255, {
        attention.kernel_name(kind, width, drops)
        for kind in attention.PASSES for width in attention.WIDTHS for drops in (False, True)
        if kind != "backward" or width <= attention.WIDEST_IN_ONE_PASS
    }),
    attention.CACHED_SOURCE: (128, {attention.cached_kernel_name(dtype) for dtype in STORAGE}),
    beam.SOURCE: (128, {beam.EXTEND, *beam.APPEND.values()}),
    clip.SOURCE: (40, {clip.SQUARES, clip.CLIP}),
    cross_entropy.SOURCE: (32, {
        cross_entropy.kernel_name(dtype, name) for dtype in STORAGE for name in cross_entropy.PASSES
    }),
    dropout.SOURCE: (48, {
        dropout.WORDS,
        *(dropout.kernel_name(direction, dtype) for direction in dropout.DIRECTIONS for dtype in STORAGE),
    }),
    embedding.SOURCE: (56, {
        embedding.SUMS, *(embedding.kernel_name(kind, dtype) for kind in embedding.PASSES for dtype in STORAGE),
    }),
    layer_norm.SOURCE: (224, {
        layer_norm.kernel_name(operation, direction, dtype, width)
        for operation in layer_norm.OPERATIONS for direction in layer_norm.DIRECTIONS for dtype in STORAGE
        for greatest in layer_norm.WIDTHS for width in (greatest, greatest - layer_norm.MULTIPLE)
    }),
    linear.SOURCE: (40, {linear.kernel_name(kind, dtype) for kind in linear.PASSES for dtype in STORAGE}),
    top_k.SOURCE: (64, {top_k.LOG_SOFTMAX, *top_k.KERNELS.values()}),
}  # fmt: skip
MOST_REGISTERS_OF_HEADS = {16: 168, 32: 168, 64: 224, 128: 255}


def most_registers(source: str, kernel: str) -> int:
    """Return the register limit of a kernel; wide heads and rows of unknown width need more."""
    if kernel.endswith("below_1024"):
        return 255  # all that there are
    if source == attention.SOURCE:
        return MOST_REGISTERS_OF_HEADS[int(kernel.rpartition("_")[2])]
    return KERNELS[source][0]


needs_nvrtc = pytest.mark.skipif(
    not any(paths_of("nvrtc")), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)"
)


@needs_nvrtc
@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=[] if name == "sm_90" else pytest.mark.slow)
                     for name in ("sm_80", "sm_90", "sm_100")]
)  # fmt: skip
@pytest.mark.parametrize("source", KERNELS)
def test_every_kernel_compiles_without_spills(source: str, architecture: str) -> None:
    program = compile_source(source, architecture)
    reports = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
        program.log,
        re.DOTALL,
    )
    assert {name for name, *_ in reports} == KERNELS[source][1]
    for name, stores, loads, registers in reports:
        assert (stores, loads) == ("0", "0"), name
        assert int(registers) <= most_registers(source, name), name
    assert all(name.encode() in program.cubin for name in KERNELS[source][1])


@pytest.mark.slow
@pytest.mark.parametrize("library", installed(), ids=lambda path: path.name)
def test_a_block_of_attention_reads_no_number_of_its_rows_again(library: Path) -> None:
    """Rows come by copies to shared memory, so the number of loads does not depend on their width."""
    code = (ptx_of(library) / "attention.ptx").read_text().split(".entry ")
    loads = {kernel.partition("(")[0]: kernel.count("ld.global") for kernel in code[1:]}
    assert loads.keys() == KERNELS[attention.SOURCE][1]
    for drops, most in ((False, 9), (True, 13)):  # numbers of a query, and of its dropout
        assert {loads[attention.kernel_name("backward", width, drops)] for width in (16, 32, 64)} == {most}


@needs_nvrtc
def test_a_source_that_is_refused_is_named_with_the_compilers_words() -> None:
    with pytest.raises(CompilerError, match=r"(?s)adam\.cu for sm_1: .*invalid value for --gpu-architecture"):
        compile_source("adam.cu", "sm_1")


@needs_nvrtc
def test_a_source_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = machine_code("adam.cu", "sm_90")
    monkeypatch.setattr(nvrtc, "compile_source", pytest.fail)
    assert machine_code("adam.cu", "sm_90") == code
    assert adam.KERNEL.encode() in code


VERSIONS = [  # the oldest that there is, and the newest, which is installed anew when build is removed; how its number
    # begins; and architectures that are too new or too old for it
    ("nvidia-cuda-nvrtc-cu12==12.0.*", "12.0", {"sm_100", "sm_120"}),
    ("nvidia-cuda-nvrtc-cu12>=12.9,<13", "12.", set[str]()),
    ("nvidia-cuda-nvrtc==13.0.*", "13.0", {"sm_70"}),
    ("nvidia-cuda-nvrtc>=13.5,<14", "13.", {"sm_70"}),
]
NO_ATTENTION = {"sm_70", "sm_75"}  # they do not multiply bfloat16
MOST_SPILLED = 16  # bytes of a kernel; the newest versions spill nothing


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NVRTC's wheels are for Linux")
@pytest.mark.parametrize("architecture", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(("requirement", "version", "unknown"), VERSIONS)
def test_old_and_new_versions_compile_every_kernel(
    requirement: str, version: str, unknown: set[str], architecture: str
) -> None:
    found = compiled_by(install(requirement), architecture)
    assert found["version"].startswith(version)
    assert found["is known"] == (architecture not in unknown)
    assert found["errors"] == {}
    if found["is known"]:
        assert found["spilled"].keys() == {path.name for path in nvrtc.SOURCES.glob("*.cu")}
        without_kernel = {name for name, spilled in found["spilled"].items() if spilled is None}
        assert without_kernel == ({"attention.cu"} if architecture in NO_ATTENTION else set())
        assert max(filter(None, found["spilled"].values()), default=0) <= MOST_SPILLED
