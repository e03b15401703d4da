"""Batches of fixed capacity: arrays that stay where they are while other sentences are put into them.

What is enqueued on a GPU once, and launched again for every update, reads the same addresses and has the same shapes
each time.  So a batch is filled up with tokens that count nothing: they stand alone, nobody sees them, they have no
label, and so every gradient in their rows is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from autograd import Blocks, KeySpans
from autograd.array import Array
from autograd.tiles import ROWS, Tiles, count_tiles, keep_tiles, tiles_on_host
from minitransformer.model.batch import Batch
from minitransformer.model.spans import BatchSpans

Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]  # with a dtype each

OF_SOURCE, OF_TARGET = ("source_ids", "source_places"), ("decoder_ids", "target_places", "labels")
ALIGNMENT = 256  # bytes
NO_LABEL = -1  # see ``cross_entropy``


class Capacity(NamedTuple):
    """Room of a batch: tokens of each side, and tiles of attention."""

    source: int
    target: int
    source_tiles: int
    target_tiles: int

    @classmethod
    def of(cls, batches: Sequence[Batch], step: int) -> Capacity:
        """The least room for any of the batches: tokens in multiples of ``step``, tiles in few sizes.

        Room for a source token more, which tokens that fill up the targets look at.
        """
        source = max(_rounded_up(batch.n_source_tokens + 1, step) for batch in batches)
        target = max(_rounded_up(max(1, batch.n_target_tokens), step) for batch in batches)
        tiles = (
            max(_power_of_two_times(room // ROWS + 1, count_tiles(_filled(blocks, room).lengths)) for blocks in sides)
            for room, sides in (
                (source, [batch.source for batch in batches]), (target, [batch.target for batch in batches]),
            )
        )  # fmt: skip
        return cls(source, target, *tiles)

    def shapes(self) -> Shapes:
        """Of the arrays of a ``FixedBatch``."""
        ids = dict.fromkeys(OF_SOURCE, self.source) | dict.fromkeys(OF_TARGET, self.target)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {name: ((n,), "int64") for name, n in ids.items()}
        sides = {"encoder": (self.source_tiles, self.source_tiles, self.source),
                 "decoder": (self.target_tiles, self.target_tiles, self.target),
                 "source": (self.target_tiles, self.source_tiles, self.target)}  # fmt: skip
        for name, (of_queries, of_keys, queries) in sides.items():
            rooms = Tiles((of_queries, 4), (of_keys, 4), (queries, 2))
            shapes |= {f"{name}.{part}": (shape, "int32") for part, shape in rooms._asdict().items()}
        return shapes


def _rounded_up(n: int, step: int) -> int:
    return -(-n // step) * step


def _power_of_two_times(unit: int, least: int) -> int:
    while unit < least:
        unit *= 2
    return unit


def _filled(blocks: Blocks, room: int) -> Blocks:
    """With one more block, of all tokens that are missing."""
    return Blocks.of_lengths(np.append(blocks.lengths, room - blocks.n_tokens))


@dataclass(frozen=True, eq=False)
class FixedBatch:
    """A ``ModelInput`` whose arrays lie on a device, and on the host the spans whose shapes they have."""

    source_ids: Array
    source_places: Array
    decoder_ids: Array
    target_places: Array
    labels: Array
    of_model: BatchSpans

    @classmethod
    def of(cls, arrays: Mapping[str, Array], spans: BatchSpans) -> FixedBatch:
        """What lies in arrays of the shapes of a ``Capacity``, with the spans that ``fill`` returned."""
        for name, of_name in spans._asdict().items():
            keep_tiles(of_name, Tiles(*(arrays[f"{name}.{part}"] for part in Tiles._fields)))
        return cls(**{name: arrays[name] for name in (*OF_SOURCE, *OF_TARGET)}, of_model=spans)

    def spans(self, neighbourhood: int | None) -> BatchSpans:
        """Those of the host, whose tiles lie with the other arrays; they were made for the same neighbourhood."""
        del neighbourhood
        return self.of_model


def fill(arrays: Mapping[str, np.ndarray[Any, Any]], batch: Batch, neighbourhood: int | None) -> BatchSpans:
    """Write a batch, filled up, into arrays of the shapes of a ``Capacity``; return its spans."""
    padded, spans = _padded(batch, len(arrays["source_ids"]), len(arrays["labels"]), neighbourhood)
    for name in (*OF_SOURCE, *OF_TARGET):
        arrays[name][...] = getattr(padded, name)
    for name, n_keys in (
        ("encoder", batch.n_source_tokens), ("decoder", batch.n_target_tokens), ("source", batch.n_source_tokens),
    ):  # fmt: skip
        tiles = tiles_on_host(getattr(spans, name))
        counting = tiles.of_keys[:, 0] < n_keys  # gradients of other keys are 0 without being computed
        for part, rows in tiles._replace(of_keys=tiles.of_keys * counting[:, None])._asdict().items():
            room = arrays[f"{name}.{part}"]
            room[: len(rows)], room[len(rows) :] = rows, 0
    return spans


def _padded(batch: Batch, n_source: int, n_target: int, neighbourhood: int | None) -> tuple[Batch, BatchSpans]:
    """With a last block a side that has no labels, each of whose tokens attends to one token of that block."""
    source, target = _filled(batch.source, n_source), _filled(batch.target, n_target)
    labels = np.append(batch.labels, np.full(n_target - len(batch.labels), NO_LABEL))
    padded = Batch(
        np.resize(batch.source_ids, n_source), source, np.resize(batch.decoder_ids, n_target), labels, target
    )
    spans = padded.spans(neighbourhood)
    sources, targets = np.arange(batch.n_source_tokens, n_source), np.arange(batch.n_target_tokens, n_target)
    return padded, BatchSpans(
        _attending(spans.encoder, sources),
        _attending(spans.decoder, targets),
        _attending(spans.source, np.full(len(targets), batch.n_source_tokens)),
    )


def _attending(spans: KeySpans, keys: np.ndarray[Any, np.dtype[np.int64]]) -> KeySpans:
    """The same, but for the last queries, which attend to one key each."""
    n = len(spans.first) - len(keys)
    first, last = np.append(spans.first[:n], keys), np.append(spans.last[:n], keys + 1)
    return KeySpans(first, last, spans.queries, spans.keys)


class Stretch:
    """Arrays side by side in one stretch of bytes, so that one copy moves them all."""

    def __init__(self, shapes: Shapes) -> None:
        self.n_bytes, self._places = 0, dict[str, tuple[int, tuple[int, ...], Any]]()
        for name, (shape, dtype) in shapes.items():
            self._places[name] = self.n_bytes, shape, np.dtype(dtype)
            self.n_bytes += _rounded_up(prod(shape) * np.dtype(dtype).itemsize, ALIGNMENT)

    def views(self, stretch: Array) -> dict[str, Array]:
        """The arrays in a flat array of bytes, on the host or on a device."""
        return dict(self._views(stretch))

    def _views(self, stretch: Array) -> Iterator[tuple[str, Array]]:
        for name, (start, shape, dtype) in self._places.items():
            yield name, stretch[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
