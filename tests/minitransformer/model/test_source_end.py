"""Models that append no end symbol to sources: they read [s, END] as other models read s."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from minitransformer import Batch, ModelConfig, RunConfig, Transformer, presets
from minitransformer.config import ConfigError
from minitransformer.extras.attention import attention_weights
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import score_pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import EmptySourceError
from minitransformer.model.symbols import END

CONFIG = ModelConfig(vocabulary_size=11, n_layers=2, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=4)
SOURCES, TARGETS = [[3, 4, 5, 6], [7], [9, 3]], [[5, 6], [4, 4, 8], [10]]
WITH_END = [[*source, END] for source in SOURCES]


def models() -> tuple[Transformer, Transformer]:
    """The same weights, with an end symbol after every source, and without."""
    return Transformer(CONFIG, seed=4), Transformer(dataclasses.replace(CONFIG, source_end=False), seed=4)


def test_no_end_symbol_is_appended() -> None:
    batch = Batch.from_token_ids(SOURCES, TARGETS, source_end=False)
    assert batch.source_ids.tolist() == [3, 4, 5, 6, 7, 9, 3]
    assert batch.source.lengths.tolist() == [4, 1, 2]
    assert batch.labels.tolist() == [5, 6, END, 4, 4, 8, END, 10, END]


def test_scores_translations_and_attention_are_those_of_sources_with_an_end_of_their_own() -> None:
    with_end, without = models()
    assert score_pairs(without, list(zip(WITH_END, TARGETS, strict=True))) == score_pairs(
        with_end, list(zip(SOURCES, TARGETS, strict=True))
    )
    assert score_pairs(without, list(zip(SOURCES, TARGETS, strict=True))) != score_pairs(
        with_end, list(zip(SOURCES, TARGETS, strict=True))
    )
    expected = attention_weights(with_end, SOURCES[0], TARGETS[0])
    found = attention_weights(without, WITH_END[0], TARGETS[0])
    np.testing.assert_array_equal(found.encoder, expected.encoder)
    np.testing.assert_array_equal(found.encoder_decoder, expected.encoder_decoder)


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_have_as_many_tokens_as_those_of_sources_with_an_end(beam: int) -> None:
    with_end, without = models()
    expected = beam_search(with_end, SOURCES, SearchConfig(beam=beam, max_extra_tokens=5))
    found = beam_search(without, WITH_END, SearchConfig(beam=beam, max_extra_tokens=4))
    assert [h[0].ids for h in found] == [h[0].ids for h in expected]
    longest = beam_search(without, SOURCES, SearchConfig(max_extra_tokens=1))
    assert all(len(h[0].ids) < len(source) + 1 for source, h in zip(SOURCES, longest, strict=True))


def test_an_empty_source_is_refused() -> None:
    _, without = models()
    with pytest.raises(EmptySourceError, match="a source has no token.*remove empty sources"):
        score_pairs(without, [([3], [4]), ([], [5])])


def test_training_always_appends_the_end_symbol() -> None:
    model = dataclasses.replace(presets.tiny(), source_end=False)
    with pytest.raises(ConfigError, match="source_end must be true in a training run"):
        RunConfig(model=model)
