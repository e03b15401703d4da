"""minitransformer-reproduce: the paper's tables, measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from cli.command import run_command, say
from cli.reproduce_table3 import Table3Options, reproduce_table3
from minitransformer.config import ConfigError
from minitransformer.evaluation.complexity.layout import as_json, markdown
from minitransformer.evaluation.complexity.table import measure_table
from minitransformer.files import written_whole
from minitransformer.provenance import code_version
from minitransformer.report.errors import matplotlib_needed

DESCRIPTION = """Measure what the paper's tables claim. "table1": complexity, sequential operations and
maximum path length of layer types. "table3": variations on the Transformer, trained at a scale of one's own."""


@dataclass(frozen=True)
class Table1Options:
    """Table 1: the claims beside counted multiply-adds, times, operations that wait for one another, lengths of paths.

    Self-attention, recurrent, convolutional and restricted self-attention layers, in a minute or two.
    """

    output: Path = Path("runs/table1")
    """Directory for table1.json and table1.svg."""
    quick: bool = False
    """Small sizes: seconds in all, but too small for the exponents of time to mean anything."""
    repeats: int = 5
    """Forward passes of which the shortest counts."""


def main() -> int:
    """Entry point."""
    return run_command(lambda: reproduce(sys.argv[1:]))


def reproduce(arguments: Sequence[str]) -> int:
    """Measure as the options say; the table goes to stdout, progress to stderr."""
    options: Table1Options | Table3Options = tyro.extras.subcommand_cli_from_dict(
        {"table1": Table1Options, "table3": Table3Options}, description=DESCRIPTION, args=list(arguments)
    )
    return reproduce_table3(options) if isinstance(options, Table3Options) else reproduce_table1(options)


def reproduce_table1(options: Table1Options) -> int:
    """Print the table, and write it as JSON and as a picture."""
    if options.repeats < 1:
        raise ConfigError(f"--repeats must be at least 1, got {options.repeats}")
    with matplotlib_needed():  # before minutes of measuring
        from minitransformer.report.complexity_picture import complexity_picture  # noqa: PLC0415
        from minitransformer.report.saving import save_picture  # noqa: PLC0415
    with written_whole(options.output / "table1.json") as unfinished:  # fails now, not after minutes
        rows = measure_table(quick=options.quick, repeats=options.repeats, say=say)
        unfinished.write_text(json.dumps(as_json(rows, code=code_version()), indent=1) + "\n", encoding="utf-8")
    print(markdown(rows), end="")
    save_picture(complexity_picture(rows), options.output / "table1.svg")
    say(f"wrote table1.json and table1.svg into {options.output}; code {code_version()}")
    return 0
