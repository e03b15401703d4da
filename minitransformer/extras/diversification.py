"""Data diversification: translations of a training text, in both directions, are further training text.

Source: Nguyen, Joty, Wu & Aw 2020, "Data Diversification: A Simple Strategy For Neural Machine Translation", with one
    model for each direction; here the last training also begins from the first model.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.data import common_ending, is_language
from minitransformer.data.corpus import Pair, read_pairs
from minitransformer.data.prepare import LANGUAGES, PreparedData
from minitransformer.extras.pretrained import fine_tuning
from minitransformer.inference.task import task_of
from minitransformer.inference.translator import Translator
from minitransformer.system.files import write_text
from parallel.communicator import Communicator

Train = Callable[[RunConfig], bool]
"""Trains a run, and returns whether it is complete."""

SIDES = ("source", "target")
_log = logging.getLogger(__name__)


def train_diversified(config: RunConfig, train: Train, world: Communicator) -> bool:
    """Train two models, from source to target and back, translate the training text with them, and train on all pairs.

    The two have ``config.diversify`` updates.  Their runs, and the text, are folders of the run's directory.  An
    interrupted call, made again, goes on where it stopped.  Return whether all is complete; all ranks must call this.
    Raises: ConfigError for a task that has no other direction; as ``train``.
    """
    if config.data.task != "translation":
        raise ConfigError("diversify is set, but only a translation of text has another direction: leave it out")
    text = config.run / "text"
    forward = _first_run(config, "forward", config)
    _log.info("data diversification, training 1 of 3: from source to target")
    if not train(forward):
        return False
    with world.waiting_for_rank_0():
        if world.rank == 0:
            _write_given_text(forward, text)
    back = dataclasses.replace(_on_text(config, forward, text, "given", reverse=True), init_from=None)
    backward = _first_run(config, "backward", back)
    _log.info("data diversification, training 2 of 3: from target to source")
    if not train(backward):
        return False
    with world.waiting_for_rank_0():
        if world.rank == 0:
            _write_all_text(forward, backward, text)
    _log.info("data diversification, training 3 of 3: on the given pairs and the translations of both sides")
    last = fine_tuning(dataclasses.replace(_on_text(config, forward, text, "all"), init_from=forward.run))
    return train(dataclasses.replace(last, model=dataclasses.replace(last.model, alpha=config.model.alpha)))


def _first_run(config: RunConfig, name: str, settings: RunConfig) -> RunConfig:
    """Return one of the two first runs, with the text of ``settings``."""
    training = dataclasses.replace(config.training, max_updates=config.diversify)
    return dataclasses.replace(settings, run=config.run / name, training=training, diversify=0)


def _on_text(config: RunConfig, forward: RunConfig, text: Path, part: str, *, reverse: bool = False) -> RunConfig:
    """Return the run on a part of the text, from target to source with ``reverse``."""
    source, target = SIDES[::-1] if reverse else SIDES
    languages = _languages(forward)
    data = dataclasses.replace(
        config.data,
        directory=None,
        raw=text,
        train_source=(f"{part}-{source}",),
        train_target=(f"{part}-{target}",),
        validation_source=(f"validation-{source}",),
        validation_target=(f"validation-{target}",),
        languages=languages[::-1] if reverse else languages,
        download_from="",
        sha256=(),
    )
    return dataclasses.replace(config, data=data, diversify=0)


def _languages(forward: RunConfig) -> tuple[str, ...]:
    """Return the codes of source and target that settings or files name; none if nothing names both."""
    data = forward.data
    named = data.languages or tuple(PreparedData.open(forward.data_directory).manifest[LANGUAGES])
    endings = common_ending(data.train_source) or "", common_ending(data.train_target) or ""
    return named or (endings if all(map(is_language, endings)) else ())


def _write_given_text(forward: RunConfig, text: Path) -> None:
    """Write the training text and the held-out text of the first run, one pair a line."""
    if not _exists(text / "given"):
        text.mkdir(exist_ok=True)
        corpus = task_of(forward.data).corpus(forward.data)
        _write_pairs(text / "validation", corpus.validation())
        _write_pairs(text / "given", corpus.train())


def _write_all_text(forward: RunConfig, backward: RunConfig, text: Path) -> None:
    """Write the given pairs, those with translations of the sources, and those with translations of the targets."""
    if not _exists(text / "all"):
        given = list(read_pairs(*_files(text / "given")))
        sources, targets = map(list, zip(*given, strict=True))
        to_target, to_source = _translations(sources, forward), _translations(targets, backward)
        _write_pairs(
            text / "all", chain(given, zip(sources, to_target, strict=True), zip(to_source, targets, strict=True))
        )


def _translations(lines: list[str], run: RunConfig) -> list[str]:
    _log.info(f"translating {len(lines):,} lines of the training text with the model in {run.run}")
    return Translator.load(run.run, device=run.device).translate(lines)


def _files(path: Path) -> tuple[Path, Path]:
    source, target = (Path(f"{path}-{side}") for side in SIDES)
    return source, target


def _exists(path: Path) -> bool:
    """Return whether both files of pairs are complete; the second one is written last."""
    return _files(path)[1].exists()


def _write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    for file, lines in zip(_files(path), zip(*pairs, strict=True), strict=True):
        write_text(file, "".join(f"{line}\n" for line in lines))
