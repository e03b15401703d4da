"""Modules beside a user's script that have the names of our packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_script_beside(module: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Import minitransformer in a script that has ``module`` beside it."""
    (folder / module).parent.mkdir(exist_ok=True)
    (folder / module).write_text("", encoding="utf-8")
    script = folder / "script.py"
    script.write_text("import minitransformer\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)


def test_a_cli_module_beside_a_script_does_no_harm(tmp_path: Path) -> None:
    assert run_script_beside("cli.py", tmp_path).returncode == 0


def test_a_console_script_does_not_import_what_stands_in_the_directory(tmp_path: Path) -> None:
    """Python puts the directory of the script on its path, not the current one."""
    for module in ("cli", "autograd", "parallel", "minitransformer"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('of the user')", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "minitransformer"
    script.write_text("import sys\nfrom cli.entry import main\nsys.exit(main())\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, "presets"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", ["autograd.py", "autograd/__init__.py", "parallel.py"])
def test_a_module_that_hides_one_of_ours_is_named_with_the_remedy(module: str, tmp_path: Path) -> None:
    done = run_script_beside(module, tmp_path)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert f"but Python finds {tmp_path.resolve() / module}: rename that file" in error
    assert "virtual environment" in error


@pytest.mark.parametrize("code", ["import minitransformer", "import cli.entry; cli.entry.presets()"])
def test_an_autograd_that_overwrote_ours_is_named_with_the_remedy(code: str, tmp_path: Path) -> None:
    """As ``pip install autograd`` does: the ``__init__.py`` is replaced, and our other files remain."""
    for package in ("autograd", "parallel", "minitransformer", "cli"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "autograd/__init__.py").write_text("def grad(function): ...\n", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert f"has overwritten {tmp_path.resolve() / 'autograd/__init__.py'}: reinstall minitransformer in" in error
