"""The fixture that counts matrix products, and a finished run that tests share."""

import shutil
from pathlib import Path

import pytest
from metered import meter

from minitransformer.config import RunConfig
from tests.support.training import finished, run_of

__all__ = ["meter"]


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The settings of a finished run of 20 updates, which no test may change."""
    config = run_of(tmp_path_factory.mktemp("finished"))
    finished(config)
    return config


@pytest.fixture
def finished_run(shared_run: RunConfig, tmp_path: Path) -> RunConfig:
    """The settings of a copy of that run, which a test may change."""
    shutil.copytree(shared_run.run.parent, tmp_path, dirs_exist_ok=True)
    return run_of(tmp_path)
