"""The C kernels, compiled with sanitizers, for other processors, and for Arm in an emulator."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import arm_kernels
import pytest

from autograd.kernels.cpu import library as cpu

HERE = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CC") or "cc")
FILES = [
    "test_kernels.py", "test_adam.py", "test_attention.py", "test_cross_entropy.py", "test_dropout.py",
    "test_bfloat16_products.py", "test_fused_ops.py", "test_packed_weight.py", "test_random.py", "test_softmax.py",
    "test_top_k.py",
]  # fmt: skip
FILES_OF_PRODUCTS = ["test_bfloat16_products.py", "test_packed_weight.py", "test_top_k.py"]
SANITIZED = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
INTEL = "GenuineIntel" in Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else False
BUILDS = {  # options of the compiler, and the extensions of x86 that they allow, of those in SETS
    "-mno-amx-bf16": {"sse2", "avx", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"},
    "-mno-avx512bf16 -mno-avx512vnni": {"sse2", "avx", "avx2", "avx_vnni", "avx512f", "avx512bw"},
    "-mno-avx512f": {"sse2", "avx", "avx2", "avx_vnni"},
    "-march=x86-64-v3": {"sse2", "avx", "avx2"},
    "-march=sandybridge": {"sse2", "avx"},
    "-march=x86-64": {"sse2"},
}
SETS = {  # extensions and the instructions that products use with them, the best first
    "float32": {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sse2": "SSE2"},
    "bfloat16": {"amx_bf16": "AMX", "avx512_bf16": None if INTEL else "AVX-512 BF16"},  # slow on Intel's processors
    "int8": {
        "avx512_vnni": "AVX-512 VNNI", "avx512bw": "AVX-512", "avx_vnni": "AVX-VNNI", "avx2": "AVX2",
        "avx": "plain C", "sse2": "SSE2",
    },
}  # fmt: skip
FOR_ARM = {  # extensions, and the instructions of products in bfloat16 and int8
    "armv8-a": "bfloat16=none\nint8=plain C",
    "armv8.2-a+bf16+dotprod": "bfloat16=NEON BF16\nint8=NEON dot product",
}


def runtime() -> str:
    """Return the path of AddressSanitizer's library, "" if the compiler has none; Python must load it first."""
    if COMPILER is None:
        return ""
    named = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = named.stdout.strip()
    return path if Path(path).is_absolute() else ""


def run_python(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def run_tests(files: list[str], *options: str, **environment: str) -> str:
    """Return what pytest prints; every test must pass."""
    paths = [str(HERE / file) for file in files]
    done = run_python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, *paths, **environment)
    assert not done.returncode, done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.stdout


def sanitized(options: str = "") -> dict[str, str]:
    """Return the environment in which the kernels are compiled with these options and sanitizers."""
    return {
        "LD_PRELOAD": runtime(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "MINITRANSFORMER_CFLAGS": f"{SANITIZED} {options}",
    }


needs_sanitizer = pytest.mark.skipif(not runtime(), reason="no C compiler with AddressSanitizer is here")
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64" or COMPILER is None, reason="no compiler for x86 is here")
needs_emulator = pytest.mark.skipif(
    not (cpu.library().functions and shutil.which(arm_kernels.COMPILER) and shutil.which(arm_kernels.EMULATOR)),
    reason=f"no {arm_kernels.COMPILER} or {arm_kernels.EMULATOR} is here (Debian: gcc-aarch64-linux-gnu, qemu-user)",
)


@needs_sanitizer
def test_the_sanitizer_sees_a_kernel_that_writes_behind_an_array() -> None:
    done = run_python(
        "-c",
        """if True:
        import numpy as np
        from autograd.kernels.cpu.library import Function
        x = np.zeros(1_000, np.float32)
        Function("apply_mask")(x, np.zeros(1_000, np.uint8), np.zeros(999, np.float32), 1_000, 1.0)
        """,
        **sanitized(),
    )
    assert done.returncode
    assert "heap-buffer-overflow" in done.stderr


@needs_sanitizer
@pytest.mark.slow
def test_no_kernel_does() -> None:
    run_tests(FILES, **sanitized())


def build_with(options: str, monkeypatch: pytest.MonkeyPatch) -> cpu.Library:
    monkeypatch.setenv("MINITRANSFORMER_CFLAGS", options)
    build = cpu._open()
    if re.search("unrecognized|unknown argument", build.obstacle or ""):
        pytest.skip(f"this compiler is older: {build.obstacle}")
    assert build.functions
    return build


@needs_x86
@pytest.mark.parametrize("options", ["", *(pytest.param(each, marks=pytest.mark.slow) for each in BUILDS)])
def test_products_use_the_best_instructions(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = set(cpu._processor().partition(":")[2].split())
    if not reported:
        pytest.skip("this system does not report the extensions of its processor")
    allowed = BUILDS.get(options, reported) & reported
    best = {type_: next((sets[each] for each in sets if each in allowed), None) for type_, sets in SETS.items()}
    assert build_with(options, monkeypatch).instruction_sets == best


@needs_x86
@pytest.mark.slow
@pytest.mark.parametrize("options", BUILDS)
def test_kernels_for_other_processors_are_right(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build = build_with(options, monkeypatch)
    if build.sha256 == cpu.library().sha256:
        pytest.skip("this processor has none of these instructions, so the other tests have tested the same code")
    run_tests(FILES, MINITRANSFORMER_CFLAGS=options)
    if runtime():
        run_tests(FILES_OF_PRODUCTS, **sanitized(options))


@needs_emulator
@pytest.mark.slow
@pytest.mark.parametrize("extensions", FOR_ARM)
def test_kernels_for_arm_are_right(extensions: str, tmp_path: Path) -> None:
    program = arm_kernels.compile_for_arm(extensions, tmp_path)
    assert FOR_ARM[extensions].encode() in program.read_bytes()
    printed = run_tests(FILES, "-p", "arm_kernels", **{arm_kernels.PROGRAM: str(program)})
    calls = re.search(r"(\d+) calls in the emulator", printed)
    assert int(calls[1]) > 1_000
