"""What all commands share: an error is one line, not a page; and what is said goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from autograd import DeviceError
from minitransformer.errors import UserError
from minitransformer.memory import keep_freed_memory
from parallel.agreement import DisagreementError
from parallel.launch import LaunchError

EXPECTED = (UserError, DeviceError, LaunchError, DisagreementError)


def run_command(main: Callable[[], int | None]) -> int:
    """Run ``main``; turn errors that a user can mend into one line on stderr and exit status 1."""
    keep_freed_memory()
    try:
        return main() or 0
    except EXPECTED as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has left, as "head" does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def say(line: str) -> None:
    """Write a warning, or how the work goes, on stderr: standard output is for results."""
    print(line, file=sys.stderr, flush=True)
