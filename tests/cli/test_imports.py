"""What a command loads before it does anything: each module costs the first translation its time."""

from __future__ import annotations

import subprocess
import sys

import pytest

UNNEEDED = {"minitransformer.training", "minitransformer.extras.demo", "sacrebleu", "mpi4py.MPI", "pooch", "rich"}


def loaded_by(module: str) -> list[str]:
    code = f"import sys, {module}; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_translating_loads_nothing_of_training() -> None:
    loaded = loaded_by("cli.translate")
    assert "cli.translate" in loaded
    assert not UNNEEDED & set(loaded)


def test_the_entry_points_import_no_command_before_they_start_one() -> None:
    ours = ("numpy", "minitransformer", "autograd", "parallel", "cli.")
    assert [name for name in loaded_by("cli.entry") if name.startswith(ours)] == ["cli.processor", "cli.entry"]


INTERRUPTED_IMPORT = """
import signal, types, cli.entry

def import_module(name):  # as a module written in C may do
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("initialization failed")
    return types.SimpleNamespace(main=lambda: 0)

cli.entry.import_module = import_module
raise SystemExit(cli.entry.score())
"""


@pytest.mark.parametrize(
    ("before", "status", "error"),
    [("", 130, "interrupted\n"), ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)", 0, "")],
    ids=["Ctrl-C", "ignored by the shell"],
)
def test_an_interrupt_of_a_commands_imports_is_one_line_and_status_130(before: str, status: int, error: str) -> None:
    code = [sys.executable, "-c", before + INTERRUPTED_IMPORT]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, error)
