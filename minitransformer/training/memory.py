"""A trial of the largest batch before the first update; if memory does not suffice, trials of smaller micro-batches."""

from __future__ import annotations

import logging
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np

from autograd import RandomStream
from autograd.array import IntArray, free_gpu_memory
from minitransformer.config import MAX_MICRO_BATCHES
from minitransformer.config.run import RUN_FILE
from minitransformer.data.batching import cut_into_micro_batches, read_batch
from minitransformer.system.errors import UserError
from minitransformer.system.memory import describe_free_memory, format_bytes, free_memory, limited_memory
from minitransformer.training.flops import flops_of_pairs
from minitransformer.training.graph import CapturedStep
from minitransformer.training.loop import Trainer
from parallel.communicator import micro_batches_of_rank

_log = logging.getLogger(__name__)


class OutOfMemoryError(UserError, MemoryError):
    """An error: a batch needs more memory than is available."""


def try_largest_batch(trainer: Trainer) -> str | None:
    """Compute the gradients of the plan's largest micro-batches once; log and return a line about memory.

    Each thread computes the largest of its micro-batches, so that the peak of memory is the same as in an update.  With
    CUDA graphs, filler tokens replace the pairs.  Parameters, moments and random numbers do not change: dropout
    depends only on seed, update and micro-batch.  Return None on an idle rank.
    Raises: OutOfMemoryError; the message names a number of micro-batches that fits, or says that no number fits.
    """
    if not trainer.micro_batches:
        return None
    free = _free_description(trainer)
    with memory_advice(trainer):
        taken = _try(trainer, trainer.config.n_micro_batches)
    description = f"the largest batch fits; {free} are free"
    if trainer.model.device == "cpu":
        description = f"the largest batch takes {format_bytes(taken)}; {free} were free"
    _log.info(f"memory: {description}")
    return description


@contextmanager
def memory_advice(trainer: Trainer) -> Iterator[None]:
    """Turn a MemoryError of NumPy or CuPy into an OutOfMemoryError that names a number of micro-batches that fits."""
    try:
        yield
    except MemoryError as error:
        traceback.clear_frames(error.__traceback__)  # the frames hold the arrays that filled the memory
        trainer.training_step.free()
        raise OutOfMemoryError(_advice(trainer)) from error


def _advice(trainer: Trainer) -> str:
    """Double the number of micro-batches until the largest batch fits; describe the result."""
    config, n_micro_batches = trainer.config, trainer.config.n_micro_batches
    where = f"update {trainer.state.step:,}" if trainer.state.step else "trying the largest batch"
    lack = (
        f"out of memory ({where}): {config.batch_tokens:,} tokens in {n_micro_batches} micro-batches need more than"
        f" the {_free_description(trainer)} that are free"
    )
    while (n_micro_batches := 2 * n_micro_batches) <= MAX_MICRO_BATCHES:
        try:
            _try(trainer, n_micro_batches)
        except MemoryError as error:
            traceback.clear_frames(error.__traceback__)
            trainer.training_step.free()
        else:
            fits = f"training.n_micro_batches = {n_micro_batches} fits: the same batch in smaller pieces"
            other = f", with another directory as run: {trainer.run_directory} has begun with other batches"
            return f"{lack}. {fits}{other if (trainer.run_directory / RUN_FILE).exists() else ''}"
    return (
        f"{lack}. No number of micro-batches fits: choose a smaller model (model.n_layers, model.d_model …), shorter"
        " sentences (data.max_length), or another machine"
    )


def _free_description(trainer: Trainer) -> str:
    if trainer.model.device == "cuda":
        return f"{format_bytes(free_gpu_memory())} of the GPU"
    return describe_free_memory(trainer.world.local_size) or "bytes"


def _try(trainer: Trainer, n_micro_batches: int) -> int:
    """Compute this rank's share of the largest batch, cut into ``n_micro_batches``; return the bytes that it took.

    Raises: MemoryError, also on Linux, where the system would otherwise kill the process.
    """
    world, config = trainer.world, trainer.config
    mine = micro_batches_of_rank(world.rank, world.size, n_micro_batches, config.sum)
    if isinstance(trainer.training_step, CapturedStep):
        trainer.training_step.reserve_memory(_most_tokens(trainer, n_micro_batches), len(mine))
        return 0
    chosen = _largest(trainer, mine, n_micro_batches)
    micro_batches = [read_batch(trainer.pairs, chosen[i]) if i in chosen else None for i in range(len(mine))]
    streams = [RandomStream(config.seed, 0, micro_batch) for micro_batch in mine]
    limit = nullcontext() if trainer.model.device == "cuda" else limited_memory(free_memory(world.local_size))
    with _trace_memory() as taken, limit:
        trainer.gradient.compute(micro_batches, streams)
        return taken()


def _most_tokens(trainer: Trainer, n: int) -> IntArray:
    """Return the most source and the most target tokens of any micro-batch, shape (1, 2), if a batch is cut into n."""
    pairs, plan = trainer.batches.group(trainer.state.epoch, trainer.state.group)
    cut = [part for batch in plan for part in cut_into_micro_batches(batch, pairs.lengths, n)]
    return np.array([np.max([(pairs.lengths[part] + 1).sum(axis=0) for part in cut], axis=0)])


def _largest(trainer: Trainer, mine: range, n_micro_batches: int) -> dict[int, IntArray]:
    """Return each thread's largest micro-batch in the plan's largest batch.

    Keys are indices in ``mine``; values are the micro-batch's pairs.  FLOPs measure the size, because they are nearly
    proportional to the elements of activations, attention scores and logits.
    """
    pairs, plan = trainer.batches.group(trainer.state.epoch, trainer.state.group)
    size = flops_of_pairs(trainer.model.config, pairs.lengths + 1)
    runs = trainer.gradient.leaves_of_threads(len(mine))
    largest, chosen = -1, dict[int, IntArray]()
    for batch in plan:
        cut = cut_into_micro_batches(batch, pairs.lengths, n_micro_batches)
        sizes = [int(size[cut[micro_batch]].sum()) for micro_batch in mine]
        heaviest = [max(run, key=sizes.__getitem__) for run in runs]
        if (total := sum(sizes[i] for i in heaviest)) > largest:
            largest, chosen = total, {i: cut[mine[i]] for i in heaviest if len(cut[mine[i]])}
    return chosen


@contextmanager
def _trace_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the peak of bytes that Python and NumPy have allocated in this context.

    NumPy reports its arrays to tracemalloc.
    """
    is_tracing = tracemalloc.is_tracing()
    if not is_tracing:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        if not is_tracing:
            tracemalloc.stop()
