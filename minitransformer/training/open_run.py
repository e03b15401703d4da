"""The opening of a training run: data, model and trainer, in the state of the last checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograd.array import Device, DeviceError, gpu_module
from autograd.kernel_registry import KernelChoice, kernels_for, register_kernels
from autograd.kernels.cpu.library import bfloat16_set
from autograd.kernels.cuda.driver import lack_of_bfloat16
from autograd.precision import dtype_named
from minitransformer.config import ConfigError, ModelConfig, RunConfig, TrainingConfig
from minitransformer.config.run import (
    RESULTS_FILE,
    RUN_FILE,
    completed,
    initial_settings,
    kept_settings,
    resolved,
    with_values,
)
from minitransformer.data.corpus import changed_files
from minitransformer.data.given_tokenizer import GivenTokenizer
from minitransformer.data.languages import NAMED_LANGUAGES
from minitransformer.data.prepare import ADDED, PreparedData, prepare
from minitransformer.data.profile import profile_of
from minitransformer.data.store import MANIFEST, TrainingPairs
from minitransformer.data.token_dropout import BpeDropout, WordDropout
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.task import task_of
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.model.transformer import class_of
from minitransformer.system.files import CheckpointError, CorruptFileError, remove_unfinished
from minitransformer.system.provenance import code_version
from minitransformer.system.ranks import START, choose_placements, require_same_kernels
from minitransformer.system.records import as_object, read_object
from minitransformer.training.checkpoint import checkpoints, require_same_parameters
from minitransformer.training.loop import Trainer
from minitransformer.training.memory import try_largest_batch
from minitransformer.training.pretrained import PRETRAINED, begin_from_pretrained, pretrained_of, pretrained_tokenizer
from minitransformer.training.update import learning_rate, optimizer_class
from minitransformer.training.validation import BEST, Validation
from parallel.agreement import check_agreement
from parallel.communicator import Communicator, call_on_rank_0, working_ranks
from parallel.placement import Placement, cores_of, describe
from parallel.reducer import GradientReducer, choose_reducer

_log = logging.getLogger(__name__)

SAME_START = "Start all ranks with the same code, options and data"


@dataclass(frozen=True)
class OpenRun:
    """The data and the trainer of a run, ready to train.  ``config`` has values for all automatic settings."""

    config: RunConfig
    world: Communicator
    data: PreparedData
    trainer: Trainer


def open_run(config: RunConfig, world: Communicator) -> OpenRun:
    """Prepare the data if it is missing, build the model, resume from the last checkpoint, try the largest batch.

    First replace the automatic settings by values; these values are then used, checked and saved.  The caller chooses
    the kernels (``references_only``), for this call and for the training.
    Raises: ConfigError if the run's directory holds another run; CorpusError; CheckpointError; OutOfMemoryError;
    DeviceError; DisagreementError if ranks differ, raised before they share memory.
    """
    class_of(config.model)  # raises before the text is prepared if the class cannot be imported
    learning_rate(1, config.model.d_model, config.training)
    optimizer_class(config.training)
    check_agreement(world, {"code": code_version(), **config.settings()}, START, SAME_START)
    placements = choose_placements(config.device, world)
    config, why_no_bfloat16 = resolve(config, world)
    require_same_kernels(config.device, config.kernels, world)
    data = shared_data(config, world)
    check_agreement(world, {"prepared data": data.digest, **config.settings()}, START, SAME_START)
    n_threads = 1 if config.device == "cuda" else cores_of(world.rank, placements)
    trainer = new_trainer(config, world, data, n_threads, validates=world.rank == 0)
    _log_setup(trainer, placements, n_threads, why_no_bfloat16)
    pretrained = _resume_or_begin(trainer, config)
    if not trainer.is_complete:
        try_largest_batch(trainer)
    if world.rank == 0:
        facts = {DIGEST: data.digest, NAMED_LANGUAGES: data.manifest.get(NAMED_LANGUAGES, [])}
        config.claim_directory(facts | ({PRETRAINED: pretrained} if pretrained else {}))
        if config.data.task != "parsing":
            profile_of(data.manifest, json.loads(config.to_json()) | facts).save(config.run)
    return OpenRun(config, world, data, trainer)


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
    store = training_pairs(training, data)
    return Trainer(model, store, validation, training, config.run, world, reducer, n_threads=n_threads)


def reducer_for(config: TrainingConfig, world: Communicator, device: Device, n_threads: int) -> GradientReducer:
    """Return the reducer of gradients for a training; all ranks must call this, each after it has chosen its GPU."""
    return choose_reducer(
        world, gpu_module(device), config.n_micro_batches, config.sum, config.gradients_sent_in, n_threads=n_threads
    )


def _log_setup(trainer: Trainer, placements: list[Placement], n_threads: int, why_no_bfloat16: str | None) -> None:
    world = trainer.world
    _log.info(
        f"{trainer.model.n_parameters:,} parameters, {len(trainer.store):,} training pairs;"
        f" processes {world.size}, threads each {n_threads}"
    )
    if world.size > 1:
        for line in (*describe(placements), trainer.reducer.description):
            _log.info(line)
    for line in (*_idle_warnings(trainer.config, world, n_threads), *_speed_warnings(trainer, why_no_bfloat16)):
        _log.warning(line)


def _idle_warnings(training: TrainingConfig, world: Communicator, n_threads: int) -> Iterator[str]:
    """Yield a line if there are more threads, or more processes, than micro-batches for them."""
    surplus = n_threads - training.n_micro_batches
    if world.size == 1 and surplus > 0:
        yield f"{surplus} of {n_threads} threads are idle: raise training.n_micro_batches to use them"
    idle = world.size - working_ranks(world.size, training.n_micro_batches, training.sum)
    if idle:
        power = "" if training.sum == "fast" else ", and a power of two of processes share them"
        yield (
            f"{idle} of {world.size} processes are idle: a batch has {training.n_micro_batches} micro-batches{power}"
            " (training.n_micro_batches)"
        )


def _speed_warnings(trainer: Trainer, why_no_bfloat16: str | None) -> Iterator[str]:
    """Yield a line for each setting or obstacle that slows updates down."""
    if trainer.model.device == "cpu":
        if trainer.config.precision == "bfloat16" and why_no_bfloat16:
            yield f"training.precision is bfloat16, but {why_no_bfloat16}"
        return
    if trainer.config.precision == "float32" and why_no_bfloat16:
        yield f"slower in float32: {why_no_bfloat16}"
    elif trainer.config.precision == "float32":
        yield "slower in float32 (training.precision): bfloat16 uses the GPU's tensor cores and fewer bytes"
    elif trainer.why_not_captured:
        yield f"slower without a CUDA graph, kernel by kernel: {trainer.why_not_captured}"
    n = len(trainer.micro_batches)
    if n > 1:
        yield (
            f"slower in {n} micro-batches, one after the other (training.n_micro_batches):"
            f" {max(1, trainer.config.n_micro_batches // n)} would be faster in a new run, if its memory suffices"
        )


def _resume_or_begin(trainer: Trainer, config: RunConfig) -> dict[str, Any]:
    """Resume from the last checkpoint; without one, begin from the pretrained model, if the run has one.

    Compare the parameters of all ranks.  Return the facts about the pretrained model; {} if there is none.
    """
    pretrained = pretrained_of(config.run)
    if trainer.resume():
        if not trainer.is_complete:
            _log.info(f"going on from update {trainer.state.step:,} of {trainer.config.max_updates:,}")
    elif config.init_from is not None:
        pretrained = begin_from_pretrained(config.init_from, config, trainer)
    step = str(trainer.state.step)
    require_same_parameters(trainer.world, trainer.model, "at the start", SAME_START, update=step)
    return pretrained


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


def has_begun(run: Path) -> bool:
    """Return whether a training has written a checkpoint or a model in the directory of a run."""
    return bool(checkpoints(run)) or (run / WEIGHTS_FILE).exists()


def given_tokenizer(config: RunConfig) -> GivenTokenizer | None:
    """Return the tokenizer of ``init_from``, or the run's copy if the run has begun; None without ``init_from``."""
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
        return prepare(config.data, config.data_directory, task_of(config.data).corpus, given)
    data = PreparedData.open(config.data_directory)
    check_prepared(config, data, given)
    return data


def check_prepared(config: RunConfig, data: PreparedData, given: GivenTokenizer | None) -> None:
    """Raise CheckpointError if data was prepared with other settings or another tokenizer, or from other text."""
    there = completed("data", data.manifest["config"])
    different = [
        f"data.{name} is {there[name]!r} there, {value!r} here"
        for name, value in config.data.fingerprint().items()
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


def require_unfinished(run: Path) -> None:
    """Raise CheckpointError if a run is finished without checkpoints: a new training would overwrite its model."""
    if (run / RESULTS_FILE).exists() and not checkpoints(run):
        raise CheckpointError(
            f"{run}: has been trained to its end ({RESULTS_FILE} is there), and has no checkpoints to go on from;"
            " set run to another directory, or remove this one to begin anew"
        )


def training_pairs(config: TrainingConfig, data: PreparedData) -> TrainingPairs:
    """Return the training pairs; with ``bpe_dropout`` or ``word_dropout``, their tokens differ in every epoch."""
    store = data.stores["train"]
    if not (config.bpe_dropout or config.word_dropout):
        return store
    if config.bpe_dropout and data.tokenizer.kind != "bpe":
        raise ConfigError(f"training.bpe_dropout needs byte pairs; the tokenizer is {data.tokenizer.kind}: set it to 0")
    if config.bpe_dropout:
        return BpeDropout(store, data.tokenizer, config.bpe_dropout, config.seed)
    return WordDropout(store, data.tokenizer, config.word_dropout, config.seed)


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


def sized(config: ModelConfig, data: PreparedData) -> ModelConfig:
    """Return the configuration with the vocabulary sizes of prepared data."""
    tokenizer = data.tokenizer
    source = None if tokenizer.is_joint else tokenizer.n_source_words
    return dataclasses.replace(config, vocabulary_size=tokenizer.n_target_words, source_vocabulary_size=source)


def resolve(config: RunConfig, world: Communicator) -> tuple[RunConfig, str | None]:
    """Replace the automatic settings of training; all ranks must call this, each after it has chosen its GPU.

    Rank 0 reads the settings with which the run began.  bfloat16 is chosen only if every rank computes faster in it.
    Also return the first rank's reason against bfloat16; None if there is none.
    Raises: ConfigError if the file of the run has an invalid value.
    """
    initial = with_values(config, world.bcast(_initial_values(config) if world.rank == 0 else {}))
    obstacle = next(filter(None, world.allgather(why_no_bfloat16(config.device, config.kernels))), None)
    return resolved(initial, world.size, obstacle), obstacle


def _initial_values(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the values with which the run began, or its data was prepared; see ``initial_settings``."""
    values, manifest = initial_settings(config.run), dict[str, Any]()
    with suppress(CorruptFileError):  # ``PreparedData.open`` reports a corrupt file
        manifest = read_object(config.data_directory / MANIFEST)
    return values | {"data": values.get("data", {}) | kept_settings("data", as_object(manifest.get("config")))}


def why_no_bfloat16(device: Device, kernels: KernelChoice) -> str | None:
    """Return why bfloat16 is unavailable or not faster than float32 on the current device; None if it is faster.

    On a GPU, register its kernels.
    """
    if kernels == "reference":
        return 'the references compute in float32 (kernels is "reference")'
    if device == "cpu":  # bfloat16 was measured as faster only with these instructions
        return None if bfloat16_set() == "AVX-512 BF16" else "it was not seen to be faster here than float32"
    try:
        dtype_named("bfloat16")
    except DeviceError as error:
        return f"{error.problem}; {error.remedy}"
    if lack := lack_of_bfloat16():
        return lack
    register_kernels(device)
    return None if kernels_for(device) else "no CUDA kernel has passed its check, and the references compute in float32"
