"""minitransformer-convert: read a model of another program, or write one for it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from cli.command import run_command, say
from minitransformer.convert.formats import (
    FORMATS,
    READABLE,
    WRITABLE,
    read_parts,
    require_writable,
    write_parts,
)
from minitransformer.convert.parts import ConversionError
from minitransformer.model.storage import Storage

DESCRIPTION = "Convert a model from another program's format to ours, or from ours to another program's."


@dataclass(frozen=True)
class ConvertOptions:
    """The options of minitransformer-convert."""

    source: tyro.conf.Positional[Path]
    """Directory of the model to convert."""
    output: Path
    """Directory to write, which must not exist or be empty."""
    to: Literal[WRITABLE] = "minitransformer"  # type: ignore[valid-type]
    """Format to write."""
    from_: Annotated[Literal[READABLE] | None, tyro.conf.arg(name="from")] = None  # type: ignore[valid-type]
    """Format of the source; if not given, it is recognised by the files there."""
    storage: Storage = "float32"
    """Numbers in which weights are stored."""
    licence: str | None = None
    """Licence of the model, such as "CC-BY-4.0", which a bundle records."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: convert(sys.argv[1:]))


def convert(arguments: Sequence[str]) -> int:
    """Read the source and write the output."""
    options = tyro.cli(ConvertOptions, description=DESCRIPTION, args=arguments)
    if options.licence and options.to != "bundle":
        raise ConversionError(f"--licence: {options.to} records no licence; use --to bundle, or leave the option out")
    require_writable(options.output, options.to, options.storage)  # before a large model is read
    parts = read_parts(options.source, options.from_)
    parts = dataclasses.replace(parts, licence=options.licence or parts.licence)
    write_parts(parts, options.output, options.to, options.storage)
    say(f"wrote {options.output} ({options.to}: {FORMATS[options.to].files})")
    return 0
