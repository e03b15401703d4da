"""Modules beside a user's script that have the names of our packages."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autograd.optim
import minitransformer.autograd.optim
import minitransformer.parallel.reducer
import parallel.reducer

ROOT = Path(__file__).resolve().parents[2]


def run_python(*arguments: str | Path, folder: Path) -> tuple[int, list[str]]:
    """Return the status of a Python program, which runs in a folder, and the lines of its errors."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    return done.returncode, done.stderr.splitlines()


def run_script_beside(module: str, folder: Path) -> tuple[int, list[str]]:
    """Import minitransformer in a script that has ``module`` beside it."""
    (folder / module).parent.mkdir(exist_ok=True)
    (folder / module).write_text("", encoding="utf-8")
    (folder / "script.py").write_text("import minitransformer\n", encoding="utf-8")
    return run_python(folder / "script.py", folder=folder)


def test_a_cli_module_beside_a_script_does_no_harm(tmp_path: Path) -> None:
    assert run_script_beside("cli.py", tmp_path) == (0, [])


def test_a_console_script_does_not_import_what_stands_in_the_directory(tmp_path: Path) -> None:
    """Python puts the directory of the script on its path, not the current one."""
    for module in ("cli", "autograd", "parallel", "minitransformer"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('of the user')", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "minitransformer"
    script.write_text("import sys\nfrom cli.entry import main\nsys.exit(main())\n", encoding="utf-8")
    assert run_python(script, "presets", folder=tmp_path) == (0, [])


@pytest.mark.parametrize("module", ["autograd.py", "autograd/__init__.py", "parallel.py"])
def test_a_module_that_hides_one_of_ours_is_named_with_the_remedy(module: str, tmp_path: Path) -> None:
    status, lines = run_script_beside(module, tmp_path)
    assert status == 1
    assert f"but Python finds {tmp_path.resolve() / module}: rename that file" in lines[-1]
    assert "virtual environment" in lines[-1]


COMMAND = "import sys, cli.entry; sys.exit(cli.entry.presets())"


def test_the_names_of_a_wheel_are_the_same_modules_in_a_clone() -> None:
    assert minitransformer.autograd.optim is autograd.optim
    assert minitransformer.parallel.reducer is parallel.reducer
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'autograd\.missing'"):
        importlib.import_module("minitransformer.autograd.missing")


RELOADED = """
import importlib
import minitransformer.autograd.optim, autograd.optim
for module in (autograd, autograd.optim):
    assert importlib.reload(module).__name__ == module.__spec__.name == module.__name__
"""


def test_a_module_with_two_names_can_be_loaded_again(tmp_path: Path) -> None:
    """In a process of its own: operations that are defined again have no kernels."""
    assert run_python("-c", RELOADED, folder=tmp_path) == (0, [])


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ("import sys; sys.version_info = (3, 10, 4)", "minitransformer needs Python 3.11 or newer; this is 3.1"),
        ("import sys; sys.modules['numpy'] = None", "import of numpy halted; None in sys.modules: the packages of "),
        (
            "import numpy, sys; del numpy.ndarray",  # as after an update that was cut off
            "module 'numpy' has no attribute 'ndarray': the packages of ",
        ),
    ],
)
def test_a_command_in_a_broken_environment_ends_in_one_line(before: str, error: str) -> None:
    status, (line,) = run_python("-c", f"{before}; {COMMAND}", folder=ROOT)
    assert status == 1
    assert line.startswith(f"error: {error}")
    assert re.search("install (minitransformer|it)( again| in a virtual)", line)
