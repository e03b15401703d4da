"""Sentences of several requests share batches, and nothing else."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from threading import Event, Semaphore
from typing import Any

import numpy as np
import pytest
from serving import ScriptedTranslator, queue_of, small_translator
from waiting import TIME_LIMIT

from autograd import ops
from autograd.kernel_registry import references_only
from minitransformer.extras.serve import translation_queue
from minitransformer.extras.serve.translation_queue import OverloadedError, TranslationQueue
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translation


def ask(queue: TranslationQueue, *lines: str, cost: int = 20, n_best: int = 1) -> list[Future[list[Translation]]]:
    return queue.translate(lines, [cost] * len(lines), n_best)


class HeldTranslator(ScriptedTranslator):
    """A translator that waits in its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = Event(), Event()

    def n_best(self, lines: Sequence[str], config: SearchConfig, **_: Any) -> list[list[Translation]]:
        self.has_begun.set()
        assert self.may_go_on.wait(TIME_LIMIT)
        return super().n_best(lines, config)


Held = tuple[HeldTranslator, TranslationQueue]


def texts_of(translator: HeldTranslator, futures: Sequence[Future[list[Translation]]]) -> list[str]:
    """Let the translator go on; return the best translations."""
    translator.may_go_on.set()
    return [future.result(TIME_LIMIT)[0].text for future in futures]


@pytest.fixture
def held() -> Iterator[Held]:
    """A queue whose thread is busy with the sentence "first"."""
    translator = HeldTranslator()
    queue = queue_of(translator)
    ask(queue, "first")
    assert translator.has_begun.wait(TIME_LIMIT)
    yield translator, queue
    translator.may_go_on.set()
    assert queue.close(TIME_LIMIT)


def test_what_arrives_during_a_batch_makes_the_next_one_and_each_gets_as_many_as_wanted(held: Held) -> None:
    translator, queue = held
    futures = ask(queue, "a") + ask(queue, "b", n_best=3) + ask(queue, "c", "d")
    translator.may_go_on.set()
    found = [[translation.text for translation in future.result(TIME_LIMIT)] for future in futures]
    assert found == [["A"], ["B", "B!", "B!!"], ["C"], ["D"]]
    assert translator.batches == [["first"], ["a", "b", "c", "d"]]


def test_the_queue_computes_with_the_kernels_of_its_maker() -> None:
    def implementation() -> Any:
        x = np.ones((2, 3), np.float32)
        return ops.layer_norm.choose((x, x[0], x[0]), {})

    with references_only():
        queue = queue_of(ScriptedTranslator())
    assert queue.call(implementation, 1).result(TIME_LIMIT) is ops.layer_norm.reference
    assert queue.close(TIME_LIMIT)


def test_an_idle_queue_waits_for_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "COLLECT_SECONDS", 2 * TIME_LIMIT)
    monkeypatch.setattr(translation_queue, "HYPOTHESES_IN_BATCH", 8)
    translator, counted = ScriptedTranslator(), list[int]()
    queue = queue_of(translator, on_batch=counted.append)
    futures = ask(queue, "a") + ask(queue, "b")
    assert [future.result(TIME_LIMIT)[0].text for future in futures] == ["A", "B"]
    assert (translator.batches, counted) == ([["a", "b"]], [2])
    assert queue.close(TIME_LIMIT)


def test_a_batch_is_bounded_and_filled_with_the_cheapest(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, queue = held
    monkeypatch.setattr(translation_queue, "HYPOTHESES_IN_BATCH", 12)
    futures = queue.translate(["oldest", "dear", "cheap", "a", "b"], [200, 100, 20, 20, 90], 1)
    assert texts_of(translator, futures) == ["OLDEST", "DEAR", "CHEAP", "A", "B"]
    assert translator.batches[1:] == [["oldest", "cheap", "a"], ["dear", "b"]]


@pytest.mark.parametrize(("cost", "size"), [(20, 64), (256, 64), (362, 32), (512, 16), (2_280, 1)])
def test_a_batch_shrinks_with_the_square_of_the_length(cost: int, size: int, held: Held) -> None:
    translator, queue = held
    queue.max_tokens = 1_000_000
    assert texts_of(translator, ask(queue, *["a"] * 65, cost=cost)) == ["A"] * 65
    assert len(translator.batches[1]) == size


def test_long_sentences_do_not_share_a_batch_with_short_ones(held: Held) -> None:
    translator, queue = held
    futures = queue.translate(["long", "a", "longer", "b"], [600, 20, 620, 512], 1)
    assert texts_of(translator, futures) == ["LONG", "A", "LONGER", "B"]
    assert sorted(translator.batches[1:]) == [["a", "b"], ["long", "longer"]]


def test_a_full_queue_takes_all_sentences_of_a_request_or_none(held: Held) -> None:
    _, queue = held
    queue.max_tokens = 20 * (7 + 8)  # seven sentences of this cost, and eight times the cost
    ask(queue, *"abcde")
    with pytest.raises(OverloadedError):
        ask(queue, *"vwxyz")
    assert len(queue) == 5
    ask(queue, *"fgh")
    with pytest.raises(OverloadedError):
        queue.call(lambda: None, 20)


def test_long_sentences_never_fill_the_queue_and_one_full_of_short_ones_is_not_ready(held: Held) -> None:
    _, queue = held
    assert queue.is_ready()
    futures = ask(queue, *["a"] * 400)
    assert not queue.is_ready()
    for future in futures:
        future.cancel()
    assert queue.is_ready()
    queue.max_tokens = 64_000
    before = len(queue)
    with pytest.raises(OverloadedError):
        for _ in range(64):
            ask(queue, "long", cost=4_100)
    assert queue.is_ready()
    assert len(queue) - before == 8
    ask(queue, *"abcdef", cost=512)
    assert queue.is_ready()


def test_a_queue_is_not_ready_if_a_short_sentence_waits_too_long(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, queue = held
    monkeypatch.setattr(translation_queue, "LATE_SECONDS", 0.0)
    assert not queue.is_ready(), "the first sentence is not translated yet"
    assert texts_of(translator, ask(queue, "a")) == ["A"]
    assert queue.is_ready()


class SteppingTranslator(ScriptedTranslator):
    """A translator whose search for "long" makes a step each time that the test allows one."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.wanted = Semaphore(0), list[list[bool]]()
        self.has_stepped = Semaphore(0)

    def n_best(self, lines: Sequence[str], config: SearchConfig, **more: Any) -> list[list[Translation]]:
        found = super().n_best(lines, config)
        while "long" in lines and (not self.wanted or any(self.wanted[-1])):
            self.has_stepped.release()
            assert self.steps.acquire(timeout=TIME_LIMIT)
            self.wanted.append(more["wanted"]())
        return found


Stepping = tuple[SteppingTranslator, TranslationQueue, list[Future[Any]]]


@pytest.fixture
def stepping() -> Iterator[Stepping]:
    """A queue whose thread searches for two long sentences."""
    translator = SteppingTranslator()
    queue = queue_of(translator)
    long = ask(queue, "long", "longer", cost=600)
    assert translator.has_stepped.acquire(timeout=TIME_LIMIT)
    yield translator, queue, long
    for future in long:
        future.cancel()
    translator.steps.release()
    assert queue.close(TIME_LIMIT)


def test_a_search_for_long_sentences_pauses_for_short_ones(stepping: Stepping) -> None:
    translator, queue, long = stepping
    short, other = ask(queue, "a")[0], queue.call(lambda: "called", 20)
    translator.steps.release()
    assert (short.result(TIME_LIMIT)[0].text, other.result(TIME_LIMIT)) == ("A", "called")
    assert not any(future.done() for future in long)


def test_and_goes_on_before_it_pauses_again(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, queue, _ = stepping
    monkeypatch.setattr(translation_queue, "LONG_SHARE", 1 - 1e-12)
    (first,) = ask(queue, "a")
    translator.steps.release()
    first.result(TIME_LIMIT)
    (second,) = ask(queue, "b")
    for _ in range(3):
        assert translator.has_stepped.acquire(timeout=TIME_LIMIT)
        translator.steps.release()
    assert translator.has_stepped.acquire(timeout=TIME_LIMIT)
    assert not second.done()


def test_a_search_is_told_which_sentences_nobody_waits_for(stepping: Stepping) -> None:
    translator, queue, long = stepping
    long[0].cancel()
    translator.steps.release()
    assert translator.has_stepped.acquire(timeout=TIME_LIMIT)
    assert translator.wanted == [[False, True]]
    long[1].cancel()
    translator.steps.release()
    assert ask(queue, "a")[0].result(TIME_LIMIT)[0].text == "A"


def test_what_is_cancelled_is_not_translated(held: Held) -> None:
    translator, queue = held
    gone, stays = ask(queue, "a", "b")
    assert gone.cancel()
    assert texts_of(translator, [stays]) == ["B"]
    assert translator.batches == [["first"], ["b"]]


def test_a_sentence_that_fails_fails_alone_and_is_not_logged(held: Held, logged: list[str]) -> None:
    translator, queue = held
    good, bad, other = ask(queue, "a", "fail here", "b")
    assert texts_of(translator, [good, other]) == ["A", "B"]
    assert isinstance(bad.exception(TIME_LIMIT), FloatingPointError)
    assert logged == ["warning: a request failed: FloatingPointError"]


def test_other_work_runs_on_the_same_thread_and_may_fail(held: Held) -> None:
    translator, queue = held
    count, failing = queue.call(lambda: len(translator.batches), 20), queue.call(lambda: 1 // 0, 20)
    translator.may_go_on.set()
    assert count.result(TIME_LIMIT) == 1
    assert isinstance(failing.exception(TIME_LIMIT), ZeroDivisionError)


def test_a_closed_queue_refuses_what_waits_and_what_comes(held: Held) -> None:
    translator, queue = held
    (waiting,) = ask(queue, "a")
    assert not queue.close(0.01)
    assert isinstance(waiting.exception(0), OverloadedError)
    with pytest.raises(OverloadedError):
        ask(queue, "b")
    translator.may_go_on.set()
    assert queue.close(TIME_LIMIT)
    assert translator.batches == [["first"]]


def test_together_is_as_alone() -> None:
    """Texts are the same and scores differ by rounding, whatever the others ask for."""
    translator = small_translator()
    lines = ["one", "two three", "six five four three two one", "four", "five one", "two", "six six six", "three one"]
    queue = queue_of(translator)
    futures = [ask(queue, line, n_best=1 + i % 4)[0] for i, line in enumerate(lines)]
    for i, (line, future) in enumerate(zip(lines, futures, strict=True)):
        (alone,) = translator.n_best([line], SearchConfig(beam=4, n_best=1 + i % 4), n_threads=1)
        together = future.result(TIME_LIMIT)
        assert [t.text for t in together] == [t.text for t in alone]
        np.testing.assert_allclose([t.score for t in together], [t.score for t in alone], rtol=1e-4)
    assert queue.close(TIME_LIMIT)
