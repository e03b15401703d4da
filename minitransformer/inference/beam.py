"""Beam search with a length penalty, and a stop rule that gives nothing away.

Source: Wu et al. 2016, equation 14 (length penalty); the order of steps follows tensor2tensor, with which the paper's
models were decoded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import numpy as np

from autograd import Tensor, namespace, no_tape, to_device
from autograd.array import Array
from autograd.ops.likeliest import FloatArray, IntArray, likeliest, take, top
from minitransformer.config import ConfigError, ModelConfig, Normalisation
from minitransformer.errors import UserError
from minitransformer.inference.cache import LayerCache, Memory
from minitransformer.model.batch import Ids, pack_sequences
from minitransformer.model.spans import cached_sets, self_attention_spans
from minitransformer.model.transformer import Transformer
from minitransformer.symbols import END, START, UNKNOWN

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

NEVER_GENERATED = [UNKNOWN, START]
MAX_BEAM = 1_000
MAX_ALPHA = 50  # up to it length^α is a number for a million tokens; beyond it soon is none


class SearchError(UserError, FloatingPointError):
    """A model whose numbers are not finite has no translation."""


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched for; the defaults are the paper's (section 6.1)."""

    beam: int = 4
    """Hypotheses kept alive for each sentence; 1 is greedy search."""
    alpha: float = 0.6
    """Exponent α of the length penalty; 0 compares bare log-probabilities."""
    n_best: int = 1
    """Translations returned for each sentence, best first."""
    max_extra_tokens: int = 50
    """A translation has at most so many tokens more than its source, and no more than learned positions have room."""
    normalisation: Normalisation | None = None
    """The length penalty: "gnmt", ((5 + length)/6)^α, or "length", length^α; the model's own if not given."""

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
        """The search with the model's own length penalty, unless it has another."""
        return dataclasses.replace(self, normalisation=self.normalisation or config.normalisation)

    def length_penalty(self, length: float | IntArray) -> Any:
        """What log p is divided by, for a length in tokens, the end symbol counted: greater for longer ones."""
        return (length if self.normalisation == "length" else (5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: target ids without end symbol, log p in nats, and log p / length penalty."""

    score: float
    log_probability: float
    ids: tuple[int, ...]


class Constraint(Protocol):
    """What may follow in each hypothesis, at first one of each source; rows are hypotheses, as in the search."""

    def forbidden(self) -> Any:
        """Which tokens may not follow: booleans (rows, W)."""

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        """Go on with these rows, each followed by its token."""

    def keep(self, rows: IntArray) -> None:
        """Go on with these rows only."""


def beam_search(
    model: Transformer,
    sources: Sequence[Ids],
    config: SearchConfig | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """The ``n_best`` highest-scoring translations of each source that the beam finds, best first.

    A sentence is done when its n-th best finished hypothesis scores at least as high as any live one still can: log p
    only falls, and the penalty is greatest at the greatest length.  At that length only the end symbol may follow, so
    every hypothesis is a finished one.  START and UNKNOWN are never generated.

    Args:
        sources: ids without start and end symbols.
        constraint: forbids tokens, but not the end symbol at the greatest length; log p stays the model's.

    Raises: SearchError if the model's numbers are not finite.
    """
    if not sources:
        return []
    with no_tape():
        return _Search(model, sources, (config or SearchConfig()).for_model(model.config), constraint).run()


class _Search:
    """The live hypotheses of the sentences that are not done: S sentences × k hypotheses, at first only one of each.

    Rows of ``ids`` (S·k, steps) are hypotheses, sentence after sentence, best first.
    """

    def __init__(
        self, model: Transformer, sources: Sequence[Ids], config: SearchConfig, constraint: Constraint | None = None
    ) -> None:
        self.model, self.config, self.constraint = model, config, constraint
        source_ids, source = pack_sequences(sources)
        spans = self_attention_spans(source, model.config.neighbourhood)
        encoded = model.encode(source_ids, source.place_in_block, spans)
        self.memory = Memory(model.decoder.memory(encoded), source)
        self.caches = [LayerCache(len(sources), config.beam) for _ in model.decoder.layers]
        self.writers: IntArray = np.empty((len(sources), 1, 0), np.int64)  # whose cached keys are whose past
        self.sentences = np.arange(len(sources))  # which of the sources is live
        self.max_lengths = source.lengths - 1 + config.max_extra_tokens
        if model.config.positions == "learned":  # a table, which has an end
            self.max_lengths = np.minimum(self.max_lengths, model.config.longest_sentence)
        self.ids: IntArray = np.full((len(sources), 1), START)
        self.log_p: FloatArray = np.zeros((len(sources), 1))
        self.finished: list[list[Hypothesis]] = [[] for _ in sources]

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        length = 0
        while len(self.sentences):
            length += 1
            self._branch(self._decode(length), length)
            self._drop_done(length)
        for number, hypotheses in enumerate(self.finished):
            if not hypotheses:
                raise SearchError(
                    f"beam search: source {number} has no translation of finite log-probability:"
                    " the model's weights, or what it makes of them, are not finite"
                )
        return self.finished

    def _decode(self, length: int) -> Tensor:
        """The decoder's output at the newest token of every hypothesis: (S·k, D), on the model's device."""
        n_sentences, k, _ = self.writers.shape
        themselves = np.broadcast_to(np.arange(k)[:, None], (n_sentences, k, 1))
        self.writers = np.concatenate([self.writers, themselves], axis=2)
        return self.model.decode(
            self.ids[:, -1],
            np.full(len(self.ids), length - 1),
            self.memory.keys_values,
            cached_sets(self.writers, self.config.beam, self.caches[0].next_capacity, self.model.config.neighbourhood),
            self.memory.spans(k),
            pasts=list(self.caches),
        )

    def _likeliest(self, decoded: Tensor, length: int, n: int) -> tuple[FloatArray, IntArray]:
        """The n likeliest next tokens after every hypothesis, likeliest first: their log p and themselves, (S·k, n)."""
        last = np.repeat(self.max_lengths[self.sentences] <= length, self.log_p.shape[1])
        if self.constraint is None and not last.any():
            return self.model.likeliest(decoded, n=n, never=NEVER_GENERATED)
        return likeliest(self.model.project(decoded).value, n, lambda logits: self._forbid(logits, last))

    def _forbid(self, logits: Array, last: BoolArray) -> None:
        """Change in place to −∞ what may not follow: in rows at the greatest length all but the end symbol."""
        of_ends = logits[:, END].copy()
        logits[:, NEVER_GENERATED] = -namespace(logits).inf
        if self.constraint is not None:
            logits[to_device(self.constraint.forbidden(), self.model.device)] = -namespace(logits).inf
        if last.any():
            rows = to_device(np.flatnonzero(last), self.model.device)
            logits[rows] = -namespace(logits).inf
            logits[rows, END] = of_ends[rows]

    def _branch(self, decoded: Tensor, length: int) -> None:
        """Among the best 2k continuations, finish those that end, and keep the best k that do not.

        Greedy search looks at the best one only: when that ends, no hypothesis is left alive.
        """
        beam, (n_sentences, k) = self.config.beam, self.log_p.shape
        n_candidates = 2 * beam if beam > 1 else 1  # no more of one hypothesis can be among the best of its sentence
        of_token, token = self._likeliest(decoded, length, n_candidates)
        n_tokens = token.shape[1]
        of_token += self.log_p.ravel()[:, None]
        of_token, choice = top(of_token.reshape(n_sentences, k * n_tokens), n_candidates)
        token, parent = take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        ends = token == END
        self._finish(np.where(ends, of_token, -np.inf), parent, length)
        best = np.argsort(ends, axis=1, kind="stable")[:, :beam]  # the first that do not end, in their order
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
        self.writers = np.take_along_axis(self.writers, parents[:, :, None], axis=1)
        rows = np.arange(len(parents))[:, None] * self.log_p.shape[1] + parents
        self.ids = np.concatenate([self.ids[rows.ravel()], tokens.ravel()[:, None]], axis=1)
        if self.constraint is not None:
            self.constraint.follow(rows.ravel(), tokens.ravel())

    def _drop_done(self, length: int) -> None:
        """Let go of the sentences whose n best cannot be beaten any more."""
        bound = self.log_p.max(axis=1) / self.config.length_penalty(self.max_lengths[self.sentences])
        worst_kept = np.array([self._worst_kept(sentence) for sentence in self.sentences])
        going_on = np.flatnonzero((bound > worst_kept) & (self.max_lengths[self.sentences] > length))
        if len(going_on) < len(self.sentences):
            k = self.log_p.shape[1]
            rows = (going_on[:, None] * k + np.arange(k)).ravel()
            self.sentences, self.log_p, self.ids = self.sentences[going_on], self.log_p[going_on], self.ids[rows]
            if self.constraint is not None:
                self.constraint.keep(rows)
            self._keep(going_on)

    def _keep(self, sentences: IntArray) -> None:
        self.writers = self.writers[sentences]
        on_device = to_device(sentences, self.model.device)
        self.memory.keep(on_device)
        for cache in self.caches:
            cache.keep(on_device)

    def _worst_kept(self, sentence: np.int64) -> float:
        finished = self.finished[sentence]
        return finished[-1].score if len(finished) == self.config.n_best else -np.inf
