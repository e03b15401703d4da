"""Checks of a run's memory: a prediction, compared with the free memory, and on request a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from minitransformer.config import RunConfig, TrainingConfig
from minitransformer.data.prepare import PreparedData
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.free_memory import free_memory
from minitransformer.system.memory import give_back_freed_memory
from minitransformer.training.doctor.finding import Finding
from minitransformer.training.footprint import Footprint, format_bytes, predict
from minitransformer.training.largest_batch import (
    NO_WAY,
    USABLE,
    OutOfMemoryError,
    needed_and_free,
    try_largest_batch,
    ways_into,
)
from minitransformer.training.run_data import sized, training_pairs
from minitransformer.training.trainer import Trainer, reducer_for
from parallel.communicator import Communicator, micro_batches_of_rank
from parallel.placement import Placement, cores_of

TRIAL = "largest batch"
_STATUS, _CLEAR_REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory(config: RunConfig, world: Communicator, placements: list[Placement], *, try_largest: bool) -> list[Finding]:
    """Return the predicted memory of the first epoch's largest batch, and with ``try_largest`` the measured one.

    All ranks must call this.
    """
    obstacles = [finding for finding in world.allgather(_obstacle(config, asked=try_largest)) if finding]
    if obstacles:
        return [obstacles[0]]
    n_threads = 1 if config.device == "cuda" else cores_of(world.rank, placements)
    findings = [_of_tightest(config, world, placements, n_threads)]
    return [*findings, _tried(config, world, n_threads)] if try_largest else findings


def _obstacle(config: RunConfig, *, asked: bool) -> Finding | None:
    """Return the reason why memory cannot be predicted; None if it can.

    The lengths of sentences are known only if the data is prepared.
    """
    if not PreparedData.is_in(config.data_directory):
        remedy = "prepare the data first, with the same settings" if asked else ""
        return Finding("memory", "not known: its prediction needs prepared data", remedy)
    try:
        data = PreparedData.open(config.data_directory)
        Transformer(sized(config.model, data), seed=None)
        data.store("train")
    except UserError as error:
        return Finding("memory", "not known", str(error))
    return None


def _of_tightest(config: RunConfig, world: Communicator, placements: list[Placement], n_threads: int) -> Finding:
    """Return, on every rank, the prediction for the process with the least memory left over."""
    if config.device == "cuda":
        return Finding("memory", "of GPUs is not predicted; training tries its largest batch first")
    n_here = sum(placement.host == placements[world.rank].host for placement in placements)
    predicted, free = _prediction(config, world, n_threads), free_memory(n_here)
    footprint = predicted(config.training)
    found = needed_and_free(footprint, free, n_here)
    if world.size > 1:
        found = f"rank {world.rank}, which has the least left: {found}"
    finding = Finding("memory", found)
    if footprint.total > USABLE * free:
        ways = ways_into(free, config.training, predicted)
        remedy = f"set {'; or '.join(ways)}" if ways else NO_WAY
        finding = Finding("memory", f"{found}, of which {USABLE:.0%} can be relied on: too little", remedy)
    return min(world.allgather((free - footprint.total, finding)), key=lambda of_rank: of_rank[0])[1]


def _prediction(config: RunConfig, world: Communicator, n_threads: int) -> Callable[[TrainingConfig], Footprint]:
    """Return a function from training options to this rank's footprint, with Adam's moments of all parameters."""
    data = PreparedData.open(config.data_directory)
    model = Transformer(sized(config.model, data), seed=None, dtype=config.training.precision)
    lengths = data.store("train").lengths

    def predicted(training: TrainingConfig) -> Footprint:
        micro_batches = micro_batches_of_rank(world.rank, world.size, training.n_micro_batches, training.sum)
        return predict(model, training, lengths, n_threads=n_threads, micro_batches=micro_batches)[0]

    return predicted


def _tried(config: RunConfig, world: Communicator, n_threads: int) -> Finding:
    """Compute the gradients of the largest batch; return whether it fits, and how much memory the process has used."""
    predicted = (
        "" if config.device == "cuda" else format_bytes(_prediction(config, world, n_threads)(config.training).total)
    )
    data = PreparedData.open(config.data_directory)
    give_back_freed_memory()
    before = _forget_peak()
    training, store = config.training, training_pairs(config.training, data)
    reducer = reducer_for(training, world, config.device, n_threads)
    model = Transformer(
        sized(config.model, data), seed=training.seed, dtype=training.precision, device=config.device,
        allocate=reducer.allocate,
    )  # fmt: skip
    trainer = Trainer(model, store, None, training, config.run, world, reducer, n_threads=n_threads)
    try:
        try_largest_batch(trainer)
    except OutOfMemoryError as error:
        return Finding(TRIAL, "does not fit", str(error))
    after = _bytes_of("VmHWM")
    if before is None or after is None or not predicted:
        return Finding(TRIAL, "was computed: it fits")
    return Finding(TRIAL, f"was computed: the process grew by {format_bytes(after - before)}; predicted {predicted}")


def _forget_peak() -> float | None:
    """Reset the peak of this process's memory where the system can; return its current memory in bytes."""
    with contextlib.suppress(OSError):
        _CLEAR_REFERENCES.write_text("5")  # proc(5): resets VmHWM
    return _bytes_of("VmRSS")


def _bytes_of(field: str) -> float | None:
    """Return a field of this process's memory in bytes, from /proc; None on systems other than Linux."""
    try:
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return 1024 * float(fields[field].split()[0])
    except (OSError, KeyError):
        return None
