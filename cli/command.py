"""What all commands share: an error is one line, not a page; and what is said goes to stderr."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from autograd import DeviceError
from minitransformer.errors import UserError
from minitransformer.memory import keep_freed_memory
from parallel.agreement import DisagreementError
from parallel.launch import LaunchError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
LESS = "a smaller model, smaller batches, shorter lines, a narrower beam"
EXPECTED = (UserError, DeviceError, LaunchError, DisagreementError)


class RefusalError(UserError):
    """The system does not give what was asked of it: memory, or a file."""


def run_command(main: Callable[[], int | None]) -> int:
    """Run ``main``; turn errors that a user can mend, as a lack of memory, into one line on stderr and status 1.

    Standard output is flushed here, so that what cannot be written is told, and not by the interpreter's last words.
    """
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of Latin-1 has no "→": better "\\u2192" than no result
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:  # the shell's 2>&-
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        return _status_of(main)
    finally:
        try:
            sys.stderr.flush()
        except OSError:  # of what is still buffered the interpreter would make a status of its own
            _drop(sys.stderr)


def _status_of(main: Callable[[], int | None]) -> int:
    try:
        with refusals_as_errors():
            status = main() or 0
        if sys.stdout is not None:  # the shell's >&-
            sys.stdout.flush()
        return status
    except EXPECTED as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as "head" does
        _drop(sys.stdout)
        return 141
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        say(f"error: {error}; free some space, and give the same command again")
        _drop(sys.stdout)
        return 1


@contextmanager
def refusals_as_errors() -> Iterator[None]:
    """Turn a lack of memory, and what the system has against a file, into an error of EXPECTED, with a remedy.

    Not a file that is not there, for which we look ourselves: a traceback tells more of our own faults.
    """
    try:
        yield
    except UserError:  # of memory, too
        raise
    except MemoryError as error:
        raise RefusalError(f"out of memory ({str(error) or 'there is no more'}); ask for less: {LESS}") from error
    except OSError as error:
        if error.filename is None or isinstance(error, FileNotFoundError) or error.errno in NO_ROOM:
            raise
        raise RefusalError(
            f"{error.filename}: {error.strerror}; choose another place, or mend who may read and write there"
        ) from error


def _drop(stream: TextIO) -> None:
    """What is still buffered for a stream goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(line: str) -> None:
    """Write a warning, or how the work goes, on stderr: standard output is for results.

    What cannot be written is lost: no work ends because nobody can be told of it.
    """
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
