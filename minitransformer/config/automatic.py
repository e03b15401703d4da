"""The values of automatic settings: those that a run began with, or those that suit the device."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from minitransformer.config.checks import with_changes
from minitransformer.config.run import RUN_FILE, RunConfig
from minitransformer.config.training import MAX_MICRO_BATCHES
from minitransformer.system.files import CorruptFileError
from minitransformer.system.records import as_object, read_object
from parallel.communicator import working_ranks

AUTOMATIC = {"n_micro_batches": 0, "precision": "automatic"}
"""The automatic settings of training, with the value that stands for "automatic"."""

SMALL_BATCH = 4_000  # tokens; in more than 2 micro-batches of a smaller batch, a thread's operations are short


def initial_settings(run: Path) -> dict[str, Any]:
    """Return the values of these settings with which the run in a directory began.

    Return an empty dict if there is no run, or if its file is corrupt, which ``RunConfig.differences`` reports.
    """
    try:
        training = as_object(read_object(run / RUN_FILE).get("training"))
    except CorruptFileError:
        return {}
    return {name: training[name] for name in AUTOMATIC if name in training}


def with_values(config: RunConfig, values: dict[str, Any]) -> RunConfig:
    """Return the configuration with these values where it is automatic.  Raises: ConfigError for an invalid value."""
    chosen = {name: x for name, x in values.items() if getattr(config.training, name) == AUTOMATIC[name]}
    return dataclasses.replace(config, training=with_changes(config.training, chosen, "training."))


def resolved(config: RunConfig, n_ranks: int, why_no_bfloat16: str | None) -> RunConfig:
    """Return the configuration with the values that suit its device, where it is automatic.

    In the exact order only a power of two of ranks computes.  More micro-batches than that many would be computed in
    turn on a GPU: so there is one for each rank that computes.

    Args:
        n_ranks: number of processes.
        why_no_bfloat16: why the device cannot compute fast in bfloat16; None if it can.
    """
    on_cpu = 2 if config.training.batch_tokens < SMALL_BATCH else 8
    n_micro_batches = on_cpu if config.device == "cpu" else working_ranks(n_ranks, MAX_MICRO_BATCHES)
    precision = "float32" if config.device == "cpu" or why_no_bfloat16 else "bfloat16"
    return with_values(config, {"n_micro_batches": n_micro_batches, "precision": precision})
