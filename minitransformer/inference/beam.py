"""Beam search with a length penalty; it stops only when no better translation can be found.

The state of a search is on the models' device, and a step is array operations of known shape.  So on a GPU a step waits
for nothing, unless there is a constraint, which computes on the host.

Source: Wu et al. 2016, equation 14 (length penalty); the order of steps follows tensor2tensor, with which the paper's
models were decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from autograd import Tensor, namespace, no_tape, to_device, to_host
from autograd.array import Array, BoolArray, IntArray, ReadLater, namespace_of_device
from autograd.ops.top_k import top
from minitransformer.inference.search import (
    Advance,
    Constraint,
    Hypothesis,
    Search,
    SearchConfig,
    Wanted,
    forbidden_tokens,
)
from minitransformer.model.batch import Ids
from minitransformer.model.symbols import END, START
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import require_wanted

STEPS_BEHIND = {"cpu": 0, "cuda": 1}  # steps that are enqueued before the host reads which sentences a step finished
REMOVED_AT_ONCE = {"cpu": 0.0, "cuda": 0.25}  # the least share of finished sentences that is removed from the batch


def beam_search(
    models: Transformer | Sequence[Transformer],
    sources: Sequence[Ids],
    config: SearchConfig | None = None,
    constraint: Constraint | None = None,
    advance: Advance = lambda n: None,
    n_given: Sequence[int] | None = None,
    wanted: Wanted | None = None,
    n_finished: int | None = None,
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` highest-scoring translations that the beam finds for each source, best first.

    The search of a sentence ends when no live hypothesis can still beat its n-th best finished one.  The bound is safe:
    log p only falls, and the penalty is largest at the greatest length.  At that length only the end symbol may come
    next, so every hypothesis becomes finished.  START and UNKNOWN are never generated.

    Args:
        models: one model, or the models of an ensemble (see ``Predictor``); the first one's length penalty is taken.
        sources: ids without start and end symbols.
        constraint: forbids tokens, except the end symbol at the greatest length; it does not change the log p of the
            other tokens.
        advance: is called with the number of sources that were finished since the last call.
        n_given: the number of tokens of each translation that the constraint gives, if it gives any: a translation may
            exceed the longer one of source and given tokens by ``max_extra_tokens``.
        wanted: returns for each source whether its translation is still wanted.  It is called after each step.  A
            source that is no longer wanted is searched no further, and has no hypothesis.
        n_finished: return so many translations of each source in place of ``n_best``, more than the beam if need be.

    Raises: SearchError if the models' outputs are not finite.
    """
    if not sources:
        return []
    models = [models] if isinstance(models, Transformer) else models
    config = (config or SearchConfig()).for_model(models[0].config)
    with no_tape():
        return _Search(models, sources, config, constraint, advance, n_given, wanted, n_finished or config.n_best).run()


class Finished(NamedTuple):
    """The n best finished hypotheses of S sentences, best first; those with a score of −∞ do not exist yet.

    Shapes: scores and log_p (S, n) float64; ids (S, n, L) int64, with END after the last token.
    """

    scores: Array
    log_p: Array
    ids: Array


class _Search(Search):
    """A search whose state is on the models' device: k hypotheses of each of S sentences, best first; k is 1 at first.

    Shapes: ``log_p`` (S, k) float64, −∞ for hypotheses that do not exist; ``ids`` (S, k, L) int64, END after the last
    token; ``cache_index`` (S, k, L) int64, see ``cached_mask``; ``newest`` (S·k,) int64.  L is the greatest length.
    ``done`` (S,) bool marks sentences whose search has ended: the steps that the host enqueues before it knows that
    change nothing in their ``finished`` hypotheses.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        sources: Sequence[Ids],
        config: SearchConfig,
        constraint: Constraint | None,
        advance: Advance,
        n_given: Sequence[int] | None,
        wanted: Wanted | None,
        n_finished: int,
    ) -> None:
        super().__init__(models, sources, config, constraint, advance, n_given, wanted)
        self.n_finished, self.device = n_finished, self.predictor.device
        self.xp = namespace_of_device(self.device)
        xp, n, longest = self.xp, len(sources), int(self.max_lengths.max())
        self.ids, self.cache_index = xp.full((n, 1, longest), END, np.int64), xp.zeros((n, 1, longest), np.int64)
        self.newest, self.log_p = xp.full(n, START, np.int64), xp.zeros((n, 1), np.float64)
        self.finished = Finished(
            xp.full((n, n_finished), -np.inf, np.float64),
            xp.full((n, n_finished), -np.inf, np.float64),
            xp.full((n, n_finished, longest), END, np.int64),
        )
        self.done = xp.zeros(n, np.bool_)
        self.limits = to_device(self.max_lengths, self.device)
        self.greatest_penalties = to_device(config.length_penalty(self.max_lengths), self.device)
        self.never_generated = to_device(self.never(), self.device)
        self.n_candidates = 2 * config.beam if config.beam > 1 else 1
        """Continuations of a sentence that are ranked: no more of one hypothesis can be among the best."""
        self.removed: list[tuple[IntArray, Finished]] = []

    def run(self) -> list[list[Hypothesis]]:
        """Step until all sentences are done; on a GPU, enqueue steps and read late which sentences are."""
        is_done: BoolArray = np.zeros(len(self.sentences), np.bool_)
        pending: deque[tuple[IntArray, ReadLater]] = deque()
        for length in range(1, int(self.max_lengths.max()) + 1):
            require_wanted()
            self._branch(self._decode(length), length)
            n_before = is_done.sum()
            pending.append((self.sentences, ReadLater(self.done)))
            if len(pending) > STEPS_BEHIND[self.device]:
                sentences, done = pending.popleft()
                is_done[sentences] |= done.read()
            self.update_wanted()
            is_done |= (self.max_lengths <= length) | ~self.is_wanted
            if is_done.sum() > n_before:
                self.advance(int(is_done.sum() - n_before))
            rows_done = is_done[self.sentences]
            if rows_done.all():
                break
            if rows_done.sum() >= max(1, REMOVED_AT_ONCE[self.device] * len(rows_done)):
                self._remove(rows_done)
        self.removed.append((self.sentences, self.finished))
        return self.results(self._hypotheses(len(is_done)))

    def _decode(self, length: int) -> list[Tensor]:
        """Compute the models' outputs (S·k, D) at the newest token of every hypothesis."""
        self.cache_index[:, :, length - 1] = self.xp.arange(self.cache_index.shape[1])
        return self.predictor.decode(self.newest, self.cache_index[:, :, :length])

    def _forbidden(self, length: int) -> Array:
        """Return which tokens may not come next: (S·k, W), or (1, W) if these are the same for every hypothesis."""
        is_last = (self.max_lengths[self.sentences] <= length).any()
        last = self.xp.repeat(self.limits <= length, self.log_p.shape[1]) if is_last else None
        return forbidden_tokens(self.never_generated, self.constraint, last)

    def _branch(self, decoded: list[Tensor], length: int) -> None:
        """Finish the continuations that end among the best 2k; select the best k that do not end.

        Greedy search takes only the best one: if that ends, no hypothesis is live.
        """
        n_sentences, k = self.log_p.shape
        token_log_p, token = self.predictor.top_k(decoded, n=self.n_candidates, forbidden=self._forbidden(length))
        n_tokens = token.shape[1]
        token_log_p = token_log_p.reshape(n_sentences, k, n_tokens) + self.log_p[:, :, None]
        log_p, choice = _best(token_log_p.reshape(n_sentences, k * n_tokens), self.n_candidates)
        token, parent = _take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        ends, exists = token == END, log_p > -np.inf  # no hypothesis has log p NaN
        self._finish(self.xp.where(ends & exists & ~self.done[:, None], log_p, -np.inf), parent, length)
        self.log_p, best = _best(self.xp.where(exists & ~ends, log_p, -np.inf), self.config.beam)
        parent, token = _take(parent, best), _take(token, best)
        self.ids, self.cache_index = _take(self.ids, parent), _take(self.cache_index, parent)
        self.ids[:, :, length - 1], self.newest = token, token.reshape(-1)
        if self.constraint is not None:
            rows = np.arange(n_sentences)[:, None] * k + to_host(parent)
            self.constraint.follow(rows.ravel(), to_host(self.newest))
        self._mark_done(length)

    def _finish(self, log_p: Array, parent: Array, length: int) -> None:
        """Insert hypotheses into the n best finished ones; an older one precedes a newer one of the same score.

        Shapes: log_p (S, candidates), −∞ where none ends; parent (S, candidates), the hypothesis that is continued.
        """
        if self.device == "cpu" and not (log_p > -np.inf).any():  # on a GPU, reading this would wait
            return
        xp, n_best, old = self.xp, self.n_finished, self.finished
        together = xp.concatenate([old.scores, log_p / self.config.length_penalty(length)], axis=1)
        scores, choice = _best(together, n_best)
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

    def _remove(self, done: BoolArray) -> None:
        """Remove the sentences that are done; their finished hypotheses stay on the device until the end."""
        unfinished, done_on_device = np.flatnonzero(~done), to_device(np.flatnonzero(done), self.device)
        self.removed.append((self.sentences[done], Finished(*(x[done_on_device] for x in self.finished))))
        if self.constraint is not None:
            k = self.log_p.shape[1]
            self.constraint.select((unfinished[:, None] * k + np.arange(k)).ravel())
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
                    self.hypothesis(sentence, float(score), float(p), _until_end(row))
                    for score, p, row in zip(scores, log_p, ids, strict=True)
                    if score > -np.inf
                ]
        return found


def _best(x: Array, n: int) -> tuple[Array, Array]:
    """Return the n greatest numbers of each row and their columns, greatest first, ties by column, NaN last."""
    if namespace(x) is not np:
        return cast(tuple[Array, Array], top(x, n=n))  # waits for nothing, as CuPy's sorts do
    columns = np.argsort(-x, axis=1, kind="stable")[:, :n]
    return _take(x, columns), columns


def _take(x: Array, index: Array) -> Array:
    """Return x[s, index[s, i]] for every sentence s.  Shapes: x (S, m, …), index (S, n); returns (S, n, …)."""
    n_sentences, m = x.shape[:2]
    rows = index + namespace(x).arange(0, n_sentences * m, m)[:, None]
    return x.reshape(n_sentences * m, *x.shape[2:])[rows]


def _until_end(ids: Any) -> tuple[int, ...]:
    """Return the ids before the first END."""
    return tuple(ids[: int(np.argmax(ids == END))].tolist())
