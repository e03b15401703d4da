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
from minitransformer.extras.serve.translation_queue import OverloadedError
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translation


class Queued(ScriptedTranslator):
    """A translator with its queue."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.queue = queue_of(self, **options)

    def ask(self, *lines: str, cost: int = 20, n_best: int = 1) -> list[Future[list[Translation]]]:
        return self.queue.translate(lines, [cost] * len(lines), n_best)


class Held(Queued):
    """A translator that waits in its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_go_on = Event(), Event()

    def n_best(self, lines: Sequence[str], config: SearchConfig, **_: Any) -> list[list[Translation]]:
        self.has_begun.set()
        assert self.may_go_on.wait(TIME_LIMIT)
        return super().n_best(lines, config)

    def texts_of(self, futures: Sequence[Future[list[Translation]]]) -> list[str]:
        """Go on; return the best translations."""
        self.may_go_on.set()
        return [future.result(TIME_LIMIT)[0].text for future in futures]


@pytest.fixture
def held() -> Iterator[Held]:
    """A translator that is busy with the sentence "first"."""
    translator = Held()
    translator.ask("first")
    assert translator.has_begun.wait(TIME_LIMIT)
    yield translator
    translator.may_go_on.set()
    assert translator.queue.close(TIME_LIMIT)


def test_what_arrives_during_a_batch_makes_the_next_one_and_each_gets_as_many_as_wanted(held: Held) -> None:
    futures = held.ask("a") + held.ask("b", n_best=3) + held.ask("c", "d")
    held.may_go_on.set()
    found = [[translation.text for translation in future.result(TIME_LIMIT)] for future in futures]
    assert found == [["A"], ["B", "B!", "B!!"], ["C"], ["D"]]
    assert held.batches == [["first"], ["a", "b", "c", "d"]]


def test_the_queue_computes_with_the_kernels_of_its_maker() -> None:
    def implementation() -> Any:
        x = np.ones((2, 3), np.float32)
        return ops.layer_norm.choose((x, x[0], x[0]), {})

    with references_only():
        queue = Queued().queue
    assert queue.call(implementation, 1).result(TIME_LIMIT) is ops.layer_norm.reference
    assert queue.close(TIME_LIMIT)


def test_an_idle_queue_waits_for_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "COLLECT_SECONDS", 2 * TIME_LIMIT)
    monkeypatch.setattr(translation_queue, "HYPOTHESES_IN_BATCH", 8)
    counted = list[int]()
    translator = Queued(on_batch=counted.append)
    futures = translator.ask("a") + translator.ask("b")
    assert [future.result(TIME_LIMIT)[0].text for future in futures] == ["A", "B"]
    assert (translator.batches, counted) == ([["a", "b"]], [2])
    assert translator.queue.close(TIME_LIMIT)


def test_a_batch_is_bounded_and_filled_with_the_cheapest(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "HYPOTHESES_IN_BATCH", 12)
    futures = held.queue.translate(["oldest", "dear", "cheap", "a", "b"], [200, 100, 20, 20, 90], 1)
    assert held.texts_of(futures) == ["OLDEST", "DEAR", "CHEAP", "A", "B"]
    assert held.batches[1:] == [["oldest", "cheap", "a"], ["dear", "b"]]


@pytest.mark.parametrize(("cost", "size"), [(20, 64), (256, 64), (362, 32), (512, 16), (2_280, 1)])
def test_a_batch_shrinks_with_the_square_of_the_length(cost: int, size: int, held: Held) -> None:
    held.queue.max_tokens = 1_000_000
    assert held.texts_of(held.ask(*["a"] * 65, cost=cost)) == ["A"] * 65
    assert len(held.batches[1]) == size


def test_long_sentences_do_not_share_a_batch_with_short_ones(held: Held) -> None:
    futures = held.queue.translate(["long", "a", "longer", "b"], [600, 20, 620, 512], 1)
    assert held.texts_of(futures) == ["LONG", "A", "LONGER", "B"]
    assert sorted(held.batches[1:]) == [["a", "b"], ["long", "longer"]]


def test_a_full_queue_takes_all_sentences_of_a_request_or_none(held: Held) -> None:
    held.queue.max_tokens = 20 * (7 + 8)  # seven sentences of this cost, and eight times the cost
    held.ask(*"abcde")
    with pytest.raises(OverloadedError):
        held.ask(*"vwxyz")
    assert len(held.queue) == 5
    held.ask(*"fgh")
    with pytest.raises(OverloadedError):
        held.queue.call(lambda: None, 20)


def test_long_sentences_never_fill_the_queue_and_one_full_of_short_ones_is_not_ready(held: Held) -> None:
    assert held.queue.is_ready()
    futures = held.ask(*["a"] * 400)
    assert not held.queue.is_ready()
    for future in futures:
        future.cancel()
    assert held.queue.is_ready()
    held.queue.max_tokens = 64_000
    before = len(held.queue)
    with pytest.raises(OverloadedError):
        for _ in range(64):
            held.ask("long", cost=4_100)
    assert held.queue.is_ready()
    assert len(held.queue) - before == 8
    held.ask(*"abcdef", cost=512)
    assert held.queue.is_ready()


def test_a_queue_is_not_ready_if_a_short_sentence_waits_too_long(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "LATE_SECONDS", 0.0)
    assert not held.queue.is_ready(), "the first sentence is not translated yet"
    assert held.texts_of(held.ask("a")) == ["A"]
    assert held.queue.is_ready()


class Stepping(Queued):
    """A translator whose search for "long" makes a step each time that the test allows one."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.has_stepped, self.wanted = Semaphore(0), Semaphore(0), list[list[bool]]()
        self.long = self.ask("long", "longer", cost=600)

    def n_best(self, lines: Sequence[str], config: SearchConfig, **more: Any) -> list[list[Translation]]:
        found = super().n_best(lines, config)
        while "long" in lines and (not self.wanted or any(self.wanted[-1])):
            self.has_stepped.release()
            assert self.steps.acquire(timeout=TIME_LIMIT)
            self.wanted.append(more["wanted"]())
        return found


@pytest.fixture
def stepping() -> Iterator[Stepping]:
    """A translator that searches for two long sentences."""
    translator = Stepping()
    assert translator.has_stepped.acquire(timeout=TIME_LIMIT)
    yield translator
    for future in translator.long:
        future.cancel()
    translator.steps.release()
    assert translator.queue.close(TIME_LIMIT)


def test_a_search_for_long_sentences_pauses_for_short_ones(stepping: Stepping) -> None:
    short, other = stepping.ask("a")[0], stepping.queue.call(lambda: "called", 20)
    stepping.steps.release()
    assert (short.result(TIME_LIMIT)[0].text, other.result(TIME_LIMIT)) == ("A", "called")
    assert not any(future.done() for future in stepping.long)


def test_and_goes_on_before_it_pauses_again(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "LONG_SHARE", 1 - 1e-12)
    (first,) = stepping.ask("a")
    stepping.steps.release()
    first.result(TIME_LIMIT)
    (second,) = stepping.ask("b")
    for _ in range(3):
        assert stepping.has_stepped.acquire(timeout=TIME_LIMIT)
        stepping.steps.release()
    assert stepping.has_stepped.acquire(timeout=TIME_LIMIT)
    assert not second.done()


def test_a_search_is_told_which_sentences_nobody_waits_for(stepping: Stepping) -> None:
    stepping.long[0].cancel()
    stepping.steps.release()
    assert stepping.has_stepped.acquire(timeout=TIME_LIMIT)
    assert stepping.wanted == [[False, True]]
    stepping.long[1].cancel()
    stepping.steps.release()
    assert stepping.ask("a")[0].result(TIME_LIMIT)[0].text == "A"


def test_what_is_cancelled_is_not_translated(held: Held) -> None:
    gone, stays = held.ask("a", "b")
    assert gone.cancel()
    assert held.texts_of([stays]) == ["B"]
    assert held.batches == [["first"], ["b"]]


def test_a_sentence_that_fails_fails_alone_and_is_not_logged(held: Held, logged: list[str]) -> None:
    good, bad, other = held.ask("a", "fail here", "b")
    assert held.texts_of([good, other]) == ["A", "B"]
    assert isinstance(bad.exception(TIME_LIMIT), FloatingPointError)
    assert logged == ["warning: a request failed: FloatingPointError"]


def test_other_work_runs_on_the_same_thread_and_may_fail(held: Held) -> None:
    count, failing = held.queue.call(lambda: len(held.batches), 20), held.queue.call(lambda: 1 // 0, 20)
    held.may_go_on.set()
    assert count.result(TIME_LIMIT) == 1
    assert isinstance(failing.exception(TIME_LIMIT), ZeroDivisionError)


def test_a_closed_queue_refuses_what_waits_and_what_comes(held: Held) -> None:
    (waiting,) = held.ask("a")
    assert not held.queue.close(0.01)
    assert isinstance(waiting.exception(0), OverloadedError)
    with pytest.raises(OverloadedError):
        held.ask("b")
    held.may_go_on.set()
    assert held.queue.close(TIME_LIMIT)
    assert held.batches == [["first"]]


def test_together_is_as_alone() -> None:
    """Texts are the same and scores differ by rounding, whatever the others ask for."""
    translator = small_translator()
    lines = ["one", "two three", "six five four three two one", "four", "five one", "two", "six six six", "three one"]
    queue = queue_of(translator)
    numbers = [1 + i % 4 for i in range(len(lines))]
    futures = [queue.translate([line], [20], n)[0] for line, n in zip(lines, numbers, strict=True)]
    for line, n, future in zip(lines, numbers, futures, strict=True):
        (alone,) = translator.n_best([line], SearchConfig(beam=4, n_best=n), n_threads=1)
        together = future.result(TIME_LIMIT)
        assert [t.text for t in together] == [t.text for t in alone]
        np.testing.assert_allclose([t.score for t in together], [t.score for t in alone], rtol=1e-4)
    assert queue.close(TIME_LIMIT)
