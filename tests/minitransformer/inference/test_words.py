"""Words from pieces: where they begin, and the weights between them."""

from __future__ import annotations

import numpy as np

from minitransformer.inference.words import weights_of_words, word_starts


def test_words_begin_at_blanks() -> None:
    assert word_starts(["▁h", "ous", "es", "▁", ",", "▁▁", "▁a"]) == [0, 3, 5, 6]
    assert word_starts(["no", "mark", "▁a"]) == [0, 2]


def test_a_mark_of_its_own_belongs_to_the_word_after_it() -> None:
    assert word_starts(["▁a", "▁", "▁b", "c"]) == [0, 1]
    assert word_starts([]) == []


def test_weights_are_added_over_attended_pieces_and_averaged_over_attending_ones() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.0, 0.4, 0.6]])
    expected = [[(0.3 + 0.8) / 2, (0.7 + 0.2) / 2], [0.4, 0.6]]
    np.testing.assert_allclose(weights_of_words(weights, [0, 2], [0, 2]), expected)
