"""The virtual environment that make installs into."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = """#!{executable}
import sys
from pathlib import Path

version, arguments = {version}, sys.argv[1:]
if arguments[0] == "-c":
    sys.version_info = (*version, 0)
    sys.modules.update({hidden})
    exec(arguments[1])
else:
    folder = Path(arguments[-1]).resolve()
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").write_text("version = %d.%d.0" % version)
    (folder / "bin/activate").write_text(f"VIRTUAL_ENV={{folder}}")
    (folder / "bin/python").unlink(missing_ok=True)
    (folder / "bin/python").symlink_to(__file__)
    (folder / "bin/pip").write_text("#!/bin/sh\\necho installed with %d.%d" % version)
    (folder / "bin/pip").chmod(0o700)
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with stand-ins for Python, which make virtual environments without a pip that installs anything."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for version in ((3, 9), (3, 12), (3, 13)):
        write_python(folder / "python{}.{}".format(*version), version)
    write_python(folder / "python3", (3, 12))
    return folder


def write_python(path: Path, version: tuple[int, int], hidden: str = "{}") -> None:
    path.write_text(PYTHON.format(executable=sys.executable, version=version, hidden=hidden))
    path.chmod(0o700)


def make(clone: Path, *variables: str) -> tuple[int, str]:
    """Return the status of make, and the lines of pip and of errors."""
    path = f"{clone}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["make", "--no-print-directory", ".venv/installed", *variables],
        cwd=clone, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path},
    )  # fmt: skip
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return done.returncode, "\n".join(line for line in lines if line.startswith(("installed", "error")))


def test_the_environment_is_made_once_and_again_for_another_python(clone: Path) -> None:
    assert make(clone) == (0, "installed with 3.12")
    assert make(clone) == (0, "")
    assert make(clone, "PYTHON=python3.13") == (0, "installed with 3.13")
    assert make(clone, "PYTHON=python3.13") == make(clone) == (0, ""), "python3 is 3.12, but nobody named it"


def test_a_python_that_is_too_old_is_refused_and_leaves_the_environment_as_it_was(clone: Path) -> None:
    status, error = make(clone, "PYTHON=python3.9")
    assert status
    assert error == "error: python3.9 is Python 3.9; 3.11 or newer is needed: make demo PYTHON=python3.12"
    assert not (clone / ".venv").exists()
    assert make(clone, "PYTHON=python3.12") == (0, "installed with 3.12")
    assert make(clone, "PYTHON=python3.9")[0]
    assert make(clone) == (0, "")


def test_a_replaced_python_or_a_moved_clone_makes_the_environment_again(clone: Path, tmp_path: Path) -> None:
    make(clone)
    write_python(clone / "python3", (3, 13))
    assert make(clone) == (0, "installed with 3.13")
    clone = clone.rename(tmp_path / "elsewhere")
    assert make(clone) == (0, "installed with 3.13")
    assert make(clone) == (0, "")


def test_a_python_without_venv_is_answered_with_the_package_and_one_that_is_not_there_is_named(clone: Path) -> None:
    write_python(clone / "python3", (3, 12), "ensurepip=None")
    assert make(clone)[1] == "error: python3 cannot make virtual environments: sudo apt install python3-venv"
    assert make(clone, "PYTHON=python3.99")[1].startswith("error: there is no python3.99: install Python 3.11 or newer")
