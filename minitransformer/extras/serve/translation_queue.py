"""A queue of the sentences of all requests, which one thread translates in batches; costs are measured in tokens.

The cost of a sentence is the number of tokens of its source, plus the greatest number of tokens of its translation.
Long and short sentences are in different batches.  A search for long sentences pauses if short sentences arrive.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import LOOP_TOKENS, Translator
from minitransformer.system.threads import start_thread
from minitransformer.text.translation import Translation

COLLECT_SECONDS = 0.005  # time in which a sentence waits for other sentences of its batch
HYPOTHESES_IN_BATCH = 256
SCORES_IN_BATCH = 256 * 256**2  # scores between queries and keys: the work grows with the square of the length
SHORT_TOKENS = 512  # greatest cost of a short sentence
LONG_SHARE = 0.25  # share of the time for long sentences while short sentences wait
SPARE = 8  # a new sentence needs 8 × its cost free in the queue, so that long sentences never fill the queue
LATE_SECONDS = 5.0  # the queue is not ready if a short sentence has waited longer
STOPPING = "the server is stopping"
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class OverloadedError(Exception):
    """An error: the queue is full or closed."""


@dataclass(eq=False)
class _Sentence:
    """A sentence, its cost in tokens, the number of its translations, and how they are found.

    ``is_aligned`` asks for the alignment of words; with ``no_repeat``, translations do not repeat themselves.
    """

    line: str
    cost: int
    n_best: int
    is_aligned: bool
    no_repeat: bool
    future: Future[list[Translation]] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)

    @property
    def is_short(self) -> bool:
        return self.cost <= SHORT_TOKENS


@dataclass(eq=False)
class _Call:
    """Other work with the model, which takes no longer than a search for short sentences."""

    function: Callable[[], Any]
    cost: int
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)
    is_short = True


_Work: TypeAlias = _Sentence | _Call


class TranslationQueue:
    """A queue of sentences, and the only thread that uses the model.

    A ``Translator`` computes on all cores, so a second thread would only slow down the first.

    Args:
        search: the settings of the search; its ``n_best`` is replaced by the value of each request.
        max_tokens: the greatest cost of all waiting work; more work is refused.
        on_batch: called with the number of sentences of each batch.
        on_cut: called with the number of translations of each batch that end at the greatest length.
    """

    def __init__(
        self,
        translator: Translator,
        search: SearchConfig,
        *,
        max_tokens: int,
        n_threads: int | None = None,
        on_batch: Callable[[int], None] = lambda n: None,
        on_cut: Callable[[int], None] = lambda n: None,
    ) -> None:
        self.translator, self.search, self.max_tokens = translator, search, max_tokens
        self._n_threads, self._on_batch, self._on_cut = n_threads, on_batch, on_cut
        self._waiting: list[_Work] = []
        self._short_batch: list[_Work] = []  # short sentences that are being translated
        self._changed, self._pause = Condition(), Lock()
        self._next_pause = 0.0  # the time before which a search for long sentences does not pause again
        self.is_closed = False
        self._thread = start_thread(self._work, name="translation queue")

    def __len__(self) -> int:
        with self._changed:
            return len(self._drop_cancelled())

    def cost(self, n_tokens: int) -> int:
        """Return the cost of a sentence, from its number of source tokens."""
        return n_tokens + int(self.search.greatest_lengths(np.array(n_tokens)))

    def can_wait(self, costs: Sequence[int], waiting: int = 0) -> bool:
        """Return whether sentences of these costs can be added to waiting work of the cost ``waiting``."""
        for cost in costs:
            if waiting + SPARE * cost > self.max_tokens:
                return False
            waiting += cost
        return True

    def is_ready(self) -> bool:
        """Return whether a short sentence can be added, and no short sentence has waited for over LATE_SECONDS."""
        with self._changed:
            waiting = self._drop_cancelled()
            short = [work for work in (*waiting, *self._short_batch) if work.is_short and not work.future.done()]
            is_late = time.monotonic() - min((work.since for work in short), default=math.inf) > LATE_SECONDS
            can_wait = self.can_wait([SHORT_TOKENS], sum(work.cost for work in waiting))
            return can_wait and not is_late and not self.is_closed

    def translate(
        self,
        lines: Sequence[str],
        costs: Sequence[int],
        n_best: int,
        *,
        aligned: Sequence[bool] | None = None,
        no_repeat: bool = False,
    ) -> list[Future[list[Translation]]]:
        """Add lines to the queue; return for each line the future of its translations: up to ``n_best``, best first.

        ``aligned`` says for each line whether its translations have word alignments.  With ``no_repeat``, translations
        do not repeat themselves.  If a future is cancelled, the search for its line ends.
        Raises: OverloadedError if the queue is closed, or has too little space for all lines.
        """
        rows = zip(lines, costs, aligned or [False] * len(lines), strict=True)
        sentences = [_Sentence(line, cost, n_best, is_aligned, no_repeat) for line, cost, is_aligned in rows]
        self._add(sentences)
        return [sentence.future for sentence in sentences]

    def call(self, function: Callable[[], Result], cost: int) -> Future[Result]:
        """Add a function that uses the model to the queue; return the future of its result.

        Raises: OverloadedError if the queue is closed, or has too little space for the cost.
        """
        call = _Call(function, cost)
        self._add([call])
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

    def _add(self, new: Sequence[_Work]) -> None:
        with self._changed:
            if self.is_closed:
                raise OverloadedError(STOPPING)
            if not self.can_wait([work.cost for work in new], sum(work.cost for work in self._drop_cancelled())):
                raise OverloadedError("too much text is waiting for translation")
            self._waiting.extend(new)
            self._changed.notify()

    def _drop_cancelled(self) -> list[_Work]:
        """Remove cancelled work from the waiting work, and return the rest."""
        self._waiting = [work for work in self._waiting if not work.future.cancelled()]
        return self._waiting

    def _work(self) -> None:
        while self._wait_for_work():
            for is_short in (True, False):
                self._run(self._next_batch(is_short))

    def _wait_for_work(self) -> bool:
        """Wait for work, and then until the oldest work has waited COLLECT_SECONDS, or a batch is full.

        Returns: False if the queue is closed, else True.
        """
        with self._changed:
            while not (self._drop_cancelled() or self.is_closed):
                self._changed.wait()
            while self._drop_cancelled() and len(self._waiting) < self._most_in_batch(1):
                left = self._waiting[0].since + COLLECT_SECONDS - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return not self.is_closed

    def _next_batch(self, is_short: bool) -> list[_Work]:
        """Remove a batch of short, or of long, work from the waiting work, and return the batch.

        It has the oldest work of this kind, and the cheapest other work of this kind that fits.
        """
        with self._changed:
            some = [work for work in self._drop_cancelled() if work.is_short == is_short]
            batch = some[:1]
            for work in sorted(some[1:], key=lambda work: work.cost):
                if len(batch) >= self._most_in_batch(max(batch[0].cost, work.cost)):
                    break
                batch.append(work)
            taken = set(batch)
            self._waiting = [work for work in self._waiting if work not in taken]
            if is_short:
                self._short_batch = batch
            return batch

    def _most_in_batch(self, greatest_cost: int) -> int:
        """Return the greatest number of sentences in a batch, given the cost of its longest sentence."""
        n_hypotheses = min(HYPOTHESES_IN_BATCH, SCORES_IN_BATCH // greatest_cost**2)
        return max(1, n_hypotheses // self.search.beam)

    def _run(self, batch: Sequence[_Work]) -> None:
        sentences = [work for work in batch if isinstance(work, _Sentence)]
        if sentences:
            self._on_batch(len(sentences))
            for no_repeat in (False, True):
                self._translate([sentence for sentence in sentences if sentence.no_repeat == no_repeat])
        for work in batch:
            if isinstance(work, _Call) and not work.future.cancelled():
                try:
                    _finish(work, work.function())
                except Exception as error:
                    _fail(work, error)
        self._short_batch = []

    def _translate(self, sentences: Sequence[_Sentence]) -> None:
        """Translate the sentences in one batch; if it fails, translate each alone: one may have caused the error."""
        if not sentences:
            return
        n_best, no_repeat = max(sentence.n_best for sentence in sentences), LOOP_TOKENS * sentences[0].no_repeat
        search = dataclasses.replace(self.search, n_best=n_best, no_repeat=self.search.no_repeat or no_repeat)
        lines, wanted = [sentence.line for sentence in sentences], partial(self._are_wanted, sentences)
        aligned = [sentence.is_aligned for sentence in sentences]
        try:
            found = self.translator.n_best(lines, search, n_threads=self._n_threads, wanted=wanted, aligned=aligned)
        except Exception as error:
            if len(sentences) == 1:
                _fail(sentences[0], error)
                return
            for sentence in sentences:
                if not sentence.future.cancelled():
                    self._translate([sentence])
        else:
            self._on_cut(sum(bool(translations) and translations[0].is_cut for translations in found))
            for sentence, translations in zip(sentences, found, strict=True):
                _finish(sentence, translations[: sentence.n_best])

    def _are_wanted(self, sentences: Sequence[_Sentence]) -> list[bool]:
        """Return for each sentence of a search whether its future is not cancelled.

        In a search for long sentences, first translate one batch of waiting short sentences.  Do this again only after
        the long sentences have had their share of the time.
        """
        if not sentences[0].is_short:
            with self._pause:
                start = time.monotonic()
                if start >= self._next_pause and (batch := self._next_batch(True)):
                    self._run(batch)
                    end = time.monotonic()
                    self._next_pause = end + (end - start) * LONG_SHARE / (1 - LONG_SHARE)
        return [not sentence.future.cancelled() for sentence in sentences]


def _finish(work: _Work, result: Any = None, error: Exception | None = None) -> None:
    """Set the result or the error of work, unless it was cancelled."""
    if not work.future.set_running_or_notify_cancel():
        return
    if error is None:
        work.future.set_result(result)
    else:
        work.future.set_exception(error)


def _fail(work: _Work, error: Exception) -> None:
    """Set the error of work; log only the error's class, because its message may contain what a user has typed."""
    _log.error(f"a request failed: {type(error).__name__}")
    _finish(work, error=error)
