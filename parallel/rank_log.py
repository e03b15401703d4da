"""The warnings of all ranks in the log of rank 0, because users see only that log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from parallel.communicator import Ranks
from parallel.placement import named_ranks

LOGGERS = ("autograd", "parallel", "minitransformer")  # in a wheel, the last is above all

_log = logging.getLogger(__name__)


class _NewWarnings(logging.Handler):
    """A handler that keeps each warning once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.known: set[str] = set()
        self._new: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.known:
            self.known.add(message)
            self._new.append(message)

    def take(self) -> list[str]:
        """Return the warnings since the last call."""
        new, self._new = self._new, []
        return new


_warnings = _NewWarnings()  # a process is one rank


@contextmanager
def collected_warnings(world: Ranks) -> Iterator[None]:
    """Collect the libraries' warnings within this context for ``log_warnings_of_other_ranks``."""
    _warnings.take()
    _warnings.known.clear()
    loggers = [logging.getLogger(name) for name in LOGGERS] if world.size > 1 else []
    for logger in loggers:
        logger.addHandler(_warnings)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(_warnings)


def log_warnings_of_other_ranks(world: Ranks) -> None:
    """Log on rank 0 the new warnings of other ranks; all ranks must call this.

    Each message is logged once, with the numbers of its ranks, and only if rank 0 has not logged it itself.
    """
    ranks: dict[str, list[int]] = {}
    for rank, messages in enumerate(world.allgather(_warnings.take())):
        for message in messages if rank else ():
            ranks.setdefault(message, []).append(rank)
    if world.rank == 0:
        for message, numbers in ranks.items():
            if message not in _warnings.known:
                _warnings.known.add(message)
                _log.warning(f"{named_ranks(numbers)}: {message}")
