"""What a run's options ask for, and whether it can begin."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from minitransformer.config import ConfigError, ModelConfig
from minitransformer.data.prepare import PreparedData, text_files
from minitransformer.doctor.finding import Finding
from minitransformer.doctor.memory import memory
from minitransformer.errors import UserError
from minitransformer.model.transformer import Transformer
from minitransformer.provenance import short_hash
from minitransformer.run import RunConfig
from minitransformer.training.run_data import sized
from parallel.communicator import Communicator, working_ranks
from parallel.placement import Placement

SHARE = "all machines must see the same directories"


def plan(
    config: RunConfig, world: Communicator, placements: list[Placement], *, try_largest: bool = False
) -> list[Finding]:
    """Findings about a run; all ranks must call."""
    of_options = [run(config), data(config), parameters(config), batch(config, world.size)]
    return [*of_options, *memory(config, world, placements, try_largest=try_largest)]


def run(config: RunConfig) -> Finding:
    """Whether the directory is free, or holds the same run."""
    name = f"{config.run}, configuration {short_hash(config.to_json())}"
    try:
        config.check_directory()
    except ConfigError as error:
        return Finding("run", name, str(error), if_ranks_differ=SHARE)
    return Finding("run", name, _remedy_to_write(config.run, "--run"), if_ranks_differ=SHARE)


def _remedy_to_write(directory: Path, option: str) -> str:
    """What helps where nothing could be written into a directory, which need not exist yet; empty if it could."""
    nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not nearest.is_dir():
        return f"choose another {option}: {nearest} is a file, not a directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"choose another {option}: {nearest} may not be written to"
    return ""


def data(config: RunConfig) -> Finding:
    """Whether the data are prepared, or can be."""
    if PreparedData.is_in(config.data_directory):
        return Finding("data", f"prepared in {config.data_directory}", if_ranks_differ=SHARE)
    missing = [name for name, path in text_files(config.data).items() if not path.exists()]
    if missing:
        found = f"{len(missing)} files are missing in {config.data.raw}, such as {missing[0]}"
        downloadable = "minitransformer-prepare --download fetches them, with the same options"
        return Finding("data", found, downloadable if config.data.download_from else "set --data.raw to their folder")
    source = "the demonstration's own corpus" if config.data.is_demo else f"the text in {config.data.raw}"
    remedy = _remedy_to_write(config.data.directory, "--data.directory") if config.data.directory else ""
    return Finding("data", f"not prepared yet: training will begin with that, from {source}", remedy)


def parameters(config: RunConfig) -> Finding:
    """How many the model has; its arrays are not filled, and take no memory."""
    try:
        model_config, known = expected_model(config)
        n_parameters = Transformer(model_config, seed=None).n_parameters
    except UserError as error:
        return Finding("parameters", "unknown", str(error))
    about = "" if known else f", if the vocabulary becomes as large as asked for ({model_config.vocabulary_size:,})"
    return Finding("parameters", f"{n_parameters:,}{about}")


def expected_model(config: RunConfig) -> tuple[ModelConfig, bool]:
    """The model with its vocabulary, and whether that is known: before the data are prepared, as large as asked for."""
    if PreparedData.is_in(config.data_directory):
        return sized(config.model, PreparedData.open(config.data_directory)), True
    size = config.data.vocabulary_size
    source = None if config.data.joint_vocabulary else size
    return dataclasses.replace(config.model, vocabulary_size=size, source_vocabulary_size=source), False


def batch(config: RunConfig, n_ranks: int) -> Finding:
    """How a batch is divided among ranks."""
    training = config.training
    n_working = working_ranks(n_ranks, training.n_shards, training.sum)
    least, most = training.n_shards // n_working, -(-training.n_shards // n_working)
    share = f"{least}" if least == most else f"{least} or {most}"
    found = f"at most {training.batch_tokens:,} tokens a side, in {training.n_shards} shards, {share} a process"
    if n_working == n_ranks:
        return Finding("batch", found)
    found = f"{found}; {n_ranks - n_working} of {n_ranks} processes will stand idle"
    if n_ranks > training.n_shards:
        return Finding("batch", found, f"raise --training.n-shards, or start {n_working} processes")
    return Finding("batch", found, f"start {n_working} or {2 * n_working} processes, or set --training.sum fast")
