"""minitransformer-prepare: turn raw parallel text into a directory of token shards."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.command import run_command
from cli.options import name_of, parse_options, read_toml, take_option
from minitransformer.config import DataConfig, RunConfig
from minitransformer.data.download import download
from minitransformer.data.prepare import prepare
from minitransformer.parsing.treebank import corpus_of

DESCRIPTION = """Turn raw parallel text into token ids: train the subword tokenizer, encode, drop and count unusable
pairs. --config FILE reads options from the [data] table of a TOML file. --preset NAME, or a preset that the file names,
sets the options of vocabularies, as with minitransformer-train."""


@dataclass(frozen=True)
class PrepareOptions:
    """The options of minitransformer-prepare."""

    data: DataConfig = field(default_factory=DataConfig)
    """The options of the text."""
    run: Path = Path("runs/demo")
    """Directory of the run; the data is written to its folder "data", unless data.directory is given."""
    download: bool = False
    """First download missing files from data.download_from into data.raw, and check their sha256 sums."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: prepare_data(sys.argv[1:]))


def prepare_data(arguments: Sequence[str]) -> int:
    """Prepare the data that the options describe."""
    preset, words = take_option(arguments, "--preset")
    preset = preset or _preset_of_file(words)
    default = PrepareOptions() if preset is None else PrepareOptions(data=RunConfig.of_preset(preset).data)
    options = parse_options(
        PrepareOptions,
        DESCRIPTION,
        words,
        default=default,
        ignored=("preset", "compat", "model", "training", "device"),
    )
    if options.download:
        download(options.data)
    prepare(options.data, options.data.directory or options.run / "data", corpus_of)
    return 0


def _preset_of_file(words: Sequence[str]) -> str | None:
    file, _ = take_option(words, "--config")
    return name_of("preset", read_toml(Path(file)), file) if file else None
