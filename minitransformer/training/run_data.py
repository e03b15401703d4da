"""The prepared data of a run: opened or prepared, and compared with the data with which the run began."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from minitransformer.config import ConfigError, ModelConfig, RunConfig, TrainingConfig
from minitransformer.config.run import RESULTS_FILE
from minitransformer.data.bpe_dropout import BpeDropout
from minitransformer.data.given_tokenizer import GivenTokenizer
from minitransformer.data.prepare import ADDED, PreparedData, prepare
from minitransformer.data.sources import changed_files
from minitransformer.data.store import TrainingPairs
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.data.word_dropout import WordDropout
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.parsing.treebank import corpus_of
from minitransformer.system.files import CheckpointError, remove_unfinished
from minitransformer.training.checkpoint import checkpoints
from minitransformer.training.pretrained import pretrained_tokenizer, record_of
from minitransformer.training.validation import BEST
from parallel.communicator import Communicator

DIGEST = "data_digest"  # the field of run.json with ``PreparedData.digest`` of the data with which the run began


def shared_data(config: RunConfig, world: Communicator) -> PreparedData:
    """Return the prepared data, which rank 0 writes if it is missing; copy the tokenizer into the run."""
    with world.waiting_for_rank_0():
        if world.rank == 0:
            config.check_directory()
            _require_unfinished(config.run)
            data = open_or_prepare(config)
            check_data_of_run(config, data)
            for directory in (config.run, config.run / BEST):
                remove_unfinished(directory)
            data.tokenizer.save(config.run)
    return data if world.rank == 0 else PreparedData.open(config.data_directory)


def check_data_of_run(config: RunConfig, data: PreparedData) -> None:
    """Raise CheckpointError if the run began with other data, or with another tokenizer, than the prepared data."""
    if not has_begun(config.run):
        return
    if not data.tokenizer.equals(Tokenizer.load(config.run)):
        difference = "with another tokenizer"
    elif record_of(config.run).get(DIGEST, data.digest) != data.digest:
        difference = "from other text"
    else:
        return
    raise CheckpointError(
        f"{config.data_directory}: was prepared {difference} than {config.run} was trained with. To go on with that"
        f" run, put the old text back and remove {config.data_directory}; to train on this text, set run to another"
        " directory"
    )


def has_begun(run: Path) -> bool:
    """Return whether a training has written a checkpoint or a model in the directory of a run."""
    return bool(checkpoints(run)) or (run / WEIGHTS_FILE).exists()


def given_tokenizer(config: RunConfig) -> GivenTokenizer | None:
    """Return the tokenizer of the model from which a run begins; of a run that has begun, its own copy."""
    if config.init_from is None:
        return None
    if has_begun(config.run):
        return GivenTokenizer(Tokenizer.load(config.run))
    return pretrained_tokenizer(config.init_from, config)


def open_or_prepare(config: RunConfig) -> PreparedData:
    """Return the prepared data of a configuration; prepare it if it is missing.

    Raises: CheckpointError if the directory holds corrupt data, data of another configuration, or of other text.
    """
    given = given_tokenizer(config)
    if not PreparedData.is_in(config.data_directory):
        return prepare(config.data, config.data_directory, corpus_of, given)
    data = PreparedData.open(config.data_directory)
    check_prepared(config, data, given)
    return data


def check_prepared(config: RunConfig, data: PreparedData, given: GivenTokenizer | None) -> None:
    """Raise CheckpointError if data was prepared with other settings or another tokenizer, or from other text."""
    different = [
        f"data.{name} is {there!r} there, {value!r} here"
        for name, value in config.data.fingerprint().items()
        if (there := data.manifest["config"].get(name)) != value
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


def _require_unfinished(run: Path) -> None:
    """Raise CheckpointError if a finished run has no checkpoints: its model must not be overwritten."""
    if (run / RESULTS_FILE).exists() and not checkpoints(run):
        raise CheckpointError(
            f"{run}: has been trained to its end ({RESULTS_FILE} is there), and has no checkpoints to go on from;"
            " set run to another directory, or remove this one to begin anew"
        )


def training_pairs(config: TrainingConfig, data: PreparedData) -> TrainingPairs:
    """Return the training pairs of prepared data; with ``bpe_dropout`` or ``word_dropout``, others in every epoch."""
    store = data.store("train")
    if config.bpe_dropout:
        return BpeDropout(store, data.tokenizer, config.bpe_dropout, config.seed)
    if config.word_dropout:
        return WordDropout(store, data.tokenizer, config.word_dropout, config.seed)
    return store


def check_lengths(config: ModelConfig, data: PreparedData) -> None:
    """Raise ConfigError if a sentence is longer than the table of learned positions.

    Without this check the run would fail only when the sentence occurs.
    """
    longest = 1 + max(int(data.store(split).lengths.max(initial=0)) for split in ("train", "validation"))
    if config.positions == "learned" and longest > config.longest_sentence:
        raise ConfigError(
            f"model.max_positions is {config.max_positions} and leaves room for {config.longest_sentence} tokens,"
            f" but the longest sentence of {data.directory} has"
            f" {longest} tokens: raise it, or prepare with a smaller data.max_length and shorter validation text"
        )


def sized(config: ModelConfig, data: PreparedData) -> ModelConfig:
    """Return the configuration with the vocabulary sizes of prepared data."""
    tokenizer = data.tokenizer
    source = None if tokenizer.is_joint else tokenizer.n_source_words
    return dataclasses.replace(config, vocabulary_size=tokenizer.n_target_words, source_vocabulary_size=source)
