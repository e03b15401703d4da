"""How tests start ranks: the program of each is ``ranks.py``."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import TIME_LIMIT

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("ranks.py")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

# What Open MPI's mpirun must be told where tests run: as root perhaps, with more ranks than cores.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
IS_OPEN_MPI = (
    MPIRUN is not None
    and "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, check=False).stdout
)
needs_mpi = pytest.mark.skipif(
    MPIRUN is None or importlib.util.find_spec("mpi4py") is None,
    reason='mpirun or mpi4py is not installed: pip install -e ".[mpi]"',
)


def environment(**variables: str) -> dict[str, str]:
    outside_mpi = {name: value for name, value in os.environ.items() if name not in SIZE_VARIABLES}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return outside_mpi | OPEN_MPI | {"PYTHONPATH": path} | variables


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; after TIME_LIMIT the whole process group is killed and the test fails."""
    process = subprocess.Popen(
        command,
        env=environment(**variables),
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        threads = threads_of_ranks()
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        pytest.fail(f"{' '.join(command)}: still running after {TIME_LIMIT} s\n{threads}\n{output}\n{errors}")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def threads_of_ranks() -> str:
    """Return a line for each thread of mpirun and its ranks: its state, and where in the kernel it waits."""
    if shutil.which("ps") is None:
        return "no ps here, which would show what each thread waits for"
    columns = ["ps", "-eLo", "pid,ppid,lwp,stat,wchan:32,args"]
    lines = subprocess.run(columns, capture_output=True, text=True, check=True).stdout.splitlines()
    return "\n".join(line[:160] for line in lines if re.search(r"mpirun|hydra|prte|ranks\.py", line))


def command_line(n_ranks: int, program: str, *arguments: object, options: Sequence[str] = ()) -> list[str]:
    """``options`` are mpirun's."""
    return [MPIRUN, *options, "-n", str(n_ranks), sys.executable, str(PROGRAM), program, *map(str, arguments)]


def start_ranks(n_ranks: int, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(command_line(n_ranks, program, *arguments))


def run_ranks(n_ranks: int, program: str, directory: Path, *arguments: object) -> list[Any]:
    """Run a program on all ranks; return what each rank returned."""
    done = start_ranks(n_ranks, program, directory, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads((directory / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(n_ranks)]


def run_in_turn(n_ranks: int, directory: Path, jobs: Sequence[Sequence[object]]) -> list[list[Any]]:
    """Run several programs, one after the other, under one mpirun; return what each rank returned, by program."""
    words = [[str(word) for word in job] for job in jobs]
    of_ranks = run_ranks(n_ranks, "in_turn", directory, json.dumps(words))
    return [list(results) for results in zip(*of_ranks, strict=True)]
