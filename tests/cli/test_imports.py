"""What a command loads before it does anything: each module costs the first translation its time."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import cli.entry

ROOT = Path(__file__).parents[2]

UNNEEDED = {"minitransformer.training", "minitransformer.extras.demo", "sacrebleu", "mpi4py.MPI", "pooch", "rich"}


def test_translating_loads_nothing_of_training() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, cli.translate; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "cli.translate" in loaded
    assert not UNNEEDED & set(loaded)


def test_every_command_is_started_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    scripts = project["scripts"]
    assert scripts.pop("minitransformer") == "cli.entry:main"
    for command, entry_point in scripts.items():
        module, _, function = entry_point.partition(":")
        assert module == "cli.entry"
        name = f"cli.{command.removeprefix('minitransformer-')}"
        monkeypatch.setattr(import_module(name), "main", lambda: 7)
        assert getattr(cli.entry, function)() == 7


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


def test_the_entry_points_import_no_command_before_they_start_one() -> None:
    code = "import sys, cli.entry; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = ("numpy", "minitransformer", "autograd", "parallel", "cli.")
    assert [name for name in loaded if name.startswith(ours)] == ["cli.entry"]
