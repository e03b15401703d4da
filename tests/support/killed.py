"""Training that is killed with SIGKILL at given moments, and given the same command again until it ends.

    python tests/support/killed.py '[["call", 12000], ["file", 31]]' OPTION …

Each entry is a life: it ends in the so many-th function call of any thread (Python's own functions included), the so
many-th one during "validation", the so many-th operation on a "file", or the so many-th of them in a "save".  A life
that ends before is a run that has come to its end.  After the last entry the command is given once more, and all are
counted.  Prints how every life ended.
"""

import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from cli.train import train
from minitransformer.training.validation import Validation

FILE_OPERATIONS = {
    "open", "write", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir", "ftruncate", "close", "serialize_file",
}  # fmt: skip


class Death:
    """Counts calls, and kills this process in the one that is its last."""

    def __init__(self, kind: str, last: int) -> None:
        self.counts = {"call": 0, "validation": 0, "file": 0, "save": 0}
        self._kind, self._last = kind, last
        self._is_validating = False

    def __call__(self, frame: FrameType, event: str, function: Any) -> None:
        if frame.f_code is Validation.report.__code__ and event in ("call", "return"):
            self._is_validating = event == "call"
        if event not in ("call", "c_call"):
            return
        self.counts["call"] += 1
        self.counts["validation"] += self._is_validating
        if event == "c_call" and function.__name__ in FILE_OPERATIONS:
            self.counts["file"] += 1
            self.counts["save"] += threading.current_thread().name == "checkpoint"
        if self.counts[self._kind] == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def live(kind: str, last: int, arguments: list[str]) -> str:
    """How a life ended: of a child process, which has no threads from before."""
    child = os.fork()
    if not child:
        death = Death(kind, last)
        threading.setprofile(death)
        sys.setprofile(death)
        status = train(arguments)
        sys.setprofile(None)
        print(json.dumps(death.counts), flush=True)
        os._exit(status)
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else f"status {os.waitstatus_to_exitcode(status)}"


def main() -> None:
    """Live every life."""
    lives, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    for kind, last in [*lives, ("call", 0)]:
        print(live(kind, last, arguments), flush=True)


if __name__ == "__main__":
    main()
