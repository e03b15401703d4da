"""minitransformer-train: from raw parallel text to a model that translates."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.command import all_end_together, log_shown, run_command
from cli.console import log_console
from cli.options import name_of, parse_options, read_toml, take_option
from minitransformer.config import ConfigError, RunConfig
from minitransformer.paper.compatibility import compatible
from minitransformer.training.callbacks import ProgressBar
from minitransformer.training.rehearsal import verify_resume
from minitransformer.training.train import train as train_run
from parallel.communicator import Communicator
from parallel.launch import communicator

DESCRIPTION = """Train a Transformer. Without options: on an English-German corpus that the program generates itself,
in a few minutes, into runs/demo; then try: echo "the small dog sees three red houses" | minitransformer-translate

Four more options: --config FILE reads options from a TOML file (see recipes/). --preset NAME starts from a model by
name: tiny or small, trained like the demonstration; base, big or a row of Table 3 (table3-A-h4 ...), trained like the
paper's; parsing or parsing-small, for treebanks. --compat SYSTEM decides as tensor2tensor, fairseq or marian does what
the paper leaves open.
--verify-resume N trains N updates in a temporary directory, twice, and proves that a run of these options that dies and
goes on ends like one in one go.
A run that was interrupted goes on when the same command is given again.
Several processes: mpirun -n 8 minitransformer-train ..."""

VERIFY = "--verify-resume"


def read_options(arguments: Sequence[str], description: str = DESCRIPTION) -> RunConfig:
    """Return the run that the command line describes."""
    preset, words = take_option(arguments, "--preset")
    system, words = take_option(words, "--compat")
    _, words = take_option(words, VERIFY)
    file, _ = take_option(words, "--config")
    of_file = read_toml(Path(file)) if file else {}
    of_file_preset, of_file_system = (name_of(key, of_file, file) for key in ("preset", "compat"))
    preset, system = preset or of_file_preset, system or of_file_system
    default = RunConfig() if preset is None else RunConfig.of_preset(preset)
    if system is not None:
        default = dataclasses.replace(default, model=compatible(default.model, system))
    return parse_options(RunConfig, description, words, default=default, ignored=("preset", "compat"))


def main() -> int:
    """Entry point."""
    return run_command(lambda: train(sys.argv[1:]))


def train(arguments: Sequence[str]) -> int:
    """Train as the options say; 0 when the run is complete, 130 when it was interrupted and saved."""
    world = communicator()  # first of all: the other ranks would wait for one that ends before it has started MPI
    with all_end_together(world):
        return _train_as_rank(world, arguments)


def _train_as_rank(world: Communicator, arguments: Sequence[str]) -> int:
    config = read_options(arguments)
    bar = ProgressBar(log_console(quiet=world.rank != 0))
    with log_shown(bar.print):
        return _train_or_verify(config, world, bar, arguments)


def _train_or_verify(config: RunConfig, world: Communicator, bar: ProgressBar, arguments: Sequence[str]) -> int:
    n_to_verify, _ = take_option(arguments, VERIFY)
    if n_to_verify is not None:
        verify_resume(config, world, _whole_number(n_to_verify))
        return 0
    if not train_run(config, world=world, callbacks=[bar]).is_complete:
        return 130
    use = "parse with minitransformer-parse" if config.data.is_treebank else "translate with minitransformer-translate"
    bar.print(f"done: {use} --run {config.run}")
    return 0


def _whole_number(word: str) -> int:
    if not word.isdecimal():
        raise ConfigError(f"{VERIFY}: expected a number of updates; got {word!r}")
    return int(word)
