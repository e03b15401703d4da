"""Sentences of several requests, translated together on one thread."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, TypeVar

from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translation, Translator

COLLECT_SECONDS = 0.005  # a sentence waits so long for others to share its batch
MOST_IN_BATCH = 64  # sentences
STOPPING = "the server is stopping"
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class OverloadedError(Exception):
    """An error: the queue is full or closed."""


@dataclass(eq=False)
class _Sentence:
    """A sentence, and the number of its translations that are wanted."""

    line: str
    n_best: int
    future: Future[list[Translation]] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Call:
    """Other work with the model."""

    function: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


class TranslationQueue:
    """A queue of sentences, and the one thread that uses the model.

    A ``Translator`` sets the number of BLAS threads of the whole process, so two threads must not use it at once.

    Args:
        search: the settings of the search; ``n_best`` is that of each request.
        most_waiting: the greatest number of waiting sentences; further ones are refused.
        on_batch: called with the number of sentences of each batch.
    """

    def __init__(
        self,
        translator: Translator,
        search: SearchConfig,
        *,
        most_waiting: int,
        n_threads: int | None = None,
        on_batch: Callable[[int], None] = lambda n: None,
    ) -> None:
        self.translator, self.search, self.most_waiting = translator, search, most_waiting
        self._n_threads, self._on_batch = n_threads, on_batch
        self._waiting: deque[_Sentence | _Call] = deque()
        self._changed = Condition()
        self.is_closed = False
        self._thread = Thread(target=self._work, name="translation queue", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def translate(self, lines: Sequence[str], n_best: int) -> list[Future[list[Translation]]]:
        """Return the future translations of each line, up to ``n_best``, best first; a cancelled one is left out.

        Raises: OverloadedError if not all of them can wait.
        """
        sentences = [_Sentence(line, n_best) for line in lines]
        self._add(sentences)
        return [sentence.future for sentence in sentences]

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Return the future result of a function that uses the model.  Raises: OverloadedError."""
        call = _Call(function)
        self._add([call])
        return call.future

    def close(self, seconds: float) -> bool:
        """Refuse new work and what waits; return whether the thread has ended within so many seconds."""
        with self._changed:
            self.is_closed = True
            while self._waiting:
                future = self._waiting.popleft().future
                if future.set_running_or_notify_cancel():
                    future.set_exception(OverloadedError(STOPPING))
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _add(self, work: Sequence[_Sentence | _Call]) -> None:
        with self._changed:
            if self.is_closed:
                raise OverloadedError(STOPPING)
            if len(self._waiting) + len(work) > self.most_waiting:
                raise OverloadedError("too many sentences are waiting")
            self._waiting.extend(work)
            self._changed.notify()

    def _work(self) -> None:
        while batch := self._next_batch():
            wanted = [work for work in batch if work.future.set_running_or_notify_cancel()]
            sentences = [work for work in wanted if isinstance(work, _Sentence)]
            if sentences:
                self._on_batch(len(sentences))
                self._translate(sentences)
            for work in wanted:
                if isinstance(work, _Call):
                    _finish(work)

    def _next_batch(self) -> list[_Sentence | _Call]:
        """Wait for work, then for more until the oldest has waited COLLECT_SECONDS; empty at the end."""
        with self._changed:
            while not (self._waiting or self.is_closed):
                self._changed.wait()
            while self._waiting and len(self._waiting) < MOST_IN_BATCH:
                left = self._waiting[0].since + COLLECT_SECONDS - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            return [self._waiting.popleft() for _ in range(min(MOST_IN_BATCH, len(self._waiting)))]

    def _translate(self, sentences: Sequence[_Sentence]) -> None:
        """Translate in one batch; if that fails, each alone, so that nobody fails because of another's sentence."""
        search = dataclasses.replace(self.search, n_best=max(sentence.n_best for sentence in sentences))
        lines = [sentence.line for sentence in sentences]
        try:
            found = self.translator.n_best(lines, search, n_threads=self._n_threads)
        except Exception as error:
            if len(sentences) > 1:
                for sentence in sentences:
                    self._translate([sentence])
            else:
                _fail(sentences[0], error)
        else:
            for sentence, translations in zip(sentences, found, strict=True):
                sentence.future.set_result(translations[: sentence.n_best])


def _finish(call: _Call) -> None:
    try:
        result = call.function()
    except Exception as error:
        _fail(call, error)
    else:
        call.future.set_result(result)


def _fail(work: _Sentence | _Call, error: Exception) -> None:
    """Log the kind of error only: its message may contain what a user has typed."""
    _log.error(f"a request failed: {type(error).__name__}")
    work.future.set_exception(error)
