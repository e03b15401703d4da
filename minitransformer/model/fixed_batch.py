"""Batches of fixed capacity: arrays with fixed addresses and shapes, refilled for every batch.

A CUDA graph is captured once and launched for every update; it reads the same addresses and shapes each time.
So every batch is padded to the capacity with filler tokens.  No token of a sentence attends to a filler token, and
filler tokens have no label, so every gradient in their rows is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from autograd import Segments
from autograd.array import Array, IntArray
from autograd.tiles import BLOCK_ROWS, SLOTS, Tiles, count_blocks, keep_tiles, tiles_on_host
from minitransformer.model.batch import Batch, Orders
from minitransformer.model.masks import BatchMasks, causal_mask, encoder_decoder_mask, self_attention_mask

Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]  # name of an array → its shape and dtype

OF_SOURCE, OF_TARGET = ("source_ids", "source_positions"), ("decoder_ids", "target_positions", "labels")
ORDERS = {"source_orders": OF_SOURCE, "target_orders": OF_TARGET[:2]}  # orders of a batch → the arrays that they sort
ALIGNMENT = 256  # bytes
NO_LABEL = -1  # see ``cross_entropy``


class Capacity(NamedTuple):
    """The sizes of a fixed batch: source and target tokens, and blocks of attention of short and long sentences."""

    source: int
    target: int
    blocks: int
    long_blocks: int
    """0 if all sentences are short: then no kernel for long sentences is launched."""

    @classmethod
    def of(cls, lengths: Sequence[IntArray], step: int) -> Capacity:
        """Return the smallest capacity for several batches, of which only ``lengths`` are known.

        Token counts are rounded up to multiples of ``step``, and block counts to a few sizes, so that few shapes occur.
        The capacity always includes one more source token, to which the filler tokens of the target side attend.
        Token ids are not needed, so a rank can compute the capacity for batches that other ranks read.
        Shapes: lengths (B, 2) for each batch of B pairs: source and target tokens, end symbols included.
        """
        source = max(_round_up(int(batch_lengths[:, 0].sum()) + 1, step) for batch_lengths in lengths)
        target = max(_round_up(max(1, int(batch_lengths[:, 1].sum())), step) for batch_lengths in lengths)
        segments = [
            (Segments.of_lengths(batch_lengths[:, 0]), Segments.of_lengths(batch_lengths[:, 1]))
            for batch_lengths in lengths
        ]
        counts = [
            count_blocks(queries.lengths, keys.lengths)
            for sides in segments
            for queries, keys in _segments_of_masks(*sides, source, target)
        ]
        blocks, long_blocks = (max(kind_counts) for kind_counts in zip(*counts, strict=True))
        unit = max(source, target) // BLOCK_ROWS + 1
        return cls(
            source, target, _power_of_two_times(unit, blocks), long_blocks and _power_of_two_times(unit, long_blocks)
        )

    def shapes(self) -> Shapes:
        """Return the shape and dtype of each array of a ``FixedBatch``."""
        ids = dict.fromkeys(OF_SOURCE, self.source) | dict.fromkeys(OF_TARGET, self.target)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {name: ((n,), "int64") for name, n in ids.items()}
        shapes |= {f"{name}.order": ((ids[name],), "int32") for names in ORDERS.values() for name in names}
        short, long = (self.blocks, 4 * SLOTS), (self.long_blocks, 4 * SLOTS)
        for name, queries in (("encoder", self.source), ("decoder", self.target), ("source", self.target)):
            tiles = Tiles(short, long, long, (queries, 2), (queries, 2), (1,))
            shapes |= {f"{name}.{part}": (shape, "int32") for part, shape in tiles._asdict().items()}
        return shapes


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _power_of_two_times(unit: int, least: int) -> int:
    while unit < least:
        unit *= 2
    return unit


def _fill_up(segments: Segments, n_tokens: int) -> Segments:
    """Append short segments of filler tokens, so that the segments have ``n_tokens`` tokens."""
    starts = np.arange(segments.n_tokens, n_tokens, BLOCK_ROWS)
    return Segments.of_lengths(np.append(segments.lengths, np.minimum(n_tokens - starts, BLOCK_ROWS)))


def _segments_of_masks(
    source: Segments, target: Segments, n_source: int, n_target: int
) -> tuple[tuple[Segments, Segments], ...]:
    """Return the segments of queries and keys of the encoder's, the decoder's and the encoder-decoder attention.

    In encoder-decoder attention, all filler queries have the same key, the first filler token of the source.
    """
    filled_source, filled_target = _fill_up(source, n_source), _fill_up(target, n_target)
    n_fillers = len(filled_target) - len(target)
    filler_keys = np.full(n_fillers, source.n_tokens), np.ones(n_fillers, np.int64)
    keys = Segments(*map(np.append, (source.starts, source.lengths), filler_keys))
    return (filled_source, filled_source), (filled_target, filled_target), (filled_target, keys)


@dataclass(frozen=True, eq=False)
class FixedBatch:
    """A padded batch whose arrays are on a device, with the properties of ``Batch`` that the model reads.

    Its attention masks are on the host; only the tiles of the masks are on the device.
    """

    source_ids: Array
    source_positions: Array
    source_orders: Orders
    decoder_ids: Array
    target_positions: Array
    target_orders: Orders
    labels: Array
    model_masks: BatchMasks

    @property
    def n_target_tokens(self) -> Array:
        """The number of labels without filler tokens, in float32 on the device: an array without axes."""
        return (self.labels != NO_LABEL).sum().astype(np.float32)

    @classmethod
    def of(cls, arrays: Mapping[str, Array], masks: BatchMasks) -> FixedBatch:
        """Return a batch that reads ``arrays``, which have the shapes of a ``Capacity``.

        ``masks`` are the masks that ``fill`` returned.
        """
        for name, mask in masks._asdict().items():
            keep_tiles(mask, Tiles(*(arrays[f"{name}.{part}"] for part in Tiles._fields)))
        orders = {name: Orders(*(arrays[f"{side}.order"] for side in sides)) for name, sides in ORDERS.items()}
        return cls(**{name: arrays[name] for name in (*OF_SOURCE, *OF_TARGET)}, **orders, model_masks=masks)

    def masks(self, neighbourhood: int | None) -> BatchMasks:
        """Return the masks given to ``of``, which must be for this neighbourhood.  Their tiles are on the device."""
        del neighbourhood
        return self.model_masks


ModelInput: TypeAlias = Batch | FixedBatch


def fill(arrays: Mapping[str, np.ndarray[Any, Any]], batch: Batch, neighbourhood: int | None) -> BatchMasks:
    """Pad a batch, write it into arrays of the shapes of a ``Capacity``, and return its attention masks."""
    padded, masks = _pad(batch, len(arrays["source_ids"]), len(arrays["labels"]), neighbourhood)
    for name in (*OF_SOURCE, *OF_TARGET):
        arrays[name][...] = getattr(padded, name)
    for name, n_tokens in (("source_positions", batch.n_source_tokens), ("target_positions", batch.n_target_tokens)):
        arrays[name][n_tokens:] = 0  # a position that every learned table has
    for name, sides in ORDERS.items():  # the orders leave out filler tokens, whose gradients are 0
        for side, order in zip(sides, getattr(batch, name), strict=True):
            array = arrays[f"{side}.order"]
            array[: len(order)], array[len(order) :] = order, -1
    for name, queries, keys in (
        ("encoder", batch.source, batch.source),
        ("decoder", batch.target, batch.target),
        ("source", batch.target, batch.source),
    ):
        tiles = tiles_on_host(getattr(masks, name), (queries.longest, keys.longest))  # as in ``batch``, for dropout
        for part, rows in tiles._asdict().items():
            array = arrays[f"{name}.{part}"]
            array[: len(rows)], array[len(rows) :] = rows, 0
    return masks


def _pad(batch: Batch, n_source: int, n_target: int, neighbourhood: int | None) -> tuple[Batch, BatchMasks]:
    """Append filler tokens to each side; they have no label, and attend to filler tokens only."""
    (source, _), (target, _), (queries, keys) = _segments_of_masks(batch.source, batch.target, n_source, n_target)
    labels = np.append(batch.labels, np.full(n_target - len(batch.labels), NO_LABEL))
    padded = Batch(
        np.resize(batch.source_ids, n_source), source, np.resize(batch.decoder_ids, n_target), labels, target
    )
    return padded, BatchMasks(
        self_attention_mask(source, neighbourhood),
        causal_mask(target, neighbourhood),
        encoder_decoder_mask(queries, keys),
    )


class BufferLayout:
    """A layout of several arrays in one byte buffer, so that a single copy moves them all."""

    def __init__(self, shapes: Shapes) -> None:
        self.n_bytes, self._offsets = 0, dict[str, tuple[int, tuple[int, ...], Any]]()
        for name, (shape, dtype) in shapes.items():
            self._offsets[name] = self.n_bytes, shape, np.dtype(dtype)
            self.n_bytes += _round_up(prod(shape) * np.dtype(dtype).itemsize, ALIGNMENT)

    def views(self, buffer: Array) -> dict[str, Array]:
        """Return the arrays by name, as views of a flat array of bytes on the host or on a device."""
        return {
            name: buffer[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for name, (start, shape, dtype) in self._offsets.items()
        }
