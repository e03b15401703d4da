"""minitransformer-prepare: turn raw parallel text into a directory of token shards."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cli.command import all_end_together, run_command
from cli.run_options import Start, parse_run_options
from minitransformer.config import ConfigError, DataConfig, RunConfig
from minitransformer.config.run import require_other_directory
from minitransformer.data.given_tokenizer import GivenTokenizer
from minitransformer.data.prepare import prepare
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.files.download import download
from minitransformer.inference.task import task_of
from minitransformer.training.run_data import has_begun
from parallel.communicator import Communicator
from parallel.launch import communicator

DESCRIPTION = """Turn raw parallel text into token ids: train the subword tokenizer, encode, drop and count unusable
pairs. The files and presets of minitransformer-train set the same options here: "run", and all in the table [data].
Several processes write the same files: mpirun -n 8 minitransformer-prepare ..."""


@dataclass(frozen=True)
class PrepareOptions(Start):
    """The options of minitransformer-prepare."""

    data: DataConfig = field(default_factory=DataConfig)
    """The text and its conversion to tokens."""
    run: Path = RunConfig.run
    """Directory of the run; the data is written to its folder "data", unless data.directory is given."""
    init_from: Path | None = RunConfig.init_from
    """Directory of a run or a model whose tokenizer is used instead of a new one, for a training that begins from this
    model."""
    init_extend_vocabulary: bool = RunConfig.init_extend_vocabulary
    """Append the characters of the training text that the vocabulary of init_from lacks."""
    download: bool = False
    """First download missing files from data.download_from into data.raw, and check their sha256 sums."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: prepare_data(sys.argv[1:]))


def prepare_data(arguments: Sequence[str]) -> int:
    """Prepare the data that the options describe."""
    world = communicator()  # first: a rank that ended before starting MPI would leave other ranks waiting
    with all_end_together(world):
        return _prepare_as_rank(world, arguments)


def _prepare_as_rank(world: Communicator, arguments: Sequence[str]) -> int:
    options = parse_run_options(PrepareOptions, DESCRIPTION, arguments)
    given = _given_tokenizer(options)
    if options.data.directory is None and has_begun(options.run):
        raise ConfigError(
            f"{options.run}: its training has begun, so its text is not prepared again; for other text choose another"
            " directory with --run"
        )
    with world.waiting_for_rank_0():
        if options.download and world.rank == 0:
            download(options.data)
    prepare(options.data, options.data.directory or options.run / "data", task_of(options.data).corpus, given, world)
    return 0


def _given_tokenizer(options: PrepareOptions) -> GivenTokenizer | None:
    """Return the tokenizer of ``init_from``, or None if it is not given.  Raises: ConfigError, CheckpointError."""
    if options.init_from is None:
        if options.init_extend_vocabulary:
            raise ConfigError("init_extend_vocabulary is set, but no model to begin from: set init_from")
        return None
    require_other_directory(options.run, options.init_from)
    given = GivenTokenizer(Tokenizer.load(options.init_from), extends=options.init_extend_vocabulary)
    given.check(options.data, options.init_from)
    return given
