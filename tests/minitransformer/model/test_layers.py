"""Layers and batches: the words of the paper.  Their gradients are in test_gradients."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from autograd import ParameterBuffer, Tensor
from minitransformer import ModelConfig
from minitransformer.model.batch import Batch
from minitransformer.model.layers import Embedding, LayerNorm, Residual

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


def test_batches_close_sources_and_shift_targets() -> None:
    batch = Batch.from_token_ids([[5, 6], []], [[7], [8, 9]])
    assert batch.source_ids.tolist() == [5, 6, 2, 2]
    assert batch.decoder_ids.tolist() == [1, 7, 1, 8, 9]
    assert batch.labels.tolist() == [7, 2, 8, 9, 2]
    assert (batch.n_source_tokens, batch.n_target_tokens, len(batch)) == (4, 5, 2)
