"""Pieces merged into words: which are merged, and what becomes of their weights."""

from __future__ import annotations

import dataclasses

import numpy as np
from attended import pair_of

from minitransformer.extras.report.merging import merge_words

PAIR = pair_of(["the", "h", "·ous", "·es"], ["H", "·äuser", ",", "·a"])


def test_the_pieces_of_a_word_are_one_token_and_marks_remain() -> None:
    merged = merge_words(PAIR)
    assert merged.source == ["the", "houses", "<EOS>"]
    assert merged.inputs == ["<BOS>", "Häuser", ",a"]
    assert merged.outputs == ["Häuser", ",a", "<EOS>"]
    assert (merged.sentence, merged.translation) == (PAIR.sentence, PAIR.translation)


def test_attended_pieces_are_added_and_attending_pieces_averaged() -> None:
    merged, of_pieces = merge_words(PAIR).weights, PAIR.weights
    cross = of_pieces.encoder_decoder[1, 2]  # H, ·äuser, ",", ·a, <EOS>; the, h, ·ous, ·es, <EOS>
    expected = [
        [
            (cross[q, 0] + cross[q + 1, 0]) / 2,
            (cross[q, 1] + cross[q, 2] + cross[q, 3] + cross[q + 1, 1] + cross[q + 1, 2] + cross[q + 1, 3]) / 2,
            (cross[q, 4] + cross[q + 1, 4]) / 2,
        ]
        for q in (0, 2)
    ]
    expected.append([cross[4, 0], cross[4, 1] + cross[4, 2] + cross[4, 3], cross[4, 4]])
    np.testing.assert_allclose(merged.encoder_decoder[1, 2], expected)
    decoder = of_pieces.decoder[0, 1]  # <BOS>, H, ·äuser, ",", ·a on both sides
    np.testing.assert_allclose(merged.decoder[0, 1][0], [1, 0, 0])
    np.testing.assert_allclose(
        merged.decoder[0, 1][1], [decoder[1:3, 0].mean(), (decoder[1, 1] + decoder[2, 1] + decoder[2, 2]) / 2, 0]
    )


def test_every_row_still_sums_to_1() -> None:
    weights = merge_words(PAIR).weights
    for of_kind, shape in (
        (weights.encoder, (2, 3, 3, 3)),
        (weights.decoder, (2, 3, 3, 3)),
        (weights.encoder_decoder, (2, 3, 3, 3)),
    ):
        assert of_kind.shape == shape
        np.testing.assert_allclose(of_kind.sum(-1), 1)


def test_words_of_one_piece_stay_as_they_are() -> None:
    pair = pair_of(["a", "b"], ["c"])
    merged = merge_words(pair)
    assert (merged.source, merged.outputs) == (pair.source, pair.outputs)
    np.testing.assert_array_equal(merged.weights.encoder, pair.weights.encoder)


def test_merged_words_are_not_merged_again() -> None:
    once = merge_words(PAIR)
    twice = merge_words(once)
    assert twice.source == once.source
    np.testing.assert_array_equal(twice.weights.decoder, once.weights.decoder)


def test_a_dot_of_the_text_and_a_blank_of_its_own_are_not_mistaken_for_marks() -> None:
    """A word that is a dot begins a word; sentencepiece's mark may be a piece of its own."""
    pair = dataclasses.replace(
        pair_of(["·", "a", "▁", "··"], ["▁"]), source_starts=[0, 1, 2, 4], target_starts=[0]
    )  # pieces ▁·  ▁a  ▁ ·
    merged = merge_words(pair)
    assert merged.source == ["·", "a", "·", "<EOS>"]
    assert merged.outputs == ["▁", "<EOS>"]
