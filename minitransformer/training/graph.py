"""Updates as CUDA graphs: captured once, then launched for all batches of the same capacity.

With several ranks a graph contains the sums over ranks, too.  NCCL requires that all ranks capture and launch the same
sums in the same order.  So the capacity of an update is that of the largest micro-batch of all ranks.  Every rank
computes this capacity from the lengths of sentences, which all ranks know.

A few arrays on the device change with every update: tokens, tiles of attention, the update's number, and the scalars of
the optimizer.  The host writes them into pinned memory.  They are copied to the device while the GPU computes the
previous update.  The host reads the result of an update after it has enqueued the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from autograd import ParameterBuffer, RandomStream, no_tape, ops
from autograd.array import Array, IntArray, namespace_of_device, pinned_bytes
from autograd.graphs import capture_graph, graph_pool
from autograd.kernels.cuda.cublaslt import SPLIT_TERMS
from autograd.op import Dispatch, Operation, Run, observed
from autograd.optim import N_SCALARS, Adam, adam_update, clip, sum_squares
from autograd.tensor import Backward
from minitransformer.model.batch import Batch
from minitransformer.model.fixed_batch import BufferLayout, Capacity, FixedBatch, Shapes, fill
from minitransformer.model.transformer import Transformer
from minitransformer.training.update import StepResult, TrainingStep, count_targets
from parallel.communicator import Communicator

STEPS = 32  # number of capacities of a side, up to ``batch_tokens`` divided by the number of micro-batches
MOST_GRAPHS = 256  # kept at once; a further graph replaces the least recently used one
N_SLOTS = 2  # slots in pinned memory and on the device: one slot is read while the other one is written
_N_OUTCOME = 3  # loss, norm and scale: see ``autograd.optim.clip``
_EMPTY = Batch.from_token_ids([], [])
_UPDATE_SHAPES: Shapes = {"update": ((), "uint64"), "scalars": ((N_SCALARS,), "float64")}


class CapturedStep:
    """A ``TrainingStep`` that the host enqueues with one call, as a CUDA graph.

    For the first batch of a capacity, the host launches the kernels one by one; this also chooses the algorithms of
    products.  Then the host captures the same update as a graph, without computing it again.  For later batches it
    launches the graph.  Results of kernels and graph have the same bits.  A batch that is larger than all earlier
    ones, such as a sentence longer than ``batch_tokens``, has a capacity of its own.

    While a product's algorithm is chosen, the host waits for the GPU without a time limit.  So before a new capacity
    the host reads the results of all earlier updates, for which ``reducer.wait`` limits the time.
    """

    lag = 1  # see ``TrainingStep``

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        config = step.config
        self._capacity_step = -(-config.batch_tokens // (config.n_micro_batches * STEPS * SPLIT_TERMS)) * SPLIT_TERMS
        self._cuda = namespace_of_device("cuda").cuda
        self._stream, self._copies = (self._cuda.Stream(non_blocking=True) for _ in range(2))
        self.pool = graph_pool()
        pinned = pinned_bytes(N_SLOTS * _N_OUTCOME * 8)
        self._outcomes = pinned.view(np.float64).reshape(N_SLOTS, _N_OUTCOME)
        self._results: list[StepResult | None] = [None] * N_SLOTS
        self._buffers: dict[Capacity, _Buffers] = {}
        self._slot = 0

    def prepare(self, micro_batches: Sequence[Batch | None], lengths: Sequence[IntArray]) -> PaddedBatches:
        """Pad this rank's micro-batches to a capacity for all ranks; see ``TrainingStep``."""
        return self._pad(Capacity.of(lengths, self._capacity_step), [batch or _EMPTY for batch in micro_batches])

    def _pad(self, capacity: Capacity, batches: Sequence[Batch]) -> PaddedBatches:
        return PaddedBatches(capacity, batches, self.step.gradient.model.config.neighbourhood)

    def __call__(self, micro_batches: PaddedBatches, step: int, lengths: Sequence[IntArray]) -> StepResult:
        """Enqueue update number ``step``; see ``TrainingStep``."""
        n_tokens = count_targets(lengths)
        self._slot = (self._slot + 1) % N_SLOTS
        if earlier := self._results[self._slot]:
            earlier.norm  # noqa: B018  (reads it, before its memory is written again)
        buffers = self._buffers_for(micro_batches)
        with self._upload(buffers, micro_batches, step, self.step.scalars(step, n_tokens)):
            outcome = self.enqueue(buffers)
            outcome.get(self._stream, out=self._outcomes[self._slot], blocking=False)
            end = self._stream.record()
        read = partial(self._read, self._slot, end)
        self._results[self._slot] = result = StepResult(n_tokens, read, flops=self.step.flops(lengths))
        return result

    @contextmanager
    def _upload(self, buffers: _Buffers, padded: PaddedBatches, step: int, scalars: Array) -> Iterator[None]:
        """Copy the data of an update to the device; enter the stream and the memory pool of graphs."""
        buffers.write(self._slot, padded, step, scalars)
        before = self._cuda.get_current_stream().record()  # after parameters are loaded and memory is freed
        self._copies.wait_event(before)
        uploaded = buffers.upload(self._slot, self._copies)
        with self._stream, self._cuda.using_allocator(self.pool.malloc):
            self._stream.wait_event(before)
            self._stream.wait_event(uploaded)
            buffers.take(self._slot)
            yield

    def reserve_memory(self, lengths: IntArray, n_micro_batches: int) -> None:
        """Reserve the memory of micro-batches with sentences of these lengths (B, 2).  Raises: MemoryError.

        This computes gradients of filler tokens once.  Without it, the pool would grow with each larger batch.
        """
        fillers = self._pad(Capacity.of([lengths], self._capacity_step), [_EMPTY] * n_micro_batches)
        buffers = _Buffers(fillers)
        with self._upload(buffers, fillers, 0, 0.0):
            self._compute_gradients(buffers)
            self._stream.synchronize()

    def _compute_gradients(self, buffers: _Buffers) -> None:
        """Enqueue the gradients of this rank alone, which nothing reads."""
        streams = [RandomStream(0, 0, i) for i in range(len(buffers.batches))]
        self.step.gradient.compute(buffers.batches, streams)

    def _read(self, slot: int, end: Any) -> Array:
        """Wait until this slot's update has ended, but not for later updates; return (loss, norm, scale)."""
        self.step.reducer.wait(end)
        return self._outcomes[slot].copy()

    def _buffers_for(self, padded: PaddedBatches) -> _Buffers:
        buffers = self._buffers.pop(padded.capacity, None)
        if buffers is None:
            self._read_all()
            if len(self._buffers) == MOST_GRAPHS:
                del self._buffers[next(iter(self._buffers))]
            buffers = _Buffers(padded)
        self._buffers[padded.capacity] = buffers  # at the end: the first entry is the least recently used
        return buffers

    def _read_all(self) -> None:
        for result in filter(None, self._results):
            result.norm  # noqa: B018

    def free(self) -> None:
        """Wait for the updates that were launched, then destroy all graphs and free their memory.

        Otherwise the destruction of an NCCL communicator would hang: NCCL waits until no graph contains its calls.
        """
        self._read_all()
        self._buffers.clear()
        self.pool.free_all_blocks()

    @property
    def n_graphs(self) -> int:
        """Number of capacities whose graph is kept."""
        return sum(buffers.graph is not None for buffers in self._buffers.values())

    def enqueue(self, buffers: _Buffers) -> Array:
        """Launch an update's graph, or, if there is no graph yet, its kernels one by one; return the outcome.

        The graph is captured right after these launches.  A capture can neither choose an algorithm nor prepare a
        product, and products of other shapes, such as those of validation, may later replace the prepared products.
        A captured graph does not need prepared products.  If gradients are summed over ranks during the backward pass,
        the algorithms are chosen before: beside such sums their times would mean nothing.
        """
        if buffers.graph is None:
            if len(self.step.reducer.buckets) > 1:
                self._compute_gradients(buffers)
            outcome = buffers.compute(self.step)
            update = partial(buffers.compute, self.step)
            buffers.graph, buffers.outcome_of_graph = capture_graph(update, self._stream)
            return outcome
        buffers.graph.launch(self._stream)
        return buffers.outcome_of_graph


class PaddedBatches:
    """The micro-batches of an update, padded to a capacity in ordinary memory of the host, and their masks."""

    def __init__(self, capacity: Capacity, batches: Sequence[Batch], neighbourhood: int | None) -> None:
        shapes = {f"{i}.{name}": shape for i in range(len(batches)) for name, shape in capacity.shapes().items()}
        self.capacity, self.layout = capacity, BufferLayout({**_UPDATE_SHAPES, **shapes})
        self.buffer = np.empty(self.layout.n_bytes, np.uint8)
        arrays = self.layout.views(self.buffer)
        self.masks = [fill(_micro_batch_arrays(arrays, i), batch, neighbourhood) for i, batch in enumerate(batches)]


class _Buffers:
    """The memory of batches of one capacity, and the graph that is launched for these batches."""

    def __init__(self, first: PaddedBatches) -> None:
        layout = first.layout
        empty = namespace_of_device("cuda").empty
        self._pinned = [pinned_bytes(layout.n_bytes) for _ in range(N_SLOTS)]
        self._device_slots = [empty(layout.n_bytes, np.uint8) for _ in range(N_SLOTS)]
        self._read = empty(layout.n_bytes, np.uint8)
        self._host_arrays, arrays = [layout.views(pinned) for pinned in self._pinned], layout.views(self._read)
        self._update, self._scalars = arrays["update"], arrays["scalars"]
        self.batches = [FixedBatch.of(_micro_batch_arrays(arrays, i), mask) for i, mask in enumerate(first.masks)]
        self.outcome_of_graph: Array = None
        self.graph: Any = None

    def write(self, slot: int, padded: PaddedBatches, step: int, scalars: Array) -> None:
        """Write the data of an update into a slot of pinned memory."""
        self._pinned[slot][...] = padded.buffer
        written = self._host_arrays[slot]
        written["update"][...], written["scalars"][...] = step, scalars

    def upload(self, slot: int, stream: Any) -> Any:
        """Copy the slot to the device; return an event that is recorded after the copy."""
        self._device_slots[slot].set(self._pinned[slot], stream)
        return stream.record()

    def take(self, slot: int) -> None:
        """Copy the slot to the arrays that kernels read; on the stream, the copy follows the previous update."""
        self._read[...] = self._device_slots[slot]

    def compute(self, step: TrainingStep) -> Array:
        """Enqueue the kernels of an update; return the outcome."""
        return step.run(self.batches, self._update, self._scalars)


def _micro_batch_arrays(arrays: dict[str, Array], micro_batch: int) -> dict[str, Array]:
    prefix = f"{micro_batch}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def captured_step(step: TrainingStep, world: Communicator) -> tuple[TrainingStep | CapturedStep, str | None]:
    """Return a ``CapturedStep`` if every rank can capture it; else return ``step`` itself, and the reason.

    All ranks must call this.
    """
    own = type(step.optimizer)
    lack = None if own is Adam else f"no CUDA kernel computes {own.__module__}:{own.__qualname__} (training.optimizer)"
    why = why_no_rank_captures(world, why_not_captured(step.gradient.model) or lack or step.reducer.why_not_captured)
    return (step, why) if why else (CapturedStep(step), None)


def why_no_rank_captures(world: Communicator, why: str | None) -> str | None:
    """Return the first reason why a rank cannot capture, or None if all ranks can; all ranks must call this.

    NCCL requires that all ranks use graphs, or none.
    """
    rank_reasons = world.allgather(why)
    if all(rank_reasons) or not any(rank_reasons):
        return rank_reasons[0]
    rank, reason = next((rank, reason) for rank, reason in enumerate(rank_reasons) if reason)
    return f"{reason} (on rank {rank})"


def why_not_captured(model: Transformer) -> str | None:
    """Return why an update of this model cannot be a CUDA graph; None if it can.

    Each operation of an update must have a CUDA kernel, or a reference in ``_CAPTURED_BY_CUPY``.  Other references
    cannot be captured: CuPy's matrix products refuse a capture, and attention's reference needs arrays on the host.
    To list the operations, compute the model's loss for one token on each side, and its penalty; then add those of
    ``autograd.optim``.
    """
    parameters = model.parameters
    if model.device != "cuda":
        return "the model is not on a GPU"
    if parameters.low_precision is None:
        return "its kernels need bfloat16"
    lacking: list[str] = []

    def observe(operation: Operation, run: Run, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        if operation not in _CAPTURED_BY_CUPY and not _is_kernel(run, operation):
            lacking.append(operation.name)
        return run(*arguments, **static)

    with no_tape(), observed(observe):
        model.loss(Batch.from_token_ids([[]], [[]]), RandomStream(seed=0))
        model.penalty()
    lacking += _missing_optimizer_kernels(parameters)
    names = ", ".join(dict.fromkeys(lacking))
    return f"no CUDA kernel computes {names} for this model; {_KERNELS_NEED}" if lacking else None


_KERNELS_NEED = "kernels need a d_model that is a multiple of 16, at most 1024, and d_k = d_v of 16, 32, 64 or 128"
_CAPTURED_BY_CUPY = ops.add, ops.gelu, ops.gelu_tanh, ops.multiply, ops.reshape, ops.scale, ops.swish  # elementwise


def _missing_optimizer_kernels(parameters: ParameterBuffer) -> list[str]:
    values, gradients = parameters.values, parameters.gradients
    numbers = namespace_of_device("cuda").zeros(N_SCALARS)
    arguments: list[tuple[Dispatch[Any], tuple[Array, ...]]] = [
        (sum_squares, (gradients,)),
        (clip, (numbers, numbers[0], numbers)),
        (adam_update, (values, gradients, gradients, gradients, parameters.low_precision, numbers, numbers[0])),
    ]
    return [operation.name for operation, x in arguments if not _is_kernel(operation.choose(x, {}), operation)]


def _is_kernel(run: Any, function: Dispatch[Any]) -> bool:
    return run in [kernel.run for kernel in function.kernels]
