"""The opening of a training run: data, model and trainer, in the state of the last checkpoint."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from minitransformer.config import RunConfig
from minitransformer.data.prepare import PreparedData
from minitransformer.model.transformer import class_of
from minitransformer.system.provenance import code_version
from minitransformer.system.ranks import START, choose_placements, require_same_kernels
from minitransformer.training.automatic_settings import resolve
from minitransformer.training.checkpoint import require_same_parameters
from minitransformer.training.loop import Trainer
from minitransformer.training.memory import try_largest_batch
from minitransformer.training.new_trainer import new_trainer
from minitransformer.training.pretrained import begin_from_pretrained, pretrained_of
from minitransformer.training.run_data import claim_run, shared_data
from minitransformer.training.start_log import log_start
from minitransformer.training.update import learning_rate, optimizer_class
from parallel.agreement import check_agreement
from parallel.communicator import Communicator
from parallel.placement import cores_of

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
    log_start(trainer, placements, n_threads, why_no_bfloat16)
    pretrained = _resume_or_begin(trainer, config)
    if not trainer.is_complete:
        try_largest_batch(trainer)
    if world.rank == 0:
        claim_run(config, data, pretrained)
    return OpenRun(config, world, data, trainer)


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
