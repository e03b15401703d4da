"""minitransformer-average: average the last checkpoints of a run into one model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.command import run_command, say
from cli.options import parse_options
from minitransformer.config import RunConfig, TrainingConfig
from minitransformer.config.run import RUN_FILE
from minitransformer.data.profile import TextProfile
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.files import load_model_files, save_model_files
from minitransformer.system.files import CheckpointError, lock_directory, remove_unfinished
from minitransformer.training.checkpoint import average_weights, checkpoints_of_updates

DESCRIPTION = "Average the weights of the last checkpoints of a run into a model that minitransformer-translate reads."


@dataclass(frozen=True)
class AverageOptions:
    """The options of minitransformer-average."""

    output: Path | None = None
    """Directory for the averaged model and its tokenizer; "averaged" in the run's directory if not given."""
    run: Path = RunConfig.run
    """Directory of a training run."""
    last: int = TrainingConfig.average_checkpoints
    """Number of the last checkpoints to average."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: average(sys.argv[1:]))


def average(arguments: Sequence[str]) -> int:
    """Average the checkpoints that the options name, and write the model."""
    options = parse_options(AverageOptions, DESCRIPTION, arguments, 'to average a run, give "--run {file}"')
    found = checkpoints_of_updates(options.run)
    if not found:
        problem = "has no checkpoints" if options.run.is_dir() else "no such directory"
        raise CheckpointError(f"{options.run}: {problem}; give the directory of a training run with --run")
    if not 1 <= options.last <= len(found):
        raise CheckpointError(
            f"{options.run}: has {len(found)} checkpoints; cannot average the last {options.last}:"
            f" choose --last from 1 to {len(found)}"
        )
    output = options.output or options.run / "averaged"
    if (output / RUN_FILE).exists():
        raise CheckpointError(
            f"{output}: holds a run ({RUN_FILE}), whose model would be replaced; choose another directory with --output"
        )
    chosen = found[-options.last :]
    tokenizer = Tokenizer.load(options.run)
    config, _ = load_model_files(chosen[-1])
    with lock_directory(output, "averaging"):
        remove_unfinished(output)
        save_model_files(output, config, average_weights(chosen))
        tokenizer.save(output)
        TextProfile.load(options.run).save(output)
    say(f"averaged {', '.join(path.name for path in chosen)} into {output}")
    return 0
