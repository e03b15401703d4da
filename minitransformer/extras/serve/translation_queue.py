"""A queue of the work of all requests, which one thread computes in batches; costs are measured in tokens.

The cost of a sentence is the number of tokens of its source, plus the greatest number of tokens of its translation.
Long and short sentences are in different batches.  The next batch is of the client whose work has taken the least time
(see ``FairShare``).  After each step, a search may pause for a more urgent batch.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from minitransformer.extras.serve.fair_share import FairShare
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import LOOP_TOKENS, Translator
from minitransformer.system.threads import start_thread
from minitransformer.text.translation import Translation

COLLECT_SECONDS = 0.005  # time in which a sentence waits for other sentences of its batch
RETURN_SECONDS = 0.02  # time in which a long call waits for the clients of the last batch
HYPOTHESES_IN_BATCH = 256
SCORES_IN_BATCH = 256 * 256**2  # scores between queries and keys: the work grows with the square of the length
SHORT_TOKENS = 512  # greatest cost of a short sentence
LONG_CALL = 100  # other work that costs more is a long call
LONG_SHARE = 0.25  # share of the time for long sentences while short sentences wait
SPARE = 8  # a new sentence needs 8 × its cost free in the queue, so that long sentences never fill the queue
SMALLER = 2  # a batch pauses for another client's batch only if the latter has at most half its cost
LATE_SECONDS = 5.0  # the queue is not ready if a client with short sentences has waited longer
STOPPING = "the server is stopping"
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class OverloadedError(Exception):
    """An error: the queue is full or closed."""


@dataclass(eq=False, kw_only=True)
class _Waiting:
    """Work of a client: its cost in tokens, its result, and the time since which it waits."""

    client: str
    cost: int
    future: Future[Any] = field(default_factory=Future)
    since: float


@dataclass(eq=False, kw_only=True)
class _Sentence(_Waiting):
    """A sentence, the model that translates it, the number of its translations, and how they are found.

    ``is_aligned`` asks for the alignment of words; with ``no_repeat``, translations do not repeat themselves.
    """

    translator: Translator
    line: str
    n_best: int
    is_aligned: bool
    no_repeat: bool
    is_counted = True

    @property
    def is_short(self) -> bool:
        return self.cost <= SHORT_TOKENS

    def may_share(self, other: _Work) -> bool:
        """Return whether one search may find both translations, without a long wait of the other work's client."""
        if not isinstance(other, _Sentence) or other.is_short != self.is_short:
            return False
        is_similar = other.client == self.client or max(self.cost, other.cost) <= 2 * min(self.cost, other.cost)
        return (
            is_similar
            and other.translator is self.translator
            and (other.n_best, other.no_repeat) == (self.n_best, self.no_repeat)
        )


@dataclass(eq=False, kw_only=True)
class _Call(_Waiting):
    """Other work, which is a batch by itself; ``is_counted`` says whether its cost fills the queue."""

    function: Callable[[], Any]
    is_counted: bool
    is_short = True

    def may_share(self, other: _Work) -> bool:
        return False

    def compute(self) -> None:
        """Call the function, and set its result or its error."""
        try:
            _finish(self, self.function())
        except Exception as error:
            _finish(self, error=error)


_Work: TypeAlias = _Sentence | _Call


class _Batch:
    """Work that is computed together; ``charged`` is the time until which its clients have been charged."""

    def __init__(self, work: Sequence[_Work], start: float) -> None:
        self.work, self.charged, self.lock = work, start, Lock()
        self.clients, self.is_short = set(each.client for each in work), work[0].is_short
        self.cost = sum(each.cost for each in work)


class TranslationQueue:
    """A queue of sentences and other work of clients, and the only thread that uses the models.

    A ``Translator`` computes on all cores, so a second thread would only slow down the first.  So would a thread that
    cuts and joins texts, because Python computes on one thread at a time.

    Args:
        search: the settings of the search; its ``n_best`` is replaced by the value of each request.
        max_tokens: the greatest cost of all waiting work; more work is refused.  A client may fill half of the space
            that other clients leave.
        on_batch: called with the number of sentences of each batch.
        on_cut: called with the number of translations of each batch that end at the greatest length.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        search: SearchConfig,
        *,
        max_tokens: int,
        n_threads: int | None = None,
        on_batch: Callable[[int], None] = lambda n: None,
        on_cut: Callable[[int], None] = lambda n: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.search, self.max_tokens = search, max_tokens
        self._n_threads, self._on_batch, self._on_cut, self._clock = n_threads, on_batch, on_cut, clock
        self._waiting: list[_Work] = []
        self._running: list[_Batch] = []  # each has paused for the next one, except the last
        self._last: _Batch | None = None  # the batch that ended last
        self._share = FairShare()
        self._changed = Condition()
        self._next_pause = 0.0  # the time before which long sentences do not leave short ones more than their share
        self.is_closed = False
        self._thread = start_thread(self._work, name="translation queue")

    def __len__(self) -> int:
        with self._changed:
            return len(self._drop_cancelled())

    def cost(self, n_tokens: int) -> int:
        """Return the cost of a sentence, from its number of source tokens."""
        return n_tokens + int(self.search.greatest_lengths(np.array(n_tokens)))

    def can_wait(self, costs: Sequence[int], own: int = 0, others: int = 0) -> bool:
        """Return whether a client can add sentences of these costs.

        ``own`` and ``others`` are the costs of the waiting work of this client and of all others.
        """
        waiting = own + others
        for cost in costs:
            if waiting + SPARE * cost > self.max_tokens:
                return False
            waiting += cost
        return 2 * (waiting - others) <= self.max_tokens - others

    def is_ready(self) -> bool:
        """Return whether a short sentence of a new client can be added, and would not wait for over LATE_SECONDS.

        It would wait so long if another client's short sentences have waited so long since the last step for them.
        """
        with self._changed:
            waiting = self._drop_cancelled()
            running = [work for batch in self._running for work in batch.work if not work.future.done()]
            short = [work for work in (*waiting, *running) if work.is_short]
            since = min((max(work.since, self._share.until(work.client)) for work in short), default=math.inf)
            can_wait = self.can_wait([SHORT_TOKENS], others=_counted_cost(waiting))
            return can_wait and self._clock() - since <= LATE_SECONDS and not self.is_closed

    def translate(
        self,
        translator: Translator,
        lines: Sequence[str],
        costs: Sequence[int],
        n_best: int,
        *,
        client: str = "",
        aligned: Sequence[bool] | None = None,
        no_repeat: bool = False,
    ) -> list[Future[list[Translation]]]:
        """Add lines for a model; return for each the future of its translations: up to ``n_best``, best first.

        ``aligned`` says for each line whether its translations have word alignments.  With ``no_repeat``, translations
        do not repeat themselves.  If a future is cancelled, the search for its line ends.
        Raises: OverloadedError if the queue is closed, or has too little space for all lines of the client.
        """
        rows = zip(lines, costs, aligned or [False] * len(lines), strict=True)
        since = self._clock()
        sentences = [
            _Sentence(
                client=client,
                cost=cost,
                since=since,
                translator=translator,
                line=line,
                n_best=n_best,
                is_aligned=is_aligned,
                no_repeat=no_repeat,
            )
            for line, cost, is_aligned in rows
        ]
        self._add(sentences, costs)
        return [sentence.future for sentence in sentences]

    def call(
        self, function: Callable[[], Result], cost: int, *, client: str = "", is_counted: bool = True
    ) -> Future[Result]:
        """Add a function to the queue; return the future of its result.

        With ``is_counted`` False, such as for work with a text that is not cut into sentences yet, the cost does not
        fill the queue.
        Raises: OverloadedError if the queue is closed, or has too little space for the cost.
        """
        call = _Call(function=function, client=client, cost=cost, since=self._clock(), is_counted=is_counted)
        self._add([call], [cost] if is_counted else [])
        return call.future

    def close(self, seconds: float) -> bool:
        """Refuse new and waiting work; return whether the thread has ended within ``seconds``."""
        with self._changed:
            self.is_closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify()
        for work in waiting:
            _finish(work, error=OverloadedError(STOPPING))
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _add(self, new: Sequence[_Work], costs: Sequence[int]) -> None:
        """Add work of one client, if its costs can wait."""
        with self._changed:
            if self.is_closed:
                raise OverloadedError(STOPPING)
            if not new:
                return
            client, waiting = new[0].client, self._drop_cancelled()
            own = _counted_cost([work for work in waiting if work.client == client])
            if costs and not self.can_wait(costs, own, _counted_cost(waiting) - own):
                raise OverloadedError("too much text is waiting for translation")
            if client not in self._busy_clients():
                self._share.admit(client, self._busy_clients(new[0].is_short))
            self._waiting.extend(new)
            self._changed.notify()

    def _busy_clients(self, is_short: bool | None = None) -> set[str]:
        """Return the clients with work: with short, with long, or with any work."""
        running = [work for batch in self._running for work in batch.work]
        work = [*self._waiting, *running]
        return {each.client for each in work if is_short in (None, each.is_short)}

    def _drop_cancelled(self) -> list[_Work]:
        """Remove cancelled work from the waiting work, and return the rest."""
        self._waiting = [work for work in self._waiting if not work.future.cancelled()]
        return self._waiting

    def _work(self) -> None:
        while self._wait_for_work():
            for is_short in (True, False):
                if batch := self._next_batch(is_short):
                    self._run(batch)

    def _wait_for_work(self) -> bool:
        """Wait for work, and then until the next batch may begin.

        Returns: False if the queue is closed, else True.
        """
        with self._changed:
            while not (self._drop_cancelled() or self.is_closed):
                self._changed.wait()
            while (waiting := self._drop_cancelled()) and (left := self._start(waiting) - self._clock()) > 0:
                self._changed.wait(left)
            return not self.is_closed

    def _start(self, waiting: Sequence[_Work]) -> float:
        """Return the time at which the next batch may begin.

        A long call waits for the clients of the last batch: they may go on, or send the next request.  If other calls
        wait, or sentences for a full batch, the batch begins at once.
        """
        first = self._oldest_of_next_client(waiting)
        if isinstance(first, _Call) and first.cost > LONG_CALL and self._last:
            absent = self._last.clients - {work.client for work in waiting}
            if any(self._share.taken(client) < self._share.taken(first.client) for client in absent):
                return self._last.charged + RETURN_SECONDS
        if len(waiting) >= self._most_in_batch(1) or any(isinstance(work, _Call) for work in waiting):
            return 0.0
        return waiting[0].since + COLLECT_SECONDS

    def _oldest_of_next_client(self, waiting: Sequence[_Work]) -> _Work:
        client = self._share.least(work.client for work in waiting)
        return next(work for work in waiting if work.client == client)

    def _next_batch(self, is_short: bool, most_taken: float = math.inf, most_cost: float = math.inf) -> _Batch | None:
        """Remove a batch of short, or of long, work from the waiting work, and return the batch.

        It has the oldest work of the client that has taken the least time, and other work that may share its search.
        Returns: None if there is no such work, the client has not taken less than ``most_taken``, or the oldest work
        costs more than ``most_cost``.
        """
        with self._changed:
            some = [work for work in self._drop_cancelled() if work.is_short == is_short]
            if not some:
                return None
            first = self._oldest_of_next_client(some)
            if self._share.taken(first.client) >= most_taken or first.cost > most_cost:
                return None
            batch = self._fitting(_in_equal_numbers(first, filter(first.may_share, some)), most_cost)
            self._waiting = [work for work in self._waiting if work not in batch]
            self._running.append(_Batch(batch, self._clock()))
            return self._running[-1]

    def _fitting(self, candidates: Iterable[_Work], most_cost: float) -> list[_Work]:
        """Return the first candidate, and others until a batch is full or would cost more than ``most_cost``."""
        batch, cost, greatest_cost = list[_Work](), 0, 0
        for work in candidates:
            cost, greatest_cost = cost + work.cost, max(greatest_cost, work.cost)
            if batch and (len(batch) >= self._most_in_batch(greatest_cost) or cost > most_cost):
                break
            batch.append(work)
        return batch

    def _most_in_batch(self, greatest_cost: int) -> int:
        """Return the greatest number of sentences in a batch, given the cost of its longest sentence."""
        n_hypotheses = min(HYPOTHESES_IN_BATCH, SCORES_IN_BATCH // greatest_cost**2)
        return max(1, n_hypotheses // self.search.beam)

    def _run(self, batch: _Batch) -> None:
        """Compute the work of a batch that ``_next_batch`` has returned."""
        sentences = [work for work in batch.work if isinstance(work, _Sentence)]
        if sentences:
            self._on_batch(len(sentences))
            self._translate(sentences, batch)
        for call in batch.work:
            if isinstance(call, _Call) and not call.future.cancelled():
                call.compute()
        with self._changed:
            self._charge(batch)
            self._running.remove(batch)
            self._last = batch
            self._share.forget(self._busy_clients())

    def _translate(self, sentences: Sequence[_Sentence], batch: _Batch) -> None:
        """Translate sentences of a batch in one search; if it fails, each alone: one may have caused the error."""
        n_best, no_repeat = sentences[0].n_best, LOOP_TOKENS * sentences[0].no_repeat
        search = dataclasses.replace(self.search, n_best=n_best, no_repeat=self.search.no_repeat or no_repeat)
        lines, aligned = zip(*((sentence.line, sentence.is_aligned) for sentence in sentences), strict=True)

        def after_step() -> list[bool]:
            self._pause(batch)
            return [not sentence.future.cancelled() for sentence in sentences]

        try:
            found = sentences[0].translator.n_best(
                list(lines), search, n_threads=self._n_threads, wanted=after_step, aligned=aligned
            )
        except Exception as error:
            if len(sentences) == 1:
                _log.error(f"a request failed: {type(error).__name__}")  # a message may contain what a user has typed
                _finish(sentences[0], error=error)
                return
            for sentence in sentences:
                if not sentence.future.cancelled():
                    self._translate([sentence], batch)
        else:
            self._on_cut(sum(bool(translations) and translations[0].is_cut for translations in found))
            for sentence, translations in zip(sentences, found, strict=True):
                _finish(sentence, translations)

    def _pause(self, batch: _Batch) -> None:
        """Charge the clients of a batch, which is searched; compute a more urgent batch first, if there is one."""
        with batch.lock:  # its search may have several threads
            self._charge(batch)
            if urgent := self._more_urgent(batch):
                self._run(urgent)
                end = self._clock()
                if urgent.is_short and not batch.is_short:
                    self._next_pause = end + (end - batch.charged) * LONG_SHARE / (1 - LONG_SHARE)
                batch.charged = end

    def _more_urgent(self, batch: _Batch) -> _Batch | None:
        """Remove the batch for which a search must pause from the waiting work, and return it.

        Short sentences are more urgent than long ones, which still have their share of the time.  Otherwise a batch is
        more urgent if its client has taken less time than all clients of the search, and if it has a fraction of the
        cost.  So few batches can be unfinished at once.
        """
        if not batch.is_short and self._clock() >= self._next_pause and (short := self._next_batch(True)):
            return short
        limits = min(map(self._share.taken, batch.clients)), batch.cost / SMALLER
        return self._next_batch(True, *limits) or (None if batch.is_short else self._next_batch(False, *limits))

    def _charge(self, batch: _Batch) -> None:
        """Charge the clients of a batch for the time since they were last charged."""
        with self._changed:
            now = self._clock()
            self._share.charge(batch.clients, batch.charged, now)
            batch.charged = now


def _in_equal_numbers(first: _Work, others: Iterable[_Work]) -> Iterator[_Work]:
    """Yield ``first``, then other work that may share its search, cheapest first: the same number of each client.

    Otherwise a client with one sentence would wait for a batch full of another client's sentences.
    """
    by_client: dict[str, list[_Work]] = {first.client: [first]}
    for work in sorted(others, key=lambda work: work.cost):
        if work is not first:
            by_client.setdefault(work.client, []).append(work)
    return itertools.chain.from_iterable(zip(*by_client.values(), strict=False))


def _counted_cost(waiting: Sequence[_Work]) -> int:
    return sum(work.cost for work in waiting if work.is_counted)


def _finish(work: _Work, result: Any = None, error: Exception | None = None) -> None:
    """Set the result or the error of work, unless it was cancelled."""
    if not work.future.set_running_or_notify_cancel():
        return
    if error is None:
        work.future.set_result(result)
    else:
        work.future.set_exception(error)
