"""Subword pieces merged into words, for attention pages and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from minitransformer.extras.report.attended import AttendedPair
from minitransformer.inference.attention import AttentionWeights, weights_of_words
from minitransformer.model.symbols import BLANK


def merge_words(pair: AttendedPair) -> AttendedPair:
    """Merge the pieces of each word into one token; words are separated by blanks, so they include punctuation."""
    source, target = pair.source_starts, pair.target_starts
    inputs, outputs = [0, *(start + 1 for start in target)], [*target, len(pair.outputs) - 1]
    weights = pair.weights
    return dataclasses.replace(
        pair,
        source=_joined(pair.source, source),
        inputs=_joined(pair.inputs, inputs),
        outputs=_joined(pair.outputs, outputs),
        source_starts=list(range(len(source))),
        target_starts=list(range(len(target))),
        weights=AttentionWeights(
            encoder=weights_of_words(weights.encoder, source, source),
            decoder=weights_of_words(weights.decoder, inputs, inputs),
            encoder_decoder=weights_of_words(weights.encoder_decoder, outputs, source),
        ),
    )


def _joined(tokens: Sequence[str], starts: Sequence[int]) -> list[str]:
    """Join displayed tokens (see ``shown_pieces``) to words; a mark "▁" of its own is dropped before other pieces."""
    words = []
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        first, others = tokens[start], [token.removeprefix("·") for token in tokens[start + 1 : end]]
        words.append("".join(others if first == BLANK and others else [first, *others]))
    return words
