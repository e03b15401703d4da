"""Hypothesis for all tests: no deadlines on shared machines, and the same examples in every run.

``--hypothesis-profile=explore`` draws new ones.
"""

import logging
import signal
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

settings.register_profile("here", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile(
    "mutants", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)  # make mutants: that a test fails is enough; the smallest example need not be found
settings.load_profile("here")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a background job; the tests of Ctrl-C need to hear it
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Lines(logging.Handler):
    """A handler that collects lines as the commands show them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        self.lines.append(mark + record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Lines that the libraries log during a test, with warnings marked."""
    handler, loggers = _Lines(), [logging.getLogger(name) for name in ("autograd", "parallel", "minitransformer")]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    yield handler.lines
    for logger in loggers:
        logger.removeHandler(handler)
