"""What stands before the first target token: a symbol of its own, a zero vector, or the end symbol."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from autograd import backward
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import ConfigError
from minitransformer.model.symbols import END, START

UNTIED = ModelConfig(vocabulary_size=9, n_layers=2, d_model=6, d_ff=8, n_heads=2, d_k=3, d_v=2, tied="none")
BATCH = Batch.from_token_ids([[3, 4, 5], [8]], [[6, 7], []])


def model_of(start: Any) -> Transformer:
    """The same weights for every start."""
    return Transformer(dataclasses.replace(UNTIED, start=start), dtype="float64")


def with_start_row(row: Any) -> Transformer:
    """A model with a start symbol whose embedding is ``row``."""
    model = model_of("symbol")
    model.target_embedding.weight.value[START] = row
    return model


def end_row() -> Any:
    return model_of("symbol").target_embedding.weight.value[END]


@pytest.mark.parametrize(("start", "row"), [("zero", np.zeros(6)), ("end", end_row())])
def test_another_start_is_a_start_symbol_with_that_embedding(start: str, row: Any) -> None:
    ours, expected = model_of(start).log_probabilities(BATCH), with_start_row(row).log_probabilities(BATCH)
    np.testing.assert_array_equal(ours, expected)
    assert np.abs(ours - model_of("symbol").log_probabilities(BATCH)).max() > 1e-3


@pytest.mark.parametrize(("start", "end_learns"), [("symbol", False), ("zero", False), ("end", True)])
def test_the_embedding_that_stands_first_learns_and_no_other(start: str, end_learns: bool) -> None:
    """The end symbol stands nowhere else among the decoder's inputs in these sentences."""
    model = model_of(start)
    before = model.log_probabilities(BATCH)
    backward(model.loss(BATCH))
    gradient = model.target_embedding.weight.grad
    assert (gradient[START].any(), gradient[END].any()) == (start == "symbol", end_learns)
    model.target_embedding.weight.value[START] = 1e3
    assert np.array_equal(model.log_probabilities(BATCH), before) == (start != "symbol")


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"start must be one of \('symbol', 'zero', 'end'\); got 'nothing'"):
        dataclasses.replace(UNTIED, start="nothing")


@pytest.mark.parametrize("target", [[START, 6], [6, START], np.array([6, START, 7])])
def test_a_start_symbol_in_a_target_is_refused_with_the_sentence_and_the_remedy(target: Any) -> None:
    """It would be taken for a zero vector or the end symbol there, too."""
    with pytest.raises(ValueError, match=r"target 1 has the start symbol \(id 1\): .*Give targets without"):
        Batch.from_token_ids([[3], [4], [5]], [[START + 5], target, [START]])
    assert len(Batch.from_token_ids([[START, 3]], [[6]])) == 1  # of a source it is a word like any other
