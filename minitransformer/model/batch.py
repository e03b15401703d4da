"""A batch of sentence pairs: one flat array of token ids for each side, no padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from autograd import Segments
from autograd.array import Array, IntArray
from autograd.ops.embedding import order_of
from minitransformer.model.masks import BatchMasks, causal_mask, encoder_decoder_mask, self_attention_mask
from minitransformer.model.symbols import END, START
from minitransformer.system.errors import UserError

Ids = Sequence[int] | np.ndarray[Any, Any]  # of one sentence, without start and end symbols
IdPair = tuple[Ids, Ids]
PackedIds = tuple[IntArray, Segments]  # the ids of several sentences in one array, their lengths and offsets


class EmptySourceError(UserError, ValueError):
    """An error: a source without a token, for a model that appends no end symbol to sources."""


class Orders(NamedTuple):
    """The indices that sort the token ids and the positions of one side, for ``ops.embedding``; None if unknown."""

    ids: Array | None = None
    positions: Array | None = None


NO_ORDERS = Orders()


@dataclass(frozen=True, eq=False)
class Batch:
    """Packed sentence pairs.  Sources (with ``source_end``) and labels end with END; decoder inputs begin with START.

    START is the id 1, END the id 2.  ``labels`` are the target tokens that the decoder predicts.
    Shapes: source_ids (S,), decoder_ids and labels (T,), integers; a label is −1 where no token is predicted.
    ``source`` and ``target`` hold the lengths and offsets of B sentences each.
    """

    source_ids: IntArray
    source: Segments
    decoder_ids: IntArray
    labels: IntArray
    target: Segments

    @classmethod
    def from_token_ids(cls, sources: Sequence[Ids], targets: Sequence[Ids], *, source_end: bool = True) -> Batch:
        """Return a batch of pairs; the sequences of ids must not have start and end symbols.

        ``source_end`` is the model's setting; if it is false, no end symbol is appended to the sources.
        Raises: EmptySourceError if a source would have no token.  TypeError if a sentence is not a sequence of ids.
        ValueError if the numbers of sources and targets
        differ, if an id is not a whole number ≥ 0, or if a target contains the start symbol, which only begins
        decoder inputs.
        """
        for side, sentences in (("source", sources), ("target", targets)):
            _require_sentences(side, sentences)
        if len(sources) != len(targets):
            raise ValueError(f"Batch: expected as many targets as sources; got {len(sources)} and {len(targets)}")
        return cls.of(pack_sequences(sources, end=source_end), pack_sequences(targets))

    @classmethod
    def of(cls, sources: PackedIds, targets: PackedIds) -> Batch:
        """Return a batch of packed sources and targets: their ids, with the end symbols appended, and their segments.

        Raises: ValueError if a target contains the start symbol.
        """
        (source_ids, source), (labels, target) = sources, targets
        if len(found := np.flatnonzero(labels == START)):
            number = target.segment_of_token[found[0]]
            start = target.starts[number]
            ids = labels[start : start + target.lengths[number] - 1].tolist()
            raise ValueError(
                f"Batch: target {number} has the start symbol (id {START}): {ids!r:.80}."
                " Give targets without start and end symbols; Batch adds them"
            )
        decoder_ids = np.empty_like(labels)
        decoder_ids[1:] = labels[:-1]
        decoder_ids[target.starts] = START
        return cls(source_ids, source, decoder_ids, labels, target)

    def __len__(self) -> int:
        return len(self.target)

    @property
    def source_positions(self) -> IntArray:
        """(S,) the position of each source token in its sentence."""
        return self.source.position_in_segment

    @property
    def target_positions(self) -> IntArray:
        """(T,) the position of each decoder input in its sentence."""
        return self.target.position_in_segment

    @cached_property
    def source_orders(self) -> Orders:
        """The indices that sort ``source_ids`` and ``source_positions``: ``order`` of ``ops.embedding``."""
        return Orders(order_of(self.source_ids), order_of(self.source_positions))

    @cached_property
    def target_orders(self) -> Orders:
        """The indices that sort ``decoder_ids`` and ``target_positions``: ``order`` of ``ops.embedding``."""
        return Orders(order_of(self.decoder_ids), order_of(self.target_positions))

    def masks(self, neighbourhood: int | None) -> BatchMasks:
        """Return the masks ``encoder`` and ``decoder`` of self-attention, and ``source`` of attention to the source.

        Self-attention sees ``neighbourhood`` tokens on each side, or all if None; the decoder's sees no later token.
        """
        return BatchMasks(
            self_attention_mask(self.source, neighbourhood),
            causal_mask(self.target, neighbourhood),
            encoder_decoder_mask(self.target, self.source),
        )

    @cached_property
    def n_target_tokens(self) -> int:
        """The number of labels, end symbols included; a summed loss is divided by this number."""
        return len(self.labels)

    @cached_property
    def n_source_tokens(self) -> int:
        """The number of source tokens, end symbols included."""
        return len(self.source_ids)


def _require_sentences(side: str, sentences: Sequence[Ids]) -> None:
    """Raise TypeError unless each of the sentences is a sequence of token ids, not one id or text."""
    for number, ids in enumerate(sentences):
        if isinstance(ids, str | bytes):
            raise TypeError(f"Batch: {side} {number} is text, {ids!r:.80}; make token ids of it with a Tokenizer")
        if not hasattr(ids, "__len__") or (len(ids) and isinstance(ids[0], list | tuple | np.ndarray)):
            raise TypeError(
                f"Batch: {side} {number} must be a sequence of token ids, got {ids!r:.80}; one pair of sentences is"
                " Batch.from_token_ids([[5, 6]], [[7]])"
            )


def pack_sequences(sequences: Sequence[Ids], *, end: bool = True) -> PackedIds:
    """Return all sequences in one array, each followed by END if ``end``, and their lengths and offsets.

    Raises: ValueError if an id is not a whole number ≥ 0: NumPy would truncate a fraction, and a negative id would
    count from the end of the table.  EmptySourceError if a sequence would have no token for queries to attend to.
    """
    segments = Segments.of_lengths([len(sequence) + end for sequence in sequences])
    ids = np.full(segments.n_tokens, END, np.int64)
    for number, (start, sequence) in enumerate(zip(segments.starts, sequences, strict=True)):
        given = np.asarray(sequence)
        if len(given) and (given.dtype.kind not in "iu" or given.min() < 0):
            raise ValueError(f"token ids must be whole numbers of at least 0; sequence {number} is {sequence!r:.80}")
        if not (len(given) or end):
            raise EmptySourceError(
                f"source {number} has no token, and this model appends no end symbol to sources; remove empty sources"
            )
        ids[start : start + len(given)] = given
    return ids, segments
