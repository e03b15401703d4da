"""The opening of a training run: data, model and trainer, in the state of the last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd.array import namespace_of_device
from autograd.kernel_registry import kernels_for, register_kernels
from autograd.kernels.cpu.library import library
from minitransformer.config import RunConfig, TrainingConfig
from minitransformer.data.prepare import PreparedData
from minitransformer.model.files import load_model_config
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.system.placement import choose_placements
from minitransformer.system.provenance import blas_libraries, code_version, processor
from minitransformer.training.callbacks.checkpoint_stage import require_same_parameters
from minitransformer.training.largest_batch import try_largest_batch
from minitransformer.training.pretrained import PRETRAINED, begin_from_pretrained, pretrained_of
from minitransformer.training.resolve import resolve
from minitransformer.training.run_data import DIGEST, check_lengths, shared_data, sized, training_pairs
from minitransformer.training.trainer import Trainer, reducer_for
from minitransformer.training.validation import Validation
from parallel.agreement import check_agreement, warn_of_differences
from parallel.communicator import Communicator, working_ranks
from parallel.placement import Placement, cores_of, describe

_log = logging.getLogger(__name__)
SAME_START = "Start all ranks with the same code, options and data"
SAME_KERNELS = (
    "Use the same compiler on all machines, and for different processors the same instructions (the environment"
    ' variable MINITRANSFORMER_CFLAGS, such as -march=x86-64-v3); or set kernels = "reference"'
)
SAME_CUDA_KERNELS = 'Use the same GPUs, driver and CuPy on all machines; or set kernels = "reference"'


@dataclass(frozen=True)
class OpenRun:
    """The data and the trainer of a run, ready to train.  ``config`` has no automatic settings."""

    config: RunConfig
    world: Communicator
    data: PreparedData
    trainer: Trainer


def open_run(config: RunConfig, world: Communicator) -> OpenRun:
    """Prepare the data if it is missing, build the model, resume from the last checkpoint, try the largest batch.

    First the automatic settings are replaced by their values, which all that follows reads, checks and saves.  The
    caller chooses the kernels for the opening and for the training that follows (``references_only``).
    Raises: ConfigError if the run's directory holds another run; CorpusError; CheckpointError; OutOfMemoryError;
    DeviceError; DisagreementError before ranks share memory for a model.
    """
    _require_same(world, {"code": code_version(), **config.settings()})
    placements = choose_placements(config.device, world)
    config, why_no_bfloat16 = resolve(config, world)
    require_same_kernels(config, world)
    data = shared_data(config, world)
    _require_same(world, {"prepared data": data.digest, **config.settings()})
    n_threads = 1 if config.device == "cuda" else cores_of(world.rank, placements)
    trainer = _build_trainer(config, world, data, n_threads)
    _log_setup(trainer, placements, n_threads, why_no_bfloat16)
    pretrained = _resume_or_begin(trainer, config)
    if not trainer.is_complete:
        try_largest_batch(trainer)
    if world.rank == 0:
        config.claim_directory({DIGEST: data.digest} | ({PRETRAINED: pretrained} if pretrained else {}))
    return OpenRun(config, world, data, trainer)


def _require_same(world: Communicator, facts: Mapping[str, str], remedy: str = SAME_START) -> None:
    check_agreement(world, facts, "at the start", remedy)


def require_same_kernels(config: RunConfig, world: Communicator) -> None:
    """Refuse ranks that compute with different kernels; warn if processors, GPUs or other libraries differ.

    Raises: DisagreementError on rank 0.
    """
    if world.size == 1:
        return
    if config.kernels == "compiled" and config.device == "cuda":
        register_kernels("cuda")
        _require_same(world, {"CUDA kernels": ", ".join(sorted(kernels_for("cuda"))) or "none"}, SAME_CUDA_KERNELS)
    elif config.kernels == "compiled":
        obstacles = world.allgather(library().obstacle.partition("\n")[0].rstrip(":"))
        reason = next((f"{obstacle}. " for obstacle in obstacles if obstacle), "")
        _require_same(world, {"kernel library": library().sha256[:10] or "none"}, reason + SAME_KERNELS)
    facts = _gpu_and_library() if config.device == "cuda" else _processor_and_libraries()
    warn_of_differences(world, facts, "the last bits of the model depend on which rank computes what")


def _gpu_and_library() -> dict[str, str]:
    cupy = namespace_of_device("cuda")
    gpu = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return {"GPU": gpu, "CuPy": cupy.__version__}


def _processor_and_libraries() -> dict[str, str]:
    return {"processor": processor(), "BLAS": blas_libraries() or "unknown", "NumPy": np.__version__}


def _build_trainer(config: RunConfig, world: Communicator, data: PreparedData, n_threads: int) -> Trainer:
    training = config.training
    reducer = reducer_for(training, world, config.device, n_threads)
    model = Transformer(
        sized(config.model, data), seed=training.seed, dtype=training.precision, device=config.device,
        allocate=reducer.allocate,
    )  # fmt: skip
    check_lengths(model.config, data)
    validation = (
        Validation.of(data, n_translated=training.validation_sentences, n_threads=n_threads)
        if world.rank == 0
        else None
    )
    store = training_pairs(training, data)
    return Trainer(model, store, validation, training, config.run, world, reducer, n_threads=n_threads)


def _log_setup(trainer: Trainer, placements: list[Placement], n_threads: int, why_no_bfloat16: str) -> None:
    world = trainer.world
    _log.info(
        f"{trainer.model.n_parameters:,} parameters, {len(trainer.store):,} training pairs;"
        f" processes {world.size}, threads each {n_threads}"
    )
    if world.size > 1:
        for line in (*describe(placements), trainer.reducer.description):
            _log.info(line)
    for line in (*_idle(trainer.config, world, n_threads), *_slower_on_gpu(trainer, why_no_bfloat16)):
        _log.warning(line)


def _idle(training: TrainingConfig, world: Communicator, n_threads: int) -> Iterator[str]:
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


def _slower_on_gpu(trainer: Trainer, why_no_bfloat16: str) -> Iterator[str]:
    """Yield a line for each thing that makes updates slower on a GPU than they could be."""
    if trainer.model.device == "cpu":
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

    Compare the parameters of all ranks.  Return the facts about the pretrained model; none if there is none.
    """
    pretrained = pretrained_of(config.run)
    if trainer.resume():
        if not trainer.is_complete:
            _log.info(f"going on from update {trainer.state.step:,} of {trainer.config.max_updates:,}")
            _warn_of_stored_alpha(config)
    elif config.init_from is not None:
        pretrained = begin_from_pretrained(config.init_from, config, trainer)
    step = str(trainer.state.step)
    require_same_parameters(trainer.world, trainer.model, "at the start", SAME_START, update=step)
    return pretrained


def _warn_of_stored_alpha(config: RunConfig) -> None:
    """Warn if ``store_alpha`` has stored another α in the model than that of the run, which the next model has."""
    with suppress(CheckpointError):  # no validation has saved a model yet, or it is corrupt and will be replaced
        stored, alpha = load_model_config(config.run).alpha, config.model.alpha
        if stored != alpha:
            _log.warning(
                f"{config.run}: the model has the length penalty α {stored:g}, chosen after its training; the next one"
                f" that is saved has α {alpha:g} again (model.alpha): choose it anew at the end"
            )
