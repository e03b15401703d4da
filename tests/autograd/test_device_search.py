"""Beam search on device "cuda": a stand-in for CuPy counts what waits for the device."""

import dataclasses
from typing import Any

import fake_cuda
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from searching import SEEDS, TINY, VARIANTS, W
from searching import SOURCES as DRAWN_SOURCES

from autograd import Tensor, ops, to_host
from autograd.array import ReadLater
from minitransformer import ModelConfig, Transformer
from minitransformer.extras.parsing.brackets import BracketConstraint, BracketVocabulary
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.attention import source_attention_weights
from minitransformer.inference.beam import beam_search
from minitransformer.inference.beam_steps import REMOVED_AT_ONCE, STEPS_BEHIND, BeamSearch
from minitransformer.inference.predictor import Predictor
from minitransformer.inference.prefix import Prefix, PrefixConstraint
from minitransformer.inference.search import Hypothesis, SearchConfig, SearchError, Wanted
from minitransformer.model.layers import Linear

CONFIG = ModelConfig(vocabulary_size=19, n_layers=2, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=3, softmax_bias=True)
SOURCES = [[5, 6, 7, 8, 9, 10, 11, 12], [], [4], [12, 11], [4] * 13, [7, 3, 9]]


def models(
    seed: int, *, end: float = 0.0, config: ModelConfig = CONFIG, kind: type[Transformer] = Transformer
) -> tuple[Transformer, Transformer]:
    """Return the same random model on both devices; ``end`` is added to the logit of the end symbol."""
    here, there = (kind(config, seed=seed, dtype="float64", device=device) for device in ("cpu", "cuda"))
    for model in (here, there):
        model.parameters.values *= 2.5
        if model.softmax_bias is not None:
            model.softmax_bias.value[2] += end
    return here.for_search(), there.for_search()


def ids_of(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.ids for hypothesis in best] for best in found]


class Larger(Linear):
    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) * 1.5


class OwnTransformer(Transformer):
    """A model whose queries, hidden layers and logits are larger, but for the greatest logits."""

    def make_layers(self, config: ModelConfig) -> None:
        super().make_layers(config)
        for layer in (*self.encoder.layers, *self.decoder.layers):
            layer.self_attention.query.__class__ = layer.feed_forward.hidden.__class__ = Larger

    def project(self, decoded: Tensor) -> Tensor:
        return ops.tanh(super().project(decoded)) * 2.0


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_of_a_users_class_are_those_of_the_cpu(beam: int, cupy: Any) -> None:
    config = SearchConfig(beam, 0.6, beam, 20)
    here, there = models(2, kind=OwnTransformer)
    expected, found, of_plain = (beam_search(model, SOURCES, config) for model in (here, there, models(2)[0]))
    assert ids_of(found) == ids_of(expected)
    log_p = [[best[0].log_probability for best in each] for each in (expected, found, of_plain)]
    assert log_p[1] == pytest.approx(log_p[0], rel=1e-10)
    assert log_p[1] != pytest.approx(log_p[2], rel=1e-2)


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_of_an_ensemble_are_those_of_the_cpu(beam: int, cupy: Any) -> None:
    pairs, config = [models(seed, end=1.0) for seed in (0, 1)], SearchConfig(beam, 0.6, beam, 20)
    expected, found = (beam_search(ensemble, SOURCES, config) for ensemble in zip(*pairs, strict=True))
    assert ids_of(found) == ids_of(expected)
    assert ids_of(found) not in [ids_of(beam_search(here, SOURCES, config)) for here, _ in pairs]


def test_so_are_trees(cupy: Any) -> None:
    vocabulary = BracketVocabulary(
        [*["<unk>", "<s>", "</s>", "(S", ")S", "(NP", ")NP", "XX", "."], *map(str, range(10))]
    )
    words = [["a"] * len(source) for source in SOURCES]
    config = SearchConfig(6, 0.3, 3, 12)
    expected, found = (beam_search(model, SOURCES, config, BracketConstraint(vocabulary, words)) for model in models(1))
    assert len({len(ids) for best in ids_of(expected) for ids in best}) > 2
    assert ids_of(found) == ids_of(expected)


EXAMPLE = {
    "seed": 1, "beam": 4, "n_best": 4, "alpha": 0.6, "normalisation": "gnmt", "sources": [[3], [3, 4, 5, 3], [], [4]],
    "extra": 3, "given": None, "steps_behind": 1, "removed_at_once": 0.25, "n_at_once": 2,
}  # fmt: skip
CASES = st.fixed_dictionaries(
    {
        "seed": SEEDS,
        "beam": st.sampled_from([1, 2, 4, 5]),
        "n_best": st.integers(1, 5),
        "alpha": st.sampled_from([0.0, 0.6, 1.5]),
        "normalisation": st.sampled_from(["gnmt", "length"]),
        "sources": DRAWN_SOURCES,
        "extra": st.integers(1, 12),
        "given": st.none() | st.lists(st.lists(st.integers(3, W - 1), max_size=3), min_size=4, max_size=4),
        "steps_behind": st.integers(0, 3),
        "removed_at_once": st.sampled_from([0.0, 0.25, 0.7]),
        "n_at_once": st.integers(1, 4),
    }
)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(case=CASES)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(case=EXAMPLE)
def test_so_are_those_of_one_model_whenever_the_host_reads_and_with_any_number_at_work(
    variant: int, case: dict[str, Any], cupy: Any
) -> None:
    beam, sources, counts = case["beam"], case["sources"], dict[str, list[int]]()
    config = SearchConfig(beam, case["alpha"], min(case["n_best"], beam), case["extra"], case["normalisation"])

    def search(model: Transformer) -> list[list[Hypothesis]]:
        prefixes = case["given"] and [Prefix("", "", tuple(ids)) for ids in case["given"][: len(sources)]]
        constraint = prefixes and PrefixConstraint(prefixes, [""] * W)
        advance = counts.setdefault(model.device, []).append
        n_given = prefixes and [prefix.n_tokens for prefix in prefixes]
        return beam_search(model, sources, config, constraint, advance, n_given, n_at_once=case["n_at_once"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STEPS_BEHIND, "cuda", case["steps_behind"])
        patch.setitem(REMOVED_AT_ONCE, "cuda", case["removed_at_once"])
        expected, found = map(search, models(case["seed"], config=dataclasses.replace(TINY, **VARIANTS[variant])))
    assert ids_of(found) == ids_of(expected)
    for some, others in zip(found, expected, strict=True):
        assert [h.score for h in some] == pytest.approx([h.score for h in others], rel=1e-10)
        assert [h.log_probability for h in some] == pytest.approx([h.log_probability for h in others], rel=1e-10)
    assert sum(counts["cpu"]) == sum(counts["cuda"]) == len(sources)


def test_so_are_samples_and_the_weights_that_align_words(cupy: Any) -> None:
    here, there = models(1, end=1.0)
    arguments = SOURCES, SearchConfig(2, n_best=2, max_extra_tokens=20), list(range(6))
    drawn, expected = (Sampling(seed=5, top_p=0.9).sample([model], *arguments) for model in (there, here))
    assert ids_of(drawn) == ids_of(expected)
    weights = [source_attention_weights(model, [5, 6, 7], [8, 9], 1) for model in (here, there)]
    np.testing.assert_allclose(*weights, rtol=1e-10)


def steps_of(
    model: Transformer, sources: Any, config: SearchConfig, wanted: Wanted | None = None
) -> tuple[list[int], list[list[tuple[Any, ...]]]]:
    """Return how many sentences each step decodes, and its calls; the last step's include the end of the search."""
    numbers, starts, enqueue = list[int](), list[int](), BeamSearch._enqueue

    def noted(search: BeamSearch, length: int) -> None:
        numbers.append(len(search.sentences))
        starts.append(len(fake_cuda.CALLS))
        enqueue(search, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeamSearch, "_enqueue", noted)
        fake_cuda.CALLS.clear()
        beam_search(model, sources, config, wanted=wanted)
    calls = list(fake_cuda.CALLS)
    return numbers, [calls[i:j] for i, j in zip(starts, [*starts[1:], len(calls)], strict=True)]


@pytest.mark.parametrize("beam", [1, 4])
def test_no_step_reads_uploads_or_waits_for_itself(beam: int, cupy: Any) -> None:
    _, model = models(1, end=-100.0)
    arguments = model, [[4, 5, 6]], SearchConfig(beam, max_extra_tokens=7)
    beam_search(*arguments)  # so that tables of positions are on the device
    _, steps = steps_of(*arguments)
    assert len(steps) == 10
    for step in steps[1:-1]:  # the last reads what was found
        assert {name for name, *_ in step} == {"pinned", "event", "wait"}
        assert [name for name, *_ in step].count("wait") == 1
    numbered = [number for step in steps for name, *rest in step if name == "wait" for number in rest]
    calls = [call for step in steps for call in step]
    events = [name for name, *_ in calls]
    assert events.count("event") == len(steps) + 1  # the last one is for the caller's stream
    assert numbered == sorted(set(numbered))
    assert len(numbered) == len(steps) - STEPS_BEHIND["cuda"]  # each reads the flags of the step before
    assert events[: events.index("wait")].count("event") == 1 + STEPS_BEHIND["cuda"]  # the next step is enqueued before
    assert events.count("read") == 3  # scores, log p and ids, once


@pytest.mark.parametrize("extra", [7, 12])
def test_what_a_search_reads_and_uploads_does_not_grow_with_its_steps(extra: int, cupy: Any) -> None:
    _, model = models(1, end=-100.0)
    sources = [[4] * n for n in (1, 1, 1, 6, 6, 6)]  # half of them end five steps before the others
    config = SearchConfig(4, max_extra_tokens=extra, max_length_factor=None)
    beam_search(model, sources, config)
    _, steps = steps_of(model, sources, config)
    names = [name for step in steps for name, *_ in step]
    assert len(steps) == 6 + extra
    assert names.count("read") == 2 * 3  # of those that are removed together, and of the rest
    uploading = [i for i, step in enumerate(steps) if any(name == "upload" for name, *_ in step)]
    assert uploading == [extra, 5 + extra]  # indices of the sentences that stay, and of those whose results are read


def ending_after(*lengths: int) -> tuple[Transformer, list[list[int]], SearchConfig]:
    """Return a search in which only the end symbol at the greatest length finishes a hypothesis."""
    _, model = models(3, end=-100.0)
    return model, [[3] * (length - 1) for length in lengths], SearchConfig(beam=2, max_extra_tokens=1)


def test_a_sentence_that_is_no_longer_wanted_is_removed_at_once(cupy: Any) -> None:
    """The host need not read that."""
    flags = iter([[True, True], [True, False], *[[True, True]] * 9])
    assert steps_of(*ending_after(5, 5), lambda: next(flags))[0] == [2, 2, 1, 1, 1]


def test_the_slot_of_a_sentence_that_is_no_longer_wanted_is_filled_again(cupy: Any) -> None:
    """Sentences that are not wanted when they begin leave their slots after a step."""
    model, sources, config = ending_after(9, 5, 4, 6, 5)
    expected, counted, flags = beam_search(model, sources, config), list[int](), [True, True, False, True, True]
    found = beam_search(
        model, sources, config, None, counted.append, wanted=lambda: [sum(counted) < 2, *flags[1:]], n_at_once=2
    )
    assert ids_of(found) == [[], *ids_of(expected[1:2]), [], *ids_of(expected[3:])]
    assert sum(counted) == 5


def test_a_search_is_kept_for_sources_of_the_same_padded_length(cupy: Any) -> None:
    """A short source does not get the padding of a long one."""
    _, model = models(1)
    for longest, padded in [(100, [1, 128]), (200, [129, 256])]:
        predictor = Predictor([model], 1, longest, 2)
        assert [n for n in (1, 128, 129, 256, 257) if predictor.fits([model], n)] == padded
    assert not predictor.fits(models(2)[1:], 200)


def test_a_sentence_ends_at_its_greatest_length_without_a_step_more(cupy: Any) -> None:
    assert steps_of(*ending_after(4))[0] == [1] * 4


def test_the_batch_shrinks_as_soon_as_a_quarter_of_its_sentences_is_done(cupy: Any) -> None:
    assert steps_of(*ending_after(2, 9, 9, 9, 9))[0] == [5] * 9
    assert steps_of(*ending_after(2, 9, 9, 9))[0] == [4] * 2 + [3] * 7
    assert steps_of(*ending_after(2, 4, 9, 9, 9, 6))[0] == [6] * 4 + [4] * 2 + [3] * 3


@pytest.mark.parametrize("steps_behind", [0, 1, 2])
def test_a_search_ends_as_late_as_the_host_reads(steps_behind: int, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that knows nothing ends at once if it compares hypotheses by log p; on the CPU without a step more."""
    here, there = models(1)
    for model in (here, there):
        model.parameters.values[:] = 0
    monkeypatch.setitem(STEPS_BEHIND, "cuda", steps_behind)
    assert steps_of(there, [[3, 4]], SearchConfig(beam=2, alpha=0.0))[0] == [1] * (1 + steps_behind)
    assert steps_of(here, [[3, 4]], SearchConfig(beam=2, alpha=0.0))[0] == [1]


def test_equal_scores_have_the_order_of_the_vocabulary_and_nan_is_no_score(cupy: Any) -> None:
    _, model = models(1, config=TINY)
    model.parameters.values[:] = 0
    (hypotheses,) = beam_search(model, [[3, 4]], SearchConfig(beam=3, alpha=0.0, n_best=3, max_extra_tokens=2))
    assert [h.ids for h in hypotheses] == [(), (3,), (4,)]
    model.parameters.values[:] = np.nan
    with pytest.raises(SearchError, match="source 0 has no translation"):
        beam_search(model, [[3, 4]])


def test_the_stand_in_counts_functions_of_cupy_that_wait(cupy: Any) -> None:
    x = cupy.arange(3)
    for name in ("argpartition", "argsort", "argwhere", "flatnonzero", "nonzero", "sort"):
        fake_cuda.CALLS.clear()
        getattr(cupy, name)(x, *([1] if name == "argpartition" else []))
        assert [("read", name)] == fake_cuda.CALLS


def test_what_is_read_later_is_what_was_there_before(cupy: Any) -> None:
    x = cupy.arange(3)
    later = ReadLater(x)
    y = x + 1
    assert "read" not in {name for name, *_ in fake_cuda.CALLS[-2:]}
    np.testing.assert_array_equal(later.read(), [0, 1, 2])
    np.testing.assert_array_equal(to_host(y), [1, 2, 3])
    np.testing.assert_array_equal(ReadLater(np.arange(3)).read(), [0, 1, 2])
