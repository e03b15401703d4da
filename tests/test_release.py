"""A release: its version is the same everywhere, and its wheel works in a fresh environment, far from the clone."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from small_run import SMALL_MODEL, changed, write_parallel_text

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("autograd", "cli", "minitransformer", "parallel", "recipes")


def run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_version_is_the_same_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    latest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert cited
    assert latest
    assert cited[1] == latest[1] == PROJECT["version"]


@pytest.mark.slow
def test_wheel_and_sdist_have_every_file_of_the_packages(release: tuple[Path, Path]) -> None:
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    files = listed.stdout.split()
    if not files:
        pytest.skip("git cannot list the files here: this is no clone")
    wheel, sdist = release
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert in_wheel == {f"cli/{name}" if name.startswith("recipes/") else name for name in files}
    assert in_sdist >= {*files, "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "tests/test_release.py"}


@pytest.mark.slow
def test_a_wheel_trains_and_translates_in_a_fresh_environment(release: tuple[Path, Path], tmp_path: Path) -> None:
    fresh, folder = tmp_path / "fresh", tmp_path / "folder"
    folder.mkdir()
    venv.create(fresh, with_pip=True)
    run(fresh / "bin/pip", "install", "--quiet", release[0], folder=folder)
    for script in PROJECT["scripts"]:
        assert "usage: " in run(fresh / "bin" / script, "--help", folder=folder).stdout
    version = run(fresh / "bin/minitransformer", "--version", folder=folder).stdout
    assert version.startswith(f"minitransformer {PROJECT['version']}")
    run(fresh / "bin/minitransformer-prepare", folder=folder)  # the demonstration's text
    for name, n_lines in ("train", 40), ("valid", 2):
        write_parallel_text(folder, name, n_lines, seed=1)
    little = changed(
        ["--data.raw", ".", "--data.directory", "numbers", *SMALL_MODEL.split()], "--training.max-updates", "3"
    )
    run(fresh / "bin/minitransformer-train", *little, folder=folder)
    recipe = [fresh / "bin/minitransformer-prepare", "--config", "recipes/multi30k-en-de.toml"]
    done = subprocess.run(recipe, cwd=folder, capture_output=True, text=True, check=False)
    assert "train.en" in done.stderr, "the recipe was read, and its text is missing"
    done = run("sh", "-c", f"echo the dog | {fresh}/bin/minitransformer-translate", folder=folder)
    assert len(done.stdout.splitlines()) == 1


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("release")
    run(sys.executable, "-m", "build", "--outdir", folder, folder=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist
