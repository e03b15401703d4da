"""Hypothesis for all tests: no deadlines on shared machines, and the same examples in every run.

``--hypothesis-profile=explore`` draws new ones.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from hypothesis import Phase, settings

from autograd.kernel_choice import at_first_use
from autograd.op import with_kernels
from cli.command import log_shown

at_first_use.clear()  # tests register CUDA kernels themselves, without the check in a child process

settings.register_profile("here", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile(
    "mutants", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)  # make mutants: that a test fails is enough; the smallest example need not be found
settings.load_profile("here")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a background job; the tests of Ctrl-C need to hear it
    signal.signal(signal.SIGINT, signal.default_int_handler)


TESTS = Path(__file__).parent
OF_GPUS = (TESTS / "gpu", TESTS / "autograd" / "cuda")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Let ``-m gpu`` import only the tests that can need a GPU: a machine with one may lack what the others import."""
    if config.getoption("markexpr") != "gpu":
        return None
    is_near = any(
        folder.is_relative_to(collection_path) or collection_path.is_relative_to(folder) for folder in OF_GPUS
    )
    return not is_near or None


@pytest.fixture
def kernels_kept() -> Iterator[None]:
    """Register all kernels again after a test that removes them."""
    before = [(operation, list(operation.kernels)) for operation in with_kernels]
    yield
    for operation, kernels in before:
        operation.kernels[:] = kernels


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Lines that the libraries log during a test, as the commands show them."""
    lines: list[str] = []
    with log_shown(lines.append):
        yield lines


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium for the tests of a module."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
