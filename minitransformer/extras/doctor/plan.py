"""Checks of a run's options: its directory, data, parameters, batch and memory."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from minitransformer.config import ModelConfig, RunConfig
from minitransformer.data.corpus import text_files
from minitransformer.data.prepare import PreparedData, require_no_model
from minitransformer.extras.doctor.finding import Finding
from minitransformer.model.transformer import class_of
from minitransformer.system.errors import UserError
from minitransformer.system.memory import describe_free_memory
from minitransformer.system.provenance import short_hash
from minitransformer.training.memory import OutOfMemoryError, try_largest_batch
from minitransformer.training.new_trainer import new_trainer, sized
from minitransformer.training.run_data import check_data_of_run, check_prepared, given_tokenizer, require_unfinished
from minitransformer.training.update import learning_rate
from parallel.communicator import Communicator, working_ranks
from parallel.placement import Placement, cores_of

TRIAL = "largest batch"
SHARE = "all machines must see the same directories"


def plan(
    config: RunConfig, world: Communicator, placements: list[Placement], *, try_largest: bool = False
) -> list[Finding]:
    """Return the findings about a run; all ranks must call this."""
    findings = [run(config), data(config), parameters(config), batch(config, world.size), memory(world)]
    return [*findings, largest_batch(config, world, placements)] if try_largest else findings


def run(config: RunConfig) -> Finding:
    """Check that the run can be written, is not finished, and has a valid initial model and schedule."""
    name = f"{config.run}, configuration {short_hash(config.to_json())}"
    try:
        config.check_directory()
        require_unfinished(config.run)
        given_tokenizer(config)
        learning_rate(1, config.model.d_model, config.training)
    except UserError as error:
        return Finding("run", name, str(error), if_ranks_differ=SHARE)
    return Finding("run", name, _remedy_to_write(config.run, "run"), if_ranks_differ=SHARE)


def _remedy_to_write(directory: Path, setting: str) -> str | None:
    """Return the remedy if a directory cannot be written or created; None if it can."""
    nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not nearest.is_dir():
        return f"set {setting} to another directory: {nearest} is a file, not a directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"set {setting} to another directory: {nearest} may not be written to"
    return None


def data(config: RunConfig) -> Finding:
    """Check that the data is prepared for this run, or can be prepared."""
    if PreparedData.is_in(config.data_directory):
        return Finding("data", f"prepared in {config.data_directory}", _remedy_of_prepared(config), SHARE)
    missing = [name for name, path in text_files(config.data).items() if not path.exists()]
    if missing:
        found = f"{len(missing)} files are missing in {config.data.raw}, such as {missing[0]}"
        return Finding("data", found, config.data.remedy_if_missing)
    is_demo = config.data.task == "demonstration"
    source = "the demonstration's own corpus" if is_demo else f"the text in {config.data.raw}"
    try:
        require_no_model(config.data_directory)
        remedy = _remedy_to_write(config.data.directory, "data.directory") if config.data.directory else None
    except UserError as error:
        remedy = str(error)
    return Finding("data", f"not prepared yet: training will first prepare it, from {source}", remedy)


def _remedy_of_prepared(config: RunConfig) -> str | None:
    """Return the message of the error with which training would refuse the prepared data; None if it is usable."""
    try:
        prepared = PreparedData.open(config.data_directory)
        check_prepared(config, prepared, given_tokenizer(config))
        check_data_of_run(config, prepared)
    except UserError as error:
        return str(error)
    return None


def parameters(config: RunConfig) -> Finding:
    """Return the number of the model's parameters; the model's arrays are never written, so they use no memory."""
    try:
        model_config, known = expected_model(config)
        n_parameters = class_of(model_config)(model_config, seed=None).n_parameters
    except UserError as error:
        return Finding("parameters", "unknown", str(error))
    about = "" if known else f", if the vocabulary reaches the requested size ({model_config.vocabulary_size:,})"
    return Finding("parameters", f"{n_parameters:,}{about}")


def expected_model(config: RunConfig) -> tuple[ModelConfig, bool]:
    """Return the model's configuration with the vocabulary size, and whether that size is known.

    Before the data is prepared, the size is the one that ``config`` requests.
    """
    if PreparedData.is_in(config.data_directory):
        return sized(config.model, PreparedData.open(config.data_directory)), True
    size = config.data.vocabulary_size
    source = None if config.data.joint_vocabulary else size
    return dataclasses.replace(config.model, vocabulary_size=size, source_vocabulary_size=source), False


def precision(config: RunConfig, why_no_bfloat16: str | None) -> Finding:
    """Return the precision of matrix products, and why bfloat16 is slow or not available, if it is."""
    missing = "not bfloat16: " if config.training.precision == "float32" else ""
    reason = f"; {missing}{why_no_bfloat16}" if why_no_bfloat16 else ""
    return Finding("precision", f"{config.training.precision}{reason}")


def batch(config: RunConfig, n_ranks: int) -> Finding:
    """Return the division of a batch among ranks."""
    training = config.training
    n_working = working_ranks(n_ranks, training.n_micro_batches, training.sum)
    least, most = training.n_micro_batches // n_working, -(-training.n_micro_batches // n_working)
    share = f"{least}" if least == most else f"{least} or {most}"
    found = (
        f"at most {training.batch_tokens:,} tokens a side, in {training.n_micro_batches} micro-batches,"
        f" {share} per process"
    )
    if n_working == n_ranks:
        return Finding("batch", found)
    found = f"{found}; {n_ranks - n_working} of {n_ranks} processes will stand idle"
    if n_ranks > training.n_micro_batches:
        return Finding("batch", found, f"raise training.n_micro_batches, or start {n_working} processes")
    remedy = f'start {n_working} or {2 * n_working} processes, or set training.sum to "fast"'
    return Finding("batch", found, remedy)


def memory(world: Communicator) -> Finding:
    """Return the free memory of this rank's machine."""
    free = describe_free_memory(world.local_size)
    return Finding("memory", f"free: {free}" if free else "not known")


def largest_batch(config: RunConfig, world: Communicator, placements: list[Placement]) -> Finding:
    """Compute the gradients of the largest batch once, as training does at its start, to see whether memory suffices.

    All ranks must call this.
    """
    if world.any(not PreparedData.is_in(config.data_directory)):
        return Finding(TRIAL, "not known: it needs prepared data", "prepare the data first, with the same settings")
    n_threads = 1 if config.device == "cuda" else cores_of(world.rank, placements)
    try:
        trainer = new_trainer(config, world, PreparedData.open(config.data_directory), n_threads, validates=False)
        return Finding(TRIAL, try_largest_batch(trainer) or "none: this process is idle")
    except OutOfMemoryError as error:
        return Finding(TRIAL, "does not fit", str(error))
    except UserError as error:
        return Finding(TRIAL, "not known", str(error))
