"""What an update costs, in counts that no other load on the machine can change."""

from __future__ import annotations

import dataclasses
import tracemalloc
from typing import Any

import numpy as np
import pytest
from metered import Meter, flops, watched

from autograd import RandomStream, backward, no_tape
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.training.flops import flops_of_pairs

CONFIG = ModelConfig(vocabulary_size=50, n_layers=2, d_model=24, d_ff=40, n_heads=3, d_k=8, d_v=8)
SOURCE, TARGET, N_PAIRS = 14, 18, 5  # tokens of every sentence, with its end: no padding


def metered(config: ModelConfig = CONFIG, n_pairs: int = N_PAIRS) -> tuple[Transformer, Batch]:
    model = watched(Transformer(config))
    random = np.random.default_rng(1)
    ids = [random.integers(3, config.vocabulary_size, (n_pairs, n - 1)).tolist() for n in (SOURCE, TARGET)]
    return model, Batch.from_token_ids(*ids)


def update(model: Transformer, batch: Batch) -> None:
    backward(model.loss(batch, RandomStream(1)))


@pytest.mark.parametrize(
    "sizes",
    [{}, {"d_k": 5, "d_v": 11, "n_heads": 2, "d_ff": 13, "n_layers": 1}, {"n_decoder_layers": 1, "activation": "gelu"}],
)
def test_matrix_products_are_those_of_the_paper_and_twice_as_many_backward(meter: Meter, sizes: dict[str, Any]) -> None:
    """So nothing is computed twice, or for nothing."""
    model, batch = metered(config := dataclasses.replace(CONFIG, **sizes))
    counted = flops_of_pairs(config, np.stack([batch.source.lengths, batch.target.lengths], axis=1)).sum()
    loss = model.loss(batch, RandomStream(1))
    assert 3 * flops(meter) == counted
    backward(loss)
    assert flops(meter) == counted


def test_a_batch_costs_what_its_sentences_cost() -> None:
    lengths = np.random.default_rng(1).integers(1, 30, (7, 2))
    separately = [flops_of_pairs(CONFIG, lengths[i : i + 1]).item() for i in range(7)]
    assert flops_of_pairs(CONFIG, lengths).tolist() == separately


def test_the_number_of_products_depends_on_layers_alone(meter: Meter) -> None:
    """6 linear maps and 2 products of attention in an encoder layer, 10 and 4 in a decoder layer, one projection."""
    model, batch = metered()
    update(model, batch)
    assert len(meter.products) == 3 * (CONFIG.n_layers * (6 + 2 + 10 + 4) + 1)


@pytest.mark.parametrize("changes", [{"n_layers": 4}, {"n_pairs": 2 * N_PAIRS}], ids=["layers", "tokens"])
def test_cost_grows_linearly_with_layers_and_tokens(meter: Meter, changes: dict[str, int]) -> None:
    """Of everything but the projection, whose cost does not depend on layers."""

    def cost(*, n_layers: int = 2, n_pairs: int = N_PAIRS) -> int:
        meter.products.clear()
        update(*metered(dataclasses.replace(CONFIG, n_layers=n_layers), n_pairs))
        return flops(meter) - 6 * n_pairs * TARGET * CONFIG.d_model * CONFIG.vocabulary_size

    assert cost(**changes) == 2 * cost() > 0


def test_no_number_of_a_float32_model_is_float64(meter: Meter) -> None:
    model, batch = metered()
    update(model, batch)
    assert "float32" in meter.dtypes
    assert "float64" not in meter.dtypes


def peak_bytes(model: Transformer, batch: Batch, *, with_backward: bool) -> int:
    tracemalloc.start()
    try:
        if with_backward:
            update(model, batch)
        else:
            with no_tape():
                model.loss(batch)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("with_backward", [False, True])
def test_of_arrays_of_the_size_of_the_vocabulary_there_is_one(with_backward: bool) -> None:
    """Logits become their own gradient; beside them there is room for the gradient of the matrix, and small things."""
    config = dataclasses.replace(CONFIG, vocabulary_size=40_000, d_model=4, d_ff=8, n_heads=1, d_k=4, d_v=4)
    _, batch = metered(config)
    model = Transformer(config)
    update(model, batch)  # what is made once is made
    logits, matrix = 4 * config.vocabulary_size * len(batch.labels), 4 * config.vocabulary_size * config.d_model
    assert logits < peak_bytes(model, batch, with_backward=with_backward) < 1.2 * logits + 3 * matrix
