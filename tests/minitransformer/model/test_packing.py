"""Padding does not exist: packed sentences give what padded ones give in the textbook, and each gives alone."""

import dataclasses
import functools
from typing import Any

import numpy as np
import padded_reference as reference
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autograd import backward, no_tape
from autograd.array import Array
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.model.masks import self_attention_mask

SMALL = ModelConfig(vocabulary_size=8, n_layers=2, d_model=6, d_ff=8, n_heads=2, d_k=3, d_v=2, max_positions=20)
TWO_VOCABULARIES = "learned positions, two vocabularies"
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper": {},
    "pre-norm, nothing shared, halves": {"norm": "pre", "tied": "none", "positions": "halves"},
    TWO_VOCABULARIES: {"positions": "learned", "tied": "target", "source_vocabulary_size": 7},
    "one head, neighbourhood 1": {"n_heads": 1, "neighbourhood": 1},
    "all biases, from position 2": {
        "attention_bias": True, "softmax_bias": True, "start": "zero", "first_position": 2, "layer_norm_eps": 0.1,
        "n_decoder_layers": 1,
    },
    "gelu, three decoder layers": {"activation": "gelu", "n_decoder_layers": 3},
}  # fmt: skip
CONFIGS = st.builds(
    dataclasses.replace,
    st.just(SMALL),
    n_layers=st.integers(1, 3),
    n_heads=st.integers(1, 3),
    d_k=st.integers(1, 4),
    norm=st.sampled_from(["post", "pre"]),
    tied=st.sampled_from(["all", "target", "none"]),
    positions=st.sampled_from(["interleaved", "halves", "learned"]),
    neighbourhood=st.none() | st.integers(0, 3),
    start=st.sampled_from(["symbol", "zero", "end"]),
    first_position=st.integers(0, 2),
    layer_norm_eps=st.sampled_from([1e-6, 0.1]),
    n_decoder_layers=st.none() | st.integers(1, 2),
    attention_bias=st.booleans(),
    softmax_bias=st.booleans(),
)
IDS = st.integers(3, 6)
SENTENCE = st.lists(IDS, max_size=4) | st.lists(IDS, min_size=17, max_size=17)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=4)
UNEQUAL = [([3] * 17, []), ([], [4, 5] * 8), ([], []), ([6, 5], [3])]


@functools.lru_cache(maxsize=64)
def model_of(config: ModelConfig, seed: int = 1) -> Transformer:
    """Gains away from 1 and biases away from 0."""
    model, random = Transformer(config, seed=seed, dtype="float64"), np.random.default_rng(seed)
    for _, parameter in model.named_parameters():
        parameter.value += 0.2 * random.standard_normal(parameter.shape)
    return model


def sides(pairs: Any) -> tuple[Any, Any]:
    return [source for source, _ in pairs], [target for _, target in pairs]


def batch_of(pairs: Any) -> Batch:
    return Batch.from_token_ids(*sides(pairs))


def results(model: Transformer, pairs: Any) -> list[tuple[Array, Array]]:
    """For every pair: the encoder's output and the log-probabilities."""
    batch = batch_of(pairs)
    with no_tape():
        mask = self_attention_mask(batch.source, model.config.neighbourhood)
        encoded = model.encode(batch.source_ids, batch.source_positions, mask).value
    encoded_sources, target_results = (
        np.split(rows, np.cumsum([len(ids) + 1 for ids in side])[:-1])
        for rows, side in zip((encoded, model.log_probabilities(batch)), sides(pairs), strict=True)
    )
    return list(zip(encoded_sources, target_results, strict=True))


def loss_and_gradients(model: Transformer, pairs: Any) -> tuple[float, Array]:
    model.parameters.gradients[:] = 0
    loss = model.loss(batch_of(pairs))
    backward(loss)
    return float(loss), model.parameters.gradients.copy()


@given(config=CONFIGS, pairs=PAIRS, seed=st.integers(0, 20), pad=st.integers(0, 6))
@settings(max_examples=50)
@example(config=SMALL, pairs=UNEQUAL, seed=1, pad=0)
@example(config=dataclasses.replace(SMALL, **VARIANTS["all biases, from position 2"]), pairs=UNEQUAL, seed=1, pad=1)
@example(config=dataclasses.replace(SMALL, start="end"), pairs=UNEQUAL, seed=1, pad=3)
@example(config=dataclasses.replace(SMALL, **VARIANTS[TWO_VOCABULARIES]), pairs=UNEQUAL, seed=1, pad=2)
@example(config=dataclasses.replace(SMALL, **VARIANTS["one head, neighbourhood 1"]), pairs=UNEQUAL, seed=1, pad=5)
def test_the_packed_model_is_the_padded_model_of_the_textbook(config: Any, pairs: Any, seed: int, pad: int) -> None:
    model = model_of(config, seed)
    expected = reference.PaddedTransformer(config, model.weights()).log_probabilities(*sides(pairs), pad)
    np.testing.assert_allclose(model.log_probabilities(batch_of(pairs)), expected, rtol=0, atol=1e-12)


def test_the_textbook_minds_its_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is no tautology: without one of its masks the reference gives something else."""
    model = model_of(dataclasses.replace(SMALL, neighbourhood=2))
    got = model.log_probabilities(batch_of(UNEQUAL))
    for name in ("padding_mask", "look_ahead_mask", "distance_mask"):
        with monkeypatch.context() as patch:
            mask = getattr(reference, name)
            patch.setattr(reference, name, lambda *arguments, mask=mask: mask(*arguments) & False)
            padded = reference.PaddedTransformer(model.config, model.weights()).log_probabilities(*sides(UNEQUAL), 4)
            assert np.abs(got - padded).max() > 1e-3, name


# One by one


@pytest.mark.parametrize("variant", VARIANTS)
@given(pairs=PAIRS)
@settings(max_examples=16)
@example(pairs=UNEQUAL)
@example(pairs=[*UNEQUAL[::-1], *UNEQUAL])
def test_packed_is_one_by_one_and_its_loss_and_gradients_are_the_sums(variant: str, pairs: Any) -> None:
    """So permuting, duplicating and joining sentences does the same to the results.

    To rounding: another shape of a batch is another order of additions in BLAS.
    """
    model = model_of(dataclasses.replace(SMALL, **VARIANTS[variant]))
    for got, pair in zip(results(model, pairs), pairs, strict=True):
        for ours, alone in zip(got, results(model, [pair])[0], strict=True):
            np.testing.assert_allclose(ours, alone, rtol=0, atol=1e-12)
    loss, gradients = loss_and_gradients(model, pairs)
    each_loss, each_gradients = zip(*(loss_and_gradients(model, [pair]) for pair in pairs), strict=True)
    assert loss == pytest.approx(sum(each_loss), rel=1e-12)
    expected = np.sum(each_gradients, axis=0)
    np.testing.assert_allclose(gradients, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
