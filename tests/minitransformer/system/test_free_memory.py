"""Memory: what is free, also within control groups, what a process has taken, and what the allocator keeps."""

import platform
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import TIME_LIMIT

from autograd import malloc
from minitransformer.system import memory
from minitransformer.system.memory import free_memory

ROOT = Path(__file__).parents[3]
GB = 10**9
INNER = Path("slurm/job_7/step_0")


class Machine:
    """A machine with 8 GB free, and control groups as the test adds them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.groups = directory / "proc", directory / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.member_of("0::/")
        monkeypatch.setattr(memory, "_PROC", self.proc)
        monkeypatch.setattr(memory, "_CONTROL_GROUPS", self.groups)
        monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * GB))
        monkeypatch.setattr(memory.resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)

    def member_of(self, *lines: str) -> None:
        (self.proc / "self/cgroup").write_text("".join(f"{line}\n" for line in lines))

    def write(self, group: Path, **files: str) -> None:
        (self.groups / group).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (self.groups / group / f"memory.{name}").write_text(f"{content}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_processes_share_what_system_and_control_group_leave_without_cached_files(machine: Machine) -> None:
    assert free_memory(1) == pytest.approx(8 * GB, rel=1e-6)
    assert free_memory(4) == pytest.approx(2 * GB, rel=1e-6)
    machine.member_of(f"0::/{INNER}")
    machine.write(INNER, max=f"{5 * GB}", current=f"{3 * GB}", stat=f"anon {2 * GB}\ninactive_file {GB // 2}")
    assert free_memory(1) == 2.5 * GB
    assert free_memory(5) == GB / 2


@pytest.mark.parametrize("tight", INNER.parents[:-1], ids=str)
def test_the_tightest_of_groups_within_one_another_counts(machine: Machine, tight: Path) -> None:
    machine.member_of(f"0::/{INNER}")
    for group in (INNER, *INNER.parents[:-1]):
        limit = f"{2 * GB}" if group == tight else "max"
        machine.write(group, max=limit, current=f"{GB}", stat="inactive_file 0")
    assert free_memory(1) == GB


def test_the_first_version_of_control_groups_is_read_too(machine: Machine) -> None:
    machine.member_of("12:cpu,cpuacct:/elsewhere", f"4:memory:/{INNER}", "0::/")
    stat = f"inactive_file 1\ntotal_inactive_file {GB // 4}"
    machine.write(Path("memory") / INNER, limit_in_bytes=f"{3 * GB}", usage_in_bytes=f"{GB}", stat=stat)
    machine.write(Path("memory"), limit_in_bytes=f"{2**63 - 4096}", usage_in_bytes="0", stat="total_inactive_file 0")
    assert free_memory(1) == 2.25 * GB


def test_a_group_unseen_from_a_container_or_missing_is_no_limit(machine: Machine) -> None:
    machine.member_of("0::/of/the/host")
    assert free_memory(1) == pytest.approx(8 * GB, rel=1e-6)
    (machine.proc / "self/cgroup").unlink()
    assert free_memory(1) == pytest.approx(8 * GB, rel=1e-6)


def test_a_limit_of_address_space_is_each_processs_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(vms=GB // 10))
    monkeypatch.setattr(memory.psutil, "Process", lambda: process)
    monkeypatch.setattr(memory.resource, "getrlimit", lambda which: (GB, GB))
    assert free_memory(1) == free_memory(2) == GB - GB // 10
    assert free_memory(100) == pytest.approx(8 * GB / 100, rel=1e-6)


def test_this_machine_has_some() -> None:
    assert 0 < free_memory(2) < free_memory(1) < 2**60


PROGRAM = """
import resource, threading
import numpy as np
from autograd.malloc import keep_freed_memory

def print_faults_of_a_second_array():
    np.ones(10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(10_000_000)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

print_faults_of_a_second_array()
assert keep_freed_memory()
print_faults_of_a_second_array()
thread = threading.Thread(target=print_faults_of_a_second_array)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_what_was_freed_is_used_again_without_page_faults_in_every_thread() -> None:
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=TIME_LIMIT)
    without, *faults = map(int, run.stdout.split())
    assert max(faults) < 10 < without


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert not malloc.keep_freed_memory()


def test_the_peak_of_memory_is_the_systems_in_bytes_and_keeps_what_was_freed() -> None:
    np.ones(40_000_000, np.uint8)
    status = Path("/proc/self/status").read_text()
    by_kernel = next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert by_kernel == pytest.approx(memory.peak_memory(), rel=0.02)
