"""Sentences of several requests share batches, and nothing else."""

import time
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
from minitransformer.extras.serve.fair_share import FairShare
from minitransformer.extras.serve.translation_queue import OverloadedError
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translation


class Queued(ScriptedTranslator):
    """A translator with its queue."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.queue = queue_of(**options)

    def ask(self, *lines: str, cost: int = 20, n_best: int = 1, client: str = "") -> list[Future[list[Translation]]]:
        return self.queue.translate(self, lines, [cost] * len(lines), n_best, client=client)


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


def test_what_arrives_during_a_batch_makes_the_next_ones_and_each_gets_as_many_as_wanted(held: Held) -> None:
    futures = held.ask("a") + held.ask("b", n_best=3) + held.ask("c", "d")
    held.may_go_on.set()
    found = [[translation.text for translation in future.result(TIME_LIMIT)] for future in futures]
    assert found == [["A"], ["B", "B!", "B!!"], ["C"], ["D"]]
    assert held.batches == [["first"], ["a", "c", "d"], ["b"]]


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
    futures = held.queue.translate(held, ["oldest", "dear", "cheap", "a", "b"], [200, 100, 20, 20, 90], 1)
    assert held.texts_of(futures) == ["OLDEST", "DEAR", "CHEAP", "A", "B"]
    assert held.batches[1:] == [["oldest", "cheap", "a"], ["dear", "b"]]


@pytest.mark.parametrize(("cost", "size"), [(20, 64), (256, 64), (362, 32), (512, 16), (2_280, 1)])
def test_a_batch_shrinks_with_the_square_of_the_length(cost: int, size: int, held: Held) -> None:
    held.queue.max_tokens = 1_000_000
    assert held.texts_of(held.ask(*["a"] * 65, cost=cost)) == ["A"] * 65
    assert len(held.batches[1]) == size


def test_long_sentences_do_not_share_a_batch_with_short_ones(held: Held) -> None:
    futures = held.queue.translate(held, ["long", "a", "longer", "b"], [600, 20, 620, 512], 1)
    assert held.texts_of(futures) == ["LONG", "A", "LONGER", "B"]
    assert sorted(held.batches[1:]) == [["a", "b"], ["long", "longer"]]


def test_clients_share_a_batch_in_equal_numbers_if_their_sentences_are_alike(held: Held) -> None:
    flood = held.ask(*"abcdef", client="flood")
    other = held.ask(*"xy", client="other") + held.ask("dear", cost=90, client="third")
    held.texts_of(flood + other)
    assert held.batches == [["first"], ["a", "x", "b", "y"], ["dear"], ["c", "d", "e", "f"]]


def test_the_client_whose_work_has_taken_the_least_time_is_next(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, now = list[str](), [held.queue._clock()]
    monkeypatch.setattr(held.queue, "_clock", lambda: now[0])

    def work(client: str, seconds: float) -> Future[None]:
        def compute() -> None:
            computed.append(client)
            now[0] += seconds

        return held.queue.call(compute, 1, client=client)

    futures = [work("flood", 2.0) for _ in range(3)] + [work("other", 0.5) for _ in range(6)]
    held.may_go_on.set()
    for future in futures:
        future.result(TIME_LIMIT)
    assert computed == ["flood", *["other"] * 4, "flood", *["other"] * 2, "flood"]


def test_models_compute_in_turns_and_no_direction_starves_another(held: Held) -> None:
    """A flood in one direction delays a sentence in another by one batch; one of its own client by those before it."""
    n_before = dict[str, int]()

    def write(line: str) -> str:
        n_before[line] = len(held.batches)
        return line

    def ask_another(line: str, client: str) -> list[Future[list[Translation]]]:
        return held.queue.translate(ScriptedTranslator(write), [line], [20], 1, client=client)

    flood = held.ask(*["a"] * 150, client="flood")
    own = ask_another("own", "flood")
    flood += held.ask(*["b"] * 50, client="flood")
    other = ask_another("other", "other")
    held.texts_of([*flood, *own, *other])
    assert list(map(len, held.batches)) == [1, 64, 64, 64, 8], "no batch has two models"
    assert n_before["other"] <= 2
    assert n_before["own"] == 4


def test_all_models_share_one_budget(held: Held) -> None:
    held.queue.max_tokens = 20 * (7 + 8)
    held.ask(*"abcde", client="one")
    with pytest.raises(OverloadedError):
        held.queue.translate(ScriptedTranslator(), list("vwxyz"), [20] * 5, 1, client="other")


@pytest.mark.parametrize(("cost", "first"), [(1_000, "other"), (1, "flood")])
def test_a_long_call_waits_for_a_client_that_may_return(
    cost: int, first: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation_queue, "RETURN_SECONDS", 2 * TIME_LIMIT)
    now = held.queue._clock()
    monkeypatch.setattr(held.queue, "_clock", lambda: now)
    monkeypatch.setattr(held.queue, "_share", FairShare())
    held.queue._share.charge(["flood"], 0, 9)
    computed, waiting = list[str](), Event()
    held.queue.call(waiting.set, 1, client="other")
    flood = held.queue.call(lambda: computed.append("flood"), cost, client="flood")
    held.may_go_on.set()
    assert waiting.wait(TIME_LIMIT)
    if first == "flood":
        flood.result(TIME_LIMIT)
    held.queue.call(lambda: computed.append("other"), 1, client="other").result(TIME_LIMIT)
    assert computed[0] == first


def test_a_client_that_returns_is_little_ahead_and_at_most_a_second_behind() -> None:
    share = FairShare()
    share.charge(["flood"], 0, 30)
    share.charge(["slow"], 0, 9)
    share.charge(["a", "b"], 0, 9)
    assert share.least(["flood", "a", "b"]) == "a"
    share.admit("new", ["flood", "slow"])
    share.admit("flood", ["slow"])
    assert {client: share.taken(client) for client in ("new", "flood", "a")} == {"new": 8.75, "flood": 10, "a": 4.5}
    share.forget(["slow"])
    assert {client: share.taken(client) for client in ("flood", "slow", "a")} == {"flood": 10, "slow": 9, "a": 0}


def test_a_full_queue_takes_all_sentences_of_a_request_or_none(held: Held) -> None:
    held.queue.max_tokens = 20 * (7 + 8)  # seven sentences of this cost, and eight times the cost
    held.ask(*"abcde")
    with pytest.raises(OverloadedError):
        held.ask(*"vwxyz", client="other")
    assert len(held.queue) == 5
    held.ask(*"fgh", client="other")
    with pytest.raises(OverloadedError):
        held.queue.call(lambda: None, 20, client="third")


def test_a_client_fills_at_most_half_of_the_queue_that_others_leave(held: Held) -> None:
    held.queue.max_tokens = 2_000
    clients = {"flood": 50, "other": 25, "third": 12}
    for client, most in clients.items():
        held.ask(*["a"] * most, client=client)
        with pytest.raises(OverloadedError):
            held.ask("b", client=client)
    held.ask("c", client="new")
    uncounted = held.queue.call(lambda: "called", 9_999, client="flood", is_counted=False)
    held.may_go_on.set()
    assert uncounted.result(TIME_LIMIT) == "called"


def test_long_sentences_never_fill_the_queue_and_one_full_of_short_ones_is_not_ready(held: Held) -> None:
    assert held.queue.is_ready()
    futures = held.ask(*["a"] * 250)
    assert held.queue.is_ready(), "one client fills half of the queue"
    futures += held.ask(*["a"] * 120, client="second") + held.ask(*["a"] * 60, client="third")
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
    assert len(held.queue) - before == 7
    held.ask(*"abcdef", cost=512)
    assert held.queue.is_ready()


def test_a_queue_is_not_ready_if_a_short_sentence_waits_too_long(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "LATE_SECONDS", 0.0)
    assert not held.queue.is_ready(), "the first sentence is not translated yet"
    assert held.texts_of(held.ask("a")) == ["A"]
    assert held.queue.is_ready()


class Stepping(Queued):
    """A translator whose search for "long" and "longer" makes a step each time that the test allows one."""

    def __init__(self, cost: int = 600) -> None:
        super().__init__()
        self.steps, self.has_stepped, self.wanted = Semaphore(0), Semaphore(0), list[list[bool]]()
        self.long = self.ask("long", "longer", cost=cost)

    def step(self) -> None:
        self.steps.release()
        assert self.has_stepped.acquire(timeout=TIME_LIMIT)

    def n_best(self, lines: Sequence[str], config: SearchConfig, **more: Any) -> list[list[Translation]]:
        found = super().n_best(lines, config)
        while "long" in lines and (not self.wanted or any(self.wanted[-1])):
            self.has_stepped.release()
            assert self.steps.acquire(timeout=TIME_LIMIT)
            self.wanted.append(more["wanted"]())
        return found


@pytest.fixture(params=[600])
def stepping(request: Any) -> Iterator[Stepping]:
    """A translator that searches for two sentences of this cost, which are long ones unless a test says otherwise."""
    translator = Stepping(request.param)
    assert translator.has_stepped.acquire(timeout=TIME_LIMIT)
    yield translator
    for future in translator.long:
        future.cancel()
    translator.steps.release()
    assert translator.queue.close(TIME_LIMIT)


def test_a_search_for_long_sentences_pauses_for_short_ones(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation_queue, "LONG_SHARE", 0.0)
    short, other = stepping.ask("a")[0], stepping.queue.call(lambda: "called", 20)
    stepping.step()
    stepping.step()
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


@pytest.mark.parametrize("stepping", [200, 600], indirect=True)
def test_a_search_pauses_for_cheaper_work_of_a_client_that_has_taken_less_time(
    stepping: Stepping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping.queue, "_next_pause", 1e99)  # long sentences have not had their share,
    monkeypatch.setattr(translation_queue, "LONG_SHARE", 1 - 1e-12)  # also after the next pause
    own, dear = stepping.ask("own", cost=50), stepping.ask("dear", cost=900, client="other")
    stepping.step()
    other = stepping.ask("a", "b", cost=20, client="third") + stepping.ask("c", cost=601, client="third")
    for _ in range(3):
        stepping.step()
    assert stepping.batches == [["long", "longer"], ["a", "b"]]
    assert [future.done() for future in (*own, *dear, *other)] == [False, False, True, True, False]
    for future in stepping.long:
        future.cancel()
    stepping.steps.release(9)
    assert {future.result(TIME_LIMIT)[0].text for future in (*own, *dear, other[2])} == {"OWN", "DEAR", "C"}


def test_a_flood_leaves_the_queue_ready_for_others(stepping: Stepping, monkeypatch: pytest.MonkeyPatch) -> None:
    late = stepping.ask("a")
    monkeypatch.setattr(stepping.queue, "_next_pause", 1e99)
    stepping.step()
    assert stepping.queue.is_ready()
    now = time.monotonic() + 2 * translation_queue.LATE_SECONDS
    monkeypatch.setattr(stepping.queue, "_clock", lambda: now)
    assert not stepping.queue.is_ready(), "no work of this client was computed meanwhile"
    stepping.queue._share.charge([""], now - 1, now)
    assert stepping.queue.is_ready(), "others of its sentences were computed"
    assert not late[0].done()


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
    queue = queue_of()
    numbers = [1 + i % 4 for i in range(len(lines))]
    futures = [queue.translate(translator, [line], [20], n)[0] for line, n in zip(lines, numbers, strict=True)]
    for line, n, future in zip(lines, numbers, futures, strict=True):
        (alone,) = translator.n_best([line], SearchConfig(beam=4, n_best=n), n_threads=1)
        together = future.result(TIME_LIMIT)
        assert [t.text for t in together] == [t.text for t in alone]
        np.testing.assert_allclose([t.score for t in together], [t.score for t in alone], rtol=1e-4)
    assert queue.close(TIME_LIMIT)


def test_a_search_may_pause_before_each_alignment() -> None:
    """The alignments of a document's sentences take longer than a step of their search."""
    translator, lines = small_translator(), ["one", "two three", "four"]

    def n_pauses(aligned: list[bool], most: int = 10_000) -> tuple[int, list[int]]:
        asked = list[bool]()

        def wanted() -> list[bool]:
            asked.append(len(asked) < most)
            return [asked[-1]] * len(lines)

        found = translator.n_best(lines, SearchConfig(), n_threads=1, aligned=aligned, wanted=wanted)
        return len(asked), list(map(len, found))

    steps, _ = n_pauses([False] * 3)
    assert n_pauses([True, False, True]) == (steps + 2, [1, 1, 1])
    assert n_pauses([True, False, True], steps) == (steps + 2, [0, 1, 0]), "no longer wanted"
