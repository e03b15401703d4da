"""Standard input and output as bytes."""

from __future__ import annotations

import sys
from typing import BinaryIO, TextIO, cast

from minitransformer.config import ConfigError
from minitransformer.inference.stream import Source


def standard_streams() -> tuple[Source, BinaryIO]:
    """Standard input and output.  Raises: ConfigError if one is closed, as "<&-" in a shell leaves it."""
    return cast(Source, _opened(sys.stdin, "input")), _opened(sys.stdout, "output")


def _opened(stream: TextIO | None, name: str) -> BinaryIO:
    if stream is None:
        raise ConfigError(f"standard {name} is closed: expected a file, a pipe or a terminal; /dev/null is one, too")
    return stream.buffer
