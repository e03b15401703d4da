"""A new trainer of a run: its model, training pairs, validation and reducer of gradients."""

from __future__ import annotations

import dataclasses

from autograd.array import Device, gpu_module
from minitransformer.config import ConfigError, ModelConfig, RunConfig, TrainingConfig
from minitransformer.data.batching import WeightedPairs
from minitransformer.data.languages import languages_of_data
from minitransformer.data.prepare import FILE_SIZES, PreparedData
from minitransformer.data.store import TrainingPairs
from minitransformer.data.token_dropout import BpeDropout, WordDropout
from minitransformer.inference.task import task_of
from minitransformer.model.transformer import class_of
from minitransformer.system.files import CheckpointError
from minitransformer.training.loop import Trainer
from minitransformer.training.noisy_pairs import NoisyPairs
from minitransformer.training.validation import Validation
from parallel.communicator import Communicator
from parallel.reducer import GradientReducer, choose_reducer


def new_trainer(
    config: RunConfig, world: Communicator, data: PreparedData, n_threads: int, *, validates: bool
) -> Trainer:
    """Return a trainer with a new model; all ranks must call this, each after it has chosen its GPU."""
    training = config.training
    reducer = reducer_for(training, world, config.device, n_threads)
    model = class_of(config.model)(
        sized(config.model, data),
        seed=training.seed,
        dtype=training.precision if config.device == "cuda" else "float32",
        device=config.device,
        allocate=reducer.allocate,
    )
    check_lengths(model.config, data)
    validation = None
    if validates:
        n_translated = training.validation_sentences
        validation = Validation.of(data, task_of(config.data), n_translated=n_translated, n_threads=n_threads)
    store = training_pairs(config, data)
    return Trainer(model, store, validation, training, config.run, world, reducer, n_threads=n_threads)


def reducer_for(config: TrainingConfig, world: Communicator, device: Device, n_threads: int) -> GradientReducer:
    """Return the reducer of gradients for a training; all ranks must call this, each after it has chosen its GPU."""
    return choose_reducer(
        world, gpu_module(device), config.n_micro_batches, config.sum, config.gradients_sent_in, n_threads=n_threads
    )


def sized(config: ModelConfig, data: PreparedData) -> ModelConfig:
    """Return the configuration with the vocabulary sizes of prepared data."""
    tokenizer = data.tokenizer
    source = None if tokenizer.is_joint else tokenizer.n_source_words
    return dataclasses.replace(config, vocabulary_size=tokenizer.n_target_words, source_vocabulary_size=source)


def check_lengths(config: ModelConfig, data: PreparedData) -> None:
    """Raise ConfigError if a sentence is longer than the table of learned positions.

    Without this check the run would fail only when the sentence occurs.
    """
    longest = 1 + max(store.longest for store in data.stores.values())
    if config.positions == "learned" and longest > config.longest_sentence:
        raise ConfigError(
            f"model.max_positions is {config.max_positions} and leaves room for {config.longest_sentence} tokens,"
            f" but the longest sentence of {data.directory} has"
            f" {longest} tokens: raise it, or prepare with a smaller data.max_length and shorter validation text"
        )


def training_pairs(config: RunConfig, data: PreparedData) -> TrainingPairs:
    """Return the training pairs; with ``weights`` of files, the pairs of an epoch are drawn anew in every epoch.

    Raises: CheckpointError if the data does not tell which pairs are of which file; ConfigError if an epoch has no
        pair of a file.
    """
    pairs, weights = _unweighted_pairs(config, data), config.data.weights
    if not weights:
        return pairs
    sizes = data.manifest.get(FILE_SIZES, [])
    if len(sizes) != len(weights) or sum(sizes) != len(pairs):
        raise CheckpointError(
            f"{data.directory}: was prepared by a version that did not note the pairs of each file, which data.weights"
            " needs; set data.directory to another directory, or remove this one, and the text is prepared again"
        )
    for file, n_pairs, weight in zip(config.data.train_source, sizes, weights, strict=True):
        if n_pairs and not round(weight * n_pairs):
            raise ConfigError(f"data.weights: {weight:g} leaves none of {file}'s {n_pairs:,} pairs; raise it")
    return WeightedPairs(pairs, sizes, weights, config.training.seed)


def _unweighted_pairs(config: RunConfig, data: PreparedData) -> TrainingPairs:
    """Return all training pairs; with ``noise`` and dropout of tokens, their tokens differ in every epoch."""
    training, store, tokenizer = config.training, data.stores["train"], data.tokenizer
    dropout: BpeDropout | None = None
    if training.bpe_dropout:
        if tokenizer.kind != "bpe":
            raise ConfigError(f"training.bpe_dropout needs byte pairs; the tokenizer is {tokenizer.kind}: set it to 0")
        dropout = BpeDropout(store, tokenizer, training.bpe_dropout, training.seed)
    elif training.word_dropout:
        return WordDropout(store, tokenizer, training.word_dropout, training.seed)
    if not training.noise:
        return dropout or store
    languages = list(languages_of_data(data.manifest).values())
    longest = config.data.max_length
    if config.model.positions == "learned":
        longest = min(longest, config.model.longest_sentence - 1)  # without the end symbol
    return NoisyPairs(store, tokenizer, training.noise_shares, languages, longest, training.seed, dropout)
