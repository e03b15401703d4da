"""Updates of one GPU, each enqueued as a whole: a CUDA graph, captured once, launched for all batches of its capacity.

What changes from update to update is a stretch of bytes on the device: tokens, tiles of attention, the update's number,
and what Adam and the mean need to know.  It is written into pinned memory and copied while the update before is being
computed.  The host reads the verdict on an update when it has enqueued the next.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from autograd import Blocks, RandomStream, ops
from autograd.array import Array, namespace, namespace_of_device
from autograd.judged import N_NUMBERS, N_VERDICTS, judge, numbers_of_update, update_as_judged
from autograd.op import Dispatch
from autograd.optim import Adam
from autograd.precision import dtype_named
from minitransformer.config import TrainingConfig
from minitransformer.model.batch import Batch
from minitransformer.model.fixed_batch import Capacity, FixedBatch, Shapes, Stretch, fill
from minitransformer.model.spans import self_attention_spans
from minitransformer.model.transformer import Transformer
from minitransformer.training.gradient import ShardedGradient

STEPS = 8  # capacities up to the tokens of a whole batch
TURNS = 2  # of pinned memory, and of its copies: one is read while the next is written
_OF_UPDATE: Shapes = {"update": ((), "uint64"), "numbers": ((N_NUMBERS,), "float32")}


class Verdict(NamedTuple):
    """What an update has left: this rank's summed loss in nats, and the norm of the mean gradient."""

    loss: float
    norm: float


class GraphedUpdates:
    """Gradient, norm, clipping and Adam without a word from the host in between.

    The first batch of a capacity is computed by launches one after the other, which also chooses the algorithms of its
    products; with the second they are captured; from then on the graph is launched.  Numbers are the same bits either
    way.  A batch larger than all before it, such as a sentence longer than ``batch_tokens``, has a capacity of its own.
    """

    def __init__(self, gradient: ShardedGradient, adam: Adam, config: TrainingConfig, shards: Sequence[int]) -> None:
        self._gradient, self._adam, self._config, self._shards = gradient, adam, config, shards
        self._step = -(-config.batch_tokens // (config.n_shards * STEPS * 16)) * 16
        self._cuda = namespace_of_device("cuda").cuda
        self._stream, self._copies = (self._cuda.Stream(non_blocking=True) for _ in range(2))
        self._pool = self._cuda.MemoryPool()  # whose memory nobody else is given while graphs use it
        self._gradients = gradient.model.parameters.gradients
        self._verdict = namespace(self._gradients).zeros(N_VERDICTS, np.float64)
        pinned = pinned_bytes(self._cuda, TURNS * N_VERDICTS * 8)
        self._verdicts = pinned.view(np.float64).reshape(TURNS, N_VERDICTS)
        self._rooms: dict[Capacity, _Room] = {}
        self._turn = 0
        self._pending: deque[tuple[int, Any]] = deque()  # turns, and the events that end their updates

    def begin(self, shards: Sequence[Batch], *, step: int, learning_rate: float, n_tokens: int) -> None:
        """Enqueue update number ``step`` by the gradient of these shards' loss, divided by ``n_tokens``.

        Raises: RuntimeError if verdicts of as many updates as there are turns have not been read.
        """
        if len(self._pending) == TURNS:
            raise RuntimeError(f"GraphedUpdates: {TURNS} updates are under way; read a verdict first")
        self._turn = (self._turn + 1) % TURNS
        room = self._room_for(shards)
        numbers = numbers_of_update(self._adam, learning_rate, step, n_tokens)
        room.write(self._turn, shards, self._gradient.model.config.neighbourhood, step, numbers)
        before = self._cuda.get_current_stream().record()  # parameters that somebody loads, memory that he has freed
        self._copies.wait_event(before)
        uploaded = room.upload(self._turn, self._copies)
        with self._stream, self._cuda.using_allocator(self._pool.malloc):
            self._stream.wait_event(before)
            self._stream.wait_event(uploaded)
            room.take(self._turn)
            self._enqueue(room)
            self._verdict.get(self._stream, out=self._verdicts[self._turn], blocking=False)
            self._pending.append((self._turn, self._stream.record()))

    def verdict(self) -> Verdict:
        """That of the oldest update of which it has not been read.  The host waits for the end of that update alone.

        If it is not finite, the update has changed nothing.
        """
        turn, end = self._pending.popleft()
        end.synchronize()
        return Verdict(*self._verdicts[turn, :2].tolist())

    def _room_for(self, shards: Sequence[Batch]) -> _Room:
        capacity = Capacity.of(shards, self._step)
        if capacity not in self._rooms:
            self._rooms[capacity] = _Room(capacity, len(shards), self._cuda)
        return self._rooms[capacity]

    def _enqueue(self, room: _Room) -> None:
        if room.has_run and room.graph is None:
            self._stream.begin_capture()
            self._compute(room)
            room.graph = self._stream.end_capture()
        if room.graph is None:
            self._compute(room)
            room.has_run = True
        else:
            room.graph.launch(self._stream)

    def _compute(self, room: _Room) -> None:
        streams = [RandomStream(self._config.seed, room.update, shard) for shard in self._shards]
        loss = self._gradient.compute(room.batches, streams)
        judge(self._gradients, loss, room.numbers, self._verdict, max_norm=self._config.clip_norm or math.inf)
        update_as_judged(self._adam, room.numbers, self._verdict)


class _Room:
    """Where batches of one capacity lie, and what is launched for them."""

    def __init__(self, capacity: Capacity, n_shards: int, cuda: Any) -> None:
        shapes = {f"{shard}.{name}": shape for shard in range(n_shards) for name, shape in capacity.shapes().items()}
        stretch = Stretch({**_OF_UPDATE, **shapes})
        empty = namespace_of_device("cuda").empty
        self._pinned = [pinned_bytes(cuda, stretch.n_bytes) for _ in range(TURNS)]
        self._uploaded = [empty(stretch.n_bytes, np.uint8) for _ in range(TURNS)]
        self._read = empty(stretch.n_bytes, np.uint8)
        self._written, self._arrays = [stretch.views(pinned) for pinned in self._pinned], stretch.views(self._read)
        self.update, self.numbers = self._arrays["update"], self._arrays["numbers"]
        self.batches: list[FixedBatch] = []
        self.has_run = False
        self.graph: Any = None

    def write(
        self, turn: int, shards: Sequence[Batch], neighbourhood: int | None, step: int, numbers: Sequence[float]
    ) -> None:
        """Put what an update needs into pinned memory."""
        written = self._written[turn]
        written["update"][...], written["numbers"][...] = step, numbers
        spans = [fill(_of_shard(written, i), shard, neighbourhood) for i, shard in enumerate(shards)]
        if not self.batches:
            self.batches = [FixedBatch.of(_of_shard(self._arrays, i), of_shard) for i, of_shard in enumerate(spans)]

    def upload(self, turn: int, stream: Any) -> Any:
        """Copy it to the device; returns the event behind that."""
        self._uploaded[turn].set(self._pinned[turn], stream)
        return stream.record()

    def take(self, turn: int) -> None:
        """Put it where launches read it, behind those of the update before."""
        self._read[...] = self._uploaded[turn]


def _of_shard(arrays: dict[str, Array], shard: int) -> dict[str, Array]:
    prefix = f"{shard}."
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def pinned_bytes(cuda: Any, n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Memory of the host that a GPU copies from and to by itself."""
    return np.frombuffer(cuda.alloc_pinned_memory(n), np.uint8, n)


def is_capturable(model: Transformer) -> bool:
    """Whether every operation of an update has a kernel that depends on nothing of the host.

    The reference of attention does, so bfloat16 is needed, widths that its kernel knows, and no dropout of weights;
    and so does a learned table of positions, which looks at the places.
    """
    config, one = model.config, Blocks.of_lengths([1])
    if model.parameters.copies is None or model.device != "cuda" or config.positions == "learned":
        return False
    if config.p_drop_attention:
        return False
    empty, stored = namespace_of_device("cuda").empty, dtype_named("bfloat16")
    q, v = (empty((1, config.n_heads, width), stored) for width in (config.d_k, config.d_v))
    row, gain = empty((1, config.d_model), stored), empty(config.d_model, np.float32)
    return _has_kernel(ops.attention, q, q, v, spans=self_attention_spans(one)) and _has_kernel(
        ops.layer_norm, row, gain, gain
    )


def _has_kernel(operation: Dispatch[Any], *arguments: Array, **static: Any) -> bool:
    return operation.choose(arguments, static) in [kernel.run for kernel in operation.kernels]
