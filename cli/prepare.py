"""minitransformer-prepare: raw parallel text to a directory of token shards."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.command import run_command, say
from cli.options import name_of, parse_options, read_toml, take_option
from minitransformer.config import DataConfig
from minitransformer.data.download import download
from minitransformer.data.prepare import prepare
from minitransformer.run import RunConfig

DESCRIPTION = """Turn raw parallel text into token ids: train the subword tokenizer, encode, drop and count unusable
pairs. --config FILE reads options from the [data] table of a TOML file, and starts from the preset that it names, as
minitransformer-train does."""


@dataclass(frozen=True)
class PrepareOptions:
    """What to prepare."""

    data: DataConfig = field(default_factory=DataConfig)
    """The text."""
    run: Path = Path("runs/demo")
    """Directory of the run that the data is for: the data goes into its "data", unless data.directory is given."""
    download: bool = False
    """First fetch missing files from data.download_from into data.raw, and check their sha256 sums."""


def main() -> int:
    """Entry point."""
    return run_command(lambda: prepare_data(sys.argv[1:]))


def prepare_data(arguments: Sequence[str]) -> int:
    """Prepare as the options say."""
    options = parse_options(
        PrepareOptions,
        DESCRIPTION,
        arguments,
        default=PrepareOptions(data=_data_of_preset(arguments)),
        ignored=("preset", "compat", "model", "training", "device"),
    )
    if options.download:
        download(options.data, say)
    prepare(options.data, options.data.directory or options.run / "data", say)
    return 0


def _data_of_preset(arguments: Sequence[str]) -> DataConfig:
    """What training would start from: a preset decides about vocabularies, too."""
    file, _ = take_option(arguments, "--config")
    preset = name_of("preset", read_toml(Path(file)), file) if file else None
    return DataConfig() if preset is None else RunConfig.of_preset(preset).data
