"""The model in bfloat16: as near to float64 as rounding lets it be, half the memory, saved in float32."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved_arrays import saved_arrays

from autograd import RandomStream, backward
from autograd.bfloat16_products import bfloat16_products
from autograd.kernels.cpu.library import library
from autograd.optim import Adam
from autograd.precision import is_16_bit, rounded, upcast
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import score_pairs
from minitransformer.inference.search import SearchConfig

CONFIG = ModelConfig(vocabulary_size=40, n_layers=2, d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16)
VARIATIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "all kinds of dropout": {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_relu": 0.1},
    "pre-norm, nothing tied": {"norm": "pre", "tied": "none"},
    "swish, one decoder layer": {"activation": "swish", "n_decoder_layers": 1},
    "learned positions, biases": {
        "positions": "learned", "max_positions": 40, "attention_bias": True, "softmax_bias": True, "start": "zero",
    },
}  # fmt: skip
needs_compiler = pytest.mark.skipif(not library().functions, reason="no C compiler")
variations = pytest.mark.parametrize("variation", VARIATIONS)
RANDOM = np.random.default_rng(0)
SOURCES, TARGETS = ([RANDOM.integers(3, 40, n).tolist() for n in lengths] for lengths in ((5, 9, 1, 14), (7, 3, 2, 11)))
BATCH = Batch.from_token_ids(SOURCES, TARGETS)


@cache
def differentiated(dtype: str, variation: str, hidden_bias: float) -> tuple[float, dict[str, Any], Any]:
    """Loss, gradients by name, and all gradients; ± hidden_bias in turns is the bias before every ReLU."""
    has_products, dtype = dtype == "bfloat16 products", dtype.replace("bfloat16 products", "float32")
    model = Transformer(dataclasses.replace(CONFIG, **VARIATIONS[variation]), seed=3, dtype=dtype)
    for name, values in model.parameters.named_values().items():
        if name.endswith("hidden.bias"):
            values[...] = np.where(np.arange(len(values)) % 2, -hidden_bias, hidden_bias)
    with bfloat16_products(1, when=has_products):
        loss = model.loss(BATCH, RandomStream(1, update=2))
        backward(loss)
    return float(loss), {name: p.grad for name, p in model.named_parameters()}, model.parameters.gradients


@variations
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("bfloat16 products", marks=needs_compiler)])
@pytest.mark.parametrize(("hidden_bias", "error", "cosine"), [(6.0, 0.02, 0.999), (0.0, 0.1, 0.99)])
def test_loss_and_gradients_are_those_of_float64_but_for_rounding(
    variation: str, dtype: str, hidden_bias: float, error: float, cosine: float
) -> None:
    """A number is rounded by 2⁻⁹ of it at most, some ten times along a path, at random: an error of 1 %, or less.

    Not so near the kink of ReLU.  Of the inputs of ReLU, which vary by 1, about a hundredth is so near to it that they
    change sides, and with them that share of the gradient's square: an error of a tenth.
    """
    loss, by_name, gradients = differentiated(dtype, variation, hidden_bias)
    exact_loss, exact_by_name, exact = differentiated("float64", variation, hidden_bias)
    assert gradients.dtype == np.float32
    assert 0 < abs(loss - exact_loss) < 2e-3 * exact_loss
    assert 1e-4 < np.linalg.norm(gradients - exact) / np.linalg.norm(exact) < error
    for name, x in by_name.items():
        y = exact_by_name[name]
        if not name.endswith("key.bias"):  # whose gradient is nothing but rounding
            assert (x * y).sum() > cosine * np.linalg.norm(x) * np.linalg.norm(y), name


@variations
def test_the_tape_keeps_activations_in_sixteen_bits(variation: str) -> None:
    """All but masks (B, 1, ·, ·), which all layers share."""
    kept = {}
    for dtype in ("float32", "bfloat16"):
        model = Transformer(dataclasses.replace(CONFIG, **VARIATIONS[variation]), seed=3, dtype=dtype)
        arrays, buffer = saved_arrays(model.loss(BATCH, RandomStream(1))).values(), model.parameters
        kept[dtype] = [x for x in arrays if x is not buffer.values and x is not buffer.low_precision]
    activations = [x for x in kept["bfloat16"] if x.dtype.kind not in "ib" and x.shape[1:2] != (1,)]
    assert activations
    assert all(map(is_16_bit, activations))
    assert sum(x.nbytes for x in activations) < 0.6 * sum(x.nbytes for x in kept["float32"])


def test_an_update_changes_float32_values_and_leaves_copies_in_step() -> None:
    model = Transformer(CONFIG, seed=3, dtype="bfloat16")
    before, adam = model.parameters.values.copy(), Adam(model.parameters)
    backward(model.loss(BATCH, RandomStream(1)))
    adam.step(1e-6, 1)  # too little for bfloat16 to notice
    assert model.parameters.values.dtype == adam.m.dtype == adam.v.dtype == np.float32
    assert (before != model.parameters.values).mean() > 0.5
    np.testing.assert_array_equal(upcast(model.parameters.low_precision), upcast(rounded(model.parameters.values)))


@pytest.mark.parametrize("dtypes", [("bfloat16", "float32"), ("float32", "bfloat16")], ids=" to ".join)
def test_what_is_saved_is_float32_and_loads_both_ways(dtypes: tuple[str, str], tmp_path: Path) -> None:
    model = Transformer(CONFIG, seed=3, dtype=dtypes[0])
    assert {x.dtype for x in model.weights().values()} == {np.dtype(np.float32)}
    model.save(tmp_path)
    loaded = Transformer.load(tmp_path, dtype=dtypes[1])
    np.testing.assert_array_equal(loaded.parameters.values, model.parameters.values)
    for dtype in ("bfloat16", "float32"):
        fresh = Transformer(CONFIG, seed=3, dtype=dtype)
        assert float(Transformer.load(tmp_path, dtype=dtype).loss(BATCH)) == float(fresh.loss(BATCH))


def test_search_and_scores_are_those_of_the_saved_model() -> None:
    models = [Transformer(CONFIG, seed=3, dtype=dtype) for dtype in ("float32", "bfloat16")]
    np.testing.assert_array_equal(*(model.log_probabilities(BATCH) for model in models))
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    assert score_pairs(models[1], pairs) == score_pairs(models[0], pairs)
    config = SearchConfig(beam=2, max_extra_tokens=3)
    found = [beam_search(model.for_search(), SOURCES, config) for model in models]
    assert found[0] == found[1]
    assert models[0].in_float32() is models[0]


def test_arrays_that_a_reducer_has_padded_are_copied_without_the_padding() -> None:
    """NCCL's reducer pads the flat arrays to a multiple of the number of ranks."""
    padded = Transformer(
        CONFIG, seed=3, dtype="bfloat16", allocate=lambda n, dtype: (np.zeros(n + 64, dtype), np.zeros(n + 64, dtype))
    )
    expected = Transformer(CONFIG, seed=3)
    np.testing.assert_array_equal(padded.log_probabilities(BATCH), expected.log_probabilities(BATCH))
