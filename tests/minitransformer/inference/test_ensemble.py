"""Several models as one: exhaustive search with the mean of their probabilities."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, exhaustive, ids_of, random_model
from small_sentences import LINES, small_tokenizer

from minitransformer import Transformer, Translator, presets
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import beam_search
from minitransformer.inference.predictor import mean_probability
from minitransformer.inference.search import Hypothesis, SearchConfig
from minitransformer.system.files import CheckpointError


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [ids_of(best) for best in found] == [ids_of(best) for best in expected]
    for some, others in zip(found, expected, strict=True):
        np.testing.assert_allclose([h.score for h in some], [h.score for h in others], rtol=1e-10)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(seed=SEEDS, source=SOURCES, n_models=st.integers(2, 3))
@settings(max_examples=4)
def test_a_wide_beam_of_an_ensemble_finds_what_exhaustive_search_finds(
    variant: int, seed: int, source: Any, n_models: int
) -> None:
    """The models may differ in everything but the vocabulary."""
    models = [random_model(seed), random_model(seed + 1, **VARIANTS[variant]), random_model(seed + 2)][:n_models]
    config = SearchConfig(27, 0.6, 4, 4 - len(source[0][:2]), "gnmt")
    found = beam_search(models, [source[0][:2]], config)
    assert_same(found, [exhaustive(models, source[0][:2], 4, config)[:4]])


@given(seed=SEEDS, sources=SOURCES, beam=st.integers(1, 4), n=st.integers(1, 3))
@settings(max_examples=12)
def test_an_ensemble_of_a_model_with_itself_is_the_model(seed: int, sources: Any, beam: int, n: int) -> None:
    model, config = random_model(seed), SearchConfig(beam, n_best=beam, max_extra_tokens=5)
    assert_same(beam_search([model] * n, sources, config), beam_search(model, sources, config))


def test_the_first_models_length_penalty_is_taken() -> None:
    first, second = random_model(1, alpha=1.5, normalisation="length"), random_model(2)
    source = [[3, 4]]
    expected = beam_search([first, second], source, SearchConfig(alpha=1.5, normalisation="length"))
    assert beam_search([first, second], source, SearchConfig()) == expected


def test_the_shortest_table_of_positions_limits_all() -> None:
    models = [random_model(1), random_model(2, positions="learned", max_positions=4)]
    found = beam_search(models, [[3, 4, 5]], SearchConfig(beam=27, n_best=27))[0]
    assert max(len(hypothesis.ids) for hypothesis in found) == 3


def test_means_of_probabilities_neither_overflow_nor_vanish() -> None:
    log_p = [np.array([-1_000.0, 0.0, -np.inf]), np.array([-1_000.0, -np.inf, -np.inf])]
    np.testing.assert_allclose(mean_probability(log_p), [-1_000, -math.log(2), -np.inf], rtol=1e-14)


def saved(directory: Path, seed: int, *, tokenizer: Tokenizer | None = None, **changes: Any) -> Path:
    Transformer(dataclasses.replace(presets.tiny(70), **changes), seed=seed).save(directory)
    (tokenizer or small_tokenizer()).save(directory)
    return directory


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_directories_are_loaded_as_one_translator(tmp_path: Path, weights: Any) -> None:
    runs = [saved(tmp_path / f"{seed}", seed) for seed in (1, 2)]
    both, twice = Translator.load(*runs, weights=weights), Translator.load(runs[0], runs[0], weights=weights)
    one = Translator.load(runs[0], weights=weights)
    search = SearchConfig(beam=2, n_best=2)
    assert [[t.text for t in best] for best in twice.n_best(LINES[:4], search)] == [
        [t.text for t in best] for best in one.n_best(LINES[:4], search)
    ]
    scores = [translator.n_best(LINES[:1], search)[0][0].score for translator in (one, twice, both)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)
    assert scores[0] != pytest.approx(scores[2], rel=1e-3)
    assert len({translator.fingerprint() for translator in (one, twice, both)}) == 3


def test_models_with_another_tokenizer_are_refused_by_name(tmp_path: Path) -> None:
    first = saved(tmp_path / "first", 1)
    other = saved(tmp_path / "other", 1, tokenizer=small_tokenizer(n_pairs=40))
    message = "other: its tokenizer is not that of .*first, so their models cannot be an ensemble; train the models on"
    with pytest.raises(CheckpointError, match=message):
        Translator.load(first, other)


def test_a_line_is_cut_to_the_shortest_table_of_positions(tmp_path: Path) -> None:
    first = saved(tmp_path / "first", 1)
    other = saved(tmp_path / "other", 1, positions="learned", max_positions=20)
    assert Translator.load(first, other).longest_source == 19
