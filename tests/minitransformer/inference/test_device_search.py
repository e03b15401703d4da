"""The search whose state is on the device finds what the search on the host finds; here both compute with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from searching import SEEDS, SOURCES, VARIANTS, random_model

from autograd import no_tape
from minitransformer import Transformer
from minitransformer.inference import device_search
from minitransformer.inference.beam import Hypothesis, SearchConfig, SearchError, Wanted, beam_search
from minitransformer.inference.device_search import DeviceSearch


def search_on_device(
    model: Transformer, sources: Any, config: SearchConfig, wanted: Wanted | None = None
) -> list[list[Hypothesis]]:
    with no_tape():
        return DeviceSearch([model], sources, config.for_model(model.config), wanted).run()


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[h.ids for h in best] for best in found] == [[h.ids for h in best] for best in expected]
    for some, others in zip(found, expected, strict=True):
        np.testing.assert_allclose([h.score for h in some], [h.score for h in others], rtol=1e-12)
        np.testing.assert_allclose([h.log_probability for h in some], [h.log_probability for h in others], rtol=1e-12)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(
    seed=SEEDS, beam=st.sampled_from([1, 2, 4, 5]), n_best=st.integers(1, 5), alpha=st.sampled_from([0.0, 0.6, 1.5]),
    normalisation=st.sampled_from(["gnmt", "length"]), sources=SOURCES, extra=st.integers(1, 12),
    steps_behind=st.integers(0, 3), shrink_at=st.sampled_from([0.3, 0.75, 1.0]),
)  # fmt: skip
@settings(max_examples=12)
@example(
    seed=1, beam=4, n_best=4, alpha=0.6, normalisation="gnmt", sources=[[3], [3, 4, 5, 3], [], [4]], extra=3,
    steps_behind=1, shrink_at=0.75,
)  # fmt: skip
def test_both_searches_find_the_same(
    variant: int, seed: int, beam: int, n_best: int, alpha: float, normalisation: Any, sources: Any, extra: int,
    steps_behind: int, shrink_at: float,
) -> None:  # fmt: skip
    """However late the host reads which sentences are done, and however many it needs to shrink the batch."""
    model = random_model(seed, **VARIANTS[variant])
    config = SearchConfig(beam, alpha, min(n_best, beam), extra, normalisation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_search, "STEPS_BEHIND", steps_behind)
        patch.setattr(device_search, "SHRINK_AT", shrink_at)
        found = search_on_device(model, sources, config)
    assert_same(found, beam_search(model, sources, config))


def numbers_of_sentences(
    model: Transformer, sources: Any, config: SearchConfig, wanted: Wanted | None = None
) -> list[int]:
    """Return how many sentences each step decodes."""
    numbers: list[int] = []
    decode = model.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            model, "decode", lambda ids, *more, **named: (numbers.append(len(ids)), decode(ids, *more, **named))[1]
        )
        search_on_device(model, sources, config, wanted)
    return [n // config.beam for n in numbers]


def ending_after(*lengths: int) -> tuple[Transformer, list[list[int]], SearchConfig]:
    """Return a search in which only the end symbol at the greatest length finishes a hypothesis."""
    model = random_model(3, softmax_bias=True)
    model.softmax_bias.value[2] = -100
    return model, [[3] * (length - 1) for length in lengths], SearchConfig(beam=2, max_extra_tokens=1)


def test_a_sentence_that_is_no_longer_wanted_is_removed_and_has_no_hypothesis() -> None:
    model, sources, config = ending_after(5, 5)
    flags = iter([[True, True], [True, False], *[[True, True]] * 9])
    assert numbers_of_sentences(model, sources, config, lambda: next(flags)) == [2, 2, 1, 1, 1]
    found = search_on_device(model, sources, config, lambda: [False, True])
    assert (found[0], len(found[1])) == ([], 1)


def test_a_sentence_ends_at_its_greatest_length_without_a_step_more() -> None:
    assert numbers_of_sentences(*ending_after(4)) == [1] * 4


def test_the_batch_shrinks_as_soon_as_a_quarter_of_its_sentences_is_done() -> None:
    assert numbers_of_sentences(*ending_after(2, 9, 9, 9, 9)) == [5] * 9
    assert numbers_of_sentences(*ending_after(2, 9, 9, 9)) == [4] * 2 + [3] * 7
    assert numbers_of_sentences(*ending_after(2, 4, 9, 9, 9, 6)) == [6] * 4 + [4] * 2 + [3] * 3


@pytest.mark.parametrize("steps_behind", [0, 1, 2])
def test_a_search_ends_as_many_steps_late_as_the_host_reads(steps_behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows nothing ends at once if it compares hypotheses by log p."""
    model = random_model(1)
    model.parameters.values[:] = 0
    monkeypatch.setattr(device_search, "STEPS_BEHIND", steps_behind)
    assert numbers_of_sentences(model, [[3, 4]], SearchConfig(beam=2, alpha=0.0)) == [1] * (1 + steps_behind)


def test_equal_scores_are_settled_in_the_order_of_the_vocabulary() -> None:
    model = random_model(1)
    model.parameters.values[:] = 0
    config = SearchConfig(beam=3, alpha=0.0, n_best=3, max_extra_tokens=2)
    (hypotheses,) = search_on_device(model, [[3, 4]], config)
    assert [h.ids for h in hypotheses] == [(), (3,), (4,)]


def test_a_model_that_is_not_finite_is_no_model() -> None:
    model = random_model(1)
    model.parameters.values[:] = np.nan
    with pytest.raises(SearchError, match="source 0 has no translation .* the model's weights.* are not finite"):
        search_on_device(model, [[3, 4]], SearchConfig())
