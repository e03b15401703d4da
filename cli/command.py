"""Code shared by all commands: errors become one line, not a traceback; messages and counts go to stderr."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from autograd import DeviceError
from autograd.malloc import keep_freed_memory
from cli.entry import INTERRUPTED
from minitransformer.system.errors import UserError
from parallel.agreement import DisagreementError
from parallel.communicator import Communicator
from parallel.launch import LaunchError, all_or_none
from parallel.rank_log import LOGGERS

if TYPE_CHECKING:
    from minitransformer.extras.files.stream import Source

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
LESS = "a smaller model, shorter lines, a narrower beam"
EXPECTED = (UserError, DeviceError, LaunchError, DisagreementError)


class RefusalError(UserError):
    """A refusal by the operating system: of memory, disk space or access to a file."""


def _closed(name: str) -> RefusalError:
    """Return the error for a standard stream that the shell has closed."""
    return RefusalError(f"standard {name} is closed: redirect it to a file, a pipe, a terminal or /dev/null")


def standard_streams() -> tuple[Source, BinaryIO]:
    """Return standard input and output as bytes.  Raises: RefusalError if one is closed, as by "<&-" in a shell."""
    if sys.stdin is None:
        raise _closed("input")
    output: BinaryIO = sys.stdout.buffer  # run_command has replaced a closed one
    if isinstance(output, io.RawIOBase):  # with PYTHONUNBUFFERED: ``write`` may write only a part, without an error
        output = io.BufferedWriter(io.FileIO(output.fileno(), "wb", closefd=False))
    return cast("Source", sys.stdin.buffer), output


class _ClosedOutput(io.TextIOBase):
    """A replacement for a closed standard output (the shell's >&-), so that results are not lost silently."""

    def write(self, text: str) -> int:
        raise _closed("output")

    @property
    def buffer(self) -> BinaryIO:
        raise _closed("output")


def run_command(main: Callable[[], int | None]) -> int:
    """Run ``main``; turn errors that a user can correct, such as too little memory, into a line on stderr and status 1.

    With --debug among the arguments, a traceback precedes the line.

    Standard output is flushed here, so that a write error is reported like any other; otherwise the interpreter would
    print a traceback when it exits.
    """
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a Latin-1 terminal has no "→"; print "\\u2192" rather than fail
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _ClosedOutput())
    if sys.stderr is None:  # the shell's 2>&-
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        return _status_of(main)
    finally:
        _discard_unwritable(sys.stdout, sys.stderr)


def _status_of(main: Callable[[], int | None]) -> int:
    try:
        with _refusals_as_errors(), log_shown(say):
            status = main() or 0
            sys.stdout.flush()
        return status
    except EXPECTED as error:
        if is_debugging():
            say(traceback.format_exc().rstrip())
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it, as "head" does
        return 141


def is_debugging() -> bool:
    """Return whether --debug is among the arguments; search them directly, because parsing them may fail."""
    return "--debug" in sys.argv


@contextmanager
def all_end_together(world: Communicator) -> Iterator[None]:
    """End all ranks if a rank raises an error within this context; report the error as ``run_command`` does."""
    with all_or_none(world, () if is_debugging() else EXPECTED), _refusals_as_errors():
        yield


@contextmanager
def _refusals_as_errors() -> Iterator[None]:
    """Turn a lack of memory or disk space, and refused access to a file, into a RefusalError with a remedy.

    FileNotFoundError is not turned into another error: all code checks for missing files, so this error is a bug, and
    its traceback is needed.
    """
    try:
        yield
    except UserError:  # a UserError may also be a MemoryError
        raise
    except MemoryError as error:
        raise RefusalError(f"out of memory ({str(error) or 'no details'}); use less: {LESS}") from error
    except OSError as error:
        if error.errno in DISK_FULL:
            raise RefusalError(f"{error}; free some disk space, and start the same command again") from error
        if error.filename is None or isinstance(error, FileNotFoundError):
            raise
        raise RefusalError(
            f"{error.filename}: {error.strerror}; choose another path, or correct its permissions"
        ) from error


def _discard_unwritable(*streams: TextIO) -> None:
    """Redirect each stream that cannot be flushed to /dev/null: the interpreter would fail to flush it at exit."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _LogLines(logging.Handler):
    """A handler that passes log lines to a function; warnings are marked."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        self._write(mark + record.getMessage())


@contextmanager
def log_shown(write: Callable[[str], None]) -> Iterator[None]:
    """Pass the libraries' log lines within this context to ``write`` alone, not to the function of an outer context."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger.handlers, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers = [_LogLines(write)]
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers = handlers
            logger.setLevel(level)


@contextmanager
def counting(items: str, total: int | None, *, shown: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function that adds a number of finished items to a count on stderr; if not ``shown``, it does nothing."""
    if not shown:  # do not load rich, so that a single sentence is translated sooner
        yield lambda n: None
        return
    from cli.console import Counter, log_console  # noqa: PLC0415

    with Counter(log_console(quiet=False), items, total) as counter:
        yield counter.advance


def say(line: str) -> None:
    """Write a warning or a progress line to stderr; standard output is for results.

    Ignore write errors: an unwritable stderr must not end the work.
    """
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
