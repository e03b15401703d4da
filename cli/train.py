"""minitransformer-train: from raw parallel text to a model that translates."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.command import all_end_together, log_shown, run_command
from cli.console import log_console
from cli.entry import INTERRUPTED
from cli.options import Repeated, Rule, require_rules
from cli.run_options import RunStart, parse_run_options
from cli.validation_command import ValidationCommand
from minitransformer.config import RunConfig
from minitransformer.config.checks import imported_class
from minitransformer.extras.back_translation import (
    BackSearch,
    BackTranslation,
    train_back_translated,
    write_target_text,
)
from minitransformer.extras.diversification import check_diversified, train_diversified
from minitransformer.extras.doctor.check import verify_resume
from minitransformer.extras.report.run_page import ReportPage
from minitransformer.extras.report.tensorboard import TensorBoard
from minitransformer.training.callbacks import Callback
from minitransformer.training.progress_bar import ProgressBar
from minitransformer.training.run import train as train_run
from minitransformer.training.run import try_to_open
from parallel.communicator import Communicator
from parallel.launch import communicator

DESCRIPTION = """Train a Transformer. Without options: on an English-German corpus that the program generates itself,
in a few minutes, into runs/demo; then try: echo "The small dog sees three red houses." | minitransformer-translate

Options of the command line override those of the file (--config), which override those that --compat and --preset set.
A run that was interrupted goes on when the same command is given again.
Several processes: mpirun -n 8 minitransformer-train ..."""


# Options that add something to a training
ADDED = ("diversify", "back_translate", "tensorboard", "validation_command", "callback")
RULES = (
    Rule(("verify_resume",), "does not go with", (*ADDED, "dry_run"), "it is a test in a temporary directory"),
    Rule(("diversify",), "does not go with", ("back_translate",), "each makes its own text"),
    Rule(("back_translate_run", "back_translate_search", "back_translate_tag"), "needs", ("back_translate",)),
)


@dataclass(frozen=True)
class TrainOptions(RunConfig, RunStart):
    """The options of minitransformer-train."""

    verify_resume: int | None = None
    """Instead of the training, run a test in a temporary directory: train this many updates twice, once with an
    interruption, and compare the results."""
    dry_run: bool = False
    """End before the first update, after the text is prepared and the largest batch was computed once. Prepared data
    stay; the same command without this option then trains."""
    diversify: int = 0
    """Updates of a further training after this one. Its text also has translations by this model, and by a second one
    that translates from target to source. 0: no further training."""
    back_translate: tuple[str, ...] = ()
    """Files with text in the target language, in the folder data.raw. A model from target to source is trained first,
    and translates this text; the training then also has these pairs. Without files, there is no such text."""
    back_translate_run: Path | None = None
    """Directory of a trained model from target to source that makes the translations; if not given, one is trained."""
    back_translate_search: BackSearch = BackTranslation.search
    """"beam": the best translation that is found; "sampling": one that is drawn at random."""
    back_translate_tag: bool = BackTranslation.tag
    """Begin sources that a model has made with a tag, so that the training can tell them from the others."""
    tensorboard: bool = False
    """Also write events for TensorBoard, in the folder tensorboard of the run's directory."""
    validation_command: str | None = None
    """Command that measures the translations of each validation, such as "my-metric {reference} {translation}"; there
    is also {source}. It prints a number, or lines of a name and a number."""

    callback: Repeated[str] = ()
    """Class of a callback of yours, as package.module:name; it is made without arguments. Give --callback several times
    for several classes."""

    @property
    def back_translation(self) -> BackTranslation:
        """The text to translate back, and how."""
        names = (field.name for field in dataclasses.fields(BackTranslation) if field.name != "files")
        return BackTranslation(self.back_translate, **{name: getattr(self, f"back_translate_{name}") for name in names})


def main() -> int:
    """Run the command."""
    return run_command(lambda: train(sys.argv[1:]))


def train(arguments: Sequence[str]) -> int:
    """Train as the options request; return 0 if the run is complete, 130 if it was interrupted and saved."""
    world = communicator()  # first: a rank that ended before starting MPI would leave other ranks waiting
    with all_end_together(world):
        return _train_as_rank(world, arguments)


def _train_as_rank(world: Communicator, arguments: Sequence[str]) -> int:
    options = read_options(arguments)
    bar = ProgressBar(log_console(quiet=world.rank != 0))
    with log_shown(bar.print):
        return _train_or_verify(options, world, bar)


def _train_or_verify(options: TrainOptions, world: Communicator, bar: ProgressBar) -> int:
    if options.verify_resume is not None:
        verify_resume(options, world, options.verify_resume)
        return 0
    if options.dry_run:
        _try_to_begin(options, world)
        bar.print("the training can begin: give the same command without --dry-run")
        return 0

    def train_to_end(config: RunConfig) -> bool:
        callbacks: list[Callback] = [bar]
        if world.rank == 0:
            callbacks += [ReportPage(config.run), *([TensorBoard(config.run)] if options.tensorboard else [])]
            callbacks += _own_callbacks(options)
        return train_run(config, world=world, callbacks=callbacks).is_complete

    if options.diversify:
        is_complete = train_diversified(options, options.diversify, train_to_end, world)
    elif options.back_translate:
        is_complete = train_back_translated(options, options.back_translation, train_to_end, world)
    else:
        is_complete = train_to_end(options)
    if not is_complete:
        return INTERRUPTED
    verb = "parse" if options.data.task == "parsing" else "translate"
    command = f"{verb} with minitransformer-{verb} --run {shlex.quote(str(options.run))}"
    own = options.model.implementation
    bar.print(f"done: {f'load the model with its class, {own}, in Python' if own else command}")
    return 0


def _try_to_begin(options: TrainOptions, world: Communicator) -> None:
    """Do what comes before the first update, so that its errors are raised."""
    if options.diversify:
        check_diversified(options, options.diversify)
    if options.back_translate:
        write_target_text(options, options.back_translation, world)
    try_to_open(options, world, measured=any(each.measures for each in _own_callbacks(options)))


def _own_callbacks(options: TrainOptions) -> list[Callback]:
    """Return the callbacks of the user: a command that measures translations, and objects of named classes."""
    command = options.validation_command
    classes = [imported_class("callback", name, Callback) for name in options.callback]
    return [*([] if command is None else [ValidationCommand(command)]), *(each() for each in classes)]


def read_options(arguments: Sequence[str]) -> TrainOptions:
    """Return the options of the command line."""
    options = parse_run_options(TrainOptions, DESCRIPTION, arguments)
    require_rules(options, RULES)
    return options
