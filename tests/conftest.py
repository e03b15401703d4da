"""Hypothesis for all tests: no deadlines on shared machines, and the same examples in every run.

``--hypothesis-profile=explore`` draws new ones.
"""

import signal
from collections.abc import Iterator
from contextvars import Context, copy_context
from pathlib import Path
from threading import current_thread
from typing import Any, NamedTuple

import pytest
from browser import CHROMIUM, Browser
from hypothesis import Phase, settings

from autograd.kernel_registry import at_first_use, kernels_for
from autograd.op import operations
from cli.command import log_shown
from minitransformer.training.flops import SQUARE

SQUARE["cpu"] = 64  # the device is measured after each training; at its size that takes longer than most trainings here
at_first_use("cuda", lambda: None)  # tests register CUDA kernels themselves, without the check in a child process

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
    """Restore the kernels for the CPU after a test that registers or removes some."""
    before = [(operation, list(operation.kernels)) for operation in kernels_for("cpu").values()]
    yield
    for operation, kernels in before:
        operation.kernels[:] = kernels


@pytest.fixture
def operations_kept() -> Iterator[None]:
    """Restore the operations after a test that defines some."""
    before = dict(operations)
    yield
    operations.clear()
    operations.update(before)


class Ran(NamedTuple):
    """A call of a kernel for the CPU, by any thread."""

    thread: str
    context: Context


@pytest.fixture
def kernels_run(kernels_kept: None) -> list[Ran]:
    """A list that grows with each call of a kernel for the CPU."""
    calls: list[Ran] = []

    def noted(run: Any) -> Any:
        def kernel(*arguments: Any, **static: Any) -> Any:
            calls.append(Ran(current_thread().name.partition("_")[0], copy_context()))
            return run(*arguments, **static)

        return kernel

    for operation in kernels_for("cpu").values():
        operation.kernels[:] = [kernel._replace(run=noted(kernel.run)) for kernel in operation.kernels]
    return calls


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Lines that the libraries log during a test, as the commands show them."""
    lines: list[str] = []
    with log_shown(lines.append):
        yield lines


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium for all tests."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
