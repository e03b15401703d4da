"""OpenBLAS gets the name of a processor that it does not know, before it is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import TIME_LIMIT

from cli.processor import name_processor_to_openblas

ZEN_5 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
flags\t\t: fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl
"""


@pytest.mark.parametrize(
    ("text", "set_to", "expected"),
    [
        (ZEN_5, {}, {"OPENBLAS_CORETYPE": "SkylakeX"}),
        (ZEN_5, {"OPENBLAS_CORETYPE": "Haswell"}, {"OPENBLAS_CORETYPE": "Haswell"}),
        (ZEN_5.replace("avx512vl", ""), {}, {}),
        (ZEN_5.replace("26", "25"), {}, {}),
        (ZEN_5.replace("AuthenticAMD", "GenuineIntel"), {}, {}),
        ("", {}, {}),
        (None, {}, {}),
    ],
)
def test_only_zen_5_with_avx512_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, set_to: dict[str, str], expected: dict[str, str]
) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr("cli.processor.CPU_INFO", tmp_path / "cpuinfo")
    environment = dict(set_to)
    name_processor_to_openblas(environment)
    assert environment == expected


def test_a_command_names_it_before_numpy_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import io, os, pathlib, sys
pathlib.Path.open = lambda *_, **__: io.StringIO(sys.argv[1])
import cli
print(os.environ["OPENBLAS_CORETYPE"], "numpy" in sys.modules)
"""
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    command = [sys.executable, "-c", program, ZEN_5]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=True)
    assert done.stdout == "SkylakeX False\n"
