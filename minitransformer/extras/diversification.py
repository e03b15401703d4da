"""Data diversification: models of both directions translate the training text; training continues on all these texts.

Source: Nguyen, Joty, Wu & Aw 2020, "Data Diversification: A Simple Strategy For Neural Machine Translation", with one
    model for each direction.
Differs: the last training begins with the weights of the first model, and has a smaller learning rate.
"""

from __future__ import annotations

import dataclasses
import logging
from itertools import chain
from pathlib import Path

from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.checks import require, with_changes
from minitransformer.config.run import RUN_FILE
from minitransformer.data.corpus import read_pairs
from minitransformer.data.prepare import PreparedData
from minitransformer.extras.made_pairs import (
    Train,
    backward_run,
    exists,
    files_of,
    on_text,
    pairs_of,
    translate_text,
    usable_pairs,
    write_given_text,
    write_pairs,
)
from minitransformer.system.records import read_object
from minitransformer.training.pretrained import fine_tuning
from parallel.communicator import Communicator, call_on_rank_0

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
    check_diversified(config, n_updates)
    first = dataclasses.replace(config, model=dataclasses.replace(config.model, alpha=None))
    forward = dataclasses.replace(first, run=config.run / "forward")
    _log.info("data diversification, training 1 of 3: from source to target")
    if not train(forward):
        return False
    call_on_rank_0(lambda: write_given_text(forward, text), world)
    backward = backward_run(config, forward, text)
    _log.info("data diversification, training 2 of 3: from target to source")
    if not train(backward):
        return False
    call_on_rank_0(lambda: _write_all_text(forward, backward, text), world)
    _log.info("data diversification, training 3 of 3: on the given pairs and the translations of both sides")
    last = fine_tuning(dataclasses.replace(on_text(config, forward, text, ["all"]), init_from=forward.run))
    last = dataclasses.replace(last, model=dataclasses.replace(last.model, alpha=config.model.alpha))
    factor = LAST_RATE * config.training.learning_rate_factor
    small_steps = {"max_updates": n_updates, "schedule": "linear", "learning_rate_factor": factor}
    return train(with_changes(last, {"training": small_steps}))


def check_diversified(config: RunConfig, n_updates: int) -> None:
    """Raise ConfigError if one of the three trainings would be refused, or would not use the diversified text."""
    text = config.run / "text"
    require(n_updates > 0, "diversify", "a number of updates", n_updates)
    if config.data.task != "translation":
        raise ConfigError("diversify is set, but only a translation of text has another direction: leave it out")
    if config.init_from:
        raise ConfigError(
            "diversify also trains from target to source, for which init_from has no model: leave one out"
        )
    if name := "weights" if config.data.weights else "tags" if config.data.tags else None:
        raise ConfigError(f"diversify joins the training files to one text: leave data.{name} out")
    if n_updates <= config.training.warmup_steps:
        raise ConfigError(
            f"diversify must be more updates than training.warmup_steps, {config.training.warmup_steps:,}, because the"
            f" learning rate falls after them; got {n_updates:,}"
        )
    if (last := read_object(config.run / RUN_FILE)) and last["data"]["train_source"] != ["all-source"]:
        raise ConfigError(f"{config.run}: holds a run without diversify: set run to another directory")
    if exists(text / "all"):
        n_made = read_object(config.run / "forward" / RUN_FILE)["training"]["max_updates"]
        if n_made != config.training.max_updates:
            raise ConfigError(
                f"{text}: has translations by a model of {n_made:,} updates, but training.max_updates is"
                f" {config.training.max_updates:,}: set it back, and raise diversify for a longer last training; or set"
                " run to another directory"
            )


def _write_all_text(forward: RunConfig, backward: RunConfig, text: Path) -> None:
    """Write the part "all": the given pairs, sources with their translations, and targets with their translations."""
    if exists(text / "all"):
        return
    sources, targets = files_of(text / "given")
    to_source, to_target = files_of(text / "translated")
    translate_text(forward, sources, to_target)
    translate_text(backward, targets, to_source)
    data = PreparedData.open(forward.data_directory)
    new_targets = usable_pairs(read_pairs(sources, to_target), "target", data)
    new_sources = usable_pairs(read_pairs(to_source, targets), "source", data)
    write_pairs(text / "all", chain(pairs_of(text / "given"), new_targets, new_sources))
