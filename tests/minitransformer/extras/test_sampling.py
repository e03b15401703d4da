"""Samples: their frequencies against the probabilities of all sentences, and what must not change them."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from fixed_order import fixed_order
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, WORDS, log_p, next_log_p, random_model
from small_sentences import LINES

from minitransformer import Transformer, Translator
from minitransformer.config import ConfigError
from minitransformer.extras.sampling import Sampling, draw
from minitransformer.inference.prefix import Prefix, PrefixConstraint
from minitransformer.inference.search import Hypothesis, SearchConfig, SearchError

END, UNKNOWN, START = 2, 0, 1


def even_model(seed: int) -> Transformer:
    """A model whose probabilities are all well above 0."""
    model = random_model(seed)
    model.parameters.values /= 2.2
    return model


def samples(
    model: Any, sources: Any, sampling: Sampling, n: int = 1, numbers: Any = None, **more: Any
) -> list[list[Hypothesis]]:
    config = SearchConfig(n, n_best=n, max_extra_tokens=more.pop("extra", 3))
    models = model if isinstance(model, list) else [model]
    return sampling.sample(models, sources, config, numbers or list(range(len(sources))), **more)


def probability(models: Any, source: list[int], ids: tuple[int, ...], longest: int, sampling: Sampling) -> float:
    """Compute it for a sentence of at most ``longest`` tokens, its end included: plainly, token by token."""
    p = 1.0
    prefixes = [ids[:n] for n in range(len(ids) + 1)]
    per_model = [np.exp(next_log_p(model, source, prefixes)) for model in models]
    for step, (token, means) in enumerate(zip((*ids, END), np.mean(per_model, axis=0), strict=True), 1):
        weights = {i: float(means[i]) ** (1 / sampling.temperature) for i in (END, *WORDS)}
        total, kept = sum(weights.values()), dict[int, float]()
        for i in sorted(weights, key=weights.__getitem__, reverse=True):  # those that may be drawn
            if sum(kept.values()) / total < sampling.top_p:
                kept[i] = weights[i]
        p *= kept.get(token, 0.0) / sum(kept.values()) if step < longest else float(token == END)
    return p


@pytest.mark.parametrize(("sampling", "n_models"), [
    (Sampling(seed=3), 1), (Sampling(seed=4, temperature=0.6), 1), (Sampling(seed=5, temperature=2.0), 1),
    (Sampling(seed=6, top_p=0.8), 1), (Sampling(seed=7, temperature=1.7, top_p=0.7), 2),
])  # fmt: skip
def test_frequencies_are_the_models_probabilities(sampling: Sampling, n_models: int) -> None:
    """Pearson's χ² of 900 samples: its mean is the degrees of freedom, its variance twice as much."""
    models, source = [even_model(seed) for seed in range(11, 11 + n_models)], [3, 4]
    drawn = samples(models, [source] * 3, sampling, n=300, extra=1)
    counts = Counter(hypothesis.ids for line_samples in drawn for hypothesis in line_samples)
    sentences = itertools.chain.from_iterable(itertools.product(WORDS, repeat=length) for length in range(3))
    expected = {ids: 900 * probability(models, source, ids, 3, sampling) for ids in sentences}
    assert sum(expected.values()) == pytest.approx(900)
    possible = {ids: n for ids, n in expected.items() if n > 0}
    assert set(counts) <= set(possible)
    frequent = {ids: n for ids, n in possible.items() if n >= 5}
    chi_square = sum((counts[ids] - n) ** 2 / n for ids, n in frequent.items())
    assert len(frequent) > 3
    assert chi_square < len(frequent) + 4 * np.sqrt(2 * len(frequent))


@given(seed=SEEDS, sources=SOURCES, data=st.data())
@settings(max_examples=8)
def test_a_sample_depends_on_its_line_and_not_on_the_batch_bit_for_bit(seed: int, sources: Any, data: Any) -> None:
    model, sampling = random_model(seed), Sampling(seed)
    order = data.draw(st.permutations(range(len(sources))))
    with fixed_order():
        alone = [samples(model, [source], sampling, 3, [40 + i])[0] for i, source in enumerate(sources)]
        together = samples(model, [sources[i] for i in order], sampling, 3, [40 + i for i in order])
    assert together == [alone[i] for i in order]


@given(seed=SEEDS, sources=SOURCES)
@settings(max_examples=10)
def test_more_samples_begin_with_the_same_ones(seed: int, sources: Any) -> None:
    model, sampling = random_model(seed), Sampling(seed)
    few, many = (samples(model, sources, sampling, n) for n in (2, 5))
    assert [[h.ids for h in line_samples[:2]] for line_samples in many] == [
        [h.ids for h in line_samples] for line_samples in few
    ]


def test_lines_seeds_and_samples_have_their_own_random_numbers() -> None:
    model, source = even_model(1), [3, 4, 5]
    lines = samples(model, [source] * 20, Sampling(1), 20, extra=8)
    other = samples(model, [source] * 20, Sampling(2), 20, extra=8)
    as_ids = [tuple(h.ids for h in line_samples) for line_samples in (*lines, *other)]
    assert len(set(as_ids)) == 40
    assert len(set(as_ids[0])) > 5


@given(seed=SEEDS, sources=SOURCES, temperature=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=8)
def test_log_p_is_the_models_at_any_temperature(seed: int, sources: Any, temperature: float) -> None:
    model = random_model(seed)
    for source, drawn in zip(sources, samples(model, sources, Sampling(seed, temperature), 2), strict=True):
        for hypothesis in drawn:
            value = log_p(model, source, hypothesis.ids)
            penalty = SearchConfig(alpha=0.6).length_penalty(len(hypothesis.ids) + 1)
            assert hypothesis.log_probability == pytest.approx(value, rel=1e-10)
            assert hypothesis.score == pytest.approx(value / penalty, rel=1e-10)


def test_samples_begin_as_they_must() -> None:
    prefixes = [Prefix("", "", (5, 3)), Prefix("", "", ())]
    constraint = PrefixConstraint(prefixes, [""] * 6)
    drawn = samples(even_model(1), [[3], [4, 5]], Sampling(1), 30, constraint=constraint, n_given=[2, 0])
    assert {h.ids[:2] for h in drawn[0]} == {(5, 3)}
    assert len({h.ids[:2] for h in drawn[1]}) > 2


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2.0**-53])
def test_a_token_of_probability_zero_is_never_drawn(number: float) -> None:
    """At the ends of the interval, too; and however far below zero log p is."""
    log_p = np.array([-np.inf, -5_000.0, -5_000.0, -np.inf, -9_000.0])
    assert draw(log_p, number, Sampling()) == (1 if number < 0.5 else 2)
    assert draw(log_p, number, Sampling(top_p=0.4)) == 1


def test_a_line_that_is_no_longer_wanted_has_no_samples_and_a_model_that_is_not_finite_is_none() -> None:
    model, sources = random_model(1), [[3], [4, 5]]
    found = samples(model, sources, Sampling(), 2, wanted=lambda: [False, True])
    assert found == [[], samples(model, sources, Sampling(), 2)[1]]
    model.parameters.values[:] = np.nan
    with pytest.raises(SearchError, match="source 0 has no translation"):
        samples(model, [[3]], Sampling())


@pytest.mark.parametrize(("fields", "message"), [
    ({"seed": -1}, "sampling.seed: expected .* got -1"), ({"seed": 2**64}, "sampling.seed"),
    ({"temperature": 0.0}, "sampling.temperature: expected a number from 0.01 to 100; got 0.0"),
    ({"temperature": float("nan")}, "sampling.temperature"),
    ({"top_p": 0.0}, "sampling.top_p: expected a number above 0 and at most 1; got 0.0"),
    ({"top_p": 1.1}, "sampling.top_p"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(fields: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**fields)


def test_threads_and_groups_of_lines_change_no_sample(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, search = LINES[:12], SearchConfig(beam=1, n_best=1, max_extra_tokens=5)
    whole = translator.n_best(lines, search, sampling=Sampling(3), n_threads=1)
    monkeypatch.setattr("minitransformer.inference.line_search.HYPOTHESES_AT_ONCE", {"cpu": 3})
    again = translator.n_best(lines, search, sampling=Sampling(3), n_threads=3)
    later = translator.n_best(lines[5:], search, sampling=Sampling(3), numbers=range(5, 12))
    texts = [line_samples[0].text for line_samples in whole]
    assert [line_samples[0].text for line_samples in again] == texts
    assert [line_samples[0].text for line_samples in later] == texts[5:]
    assert len(set(texts)) > 6
