"""A very small model, trained once for all tests of the commands."""

from __future__ import annotations

import pytest
from small_run import SMALL_MODEL, Trained, said_while, write_parallel_text

from cli.train import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("commands")
    write_parallel_text(folder, "train", 200, seed=1)
    write_parallel_text(folder, "valid", 20, seed=2)
    arguments = ["--run", str(folder / "run"), "--data.raw", str(folder), *SMALL_MODEL.split()]
    return Trained(folder / "run", arguments, said_while(lambda: train(arguments)))
