"""Data diversification: models of both directions translate the training text; training continues on all these texts.

Source: Nguyen, Joty, Wu & Aw 2020, "Data Diversification: A Simple Strategy For Neural Machine Translation", with one
    model for each direction.
Differs: the last training begins with the weights of the first model, and has a smaller learning rate.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.checks import require, with_changes
from minitransformer.config.run import RUN_FILE
from minitransformer.data.corpus import Pair, read_pairs
from minitransformer.data.languages import language_of_run
from minitransformer.data.prepare import PreparedData, selected_text
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.task import task_of
from minitransformer.inference.translator import Translator
from minitransformer.system.files import write_text
from minitransformer.system.records import read_object
from minitransformer.text.road import STEPS
from minitransformer.training.pretrained import fine_tuning
from parallel.communicator import Communicator, call_on_rank_0

Train = Callable[[RunConfig], bool]
"""A function that trains a run, and returns whether it is complete."""

SIDES = ("source", "target")
BACKWARD_UPDATES = 0.4
"""Number of updates of the training from target to source / number of updates of the first training."""
LAST_RATE = 0.2
"""Highest learning rate of the last training / highest learning rate of the first training."""

_log = logging.getLogger(__name__)


def train_diversified(config: RunConfig, n_updates: int, train: Train, world: Communicator) -> bool:
    """Train a model, then train it further with translations of its own training text in both directions.

    The first training has the settings of ``config``.  The second training, from target to source, makes
    BACKWARD_UPDATES times as many updates.  Both trainings choose their own length penalties, because α depends on the
    direction.  Both models translate the training text.  The last training begins with the first model.  It makes
    ``n_updates`` updates on the given pairs, on the sources with their translations, and on the targets with their
    translations.  Its learning rate falls linearly to 0.

    The first two runs, and the text, are folders in the run's directory.  To continue after an interruption, call this
    function again.  All ranks must call it.
    Returns: whether all trainings are complete.
    Raises: ConfigError at once for settings that a later training would refuse; the exceptions of ``train``.
    """
    text = config.run / "text"
    _check(config, n_updates, text)
    first = dataclasses.replace(config, model=dataclasses.replace(config.model, alpha=None))
    forward = dataclasses.replace(first, run=config.run / "forward")
    _log.info("data diversification, training 1 of 3: from source to target")
    if not train(forward):
        return False
    call_on_rank_0(lambda: _write_given_text(forward, text), world)
    reverse = _on_text(first, forward, text, "given", SIDES[::-1])
    n_backward = math.ceil(BACKWARD_UPDATES * config.training.max_updates)
    backward = with_changes(
        dataclasses.replace(reverse, run=config.run / "backward"), {"training": {"max_updates": n_backward}}
    )
    _log.info("data diversification, training 2 of 3: from target to source")
    if not train(backward):
        return False
    call_on_rank_0(lambda: _write_all_text(forward, backward, text), world)
    _log.info("data diversification, training 3 of 3: on the given pairs and the translations of both sides")
    last = fine_tuning(dataclasses.replace(_on_text(config, forward, text, "all", SIDES), init_from=forward.run))
    last = dataclasses.replace(last, model=dataclasses.replace(last.model, alpha=config.model.alpha))
    factor = LAST_RATE * config.training.learning_rate_factor
    small_steps = {"max_updates": n_updates, "schedule": "linear", "learning_rate_factor": factor}
    return train(with_changes(last, {"training": small_steps}))


def _check(config: RunConfig, n_updates: int, text: Path) -> None:
    """Raise ConfigError if one of the three trainings would be refused, or would not use the diversified text."""
    require(n_updates > 0, "diversify", "a number of updates", n_updates)
    if config.data.task != "translation":
        raise ConfigError("diversify is set, but only a translation of text has another direction: leave it out")
    if config.init_from:
        raise ConfigError(
            "diversify also trains from target to source, for which init_from has no model: leave one out"
        )
    if config.data.weights:
        raise ConfigError("diversify joins the training files to one text: leave data.weights out")
    if n_updates <= config.training.warmup_steps:
        raise ConfigError(
            f"diversify must be more updates than training.warmup_steps, {config.training.warmup_steps:,}, because the"
            f" learning rate falls after them; got {n_updates:,}"
        )
    if (last := read_object(config.run / RUN_FILE)) and last["data"]["train_source"] != ["all-source"]:
        raise ConfigError(f"{config.run}: holds a run without diversify: set run to another directory")
    if _exists(text / "all"):
        n_made = read_object(config.run / "forward" / RUN_FILE)["training"]["max_updates"]
        if n_made != config.training.max_updates:
            raise ConfigError(
                f"{text}: has translations by a model of {n_made:,} updates, but training.max_updates is"
                f" {config.training.max_updates:,}: set it back, and raise diversify for a longer last training; or set"
                " run to another directory"
            )


def _on_text(config: RunConfig, forward: RunConfig, text: Path, part: str, sides: Sequence[str]) -> RunConfig:
    """Return the settings of a run on the files ``part`` of the text, from ``sides[0]`` to ``sides[1]``."""
    source, target = sides
    run = read_object(forward.run / RUN_FILE)
    codes = [code for side in sides if (code := language_of_run(run, side)) is not None]
    data = dataclasses.replace(
        config.data,
        directory=None,
        raw=text,
        train_source=(f"{part}-{source}",),
        train_target=(f"{part}-{target}",),
        validation_source=(f"validation-{source}",),
        validation_target=(f"validation-{target}",),
        languages=tuple(codes) if len(codes) == 2 else (),
        download_from="",
        sha256=(),
    )
    return dataclasses.replace(config, data=data, init_from=None, init_optimizer=False, init_extend_vocabulary=False)


def _write_given_text(forward: RunConfig, text: Path) -> None:
    """Write the training text and the held-out text of the first run, one line for each pair, if they do not exist."""
    if not _exists(text / "given"):
        text.mkdir(exist_ok=True)
        corpus, data = task_of(forward.data).corpus(forward.data), PreparedData.open(forward.data_directory)
        _write_pairs(text / "validation", data.text("validation"))
        _write_pairs(text / "given", selected_text(corpus, data, forward.data))


def _write_all_text(forward: RunConfig, backward: RunConfig, text: Path) -> None:
    """Write the text "all": the given pairs, sources with their translations, and targets with their translations.

    Leave out translations that are copies of held-out pairs.
    """
    if not _exists(text / "all"):
        given = list(read_pairs(*_files(text / "given")))
        sources, targets = map(list, zip(*given, strict=True))
        to_target, to_source = _translations(sources, forward), _translations(targets, backward)
        made = [*zip(sources, to_target, strict=True), *zip(to_source, targets, strict=True)]
        normalised = Tokenizer.load(forward.run).normalised
        held_out = set(normalised(list(read_pairs(*_files(text / "validation")))))
        new = (pair for pair, normal in zip(made, normalised(made), strict=True) if normal not in held_out)
        _write_pairs(text / "all", chain(given, new))


def _translations(lines: list[str], run: RunConfig) -> list[str]:
    _log.info(f"translating {len(lines):,} lines of the training text with the model in {run.run}")
    return Translator.load(run.run, device=run.device).translate(lines, skip=STEPS)


def _files(path: Path) -> tuple[Path, Path]:
    source, target = (Path(f"{path}-{side}") for side in SIDES)
    return source, target


def _exists(path: Path) -> bool:
    """Return whether both files of pairs are complete: the target file, written last, exists."""
    return _files(path)[1].exists()


def _write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    for file, lines in zip(_files(path), zip(*pairs, strict=True), strict=True):
        write_text(file, "".join(f"{line}\n" for line in lines))
