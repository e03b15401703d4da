"""Beam search on device "cuda": a stand-in for CuPy counts what waits for the device."""

from __future__ import annotations

from typing import Any

import fake_cuda
import numpy as np
import pytest

from autograd import to_host
from autograd.array import ReadLater
from minitransformer import ModelConfig, Transformer
from minitransformer.inference.attention import source_attention_weights
from minitransformer.inference.beam import Hypothesis, SearchConfig, beam_search
from minitransformer.inference.device_search import STEPS_BEHIND
from minitransformer.inference.prefix import Prefix, PrefixConstraint
from minitransformer.inference.sampling import Sampling, sample

CONFIG = ModelConfig(
    vocabulary_size=19, n_layers=2, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=3, softmax_bias=True
)  # fmt: skip
SOURCES = [[5, 6, 7, 8, 9, 10, 11, 12], [], [4], [12, 11], [4] * 13, [7, 3, 9]]


def models(seed: int, *, end: float = 0.0) -> tuple[Transformer, Transformer]:
    """Return the same random model on both devices; ``end`` is added to the logit of the end symbol."""
    here, there = (Transformer(CONFIG, seed=seed, dtype="float64", device=device) for device in ("cpu", "cuda"))
    for model in (here, there):
        model.parameters.values *= 2.5
        model.softmax_bias.value[2] += end
    return here.for_search(), there.for_search()


def ids_of(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.ids for hypothesis in best] for best in found]


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (4, 3), (5, 5)])
def test_translations_are_those_of_the_cpu(seed: int, beam: int, n_best: int, cupy: Any) -> None:
    here, there = models(seed, end=1.0)
    config = SearchConfig(beam, 0.6, n_best, 20)
    expected, found = (beam_search(model, SOURCES, config) for model in (here, there))
    assert len({len(ids) for best in ids_of(expected) for ids in best}) > 2  # sentences end at different steps
    assert ids_of(found) == ids_of(expected)
    for some, others in zip(found, expected, strict=True):
        assert [h.score for h in some] == pytest.approx([h.score for h in others], rel=1e-10)
        assert [h.log_probability for h in some] == pytest.approx([h.log_probability for h in others], rel=1e-10)


@pytest.mark.parametrize("beam", [1, 4])
def test_so_are_those_of_an_ensemble(beam: int, cupy: Any) -> None:
    pairs, config = [models(seed, end=1.0) for seed in (0, 1)], SearchConfig(beam, 0.6, beam, 20)
    expected, found = (beam_search(ensemble, SOURCES, config) for ensemble in zip(*pairs, strict=True))
    assert ids_of(found) == ids_of(expected)
    assert ids_of(found) not in [ids_of(beam_search(here, SOURCES, config)) for here, _ in pairs]


def test_so_are_translations_whose_beginning_is_given(cupy: Any) -> None:
    """By the search on the host, as for every constraint."""
    prefixes = [Prefix("", "", (5, 4)), *[Prefix("", "", ())] * 4, Prefix("", "", (), "▁a")]
    pieces, lengths = ["", "", "", "▁a", "▁ab", *["b"] * 14], [prefix.n_tokens for prefix in prefixes]
    expected, found = (
        beam_search(model, SOURCES, SearchConfig(3), PrefixConstraint(prefixes, pieces), n_given=lengths)
        for model in models(1, end=1.0)
    )
    assert ids_of(found) == ids_of(expected)
    assert found[0][0].ids[:2] == (5, 4)


def test_so_are_samples_and_the_weights_that_align_words(cupy: Any) -> None:
    here, there = models(1, end=1.0)
    arguments = SOURCES, SearchConfig(2, n_best=2, max_extra_tokens=20), Sampling(seed=5, top_p=0.9), list(range(6))
    assert ids_of(sample([there], *arguments)) == ids_of(sample([here], *arguments))
    weights = [source_attention_weights(model, [5, 6, 7], [8, 9], 1) for model in (here, there)]
    np.testing.assert_allclose(*weights, rtol=1e-10)


def calls_by_step(model: Transformer, sources: Any, config: SearchConfig) -> list[list[tuple[Any, ...]]]:
    """Return the calls of each step of a search; the last step's include the end of the search."""
    beam_search(model, sources, config)  # so that tables of positions are on the device
    starts: list[int] = []
    decode = model.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            model, "decode", lambda *some, **more: (starts.append(len(fake_cuda.CALLS)), decode(*some, **more))[1]
        )
        fake_cuda.CALLS.clear()
        beam_search(model, sources, config)
        calls = list(fake_cuda.CALLS)
    return [calls[i:j] for i, j in zip(starts, [*starts[1:], len(calls)], strict=True)]


@pytest.mark.parametrize("beam", [1, 4])
def test_no_step_reads_uploads_or_waits_for_itself(beam: int, cupy: Any) -> None:
    _, model = models(1, end=-100.0)
    steps = calls_by_step(model, [[4, 5, 6]], SearchConfig(beam, max_extra_tokens=20))
    assert len(steps) == 23
    for step in steps[1:-1]:  # the first uploads the mask of the sources, the last reads what was found
        assert {name for name, *_ in step} == {"pinned", "event", "wait"}
        assert [name for name, *_ in step].count("wait") == 1
    numbered = [number for step in steps for name, *rest in step if name == "wait" for number in rest]
    calls = [call for step in steps for call in step]
    events = [name for name, *_ in calls]
    assert events.count("event") == len(steps)
    assert numbered == sorted(set(numbered))
    assert len(numbered) == len(steps) - STEPS_BEHIND  # each reads the flags of the step before
    assert events.count("read") == 3  # scores, log p and ids, once


@pytest.mark.parametrize("extra", [10, 40])
def test_what_a_search_reads_and_uploads_does_not_grow_with_its_steps(extra: int, cupy: Any) -> None:
    _, model = models(1, end=-100.0)
    sources = [[4] * n for n in (1, 1, 1, 6, 6, 6)]  # half of them end five steps before the others
    steps = calls_by_step(model, sources, SearchConfig(4, max_extra_tokens=extra))
    names = [name for step in steps for name, *_ in step]
    assert len(steps) == 6 + extra
    assert names.count("read") == 2 * 3  # of those that are removed together, and of the rest
    shrinking = [i for i, step in enumerate(steps) if any(name == "upload" for name, *_ in step)]
    assert shrinking == [0, extra]  # the mask of the sources, then indices of those that stay: of one length


def test_a_wait_is_for_an_earlier_step(cupy: Any) -> None:
    """The host has enqueued the next step when it waits for the flags of one."""
    _, model = models(1, end=-100.0)
    steps = calls_by_step(model, [[4, 5]], SearchConfig(2, max_extra_tokens=9))
    recorded = [name for step in steps for name, *_ in step]
    first = recorded.index("wait")
    assert recorded[:first].count("event") == 1 + STEPS_BEHIND


@pytest.mark.parametrize("waiting", ["argpartition", "argsort", "argwhere", "flatnonzero", "nonzero", "sort"])
def test_the_stand_in_counts_functions_of_cupy_that_wait(waiting: str, cupy: Any) -> None:
    x = cupy.arange(3)
    fake_cuda.CALLS.clear()
    getattr(cupy, waiting)(x, *([1] if waiting == "argpartition" else []))
    ((name, function),) = fake_cuda.CALLS
    assert (name, function) == ("read", waiting)


def test_what_is_read_later_is_what_was_there_before(cupy: Any) -> None:
    x = cupy.arange(3)
    later = ReadLater(x)
    y = x + 1
    assert "read" not in {name for name, *_ in fake_cuda.CALLS[-2:]}
    np.testing.assert_array_equal(later.read(), [0, 1, 2])
    np.testing.assert_array_equal(to_host(y), [1, 2, 3])
    np.testing.assert_array_equal(ReadLater(np.arange(3)).read(), [0, 1, 2])
