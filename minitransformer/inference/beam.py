"""Beam search with a length penalty; it stops only when no better translation can be found.

Source: Wu et al. 2016, equation 14 (length penalty); the order of steps follows tensor2tensor, with which the paper's
models were decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autograd import Tensor, no_tape, to_host
from autograd.array import Array, BoolArray, FloatArray, IntArray
from minitransformer.inference.device_search import DeviceSearch
from minitransformer.inference.search import (
    Advance,
    Constraint,
    Hypothesis,
    Search,
    SearchConfig,
    SearchError,
    Wanted,
    forbidden_tokens,
)
from minitransformer.model.batch import Ids
from minitransformer.model.masks import cached_mask
from minitransformer.model.symbols import END, START
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import require_wanted

__all__ = ["Advance", "Constraint", "Hypothesis", "SearchConfig", "SearchError", "Wanted", "beam_search"]


def beam_search(
    models: Transformer | Sequence[Transformer],
    sources: Sequence[Ids],
    config: SearchConfig | None = None,
    constraint: Constraint | None = None,
    advance: Advance = lambda n: None,
    n_given: Sequence[int] | None = None,
    wanted: Wanted | None = None,
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

    Raises: SearchError if the models' outputs are not finite.
    """
    if not sources:
        return []
    models = [models] if isinstance(models, Transformer) else models
    config = (config or SearchConfig()).for_model(models[0].config)
    with no_tape():
        if models[0].device == "cuda" and constraint is None:
            found = DeviceSearch(models, sources, config, wanted).run()
            advance(len(sources))
            return found
        return _Search(models, sources, config, constraint, advance, n_given, wanted).run()


class _Search(Search):
    """A search whose state is on the host: k live hypotheses of each of S unfinished sentences; k is 1 at first.

    Rows of ``ids`` (S·k, steps) are hypotheses, sentence after sentence, best first.
    """

    def __init__(
        self, models: Sequence[Transformer], sources: Sequence[Ids], config: SearchConfig,
        constraint: Constraint | None, advance: Advance, n_given: Sequence[int] | None = None,
        wanted: Wanted | None = None,
    ) -> None:  # fmt: skip
        super().__init__(models, sources, config, n_given, wanted)
        self.constraint, self.never_generated, self.advance = constraint, self.never(), advance
        self.cache_index: IntArray = np.empty((len(sources), 1, 0), np.int64)  # (S, k, steps), see ``cached_mask``
        self.ids: IntArray = np.full((len(sources), 1), START)
        self.log_p: FloatArray = np.zeros((len(sources), 1))
        self.finished: list[list[Hypothesis]] = [[] for _ in sources]

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is finished."""
        length = 0
        while len(self.sentences):
            require_wanted()
            length += 1
            self._branch(self._decode(length), length)
            self.update_wanted()
            self._remove_finished(length)
        return self.results(self.finished)

    def _decode(self, length: int) -> list[Tensor]:
        """Compute the models' outputs (S·k, D) at the newest token of every hypothesis, on their device."""
        n_sentences, k, _ = self.cache_index.shape
        own_slots = np.broadcast_to(np.arange(k)[:, None], (n_sentences, k, 1))
        self.cache_index = np.concatenate([self.cache_index, own_slots], axis=2)
        positions = np.full(len(self.ids), length - 1)
        return self.predictor.decode(self.ids[:, -1], positions, self.cache_index, cached_mask)

    def _forbidden(self, length: int) -> BoolArray:
        """Return which tokens may not come next: (S·k, W), or (1, W) if these are the same for every hypothesis."""
        last = np.repeat(self.max_lengths[self.sentences] <= length, self.log_p.shape[1])
        return forbidden_tokens(self.never_generated, self.constraint, last)

    def _branch(self, decoded: list[Tensor], length: int) -> None:
        """Finish the continuations that end among the best 2k; select the best k that do not end.

        Greedy search takes only the best one: if that ends, no hypothesis is live.
        """
        beam, (n_sentences, k) = self.config.beam, self.log_p.shape
        found = self.predictor.top_k(decoded, n=self.n_candidates, forbidden=self._forbidden(length))
        of_token, token = map(to_host, found)
        n_tokens = token.shape[1]
        of_token += self.log_p.ravel()[:, None]
        of_token = of_token.reshape(n_sentences, k * n_tokens)
        choice = np.argsort(-of_token, axis=1, kind="stable")[:, : self.n_candidates]  # NaN last
        token, parent = _take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        of_token = _take(of_token, choice)
        ends = token == END
        self._finish(np.where(ends, of_token, -np.inf), parent, length)
        best = np.argsort(ends, axis=1, kind="stable")[:, :beam]  # the best that do not end, in their order
        self._continue_with(_take(parent, best), _take(token, best))
        self.log_p = np.where(_take(ends, best), -np.inf, _take(of_token, best))

    def _finish(self, log_p: FloatArray, parent: IntArray, length: int) -> None:
        penalty = self.config.length_penalty(length)
        for row, column in np.argwhere(log_p > -np.inf):
            ids = self.ids[row * self.log_p.shape[1] + parent[row, column], 1:]
            value = float(log_p[row, column])
            finished = self.finished[self.sentences[row]]
            finished.append(Hypothesis(value / penalty, value, tuple(int(i) for i in ids)))
            finished.sort(key=lambda hypothesis: -hypothesis.score)
            del finished[self.config.n_best :]

    def _continue_with(self, parents: IntArray, tokens: IntArray) -> None:
        self.cache_index = np.take_along_axis(self.cache_index, parents[:, :, None], axis=1)
        rows = np.arange(len(parents))[:, None] * self.log_p.shape[1] + parents
        self.ids = np.concatenate([self.ids[rows.ravel()], tokens.ravel()[:, None]], axis=1)
        if self.constraint is not None:
            self.constraint.follow(rows.ravel(), tokens.ravel())

    def _remove_finished(self, length: int) -> None:
        """Remove unwanted sentences, and those in which no live hypothesis can beat the n best finished ones."""
        bound = self.log_p.max(axis=1) / self.config.length_penalty(self.max_lengths[self.sentences])
        worst_of_best = np.array([self._worst_of_best(sentence) for sentence in self.sentences])
        may_improve = (bound > worst_of_best) & (self.max_lengths[self.sentences] > length)
        unfinished = np.flatnonzero(may_improve & self.is_wanted[self.sentences])
        if len(unfinished) < len(self.sentences):
            self.advance(len(self.sentences) - len(unfinished))
            k = self.log_p.shape[1]
            rows = (unfinished[:, None] * k + np.arange(k)).ravel()
            self.sentences, self.log_p, self.ids = self.sentences[unfinished], self.log_p[unfinished], self.ids[rows]
            if self.constraint is not None:
                self.constraint.select(rows)
            self._select(unfinished)

    def _select(self, sentences: IntArray) -> None:
        self.cache_index = self.cache_index[sentences]
        self.predictor.select(sentences)

    def _worst_of_best(self, sentence: np.int64) -> float:
        finished = self.finished[sentence]
        return finished[-1].score if len(finished) == self.config.n_best else -np.inf


def _take(x: Array, columns: IntArray) -> Array:
    """Return the elements of each row of x in these columns."""
    return np.take_along_axis(x, columns, axis=1)
