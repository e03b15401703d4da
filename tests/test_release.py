"""A release: its version is the same everywhere, and its wheel works in a fresh environment, far from the clone."""

import email
import os
import re
import shutil
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
PLACES = {  # of the clone's folders in a wheel
    "autograd": "minitransformer/autograd",
    "parallel": "minitransformer/parallel",
    "minitransformer": "minitransformer",
    "cli": "minitransformer/cli",
    "recipes": "minitransformer/cli/recipes",
}


def run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_version_is_the_same_everywhere() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    latest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert cited
    assert latest
    assert cited[1] == latest[1] == PROJECT["version"]


def test_the_lowest_versions_that_are_tested_are_the_bounds() -> None:
    """Those of ``make test-lowest``: every library that the core or an extra of the tests needs."""
    extras = PROJECT["optional-dependencies"]
    names = re.findall(r"[a-z]+", extras["test"][0].partition("[")[2])
    needed = [*PROJECT["dependencies"], *(each for name in names for each in extras[name])]
    bounds = dict(re.findall(r"^([\w.-]+)>=([\d.]+)(?:;.*)?$", "\n".join(needed), re.MULTILINE))
    lines = (ROOT / "tests" / "lowest.txt").read_text("utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert len(bounds) == len(needed)
    assert {name.replace("_", "-") for name in bounds} == tested.keys()
    for name, bound in bounds.items():
        version = tested[name.replace("_", "-")]
        assert f"{version}.0.0".startswith(f"{bound}."), f"{name}: {version} is tested, {bound} is the bound"


@pytest.mark.slow
def test_wheel_and_sdist_have_every_file_of_the_packages(release: tuple[Path, Path]) -> None:
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=False)
    files = listed.stdout.split()
    if not files:
        pytest.skip("git cannot list the files here: this is no clone")
    wheel, sdist = release
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    placed = {PLACES[name.partition("/")[0]] + name[name.index("/") :] for name in files}
    assert in_wheel == placed - {"minitransformer/clone.py"}
    assert in_sdist >= {*files, "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "tests/test_release.py"}


@pytest.fixture(scope="module")
def fresh(release: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, and nothing else."""
    directory = tmp_path_factory.mktemp("fresh")
    venv.create(directory, with_pip=True)
    run(directory / "bin/pip", "install", "--quiet", release[0], "autograd", folder=directory)
    return directory


IMPORT_ALL = """
import importlib, pkgutil, sys
import minitransformer
for module in pkgutil.walk_packages(minitransformer.__path__, "minitransformer."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:  # of an extra that is not installed
        assert not (error.name or "autograd").startswith(("autograd", "parallel", "cli", "minitransformer")), error
print(sorted({"autograd", "parallel", "cli"} & sys.modules.keys()))
from minitransformer.autograd import Tensor, backward, op
from minitransformer.autograd.kernels.cpu.library import library
import autograd, numpy
x = Tensor(numpy.array(3.0))
backward(x * x)
print(float(x.grad), float(autograd.grad(lambda x: x * x)(3.0)), library().obstacle)
"""


@pytest.mark.slow
def test_a_wheel_leaves_the_names_of_other_packages_alone(fresh: Path, tmp_path: Path) -> None:
    """PyPI's autograd, which is installed beside it, works in the same process."""
    done = run(fresh / "bin/python", "-c", IMPORT_ALL, folder=tmp_path)
    assert done.stdout.splitlines() == ["[]", "6.0 6.0 None"]
    child = "import subprocess as s, minitransformer.autograd.kernels.cuda.check as c; s.run([*c.CHILD, '0'])"
    assert "No module named 'cupy'" in run(fresh / "bin/python", "-c", child, folder=tmp_path).stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler here")
def test_a_wheel_may_have_kernels_for_those_without_a_compiler(fresh: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, folder=ROOT, MINITRANSFORMER_KERNELS="1")
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("-any.whl")
    run(fresh / "bin/pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "site", wheel, folder=tmp_path)
    code = """from minitransformer.autograd.kernels.cpu.library import library
print(library().command, len(library().functions), library().instruction_sets)"""
    command = "import sys; sys.path.insert(0, 'site'); " + code.replace("\n", "; ")
    without = run(fresh / "bin/python", "-c", command, folder=tmp_path, CC="missing").stdout
    compiled = run(fresh / "bin/python", "-c", command, folder=tmp_path).stdout
    assert without.startswith("the wheel's builder (kernels-")
    assert not compiled.startswith("the wheel's builder")
    assert without.partition(")")[2].split()[0] == compiled.partition("-march=native")[2].split()[0] != "0"


@pytest.mark.slow
def test_pypi_accepts_the_files_and_shows_their_page(release: tuple[Path, Path]) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *release, folder=ROOT)
    run(sys.executable, "-m", "check_wheel_contents", release[0], folder=ROOT)
    with zipfile.ZipFile(release[0]) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        page = email.message_from_bytes(archive.read(name))
    links = re.findall(r"\]\(([^)]+)\)", str(page.get_payload()))
    address = page["Project-URL"].partition(", ")[2]
    for link in links:
        assert link.startswith(("https://", "#"))
        kind, _, path = link.removeprefix(f"{address}/").partition(f"/v{PROJECT['version']}/")
        assert not link.startswith(address) or (kind in ("raw", "blob") and (ROOT / path.partition("#")[0]).exists())
    assert any(link.startswith(address) for link in links)


@pytest.mark.slow
def test_a_wheel_trains_and_translates_in_a_fresh_environment(fresh: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
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
    recipe = f"{fresh}/bin/minitransformer-prepare --config recipes/multi30k-en-de.toml || true"
    done = run("sh", "-c", recipe, folder=folder)
    assert "train.en" in done.stderr, "the recipe was read, and its text is missing"
    done = run("sh", "-c", f"echo the dog | {fresh}/bin/minitransformer-translate", folder=folder)
    assert len(done.stdout.splitlines()) == 1


APP = """
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from minitransformer import Batch, DataConfig, ModelConfig, RunConfig, TrainingConfig, Transformer, Translator
from minitransformer import presets, train
from minitransformer.autograd import Tensor, backward
from minitransformer.autograd.optim import Adam
from minitransformer.training.callbacks import Callback
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult


class Losses(Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        self.losses.append(result.loss)


def translated(run: Path, lines: Sequence[str]) -> list[str]:
    return Translator.load(run).translate(lines, beam=4)


def trained(run: Path, text: str) -> Transformer:
    data = DataConfig(train_source=(f"{text}.en",), train_target=(f"{text}.de",))
    config = RunConfig(run=run, data=data, model=presets.small(), training=TrainingConfig(max_updates=2))
    return train(config, callbacks=[Losses()]).model


def loss_of(config: ModelConfig, sources: list[list[int]]) -> float:
    model = Transformer(config)
    loss: Tensor = model.loss(Batch.from_token_ids(sources, sources)) * 0.5
    backward(loss)
    norm: float = Adam(model.parameters).step(1e-3, step=1)
    return float(loss) + norm + float(np.sum(loss.value))
"""
LEARNT = ("--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--allow-incomplete-defs",
          "--no-check-untyped-defs", "--allow-redefinition")  # fmt: skip


def programs_of(page: Path) -> dict[str, str]:
    """The Python examples of a page, by module; those of most pages are one program."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    if page.stem == "change-the-model":
        return dict(
            zip(("rotary", "program", "rates", "consistent", "letters", "lora", "lora_program"), blocks, strict=True)
        )
    return {"program": "".join(blocks)} if blocks else {}


@pytest.mark.slow
def test_types_reach_users(fresh: Path, tmp_path: Path) -> None:
    """PEP 561: mypy reads the annotations of the installed packages, for an app and for the examples of the pages.

    Functions of examples have no annotations, so mypy reads them as it reads those of any such program.
    """

    def check(folder: Path, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        run(sys.executable, "-m", "mypy", *options, "--python-executable", fresh / "bin/python", ".", folder=folder)

    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "app.py").write_text(APP, "utf-8")
    check(tmp_path / "app", "--strict")
    for page in sorted((ROOT / "docs/learn").glob("*.md")):
        folder = tmp_path / page.stem
        folder.mkdir()
        for name, program in programs_of(page).items():
            (folder / f"{name}.py").write_text(program, "utf-8")
        if any(folder.iterdir()):
            check(folder, *LEARNT)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("release")
    run(sys.executable, "-m", "build", "--outdir", folder, folder=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist
