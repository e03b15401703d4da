"""minitransformer-reproduce: measure the paper's tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.command import run_command, say
from cli.options import parse_kind
from cli.reproduce_table3 import Table3Options, reproduce_table3
from minitransformer.config import ConfigError
from minitransformer.extras.paper.complexity.layout import as_json, markdown
from minitransformer.extras.paper.complexity.table import LAYER_TYPES, measure_row
from minitransformer.system.files import atomic_write
from minitransformer.system.provenance import code_version

DESCRIPTION = """Measure what the paper's tables claim. "table1": complexity, sequential operations and
maximum path length of layer types. "table3": variations on the Transformer, trained at a scale of your choice."""


@dataclass(frozen=True)
class Table1Options:
    """Compare Table 1's claims with counted multiply-adds, measured times, sequential operations and path lengths.

    Self-attention, recurrent, convolutional and restricted self-attention layers are measured, in a minute or two.
    """

    output: Path = Path("runs/table1")
    """Directory for table1.json, which has every measured point."""
    repeats: int = 5
    """Number of forward passes; the shortest time is reported."""


KINDS = {"table1": Table1Options, "table3": Table3Options}


def main() -> int:
    """Run the command."""
    return run_command(lambda: reproduce(sys.argv[1:]))


def reproduce(arguments: Sequence[str]) -> int:
    """Measure the table that the options name; print it on stdout, and progress on stderr."""
    options: Table1Options | Table3Options = parse_kind(KINDS, DESCRIPTION, arguments)
    return reproduce_table3(options) if isinstance(options, Table3Options) else reproduce_table1(options)


def reproduce_table1(options: Table1Options) -> int:
    """Print Table 1, and write it as JSON with every measured point."""
    if options.repeats < 1:
        raise ConfigError(f"--repeats must be at least 1, got {options.repeats}")
    with atomic_write(options.output / "table1.json") as unfinished:  # fails early if the directory is unwritable
        rows = [measure_row(layer_type, options.repeats) for layer_type in LAYER_TYPES]
        unfinished.write_text(json.dumps(as_json(rows, code=code_version()), indent=1) + "\n", encoding="utf-8")
    print(markdown(rows), end="")
    say(f"wrote {options.output / 'table1.json'}; code {code_version()}")
    return 0
