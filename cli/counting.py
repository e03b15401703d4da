"""The count of lines or sentences that a command has finished, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(items: str, total: int | None, *, shown: bool) -> Iterator[Callable[[float], None]]:
    """Yield ``Counter.advance`` if ``shown``, else a function that does nothing."""
    if not shown:  # do not load rich, so that a single sentence is translated sooner
        yield lambda n: None
        return
    from cli.console import Counter, log_console  # noqa: PLC0415

    with Counter(log_console(quiet=False), items, total) as counter:
        yield counter.advance
