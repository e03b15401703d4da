"""Standard input and output as bytes."""

from __future__ import annotations

import io
import sys
from typing import BinaryIO, cast

from cli.command import closed
from minitransformer.extras.files.stream import Source


def standard_streams() -> tuple[Source, BinaryIO]:
    """Return standard input and output.  Raises: RefusalError if one is closed, as by "<&-" in a shell."""
    if sys.stdin is None:
        raise closed("input")
    output: BinaryIO = sys.stdout.buffer  # run_command has replaced a closed one
    if isinstance(output, io.RawIOBase):  # with PYTHONUNBUFFERED: ``write`` may write only a part, without an error
        output = io.BufferedWriter(io.FileIO(output.fileno(), "wb", closefd=False))
    return cast(Source, sys.stdin.buffer), output
