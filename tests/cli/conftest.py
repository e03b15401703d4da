"""A very small model, trained once for all tests of the commands."""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TextIO

import pytest
from small_run import SMALL_MODEL, Command, Ended, Trained, output_of, write_parallel_text

from cli.train import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("commands")
    write_parallel_text(folder, "train", 200, seed=1)
    write_parallel_text(folder, "valid", 20, seed=2)
    arguments = ["--run", str(folder / "run"), "--data.raw", str(folder), *SMALL_MODEL.split()]
    return Trained(folder / "run", arguments, output_of(lambda: train(arguments)))


@pytest.fixture
def run_copy(trained: Trained, tmp_path: Path) -> Path:
    shutil.copytree(trained.run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the main function of an installed command, such as "train", with words on its command line."""

    def ended(module: str, *words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", [module, *words])
        try:
            status = import_module(f"cli.{module}").main()
        except SystemExit as end:
            status = end.code
        return Ended(status, *capsys.readouterr())

    return ended


def without_reader() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.fixture(params=["full disk", "pipe without a reader"])
def unwritable(request: pytest.FixtureRequest) -> Iterator[TextIO]:
    """A stream that takes nothing; to close it is an error, unless what it still holds has been discarded."""
    if request.param == "full disk" and not Path("/dev/full").exists():
        pytest.skip("needs Linux's /dev/full")
    with Path("/dev/full").open("w") if request.param == "full disk" else without_reader() as stream:
        yield stream
