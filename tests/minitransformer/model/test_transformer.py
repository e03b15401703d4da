"""The whole model: gradients, masking, packing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograd import RandomStream, backward
from autograd.testing import check_gradients
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.model.transformer import WeightsError

W = 12
SMALL = ModelConfig(vocabulary_size=W, n_layers=2, d_model=6, d_ff=8, n_heads=2, d_k=3, d_v=2)
VARIANTS = {
    "the paper": {},
    "pre-norm, nothing shared": {"norm": "pre", "tied": "none"},
    "learned positions, two vocabularies": {
        "positions": "learned", "max_positions": 9, "tied": "target", "source_vocabulary_size": 7,
    },
    "halves, one head, neighbourhood 1": {"positions": "halves", "n_heads": 1, "neighbourhood": 1},
    "all dropouts": {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_relu": 0.2},
}  # fmt: skip

SENTENCE = st.lists(st.integers(3, 6), max_size=5)
PAIRS = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=4)


def model_of(variant: str = "the paper", **changes: Any) -> Transformer:
    return Transformer(dataclasses.replace(SMALL, **VARIANTS[variant] | changes), dtype="float64")


def batch_of(pairs: Any) -> Batch:
    return Batch.from_token_ids([source for source, _ in pairs], [target for _, target in pairs])


@pytest.mark.parametrize("variant", VARIANTS)
@given(pairs=PAIRS, seed=st.integers(0, 1000))
@settings(max_examples=3, deadline=None)
def test_gradients_of_the_whole_model(variant: str, pairs: Any, seed: int) -> None:
    model, batch = model_of(variant), batch_of(pairs)
    check_gradients(
        lambda: model.loss(batch, RandomStream(seed)), leaves=dict(model.named_parameters()), name=variant, seed=seed
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_gets_a_gradient(variant: str) -> None:
    model = model_of(variant)
    model.parameters.gradients[:] = np.nan
    backward(model.loss(batch_of([([3, 4], [5, 6, 3]), ([4], [3])])))
    missed = [name for name, parameter in model.named_parameters() if np.isnan(parameter.grad).any()]
    assert missed == []


@given(pairs=PAIRS, data=st.data())
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("variant", ["the paper", "pre-norm, nothing shared", "halves, one head, neighbourhood 1"])
def test_later_target_tokens_change_no_earlier_output(variant: str, pairs: Any, data: Any) -> None:
    model = model_of(variant)
    sentence = data.draw(st.integers(0, len(pairs) - 1))
    source, target = pairs[sentence]
    place = data.draw(st.integers(0, len(target)))
    changed = [*pairs]
    changed[sentence] = (source, [*target[:place], *data.draw(SENTENCE)])
    before, after = (model.log_probabilities(batch_of(p)) for p in (pairs, changed))
    start = sum(len(t) + 1 for _, t in pairs[:sentence])
    np.testing.assert_allclose(before[: start + place + 1], after[: start + place + 1], rtol=0, atol=1e-12)


def influences(model: Transformer, batch: Batch, row: int) -> tuple[Any, Any]:
    """Which source and target inputs have any influence on the logits of ``row``, by their embeddings' gradients."""
    logits = model.logits(batch)
    seed = np.zeros(logits.shape)
    seed[row] = np.random.default_rng(0).standard_normal(W)
    backward(logits, seed)
    return tuple(np.abs(e.weight.grad).sum(1) > 0 for e in (model.source_embedding, model.target_embedding))


def test_gradients_flow_from_the_own_sentence_and_the_past_only() -> None:
    """Every token has an id of its own, so the rows of the embedding tables tell who was seen."""
    model = model_of("pre-norm, nothing shared", positions="halves")
    batch = batch_of([([3, 4], [3, 4, 5]), ([5, 6, 7], [6, 7])])
    sources, targets = influences(model, batch, row=2)  # third output of the first sentence: START, 3, 4 are known
    assert set(np.flatnonzero(sources)) == {2, 3, 4}
    assert set(np.flatnonzero(targets)) == {1, 3, 4}
    sources, targets = influences(model, batch, row=5)  # second output of the second sentence
    assert set(np.flatnonzero(sources)) == {2, 5, 6, 7}
    assert set(np.flatnonzero(targets)) == {1, 6}


def test_restricted_attention_reaches_r_tokens_a_layer() -> None:
    model = model_of("pre-norm, nothing shared", n_layers=1, neighbourhood=1)
    _, targets = influences(model, batch_of([([3], [3, 4, 5, 6])]), row=3)
    assert set(np.flatnonzero(targets)) == {4, 5}


@given(pairs=PAIRS)
@settings(max_examples=30, deadline=None)
def test_packed_is_one_by_one(pairs: Any) -> None:
    model = model_of()
    together = model.log_probabilities(batch_of(pairs))
    alone = np.concatenate([model.log_probabilities(batch_of([pair])) for pair in pairs])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)


@given(pairs=PAIRS, data=st.data())
@settings(max_examples=30, deadline=None)
def test_permuting_sentences_permutes_results(pairs: Any, data: Any) -> None:
    model = model_of()
    order = data.draw(st.permutations(range(len(pairs))))
    rows = np.split(model.log_probabilities(batch_of(pairs)), np.cumsum([len(t) + 1 for _, t in pairs])[:-1])
    permuted = model.log_probabilities(batch_of([pairs[i] for i in order]))
    np.testing.assert_allclose(np.concatenate([rows[i] for i in order]), permuted, rtol=0, atol=1e-12)


def test_the_loss_is_that_of_the_log_probabilities() -> None:
    model, batch = model_of(), batch_of([([3, 4, 5], [6, 5]), ([3], [4, 4, 4])])
    log_p = model.log_probabilities(batch)
    q = np.full((batch.n_target_tokens, W), 0.1 / (W - 1))
    q[np.arange(len(q)), batch.labels] = 0.9
    assert float(model.loss(batch)) == pytest.approx(-(q * log_p).sum(), rel=1e-12)
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1)


def test_dropout_happens_only_where_a_stream_is_given() -> None:
    model, batch = model_of("all dropouts"), batch_of([([3, 4, 5], [6, 5])])
    assert float(model.loss(batch)) == float(model.loss(batch))
    dropped = {float(model.loss(batch, RandomStream(seed))) for seed in range(4)}
    assert len(dropped) == 4
    assert float(model.loss(batch, RandomStream(1))) == float(model.loss(batch, RandomStream(1)))


def test_float32_is_close_to_float64() -> None:
    single, double = Transformer(SMALL), Transformer(SMALL, dtype="float64")
    batch = batch_of([([3, 4, 5], [6, 5])])
    assert single.loss(batch).dtype == np.float32
    assert float(single.loss(batch)) == pytest.approx(float(double.loss(batch)), rel=1e-5)


def test_save_and_load(tmp_path: Any) -> None:
    model, batch = Transformer(SMALL, seed=4), batch_of([([3, 4, 5], [6, 5])])
    model.save(tmp_path / "run")
    loaded = Transformer.load(tmp_path / "run")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.log_probabilities(batch), model.log_probabilities(batch))


def test_weights_that_do_not_fit_are_refused_whole() -> None:
    model, other = Transformer(SMALL), Transformer(dataclasses.replace(SMALL, d_ff=9), seed=2)
    before = model.parameters.values.copy()
    with pytest.raises(WeightsError, match=r"feed_forward.hidden.bias has shape \(9,\), expected \(8,\).* more"):
        model.set_weights(other.weights())
    weights = other.weights()
    del weights["source_embedding.weight"]
    with pytest.raises(WeightsError, match=r"missing source_embedding.weight \(12, 6\)"):
        model.set_weights(weights | {n: w for n, w in model.weights().items() if "hidden" in n or "output" in n})
    np.testing.assert_array_equal(model.parameters.values, before)


def test_a_model_needs_a_vocabulary() -> None:
    with pytest.raises(ValueError, match="vocabulary_size must be at least 1, got 0"):
        Transformer(ModelConfig())


def test_more_targets_than_sources() -> None:
    with pytest.raises(ValueError, match="as many targets as sources; got 1 and 2"):
        Batch.from_token_ids([[3]], [[3], [4]])
