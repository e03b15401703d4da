"""Compiled kernels: their cache, and what happens without a compiler."""

import logging
import os
import platform
import pwd
import re
import shlex
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from autograd import ops
from autograd.kernels.compiler import cached_code, code_of
from autograd.kernels.cpu import library as cpu
from autograd.kernels.cpu.options import BUILDS

COMPILER = shlex.split(os.environ.get("CC") or "cc")[0]
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason="no C compiler is here")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, no library that is open already, and quick compilations."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MINITRANSFORMER_CFLAGS", "-O0")
    monkeypatch.setattr(cpu, "_libraries", [])
    return tmp_path / "cache" / "minitransformer" / "kernels"


def test_code_is_compiled_once_for_the_same_inputs(cache: Path) -> None:
    compiled = []

    def compile_code() -> bytes:
        compiled.append(1)
        return b"code"

    paths = [cached_code("name", inputs, compile_code) for inputs in ([b"a", b"b"], [b"a", b"b"], [b"ab"], [b"a"])]
    assert len(compiled) == len(set(paths)) == 3
    assert code_of(paths[0]) == b"code"
    assert sorted(cache.iterdir()) == sorted(set(paths))
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"", b"other code", b"cod" + bytes(33)])
def test_a_corrupt_file_is_compiled_again(content: bytes) -> None:
    path = cached_code("name", [b"a"], lambda: b"code")
    path.write_bytes(content)
    assert cached_code("name", [b"a"], lambda: b"code") == path
    assert code_of(path) == b"code"


def test_a_directory_that_others_can_write_is_not_used(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    path = cached_code("name", [b"a"], lambda: b"code")
    assert code_of(path) == b"code"
    assert path.parent != cache
    assert "can be written by other users: kernels are compiled again in every process" in caplog.text


@pytest.mark.parametrize("has_home", [True, False])
def test_without_a_directory_code_is_kept_in_a_temporary_one(
    has_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    if not has_home:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # no user has this number, as in some containers
    assert code_of(cached_code("name", [b"a"], lambda: b"code")) == b"code"
    reason = "cannot be made" if has_home else "there is no home directory: kernels are compiled again in every process"
    assert reason in caplog.text


@pytest.mark.slow
@needs_compiler
def test_the_kernels_are_compiled_once_in_all_processes_and_again_with_other_options(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "cc -DSOMETHING")  # a compiler may have options
    hashes = []
    for options in ("-O0", "-O0 -DANYTHING", "-O0 -g"):
        monkeypatch.setenv("MINITRANSFORMER_CFLAGS", options)
        monkeypatch.setattr(cpu, "_libraries", [])
        assert cpu.library().functions
        assert "cc -DSOMETHING" in cpu.library().command
        hashes.append(cpu.library().sha256)
    assert hashes[0] == hashes[1] != hashes[2], "the hash is that of the machine code"
    monkeypatch.setattr(cpu, "_libraries", [])
    monkeypatch.setattr(cpu, "_compile", pytest.fail)
    assert cpu.library().functions
    assert len(list(cache.iterdir())) == 3


needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or " avx2 " not in cpu._processor(), reason="no x86 processor with AVX2 is here"
)


@pytest.mark.slow
@needs_compiler
@needs_x86
@pytest.mark.parametrize("options", ["-O0", "-O0 -march=x86-64-v4"])
def test_the_kernels_use_only_what_the_processor_reports(
    options: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MINITRANSFORMER_CFLAGS", options)
    flags = [flag for flag in cpu._processor().split() if not flag.startswith(("avx2", "avx5", "avx_"))]
    monkeypatch.setattr(cpu, "_processor", lambda: " ".join(flags))  # as if a hypervisor or a kernel hid the others
    library = cpu.library()
    assert library.functions
    assert library.instruction_sets["float32"] == "AVX"
    assert cpu.bfloat16_set() is None
    assert "-mno-avx2" in library.command
    (record,) = caplog.records
    assert re.match("this CPU does not report .*avx2.*: the kernels are compiled without them", record.message)


@needs_compiler
@needs_x86
def test_another_cpus_kernels_are_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("MINITRANSFORMER_CFLAGS", "-O0 -mavx2")
    monkeypatch.setattr(cpu, "_processor", lambda: "flags : ssse3 sse4_1 sse4_2 popcnt avx f16c fma bmi2")
    assert not cpu.library().functions
    (record,) = caplog.records
    assert "does not report: avx2; remove them from the environment variable MINITRANSFORMER_CFLAGS" in record.message


def compiler_that(does: str) -> str:
    """Return a compiler for the shell; $out is the file that it should make."""
    return shlex.join(["sh", "-c", f"for out; do :; done\n{does}", "compiler"])


CANNOT_BE_LOADED = r"made a library that cannot be loaded \(.*"
OTHER_LIBRARY = "echo 'int f(void) {return 1;}' | cc -shared -x c - -o $out"


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("CC", "no-such-compiler", "no C compiler was found"),
        ("CC", "false", "failed"),
        pytest.param("MINITRANSFORMER_CFLAGS", "-include nonsense.h", "nonsense", marks=needs_compiler),
        ("CC", compiler_that("printf 'caf\\351' >&2; exit 3"), "failed:\ncaf�"),
        ("CC", compiler_that("exit 0"), f"{CANNOT_BE_LOADED}No such file or directory"),
        ("CC", compiler_that("echo garbage > $out"), f"{CANNOT_BE_LOADED}(invalid ELF header|file too short)"),
        pytest.param("CC", compiler_that(OTHER_LIBRARY), f"{CANNOT_BE_LOADED}undefined symbol", marks=needs_compiler),
    ],
)
def test_without_a_library_the_references_run_a_line_says_why_and_nothing_is_kept(
    variable: str,
    value: str,
    reason: str,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(variable, value)
    x, ones = np.eye(3, dtype=np.float32), np.ones(3, np.float32)
    for _ in range(2):
        y, _ = ops.layer_norm.of_arrays(x, ones, ones)
        np.testing.assert_array_equal(y, ops.layer_norm.reference(x, ones, ones)[0])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith(f"{cpu.library().obstacle}; NumPy computes instead")
    assert re.search(reason, cpu.library().obstacle)
    assert list(cache.glob("*")) == []


@needs_compiler
@pytest.mark.parametrize("machine", ["x86_64", "arm64"])
@pytest.mark.parametrize("refuses", [True, False])
def test_the_kernels_are_for_this_processor_unless_the_compiler_refuses_that(
    machine: str, refuses: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The option is that of the machine; the stand-in for a compiler does not pass it on."""
    native, log = "-march=native" if machine == "x86_64" else "-mcpu=native", tmp_path / "log"
    compiler = compiler_that(
        f'case "$*" in *{native}*) echo {native} >> {log}; {"exit 1" if refuses else ":"};; esac\n'
        'echo \'const char used_extensions[] = ""; const char instruction_sets[] = "";\' | cc -shared -x c - -o $out'
    )
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(cpu, "_functions_of", lambda shared: {"f": abs})
    monkeypatch.setattr(cpu.platform, "machine", lambda: machine)
    library = cpu.library()
    assert log.read_text().split() == [native]
    assert (library.obstacle, native in shlex.split(library.command)) == (None, not refuses)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * refuses
    assert not refuses or "the kernels are compiled for any processor of this kind" in caplog.text


def test_a_hung_compiler_ends_with_its_processes(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    monkeypatch.setenv("CC", compiler_that(f"sleep 1000 & echo $! > {started}; wait"))
    monkeypatch.setattr(cpu, "SECONDS", 1.0)
    assert "did not end within 1 s" in cpu.library().obstacle
    assert list(cache.iterdir()) == []
    state = Path(f"/proc/{started.read_text().strip()}/stat")
    wait_until(lambda: not state.exists() or state.read_text().split()[2] == "Z")


FEATURES = ({"avx2", "fma", "bmi2"}, {"avx512f", "avx512bw", "avx512vl"}, {"avx512_vnni", "avx512_bf16"})


@needs_compiler
def test_without_a_compiler_the_best_build_of_the_wheel_that_this_processor_runs_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All builds are the same code here; the first says which of them this processor runs."""
    monkeypatch.setenv("MINITRANSFORMER_CFLAGS", "-O0 -DFOR_WHEEL")
    code = cpu._compile(cpu._command())
    for n in range(len(BUILDS[platform.machine() == "x86_64"])):
        (tmp_path / f"kernels-{n}.so").write_bytes(code)
    monkeypatch.setattr(cpu, "WHEEL_BUILDS", tmp_path)
    monkeypatch.setenv("CC", "missing-compiler")
    reported = set(cpu._processor().split())
    best = next((n for n, features in enumerate(FEATURES) if not features <= reported), len(FEATURES))
    assert cpu.library().command == f"the wheel's builder (kernels-{best})"
    assert cpu.library().functions
    assert caplog.records == []


@needs_compiler
def test_a_compiler_comes_before_the_builds_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu, "WHEEL_BUILDS", tmp_path)
    (tmp_path / "kernels-0.so").write_bytes(cpu._compile(cpu._command()))
    assert cpu.library().command.endswith("-O0")
    cpu._libraries.clear()
    monkeypatch.setenv("MINITRANSFORMER_CFLAGS", "-no-such-option")
    assert cpu.library().command == "the wheel's builder (kernels-0)"
    assert "no-such-option" in caplog.text
    assert "the kernels of the wheel are used" in caplog.text
