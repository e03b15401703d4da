"""The prepared data of a run: opened or prepared, and checked against the run's settings, text and directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minitransformer.config import RunConfig
from minitransformer.config.run import RESULTS_FILE, RUN_FILE, completed
from minitransformer.data.corpus import changed_files
from minitransformer.data.given_tokenizer import GivenTokenizer
from minitransformer.data.languages import NAMED_LANGUAGES
from minitransformer.data.prepare import ADDED, PreparedData, prepare
from minitransformer.data.profile import profile_of
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.task import task_of
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.system.files import CheckpointError, remove_unfinished
from minitransformer.system.records import read_object
from minitransformer.training.checkpoint import checkpoints
from minitransformer.training.pretrained import PRETRAINED, pretrained_tokenizer
from minitransformer.training.validation import BEST
from parallel.communicator import Communicator, call_on_rank_0

DIGEST = "data_digest"  # the field of run.json with ``PreparedData.digest`` of the data with which the run began


def shared_data(config: RunConfig, world: Communicator) -> PreparedData:
    """Return the prepared data; one rank of each machine checks the data, and rank 0 prepares it if it is missing."""
    data: PreparedData | None = None
    with world.waiting_for_rank_0():
        if world.rank == 0:
            config.check_directory()
            require_unfinished(config.run)
            data = open_or_prepare(config)
            check_data_of_run(config, data)
            for directory in (config.run, config.run / BEST):
                remove_unfinished(directory)
            data.tokenizer.save(config.run)
    return call_on_rank_0(lambda: data or PreparedData.open(config.data_directory), world.node)


def open_or_prepare(config: RunConfig) -> PreparedData:
    """Return the prepared data of a configuration; prepare it if it is missing.

    Raises: CheckpointError if the directory holds corrupt data, data of another configuration, or of other text.
    """
    given = given_tokenizer(config)
    if not PreparedData.is_in(config.data_directory):
        return prepare(config.data, config.data_directory, task_of(config.data).corpus, given)
    data = PreparedData.open(config.data_directory)
    check_prepared(config, data, given)
    return data


def given_tokenizer(config: RunConfig) -> GivenTokenizer | None:
    """Return the tokenizer of ``init_from``, or the run's copy if the run has begun; None without ``init_from``."""
    if config.init_from is None:
        return None
    if has_begun(config.run):
        return GivenTokenizer(Tokenizer.load(config.run))
    return pretrained_tokenizer(config.init_from, config)


def has_begun(run: Path) -> bool:
    """Return whether a training has written a checkpoint or a model in the directory of a run."""
    return bool(checkpoints(run)) or (run / WEIGHTS_FILE).exists()


def require_unfinished(run: Path) -> None:
    """Raise CheckpointError if a run is finished without checkpoints: a new training would overwrite its model."""
    if (run / RESULTS_FILE).exists() and not checkpoints(run):
        raise CheckpointError(
            f"{run}: has been trained to its end ({RESULTS_FILE} is there), and has no checkpoints to go on from;"
            " set run to another directory, or remove this one to begin anew"
        )


def check_prepared(config: RunConfig, data: PreparedData, given: GivenTokenizer | None) -> None:
    """Raise CheckpointError if data was prepared with other settings or another tokenizer, or from other text."""
    there = completed("data", data.manifest["config"])
    different = [
        f"data.{name} is {there[name]!r} there, {value!r} here"
        for name, value in config.data.preparation().items()
        if there[name] != value
    ]
    if different:
        raise CheckpointError(
            f"{config.data_directory}: was prepared with other settings: {'; '.join(different)}. Give the settings with"
            " which it was prepared; or set data.directory to another directory, or remove this one, and the text is"
            " prepared with the new settings"
        )
    if changed := changed_files(config.data, data.manifest["files"]):
        raise CheckpointError(
            f"{', '.join(map(str, changed))}: not the text that {config.data_directory} was prepared from. To train on"
            " the new text, set run (or data.directory) to another directory; to go on with what was prepared, put the"
            " old text back or move the new one away: prepared data needs no text"
        )
    if given and not (has_begun(config.run) or given.is_of(data.tokenizer, data.manifest.get(ADDED))):
        extended = ", extended by the characters of the text" if given.extends else ""
        raise CheckpointError(
            f"{config.data_directory}: was prepared with another tokenizer; expected that of the model in"
            f" {config.init_from}{extended}. Set data.directory to another directory, or prepare the data again with"
            " the same init_from and init_extend_vocabulary"
        )


def check_data_of_run(config: RunConfig, data: PreparedData) -> None:
    """Raise CheckpointError if the run began with other data, or with another tokenizer, than the prepared data."""
    if not has_begun(config.run):
        return
    if not data.tokenizer.equals(Tokenizer.load(config.run)):
        difference = "with another tokenizer"
    elif read_object(config.run / RUN_FILE).get(DIGEST, data.digest) != data.digest:
        difference = "from other text"
    else:
        return
    raise CheckpointError(
        f"{config.data_directory}: was prepared {difference} than {config.run} was trained with. To go on with that"
        f" run, put the old text back and remove {config.data_directory}; to train on this text, set run to another"
        " directory"
    )


def claim_run(config: RunConfig, data: PreparedData, pretrained: dict[str, Any]) -> None:
    """Write the run's settings, with facts about its data and its pretrained model, and the profile of its text."""
    facts = {DIGEST: data.digest, NAMED_LANGUAGES: data.manifest.get(NAMED_LANGUAGES, [])}
    config.claim_directory(facts | ({PRETRAINED: pretrained} if pretrained else {}))
    if config.data.task != "parsing":
        profile_of(data.manifest, json.loads(config.to_json()) | facts).save(config.run)
