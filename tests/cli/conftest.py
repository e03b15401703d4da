"""A very small model, trained once for all tests of the commands, and files that it has translated."""

import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from small_run import SMALL_MODEL, Command, Ended, Trained, output_of, write_parallel_text
from translated_files import PowerCutError, lines_of, run

from cli.train import train
from minitransformer.extras.files import resumable
from minitransformer.inference.translator import Translator


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


@pytest.fixture(scope="module")
def translator(trained: Trained) -> Translator:
    return Translator.load(trained.run)


@pytest.fixture
def half_done(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the second of several groups was being translated when the process died."""
    (tmp_path / "in").write_bytes(lines_of(12))
    append = resumable._Run.append

    def cut_off(self: Any, lines: list[bytes], translations: list[bytes]) -> None:
        if self.n_lines == 8:
            raise PowerCutError
        append(self, lines, translations)

    with monkeypatch.context() as patch:
        patch.setattr(resumable._Run, "append", cut_off)
        with pytest.raises(PowerCutError):
            run(translator, tmp_path, resume=False)
    return tmp_path


@pytest.fixture
def done(translator: Translator, tmp_path: Path) -> Path:
    (tmp_path / "in").write_bytes(lines_of(5))
    run(translator, tmp_path, resume=False)
    return tmp_path
