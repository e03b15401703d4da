"""That freed memory is kept, in a process of its own: the setting is the whole process's."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from waiting import TIME_LIMIT

from autograd import malloc
from minitransformer.system import memory

PROGRAM = """
import resource, sys, threading
import numpy as np
from autograd.malloc import keep_freed_memory

def faults_of_a_second_array():
    np.ones(10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(10_000_000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

assert sys.argv[1] == "without" or keep_freed_memory()
faults = []
faults_of_a_second_array()
thread = threading.Thread(target=faults_of_a_second_array)
thread.start()
thread.join()
print(max(faults) if sys.argv[1] == "with" else min(faults))
"""


def faults(how: str) -> int:
    return printed_by(PROGRAM, how)


def printed_by(program: str, *words: str) -> int:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_what_was_freed_is_used_again_without_page_faults_in_every_thread() -> None:
    assert faults("with") < 10 < faults("without")


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert not malloc.keep_freed_memory()


def test_the_peak_of_memory_is_the_systems_in_bytes_and_keeps_what_was_freed() -> None:
    np.ones(40_000_000, np.uint8)
    status = Path("/proc/self/status").read_text()
    by_kernel = next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert by_kernel == pytest.approx(memory.peak_memory(), rel=0.02)
