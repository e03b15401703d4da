"""Beam search whose state stays on a GPU: no step waits for the host, and none copies to or from pageable memory.

It finds what the search in beam.py finds.  That one has fewer array operations in a step, because the host knows which
hypotheses end.  So a CPU uses that one.  So does a constraint, whose code runs on the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from autograd import Tensor, namespace, to_device, to_host
from autograd.array import Array, BoolArray, IntArray, ReadLater, namespace_of_device
from autograd.ops.top_k import top
from minitransformer.inference.search import Hypothesis, Search, SearchConfig, Wanted
from minitransformer.model.batch import Ids
from minitransformer.model.masks import cached_mask_on_device
from minitransformer.model.positions import SamePosition
from minitransformer.model.symbols import END, START
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import require_wanted

STEPS_BEHIND = 1  # so many steps are enqueued before the host reads which sentences a step has finished
SHRINK_AT = 0.75  # of the sentences: removing some copies all caches, so it must pay


class Finished(NamedTuple):
    """The n best finished hypotheses of S sentences, best first; those with a score of −∞ do not exist yet.

    Shapes: scores and log_p (S, n) float64; ids (S, n, L) int64, with END after the last token.
    """

    scores: Array
    log_p: Array
    ids: Array


class DeviceSearch(Search):
    """A search whose state is on the model's device: k = beam hypotheses of each of S sentences, at every step.

    Shapes: ``log_p`` (S, k) float64, −∞ for hypotheses that do not exist; ``ids`` (S, k, L) int64, END after the last
    token; ``cache_index`` (S, k, L) int64, the cached keys of each hypothesis; ``newest`` (S·k,) int64.  L is the
    greatest length.  ``done`` (S,) bool marks sentences whose search has ended: the steps that the host enqueues
    before it knows that change nothing in their ``finished`` hypotheses.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        sources: Sequence[Ids],
        config: SearchConfig,
        wanted: Wanted | None = None,
    ) -> None:
        super().__init__(models, sources, config, wanted=wanted)
        self.device = self.predictor.device
        self.xp = namespace_of_device(self.device)
        xp, n, k, longest = self.xp, len(sources), config.beam, int(self.max_lengths.max())
        self.ids, self.cache_index = xp.full((n, k, longest), END, np.int64), xp.zeros((n, k, longest), np.int64)
        self.newest, self.log_p = xp.full(n * k, START, np.int64), xp.full((n, k), -np.inf, np.float64)
        self.log_p[:, 0] = 0
        self.finished = Finished(
            xp.full((n, config.n_best), -np.inf, np.float64),
            xp.full((n, config.n_best), -np.inf, np.float64),
            xp.full((n, config.n_best, longest), END, np.int64),
        )
        self.done = xp.zeros(n, np.bool_)
        self.limits = to_device(self.max_lengths, self.device)
        self.greatest_penalties = to_device(config.length_penalty(self.max_lengths), self.device)
        never = self.never()
        but_end = np.ones_like(never)
        but_end[0, END] = False
        self.never_generated, self.all_but_end = to_device(never, self.device), to_device(but_end, self.device)
        self.removed: list[tuple[IntArray, Finished]] = []

    def run(self) -> list[list[Hypothesis]]:
        """Enqueue step after step until all sentences are done; read late which are."""
        is_done: BoolArray = np.zeros(len(self.sentences), np.bool_)
        pending: deque[tuple[IntArray, ReadLater]] = deque()
        for length in range(1, int(self.max_lengths.max()) + 1):
            require_wanted()
            self._branch(self._decode(length), length)
            pending.append((self.sentences, ReadLater(self.done)))
            if len(pending) > STEPS_BEHIND:
                sentences, done = pending.popleft()
                is_done[sentences] |= done.read()
            self.update_wanted()
            is_done |= (self.max_lengths <= length) | ~self.is_wanted
            unfinished = np.flatnonzero(~is_done[self.sentences])
            if not len(unfinished):
                break
            if len(unfinished) <= SHRINK_AT * len(self.sentences):
                self._select(unfinished)
        self.removed.append((self.sentences, self.finished))
        return self.results(self._hypotheses(len(is_done)))

    def _decode(self, length: int) -> list[Tensor]:
        """Compute the models' outputs (S·k, D) at the newest token of every hypothesis."""
        self.cache_index[:, :, length - 1] = self.xp.arange(self.config.beam)
        position = SamePosition(length - 1, len(self.newest))
        return self.predictor.decode(self.newest, position, self.cache_index[:, :, :length], cached_mask_on_device)

    def _forbidden(self, length: int) -> Array:
        """Return which tokens may not come next: (S·k, W), or (1, W) if these are the same for every hypothesis."""
        if not (self.max_lengths[self.sentences] <= length).any():
            return self.never_generated
        last = self.xp.repeat(self.limits <= length, self.config.beam)
        return self.xp.where(last[:, None], self.all_but_end, self.never_generated)

    def _branch(self, decoded: list[Tensor], length: int) -> None:
        """Finish the continuations that end among the best 2k; select the best k that do not end."""
        n_sentences, k = self.log_p.shape
        of_token, token = self.predictor.top_k(decoded, n=self.n_candidates, forbidden=self._forbidden(length))
        n_tokens = token.shape[1]
        of_token = of_token.reshape(n_sentences, k, n_tokens) + self.log_p[:, :, None]
        log_p, choice = top(of_token.reshape(n_sentences, k * n_tokens), n=self.n_candidates)
        token, parent = _take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        ends = token == END
        self._finish(self.xp.where(ends & ~self.done[:, None], log_p, -np.inf), parent, length)
        self.log_p, best = top(self.xp.where(ends, -np.inf, log_p), n=k)
        parent, token = _take(parent, best), _take(token, best)
        self.ids, self.cache_index = _take(self.ids, parent), _take(self.cache_index, parent)
        self.ids[:, :, length - 1], self.newest = token, token.reshape(-1)
        self._mark_done(length)

    def _finish(self, log_p: Array, parent: Array, length: int) -> None:
        """Insert hypotheses into the n best finished ones; an older one precedes a newer one of the same score.

        Shapes: log_p (S, candidates), −∞ where none ends; parent (S, candidates), the hypothesis that is continued.
        """
        xp, n_best, old = self.xp, self.config.n_best, self.finished
        together = xp.concatenate([old.scores, log_p / self.config.length_penalty(length)], axis=1)
        scores, choice = top(together, n=n_best)
        old_rows = xp.broadcast_to(xp.arange(n_best), old.scores.shape)
        rows = _take(xp.concatenate([old_rows, n_best + parent], axis=1), choice)
        self.finished = Finished(
            scores,
            _take(xp.concatenate([old.log_p, log_p], axis=1), choice),
            _take(xp.concatenate([old.ids, self.ids], axis=1), rows),
        )

    def _mark_done(self, length: int) -> None:
        """Mark the sentences in which no live hypothesis can beat the n best finished hypotheses."""
        bound = self.log_p.max(axis=1) / self.greatest_penalties
        self.done = self.done | ~((bound > self.finished.scores[:, -1]) & (self.limits > length))

    def _select(self, unfinished: IntArray) -> None:
        """Keep these sentences only; the finished hypotheses of the others stay on the device until the end."""
        others = np.setdiff1d(np.arange(len(self.sentences)), unfinished)
        of_others = to_device(others, self.device)
        self.removed.append((self.sentences[others], Finished(*(x[of_others] for x in self.finished))))
        self.sentences, rows = self.sentences[unfinished], self.predictor.select(unfinished)
        self.newest = self.newest.reshape(self.log_p.shape)[rows].reshape(-1)
        self.ids, self.cache_index, self.log_p = self.ids[rows], self.cache_index[rows], self.log_p[rows]
        self.finished = Finished(*(x[rows] for x in self.finished))
        self.done, self.limits = self.done[rows], self.limits[rows]
        self.greatest_penalties = self.greatest_penalties[rows]

    def _hypotheses(self, n_sentences: int) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of every sentence, best first, on the host."""
        found: list[list[Hypothesis]] = [[] for _ in range(n_sentences)]
        for sentences, finished in self.removed:
            arrays = zip(sentences, *map(to_host, finished), strict=True)
            for sentence, scores, log_p, ids in arrays:
                found[sentence] = [
                    Hypothesis(float(score), float(p), _until_end(row))
                    for score, p, row in zip(scores, log_p, ids, strict=True)
                    if score > -np.inf
                ]
        return found


def _take(x: Array, index: Array) -> Array:
    """Return x[s, index[s, i]] for every sentence s.  Shapes: x (S, m, …), index (S, n); returns (S, n, …)."""
    n_sentences, m = x.shape[:2]
    rows = index + namespace(x).arange(0, n_sentences * m, m)[:, None]
    return x.reshape(n_sentences * m, *x.shape[2:])[rows]


def _until_end(ids: Any) -> tuple[int, ...]:
    """Return the ids before the first END."""
    return tuple(int(i) for i in ids[: int(np.argmax(ids == END))])
