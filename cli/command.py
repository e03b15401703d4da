"""What all commands share: an error is one line, not a page; and what is said goes to stderr."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, TextIO, cast

from autograd import DeviceError
from minitransformer.errors import UserError
from minitransformer.memory import keep_freed_memory
from parallel.agreement import DisagreementError
from parallel.communicator import Communicator
from parallel.launch import LaunchError, all_or_none

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
LESS = "a smaller model, smaller batches, shorter lines, a narrower beam"
EXPECTED = (UserError, DeviceError, LaunchError, DisagreementError)


class RefusalError(UserError):
    """The system does not give what was asked of it: memory, room on a disk, or a file."""


def closed(name: str) -> RefusalError:
    """Return the error for a standard stream that the shell has closed."""
    return RefusalError(f"standard {name} is closed: expected a file, a pipe or a terminal; /dev/null is one, too")


class _ClosedOutput(io.TextIOBase):
    """A stand-in for a closed standard output (the shell's >&-): Python would lose a result without an error."""

    def write(self, text: str) -> int:
        raise closed("output")

    @property
    def buffer(self) -> BinaryIO:
        raise closed("output")


def run_command(main: Callable[[], int | None]) -> int:
    """Run ``main``; turn errors that a user can mend, as a lack of memory, into one line on stderr and status 1.

    Standard output is flushed here, so that what cannot be written is told, and not by the interpreter's last words.
    """
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of Latin-1 has no "→": better "\\u2192" than no result
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _ClosedOutput())
    if sys.stderr is None:  # the shell's 2>&-
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        return _status_of(main)
    finally:
        _drop_what_cannot_be_written(sys.stdout, sys.stderr)


def _status_of(main: Callable[[], int | None]) -> int:
    try:
        with _refusals_as_errors():
            status = main() or 0
            sys.stdout.flush()
        return status
    except EXPECTED as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as "head" does
        return 141


@contextmanager
def all_end_together(world: Communicator) -> Iterator[None]:
    """Within this context what one rank of several cannot do ends them all, told as ``run_command`` tells it."""
    with all_or_none(world, EXPECTED), _refusals_as_errors():
        yield


@contextmanager
def _refusals_as_errors() -> Iterator[None]:
    """Turn a lack of memory or room, and what the system has against a file, into an error of EXPECTED, with a remedy.

    Not a file that is not there, for which we look ourselves: a traceback tells more of our own faults.
    """
    try:
        yield
    except UserError:  # of memory, too
        raise
    except MemoryError as error:
        raise RefusalError(f"out of memory ({str(error) or 'there is no more'}); ask for less: {LESS}") from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise RefusalError(f"{error}; free some space, and give the same command again") from error
        if error.filename is None or isinstance(error, FileNotFoundError):
            raise
        raise RefusalError(
            f"{error.filename}: {error.strerror}; choose another place, or mend who may read and write there"
        ) from error


def _drop_what_cannot_be_written(*streams: TextIO) -> None:
    """Where a stream takes nothing more, its buffer goes nowhere: the interpreter would fail over it at the end."""
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(line: str) -> None:
    """Write a warning, or how the work goes, on stderr: standard output is for results.

    What cannot be written is lost: no work ends because nobody can be told of it.
    """
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
