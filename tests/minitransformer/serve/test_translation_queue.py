"""Sentences of several requests share batches, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import numpy as np
import pytest
from serving import ScriptedTranslator, queue_of, small_translator

from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translation
from minitransformer.serve import translation_queue
from minitransformer.serve.translation_queue import OverloadedError, TranslationQueue


class HeldTranslator(ScriptedTranslator):
    """A translator that waits in its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = Event(), Event()

    def n_best(self, lines: Sequence[str], config: SearchConfig, **_: Any) -> list[list[Translation]]:
        self.has_begun.set()
        assert self.may_go_on.wait(10)
        return super().n_best(lines, config)


@pytest.fixture
def held() -> Iterator[tuple[HeldTranslator, TranslationQueue]]:
    """A queue whose thread is busy with the sentence "first"."""
    translator = HeldTranslator()
    queue = queue_of(translator)
    queue.translate(["first"], 1)
    assert translator.has_begun.wait(10)
    yield translator, queue
    translator.may_go_on.set()
    assert queue.close(10)


def test_what_arrives_during_a_batch_makes_the_next_one(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    translator, queue = held
    futures = [queue.translate([name], 1)[0] for name in ("a", "b")] + queue.translate(["c", "d"], 1)
    translator.may_go_on.set()
    assert [future.result(10)[0].text for future in futures] == ["A", "B", "C", "D"]
    assert translator.batches == [["first"], ["a", "b", "c", "d"]]


def test_an_idle_queue_waits_for_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "COLLECT_SECONDS", 10)
    monkeypatch.setattr(translation_queue, "MOST_IN_BATCH", 2)
    translator = ScriptedTranslator()
    queue = queue_of(translator)
    futures = [queue.translate([name], 1)[0] for name in ("a", "b")]
    assert [future.result(5)[0].text for future in futures] == ["A", "B"]
    assert translator.batches == [["a", "b"]]
    assert queue.close(10)


def test_a_batch_is_bounded(held: tuple[HeldTranslator, TranslationQueue], monkeypatch: pytest.MonkeyPatch) -> None:
    translator, queue = held
    monkeypatch.setattr(translation_queue, "MOST_IN_BATCH", 3)
    futures = queue.translate(list("abcde"), 1)
    translator.may_go_on.set()
    assert [future.result(10)[0].text for future in futures] == list("ABCDE")
    assert translator.batches[1:] == [["a", "b", "c"], ["d", "e"]]


def test_each_gets_as_many_translations_as_wanted(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    translator, queue = held
    one, three = queue.translate(["a"], 1)[0], queue.translate(["b"], 3)[0]
    translator.may_go_on.set()
    assert [t.text for t in one.result(10)] == ["A"]
    assert [t.text for t in three.result(10)] == ["B", "B!", "B!!"]


def test_a_full_queue_takes_all_sentences_of_a_request_or_none(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    _, queue = held
    queue.translate(list("abcde"), 1)
    with pytest.raises(OverloadedError):
        queue.translate(list("wxyz"), 1)
    assert len(queue) == 5
    queue.translate(list("fgh"), 1)
    with pytest.raises(OverloadedError):
        queue.call(lambda: None)


def test_what_is_cancelled_is_not_translated(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    translator, queue = held
    gone, stays = queue.translate(["a", "b"], 1)
    assert gone.cancel()
    translator.may_go_on.set()
    assert stays.result(10)[0].text == "B"
    assert translator.batches == [["first"], ["b"]]


def test_a_sentence_that_fails_fails_alone_and_is_not_logged(
    held: tuple[HeldTranslator, TranslationQueue], logged: list[str]
) -> None:
    translator, queue = held
    good, bad, other = queue.translate(["a", "fail here", "b"], 1)
    translator.may_go_on.set()
    assert (good.result(10)[0].text, other.result(10)[0].text) == ("A", "B")
    assert isinstance(bad.exception(10), FloatingPointError)
    assert logged == ["warning: a request failed: FloatingPointError"]


def test_other_work_runs_on_the_same_thread_and_may_fail(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    translator, queue = held
    count, failing = queue.call(lambda: len(translator.batches)), queue.call(lambda: 1 // 0)
    translator.may_go_on.set()
    assert count.result(10) == 1
    assert isinstance(failing.exception(10), ZeroDivisionError)


def test_a_closed_queue_refuses_what_waits_and_what_comes(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    translator, queue = held
    (waiting,) = queue.translate(["a"], 1)
    assert not queue.close(0.01)
    assert isinstance(waiting.exception(0), OverloadedError)
    with pytest.raises(OverloadedError):
        queue.translate(["b"], 1)
    translator.may_go_on.set()
    assert queue.close(10)
    assert translator.batches == [["first"]]


def test_batches_are_counted(held: tuple[HeldTranslator, TranslationQueue]) -> None:
    translator, _ = held
    counted: list[int] = []
    queue = queue_of(ScriptedTranslator(), on_batch=counted.append)
    for future in queue.translate(["a", "b"], 1):
        future.result(10)
    assert counted == [2]
    assert queue.close(10)
    assert translator.batches == []


def test_together_is_as_alone() -> None:
    """Texts are the same and scores differ by rounding, whatever the others ask for."""
    translator = small_translator()
    lines = ["one", "two three", "six five four three two one", "four", "five one", "two", "six six six", "three one"]
    queue = queue_of(translator)
    futures = [queue.translate([line], 1 + i % 4)[0] for i, line in enumerate(lines)]
    for i, (line, future) in enumerate(zip(lines, futures, strict=True)):
        (alone,) = translator.n_best([line], SearchConfig(beam=4, n_best=1 + i % 4), n_threads=1)
        together = future.result(20)
        assert [t.text for t in together] == [t.text for t in alone]
        np.testing.assert_allclose([t.score for t in together], [t.score for t in alone], rtol=1e-4)
    assert queue.close(10)
