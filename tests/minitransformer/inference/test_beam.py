"""Beam search, of one model and of several, against exhaustive search, and without cache, batch and stop rule."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, exhaustive, ids_of, log_p, plain_beam, plain_steps, random_model
from small_sentences import LINES, small_tokenizer

from minitransformer import ModelConfig, Transformer, Translator, presets
from minitransformer.config import DataConfig
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.beam import beam_search
from minitransformer.inference.predictor import mean_probability
from minitransformer.inference.search import Hypothesis, SearchConfig, SearchError
from minitransformer.system.files import CheckpointError

ALPHAS = st.sampled_from([0.0, 0.6, 1.5])
NORMALISATIONS = st.sampled_from(["gnmt", "length"])


class DeadEnd:
    """A constraint that allows no token to some of the sources."""

    def __init__(self, dead: Any) -> None:
        self.dead = np.array(dead)

    def forbidden(self) -> Any:
        return np.repeat(self.dead[:, None], random_model(1).config.vocabulary_size, axis=1)

    def follow(self, rows: Any, tokens: Any) -> None:
        self.select(rows)

    def select(self, rows: Any) -> None:
        self.dead = self.dead[rows]


DEAD_END = random_model(1), [[3], [4, 5]], SearchConfig(beam=2, max_extra_tokens=3)


def sample(constraint: DeadEnd) -> Any:
    model, sources, config = DEAD_END
    return Sampling().sample([model], sources, dataclasses.replace(config, n_best=2), [0, 1], constraint=constraint)


def endless_model() -> Transformer:
    model = random_model(3, softmax_bias=True)
    model.softmax_bias.value[2] = -100
    return model


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [ids_of(best) for best in found] == [ids_of(best) for best in expected]
    for some, others in zip(found, expected, strict=True):
        np.testing.assert_allclose([h.score for h in some], [h.score for h in others], rtol=1e-10)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(
    seed=SEEDS,
    alpha=ALPHAS,
    normalisation=NORMALISATIONS,
    source=SOURCES,
    n_models=st.integers(1, 3),
    narrow=st.integers(1, 4),
)
@settings(max_examples=6)
@example(seed=1, alpha=0.6, normalisation="gnmt", source=[[3, 4]], n_models=1, narrow=2)
def test_a_wide_beam_is_exhaustive(
    variant: int, seed: int, alpha: float, normalisation: Any, source: Any, n_models: int, narrow: int
) -> None:
    """Models of an ensemble may differ in everything but the vocabulary.  No narrow beam finds more."""
    models = [random_model(seed, **VARIANTS[variant]), random_model(seed + 1), random_model(seed + 2)][:n_models]
    source = source[0][:2]
    config = SearchConfig(27, alpha, 5, 4 - len(source), normalisation)
    best = exhaustive(models, source, 4, config)[:5]
    assert_same(beam_search(models, [source], config), [best])
    ((found,),) = beam_search(models, [source], dataclasses.replace(config, beam=narrow, n_best=1))
    assert found.score <= best[0].score * (1 - 1e-10)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(
    seed=SEEDS,
    beam=st.integers(1, 4),
    n_best=st.integers(1, 4),
    alpha=ALPHAS,
    normalisation=NORMALISATIONS,
    sources=SOURCES,
    extra=st.integers(1, 5),
)
@settings(max_examples=6)
@example(seed=1, beam=4, n_best=4, alpha=0.6, normalisation="gnmt", sources=[[3], [3, 4, 5, 3]], extra=1)
@example(seed=2, beam=1, n_best=1, alpha=0.0, normalisation="gnmt", sources=[[3], [3, 4, 5, 3]], extra=5)
@example(seed=3, beam=3, n_best=2, alpha=0.6, normalisation="gnmt", sources=[[3], [4, 5]], extra=18)  # the cache grows
def test_cache_batch_and_stop_rule_lose_nothing_of_the_same_beam(
    variant: int, seed: int, beam: int, n_best: int, alpha: float, normalisation: Any, sources: Any, extra: int
) -> None:
    """So the search never stops before the best that this beam can find.  A beam of 1 is greedy search.

    The n best are sorted, distinct and as many as there are.
    """
    model = random_model(seed, **VARIANTS[variant])
    config = SearchConfig(beam, alpha, min(n_best, beam), extra, normalisation)
    found = beam_search(model, sources, config)
    expected = [plain_beam(model, source, config) for source in sources]
    assert [ids_of(hypotheses) for hypotheses in found] == [ids_of(hypotheses) for hypotheses in expected]
    for hypotheses in found:
        assert hypotheses == sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
        assert len(set(ids_of(hypotheses))) == len(hypotheses) == config.n_best


def rows_of_steps(model: Transformer, search: Callable[[], Any]) -> list[int]:
    """Return how many hypotheses each step decodes."""
    rows: list[int] = []
    decode = model.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            model, "decode", lambda ids, *rest, **more: (rows.append(len(ids)), decode(ids, *rest, **more))[1]
        )
        search()
    return rows


@given(seed=SEEDS, beam=st.integers(2, 4), alpha=ALPHAS)
@settings(max_examples=10)
def test_and_it_does_stop_as_soon_as_nothing_better_can_come(seed: int, beam: int, alpha: float) -> None:
    """The first step at which the best finished score reaches the bound of the best live prefix, no later."""
    model, source, config = random_model(seed), [3, 4], SearchConfig(beam, alpha, max_extra_tokens=5)
    best = beam_search(model, [source], config)[0][0]
    taken = len(rows_of_steps(model, lambda: beam_search(model, [source], config)))
    assert len(best.ids) + 1 <= taken <= 7
    if taken > len(best.ids) + 1:  # at the step before the last something could still have beaten the best
        live, _ = list(plain_steps(model, source, config))[taken - 2]
        assert live[0][1] / config.length_penalty(7) > best.score


@pytest.mark.parametrize(("source", "limit", "greatest"), [
    ([3, 4], {"max_extra_tokens": 5}, 7), ([3], {"max_length_factor": 3}, 23),
    ([3] * 3, {"max_length_factor": 1.5, "max_extra_tokens": 50}, 24),
    ([3] * 3, {"max_length_factor": None, "max_extra_tokens": 30}, 33),
])  # fmt: skip
def test_a_translation_keeps_its_limit_and_has_an_end(source: list[int], limit: dict[str, int], greatest: int) -> None:
    model = endless_model()
    ((found,),) = beam_search(model, [source], SearchConfig(beam=1, **limit))
    assert len(found.ids) == greatest - 1
    assert found.log_probability == pytest.approx(log_p(model, source, found.ids), rel=1e-10)


def test_a_sentence_that_is_no_longer_wanted_is_searched_no_further() -> None:
    model = endless_model()
    sources, config = [[3], [4, 5], [3, 4]], SearchConfig(beam=1, max_extra_tokens=5)
    flags = iter([[True] * 3, [True, False, True], *[[True] * 3] * 9])
    found: list[list[Hypothesis]] = []
    rows = rows_of_steps(model, lambda: found.extend(beam_search(model, sources, config, wanted=lambda: next(flags))))
    assert rows == [3, 3, 2, 2, 2, 2, 1]
    assert [len(hypotheses) for hypotheses in found] == [1, 0, 1]
    assert [found[0], found[2]] == beam_search(model, [sources[0], sources[2]], config)
    found.clear()
    rows = rows_of_steps(model, lambda: found.extend(beam_search(model, sources, wanted=lambda: [False] * 3)))
    assert (rows, found) == ([3], [[]] * 3)


@pytest.mark.parametrize("first_position", [0, 2])
def test_and_at_most_as_many_as_learned_positions_have_room_for(first_position: int) -> None:
    """In an ensemble, the shortest table of positions limits all."""
    model = random_model(3, positions="learned", max_positions=4 + first_position, first_position=first_position)
    config = SearchConfig(beam=27, n_best=5)
    for models in ([model], [random_model(1), model]):
        assert_same(beam_search(models, [[3, 4, 5]], config), [exhaustive(models, [3, 4, 5], 4, config)[:5]])


def test_equal_scores_are_settled_in_the_order_of_the_vocabulary() -> None:
    """A model that knows nothing: every word is as good as any other, at every step."""
    model = random_model(1)
    model.parameters.values[:] = 0
    (hypotheses,) = beam_search(model, [[3, 4]], SearchConfig(beam=3, alpha=0.0, n_best=3, max_extra_tokens=2))
    assert ids_of(hypotheses) == [(), (3,), (4,)]


def test_a_model_that_is_not_finite_is_no_model() -> None:
    model = random_model(1)
    model.parameters.values[:] = np.nan
    with pytest.raises(SearchError, match="source 0 has no translation .*: the model's weights.* are not finite"):
        beam_search(model, [[3, 4]])


@pytest.mark.parametrize("search", [lambda **more: beam_search(*DEAD_END, **more), sample], ids=["beam", "sampling"])
def test_a_constraint_without_a_way_out_is_named(search: Callable[..., Any]) -> None:
    with pytest.raises(SearchError, match="^search: source 1 .*: the constraint allowed no token .*, or the model's"):
        search(constraint=DeadEnd([False, True]))


@pytest.mark.parametrize("given", [{"n_given": [1]}, {"n_given": [1, 2, 3]}, {"wanted": lambda: [True]}])
def test_numbers_and_flags_are_given_for_every_source(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^search: (n_given|wanted): expected one for each of 2 sources; got [13]$"):
        beam_search(*DEAD_END, **given)


@pytest.mark.parametrize(
    ("normalisation", "alpha", "length", "penalty"),
    [("gnmt", 0.6, 1, 1), ("gnmt", 1.0, 7, 2), ("gnmt", 0.0, 100, 1), ("length", 2.0, 7, 49), ("length", 0.0, 7, 1)],
)
def test_length_penalty_is_gnmts_or_the_length(normalisation: Any, alpha: float, length: int, penalty: float) -> None:
    assert SearchConfig(alpha=alpha, normalisation=normalisation).length_penalty(length) == penalty
    greatest = SearchConfig(alpha=50.0, normalisation=normalisation)
    assert np.isfinite([greatest.length_penalty(1_000_000), *greatest.length_penalty(np.array([1, 1_000_000]))]).all()


def test_the_length_penalty_is_the_models_own_unless_the_search_has_one() -> None:
    """In these searches, of a model with random weights, the penalties find different translations."""
    model, sources = random_model(1), [[3], [4, 3], [5, 5, 4]]
    by_length, by_gnmt = (
        beam_search(model, sources, SearchConfig(alpha=1.5, normalisation=name)) for name in ("length", "gnmt")
    )
    assert by_length != by_gnmt == beam_search(model, sources, SearchConfig(alpha=1.5))
    model.config = dataclasses.replace(model.config, alpha=1.5, normalisation="length")
    assert beam_search(model, sources, SearchConfig()) == by_length
    assert beam_search(model, sources, SearchConfig(normalisation="gnmt")) == by_gnmt
    models = [model, random_model(2)]  # of an ensemble, the first model's
    expected = beam_search(models, sources, SearchConfig(alpha=1.5, normalisation="length"))
    assert beam_search(models, sources, SearchConfig()) == expected


def test_the_defaults_are_the_papers_except_for_the_greatest_length() -> None:
    assert SearchConfig().for_model(ModelConfig()) == SearchConfig(4, 0.6, 1, 256, "gnmt")


@pytest.mark.parametrize("n_source", [1, 3, 4, 20, 42, 43, 256])
def test_by_default_no_target_that_training_accepts_is_too_long(n_source: int) -> None:
    accepted = min(DataConfig.max_length, max(20, int(DataConfig.max_ratio * n_source)))  # without the end symbol
    assert SearchConfig().greatest_lengths(np.array([n_source])) > accepted


@pytest.mark.parametrize(("fields", "message"), [
    ({"beam": 0}, "beam ≥ n_best ≥ 1; got beam 0"),
    ({"beam": 10**20}, "1,000 ≥ beam ≥ n_best ≥ 1; got beam 100000000000000000000"),
    ({"beam": 2, "n_best": 3}, "got beam 2, n_best 3"), ({"n_best": 0}, "got beam 4, n_best 0"),
    ({"alpha": -0.1}, "expected 0 ≤ alpha ≤ 50 .* got alpha -0.1"),
    ({"alpha": float("nan")}, "0 ≤ alpha ≤ 50 .* got alpha nan"),
    ({"alpha": 50.1}, "0 ≤ alpha ≤ 50 .* got alpha 50.1"),
    ({"max_extra_tokens": 0}, "max_extra_tokens ≥ 1; got alpha None, max_extra_tokens 0"),
    ({"max_length_factor": 0}, "max_length_factor ≥ 1; got 0"),
    ({"normalisation": "none"}, r"normalisation must be one of \('gnmt', 'length'\); got 'none'"),
])  # fmt: skip
def test_searches_that_are_none(fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchConfig(**fields)


@given(seed=SEEDS, sources=SOURCES, beam=st.integers(1, 4), n=st.integers(1, 3))
@settings(max_examples=12)
def test_an_ensemble_of_a_model_with_itself_is_the_model(seed: int, sources: Any, beam: int, n: int) -> None:
    model, config = random_model(seed), SearchConfig(beam, n_best=beam, max_extra_tokens=5)
    assert_same(beam_search([model] * n, sources, config), beam_search(model, sources, config))


@pytest.mark.parametrize("sizes", [{"vocabulary_size": 7}, {"source_vocabulary_size": 7, "tied": "target"}], ids=str)
def test_models_of_other_vocabularies_are_no_ensemble(sizes: dict[str, Any]) -> None:
    model = random_model(1)
    other = Transformer(dataclasses.replace(model.config, **sizes))
    with pytest.raises(ValueError, match=r"^an ensemble needs models of the same tokenizer; got .*\(6, 6\)"):
        beam_search([model, other], [[3, 4]])


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
