"""What all commands share: an error is one line, not a page; and what is said goes to stderr."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from autograd import DeviceError
from minitransformer.errors import UserError
from minitransformer.memory import keep_freed_memory
from parallel.agreement import DisagreementError
from parallel.launch import LaunchError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
EXPECTED = (UserError, DeviceError, LaunchError, DisagreementError)


def run_command(main: Callable[[], int | None]) -> int:
    """Run ``main``; turn errors that a user can mend into one line on stderr and exit status 1.

    Standard output is flushed here, so that what cannot be written is told, and not by the interpreter's last words.
    """
    keep_freed_memory()
    try:
        status = main() or 0
        sys.stdout.flush()
        return status
    except EXPECTED as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left, as "head" does
        _drop_output()
        return 141
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(f"error: {error}; free some space, and give the same command again", file=sys.stderr)
        _drop_output()
        return 1


def _drop_output() -> None:
    """What is still buffered for standard output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """Write a warning, or how the work goes, on stderr: standard output is for results."""
    print(line, file=sys.stderr, flush=True)
