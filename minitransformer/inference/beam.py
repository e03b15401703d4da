"""Beam search with a length penalty; it stops only when no better translation can be found.

Source: Wu et al. 2016, equation 14 (length penalty); the order of steps follows tensor2tensor, with which the paper's
models were decoded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import numpy as np

from autograd import Tensor, no_tape, to_device
from autograd.array import BoolArray, FloatArray, IntArray
from autograd.ops.top_k import take, top
from minitransformer.config import ConfigError, ModelConfig, Normalisation
from minitransformer.inference.cache import LayerCache, Memory
from minitransformer.model.batch import Ids, pack_sequences
from minitransformer.model.masks import cached_mask, self_attention_mask
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError

NEVER_GENERATED = [UNKNOWN, START]
MAX_BEAM = 1_000
MAX_ALPHA = 50  # length^α stays finite for a million tokens; much above, it overflows


class SearchError(UserError, FloatingPointError):
    """An error: a search found no translation, because the model's outputs are not finite."""


@dataclass(frozen=True)
class SearchConfig:
    """The settings of a search; the defaults are the paper's (section 6.1)."""

    beam: int = 4
    """Hypotheses kept alive for each sentence; 1 is greedy search."""
    alpha: float = 0.6
    """Exponent α of the length penalty; with 0, hypotheses are compared by log-probability alone."""
    n_best: int = 1
    """Translations returned for each sentence, best first."""
    max_extra_tokens: int = 50
    """The greatest number of tokens by which a translation exceeds its source; learned positions may limit it more."""
    normalisation: Normalisation | None = None
    """The length penalty: "gnmt", ((5 + length)/6)^α, or "length", length^α; None takes the model's own."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam <= MAX_BEAM:
            raise ConfigError(
                f"search: expected {MAX_BEAM:,} ≥ beam ≥ n_best ≥ 1; got beam {self.beam}, n_best {self.n_best}"
            )
        if not 0 <= self.alpha <= MAX_ALPHA or self.max_extra_tokens < 1:
            raise ConfigError(
                f"search: expected 0 ≤ alpha ≤ {MAX_ALPHA} and max_extra_tokens ≥ 1;"
                f" got {self.alpha}, {self.max_extra_tokens}"
            )
        if self.normalisation not in (None, *get_args(Normalisation)):
            raise ConfigError(
                f"search: normalisation must be one of {get_args(Normalisation)}; got {self.normalisation!r}"
            )

    def for_model(self, config: ModelConfig) -> SearchConfig:
        """Return these settings with the model's own length penalty, unless these settings have one."""
        return dataclasses.replace(self, normalisation=self.normalisation or config.normalisation)

    def length_penalty(self, length: float | IntArray) -> Any:
        """Return the divisor of log p for a length in tokens, end symbol included; it grows with the length."""
        return (length if self.normalisation == "length" else (5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: target ids without end symbol, log p in nats, and log p / length penalty."""

    score: float
    log_probability: float
    ids: tuple[int, ...]


class Constraint(Protocol):
    """A rule for the next token of each hypothesis; rows are hypotheses as in the search, at first one per source."""

    def forbidden(self) -> Any:
        """Return the tokens that may not come next, as booleans (rows, W)."""

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        """Select these rows, and append to each its token."""

    def select(self, rows: IntArray) -> None:
        """Select these rows."""


def beam_search(
    model: Transformer,
    sources: Sequence[Ids],
    config: SearchConfig | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` highest-scoring translations that the beam finds for each source, best first.

    The search of a sentence ends when no live hypothesis can still beat its n-th best finished one.  The bound is safe:
    log p only falls, and the penalty is largest at the greatest length.  At that length only the end symbol may come
    next, so every hypothesis becomes finished.  START and UNKNOWN are never generated.

    Args:
        sources: ids without start and end symbols.
        constraint: forbids tokens, except the end symbol at the greatest length; it does not change the log p of the
            other tokens.

    Raises: SearchError if the model's outputs are not finite.
    """
    if not sources:
        return []
    with no_tape():
        return _Search(model, sources, (config or SearchConfig()).for_model(model.config), constraint).run()


class _Search:
    """The state of a search: k live hypotheses of each of S unfinished sentences; k is 1 at the first step.

    Rows of ``ids`` (S·k, steps) are hypotheses, sentence after sentence, best first.
    """

    def __init__(
        self, model: Transformer, sources: Sequence[Ids], config: SearchConfig, constraint: Constraint | None = None
    ) -> None:
        self.model, self.config, self.constraint = model, config, constraint
        source_ids, source = pack_sequences(sources)
        mask = self_attention_mask(source, model.config.neighbourhood)
        encoded = model.encode(source_ids, source.position_in_segment, mask)
        self.memory = Memory(model.decoder.memory(encoded), source)
        self.caches = [LayerCache(len(sources), config.beam) for _ in model.decoder.layers]
        self.cache_index: IntArray = np.empty((len(sources), 1, 0), np.int64)  # (S, k, steps), see ``cached_mask``
        self.sentences = np.arange(len(sources))  # indices of the unfinished sources
        self.max_lengths = source.lengths - 1 + config.max_extra_tokens
        if model.config.positions == "learned":  # a table of limited length
            self.max_lengths = np.minimum(self.max_lengths, model.config.longest_sentence)
        self.never: BoolArray = np.zeros((1, model.config.vocabulary_size), np.bool_)
        self.never[0, NEVER_GENERATED] = True
        self.ids: IntArray = np.full((len(sources), 1), START)
        self.log_p: FloatArray = np.zeros((len(sources), 1))
        self.finished: list[list[Hypothesis]] = [[] for _ in sources]

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is finished."""
        length = 0
        while len(self.sentences):
            length += 1
            self._branch(self._decode(length), length)
            self._remove_finished(length)
        for number, hypotheses in enumerate(self.finished):
            if not hypotheses:
                raise SearchError(
                    f"beam search: source {number} has no translation of finite log-probability:"
                    " the model's weights or its outputs are not finite; take another checkpoint"
                )
        return self.finished

    def _decode(self, length: int) -> Tensor:
        """Compute the decoder's output (S·k, D) at the newest token of every hypothesis, on the model's device."""
        n_sentences, k, _ = self.cache_index.shape
        own_slots = np.broadcast_to(np.arange(k)[:, None], (n_sentences, k, 1))
        self.cache_index = np.concatenate([self.cache_index, own_slots], axis=2)
        return self.model.decode(
            self.ids[:, -1],
            np.full(len(self.ids), length - 1),
            self.memory.keys_values,
            cached_mask(
                self.cache_index, self.config.beam, self.caches[0].next_capacity, self.model.config.neighbourhood
            ),
            self.memory.mask(k),
            caches=list(self.caches),
        )

    def _forbidden(self, length: int) -> BoolArray:
        """Return which tokens may not come next: (S·k, W), or (1, W) if these are the same for every hypothesis."""
        last = np.repeat(self.max_lengths[self.sentences] <= length, self.log_p.shape[1])
        if self.constraint is None and not last.any():
            return self.never
        forbidden: BoolArray = np.repeat(self.never, len(last), axis=0)
        if self.constraint is not None:
            forbidden |= self.constraint.forbidden()
        forbidden[last] = True
        forbidden[last, END] = False
        return forbidden

    def _branch(self, decoded: Tensor, length: int) -> None:
        """Finish the continuations that end among the best 2k; select the best k that do not end.

        Greedy search takes only the best one: if that ends, no hypothesis is live.
        """
        beam, (n_sentences, k) = self.config.beam, self.log_p.shape
        n_candidates = 2 * beam if beam > 1 else 1  # no more of one hypothesis can be among the best of its sentence
        of_token, token = self.model.top_k(decoded, n=n_candidates, forbidden=self._forbidden(length))
        n_tokens = token.shape[1]
        of_token += self.log_p.ravel()[:, None]
        of_token, choice = top(of_token.reshape(n_sentences, k * n_tokens), n_candidates)
        token, parent = take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        ends = token == END
        self._finish(np.where(ends, of_token, -np.inf), parent, length)
        best = np.argsort(ends, axis=1, kind="stable")[:, :beam]  # the best that do not end, in their order
        self._continue_with(take(parent, best), take(token, best))
        self.log_p = np.where(take(ends, best), -np.inf, take(of_token, best))

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
        """Remove the sentences in which no live hypothesis can beat the n best finished hypotheses."""
        bound = self.log_p.max(axis=1) / self.config.length_penalty(self.max_lengths[self.sentences])
        worst_of_best = np.array([self._worst_of_best(sentence) for sentence in self.sentences])
        unfinished = np.flatnonzero((bound > worst_of_best) & (self.max_lengths[self.sentences] > length))
        if len(unfinished) < len(self.sentences):
            k = self.log_p.shape[1]
            rows = (unfinished[:, None] * k + np.arange(k)).ravel()
            self.sentences, self.log_p, self.ids = self.sentences[unfinished], self.log_p[unfinished], self.ids[rows]
            if self.constraint is not None:
                self.constraint.select(rows)
            self._select(unfinished)

    def _select(self, sentences: IntArray) -> None:
        self.cache_index = self.cache_index[sentences]
        on_device = to_device(sentences, self.model.device)
        self.memory.select(on_device)
        for cache in self.caches:
            cache.select(on_device)

    def _worst_of_best(self, sentence: np.int64) -> float:
        finished = self.finished[sentence]
        return finished[-1].score if len(finished) == self.config.n_best else -np.inf
