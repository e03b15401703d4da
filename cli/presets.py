"""minitransformer-presets: list the models that --preset names, with their sizes."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from cli.command import run_command
from cli.options import parse_options
from minitransformer.config import RunConfig
from minitransformer.config.checks import require
from minitransformer.config.presets import PRESETS
from minitransformer.model.symbols import END
from minitransformer.model.transformer import Transformer

DESCRIPTION = "List the models that --preset names: the sizes of each, and its number of parameters."
HEADINGS = ("name", "layers", "d_model", "d_ff", "heads", "d_k", "dropout", "vocabulary", "parameters")


@dataclass(frozen=True)
class PresetsOptions:
    """The options of minitransformer-presets."""

    vocabulary_size: int | None = None
    """Size of the vocabulary with which parameters are counted; if not given, that of each preset."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: list_presets(sys.argv[1:]))


def list_presets(arguments: Sequence[str]) -> int:
    """Print a line for each preset."""
    options = parse_options(PresetsOptions, DESCRIPTION, arguments)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "name" else "right", no_wrap=True)
    for name in PRESETS:
        table.add_row(name, *sizes_of(name, options.vocabulary_size))
    Console(highlight=False).print(table)
    return 0


def sizes_of(preset: str, vocabulary_size: int | None) -> list[str]:
    """Return the table's row for a preset.  Raises: ConfigError for an invalid size of the vocabulary."""
    config = RunConfig.of_preset(preset)
    size = config.data.vocabulary_size if vocabulary_size is None else vocabulary_size
    require(size > END, "--vocabulary-size", f"more than {END}, the last of the reserved ids", size)
    model = dataclasses.replace(config.model, vocabulary_size=size)
    n_parameters = Transformer(model, seed=None).n_parameters  # the arrays are never written, so they use no memory
    numbers = (
        model.n_layers, model.d_model, model.d_ff, model.n_heads, model.d_k, model.p_drop, size, n_parameters,
    )  # fmt: skip
    return [f"{number:,}" for number in numbers]
