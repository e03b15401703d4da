"""Entry points of the commands; each imports its command only when started, so that Ctrl-C also ends the import."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from importlib import import_module


def start(name: str) -> int:
    """Import the command ``name`` and run it; return its status.

    During the import, Ctrl-C ends the process at once: C modules would turn KeyboardInterrupt into other errors.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not if the shell ignores Ctrl-C
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    main = import_module(f"cli.{name}").main
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(main())


def _end(*_: object) -> None:
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(130)


average = partial(start, "average")
convert = partial(start, "convert")
doctor = partial(start, "doctor")
parse = partial(start, "parse")
prepare = partial(start, "prepare")
report = partial(start, "report")
reproduce = partial(start, "reproduce")
score = partial(start, "score")
serve = partial(start, "serve")
train = partial(start, "train")
translate = partial(start, "translate")
