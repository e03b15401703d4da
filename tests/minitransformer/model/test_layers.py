"""Layers in the words of the paper; starts of targets and ends of sources; gradients: test_gradients."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from autograd import ParameterBuffer, Tensor
from minitransformer import Batch, ModelConfig, RunConfig, Transformer, presets
from minitransformer.config import ConfigError
from minitransformer.extras.attention import attention_weights
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import score_pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import EmptySourceError
from minitransformer.model.layers import Embedding, LayerNorm, Residual
from minitransformer.model.symbols import END, START

CONFIG = ModelConfig(vocabulary_size=9, d_model=4, d_ff=5, n_heads=2, d_k=3, d_v=2, p_drop=0.2)


def ready(layer: Any) -> Any:
    ParameterBuffer(layer, seed=1, dtype="float64")
    return layer


def test_post_norm_normalises_the_sum_and_pre_norm_the_input() -> None:
    x, norm = Tensor(np.random.default_rng(0).standard_normal((3, 4))), ready(LayerNorm(4, eps=0.1))
    config = dataclasses.replace(CONFIG, layer_norm_eps=0.1)
    post, pre = (ready(Residual(dataclasses.replace(config, norm=kind))) for kind in ("post", "pre"))
    np.testing.assert_allclose(post(x, post.sublayer_input(x) * 3.0, None).value, norm(x * 4.0).value)
    np.testing.assert_allclose(pre(x, pre.sublayer_input(x) * 3.0, None).value, (x + norm(x) * 3.0).value)


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    embedding = ready(Embedding(9, 4))
    np.testing.assert_allclose(embedding(np.array([2])).value[0], 2 * embedding.weight.value[2])


@pytest.mark.parametrize("target", [[START, 6], [6, START], np.array([6, START, 7])])
def test_a_start_symbol_in_a_target_is_refused_with_the_sentence_and_the_remedy(target: Any) -> None:
    """It would be taken for a zero vector or the end symbol there, too."""
    with pytest.raises(ValueError, match=r"target 1 has the start symbol \(id 1\): .*Give targets without"):
        Batch.from_token_ids([[3], [4], [5]], [[START + 5], target, [START]])
    assert len(Batch.from_token_ids([[START, 3]], [[6]])) == 1  # of a source it is a word like any other


TWO_LAYERS = ModelConfig(vocabulary_size=11, n_layers=2, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=4)
SOURCES, TARGETS = [[3, 4, 5, 6], [7], [9, 3]], [[5, 6], [4, 4, 8], [10]]
WITH_END = [[*source, END] for source in SOURCES]


def models() -> tuple[Transformer, Transformer]:
    """The same weights, with an end symbol after every source, and without."""
    return Transformer(TWO_LAYERS, seed=4), Transformer(dataclasses.replace(TWO_LAYERS, source_end=False), seed=4)


def test_no_end_symbol_is_appended_and_an_empty_source_is_refused() -> None:
    batch = Batch.from_token_ids(SOURCES, TARGETS, source_end=False)
    assert batch.source_ids.tolist() == [3, 4, 5, 6, 7, 9, 3]
    assert batch.source.lengths.tolist() == [4, 1, 2]
    assert batch.labels.tolist() == [5, 6, END, 4, 4, 8, END, 10, END]
    with pytest.raises(EmptySourceError, match="a source has no token.*remove empty sources"):
        score_pairs(models()[1], [([3], [4]), ([], [5])])


def test_scores_translations_and_attention_are_those_of_sources_with_an_end_of_their_own() -> None:
    with_end, without = models()
    pairs, pairs_with_end = (list(zip(sources, TARGETS, strict=True)) for sources in (SOURCES, WITH_END))
    scores = score_pairs(with_end, pairs)
    assert score_pairs(without, pairs_with_end) == scores != score_pairs(without, pairs)
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


def test_training_always_appends_the_end_symbol() -> None:
    model = dataclasses.replace(presets.tiny(), source_end=False)
    with pytest.raises(ConfigError, match="source_end must be true in a training run"):
        RunConfig(model=model)
