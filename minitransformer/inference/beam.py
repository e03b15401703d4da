"""Beam search with a length penalty, and a stop rule that gives nothing away.

Source: Wu et al. 2016, equation 14 (length penalty); the order of steps follows tensor2tensor, with which the paper's
models were decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from autograd import Blocks, namespace, no_tape, to_device, to_host
from autograd.array import Array
from autograd.ops.normalisation import log_softmax_values
from minitransformer.config import ConfigError
from minitransformer.inference.cache import LayerCache
from minitransformer.model.batch import Ids, pack_sequences
from minitransformer.model.spans import cached_spans, encoder_decoder_spans, self_attention_spans
from minitransformer.model.transformer import Transformer
from minitransformer.symbols import END, START, UNKNOWN

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

Normalisation = Literal["gnmt", "length"]

NEVER_GENERATED = [UNKNOWN, START]


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
    """A translation has at most so many tokens more than its source."""
    normalisation: Normalisation = "gnmt"
    """The length penalty: ((5 + length)/6)^α (the paper), or length^α, as in CTranslate2 and Marian."""

    def __post_init__(self) -> None:
        if self.beam < 1 or not 1 <= self.n_best <= self.beam:
            raise ConfigError(f"search: expected beam ≥ n_best ≥ 1; got beam {self.beam}, n_best {self.n_best}")
        if self.alpha < 0 or self.max_extra_tokens < 1:
            raise ConfigError(
                f"search: expected alpha ≥ 0 and max_extra_tokens ≥ 1; got {self.alpha}, {self.max_extra_tokens}"
            )
        if self.normalisation not in get_args(Normalisation):
            raise ConfigError(
                f"search: normalisation must be one of {get_args(Normalisation)}; got {self.normalisation!r}"
            )

    def length_penalty(self, length: float | IntArray) -> Any:
        """What log p is divided by, for a length in tokens, the end symbol counted: greater for longer ones."""
        return (length if self.normalisation == "length" else (5 + length) / 6) ** self.alpha


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: target ids without end symbol, log p in nats, and log p / length penalty."""

    score: float
    log_probability: float
    ids: tuple[int, ...]


def beam_search(
    model: Transformer, sources: Sequence[Ids], config: SearchConfig | None = None
) -> list[list[Hypothesis]]:
    """The ``n_best`` highest-scoring translations of each source that the beam finds, best first.

    A sentence is done when its n-th best finished hypothesis scores at least as high as any live one still can: log p
    only falls, and the penalty is greatest at the greatest length.  At that length only the end symbol may follow, so
    every hypothesis is a finished one.  START and UNKNOWN are never generated.

    Args:
        sources: ids without start and end symbols.

    Raises: FloatingPointError if the model's numbers are not finite.
    """
    if not sources:
        return []
    with no_tape():
        return _Search(model, sources, config or SearchConfig()).run()


class _Search:
    """The live hypotheses of the sentences that are not done: S sentences × k hypotheses.

    Rows of the caches and of ``ids`` (S·k, steps) are hypotheses, sentence after sentence, best first.
    """

    def __init__(self, model: Transformer, sources: Sequence[Ids], config: SearchConfig) -> None:
        self.model, self.config = model, config
        source_ids, source = pack_sequences(sources)
        encoded = model.encode(source_ids, self_attention_spans(source, model.config.neighbourhood))
        self.memory = model.decoder.memory(encoded)
        self.caches = [LayerCache() for _ in model.decoder.layers]
        self.sentences = np.arange(len(sources))  # which of the sources is live
        self.source = source
        self.max_lengths = source.lengths - 1 + config.max_extra_tokens
        self.ids: IntArray = np.full((len(sources) * config.beam, 1), START)
        self.log_p: FloatArray = np.full((len(sources), config.beam), -np.inf)
        self.log_p[:, 0] = 0  # all hypotheses begin alike: only one may branch at first
        self.finished: list[list[Hypothesis]] = [[] for _ in sources]

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        length = 0
        while len(self.sentences):
            length += 1
            self._branch(self._next_log_p(length), length)
            self._drop_done(length)
        for number, hypotheses in enumerate(self.finished):
            if not hypotheses:
                raise FloatingPointError(
                    f"beam_search: source {number} has no translation of finite log-probability;"
                    " are the model's weights finite?"
                )
        return self.finished

    def _next_log_p(self, length: int) -> Array:
        """log p of every next token after every hypothesis: (S·k, W), on the model's device."""
        r, k = self.model.config.neighbourhood, self.config.beam
        n = len(self.ids)
        keys = Blocks(self.source.starts[self.sentences], self.source.lengths[self.sentences])
        queries = Blocks.of_lengths(np.full(len(self.sentences), k))
        capacity = self.caches[0].next_capacity
        decoded = self.model.decode(
            self.ids[:, -1],
            np.full(n, length - 1),
            self.memory,
            cached_spans(n, length, capacity, r),
            encoder_decoder_spans(queries, keys),
            pasts=list(self.caches),
        )
        return self._allowed(log_softmax_values(self.model.project(decoded).value), length)

    def _allowed(self, log_p: Array, length: int) -> Array:
        """``log_p``, changed in place to −∞ for what may not follow: at the greatest length all but the end symbol."""
        log_p[:, NEVER_GENERATED] = -namespace(log_p).inf
        last = np.repeat(self.max_lengths[self.sentences] <= length, self.config.beam)
        if last.any():
            rows = to_device(np.flatnonzero(last), self.model.device)
            of_end = log_p[rows, END].copy()
            log_p[rows] = -namespace(log_p).inf
            log_p[rows, END] = of_end
        return log_p

    def _branch(self, log_p: Array, length: int) -> None:
        """Among the best 2k continuations, finish those that end, and keep the best k that do not.

        Greedy search looks at the best one only: when that ends, no hypothesis is left alive.
        """
        k, n_sentences = self.config.beam, len(self.sentences)
        n_candidates = 2 * k if k > 1 else 1
        of_token, token = _top(log_p, n_candidates)  # no more of one hypothesis can be among the best of its sentence
        n_tokens = token.shape[1]
        of_token += self.log_p.ravel()[:, None]
        of_token, choice = _top(of_token.reshape(n_sentences, k * n_tokens), n_candidates)
        token, parent = _take(token.reshape(n_sentences, k * n_tokens), choice), choice // n_tokens
        ends = token == END
        self._finish(np.where(ends, of_token, -np.inf), parent, length)
        best = np.argsort(ends, axis=1, kind="stable")[:, :k]  # the first k that do not end, in their order
        self.log_p = np.where(_take(ends, best), -np.inf, _take(of_token, best))
        self._continue_with(np.arange(n_sentences)[:, None] * k + _take(parent, best), _take(token, best))

    def _finish(self, log_p: FloatArray, parent: IntArray, length: int) -> None:
        penalty = self.config.length_penalty(length)
        for row, column in np.argwhere(log_p > -np.inf):
            ids = self.ids[row * self.config.beam + parent[row, column], 1:]
            value = float(log_p[row, column])
            finished = self.finished[self.sentences[row]]
            finished.append(Hypothesis(value / penalty, value, tuple(int(i) for i in ids)))
            finished.sort(key=lambda hypothesis: -hypothesis.score)
            del finished[self.config.n_best :]

    def _continue_with(self, rows: IntArray, tokens: IntArray) -> None:
        flat = rows.ravel()
        self.ids = np.concatenate([self.ids[flat], tokens.ravel()[:, None]], axis=1)
        self._select(flat)

    def _select(self, rows: IntArray) -> None:
        if not np.array_equal(rows, np.arange(self.caches[0].n_sequences)):
            for cache in self.caches:
                cache.select(to_device(rows, self.model.device))

    def _drop_done(self, length: int) -> None:
        """Let go of the sentences whose n best cannot be beaten any more."""
        bound = self.log_p.max(axis=1) / self.config.length_penalty(self.max_lengths[self.sentences])
        worst_kept = np.array([self._worst_kept(sentence) for sentence in self.sentences])
        going_on = np.flatnonzero((bound > worst_kept) & (self.max_lengths[self.sentences] > length))
        if len(going_on) < len(self.sentences):
            rows = (going_on[:, None] * self.config.beam + np.arange(self.config.beam)).ravel()
            self.sentences, self.log_p, self.ids = self.sentences[going_on], self.log_p[going_on], self.ids[rows]
            self._select(rows)

    def _worst_kept(self, sentence: np.int64) -> float:
        finished = self.finished[sentence]
        return finished[-1].score if len(finished) == self.config.n_best else -np.inf


def _top(log_p: Array, n: int) -> tuple[FloatArray, IntArray]:
    """The ``n`` greatest of each row with their columns, greatest first, of equals the first columns; on the host."""
    xp, n_columns = namespace(log_p), log_p.shape[1]
    n = min(n, n_columns)
    columns = xp.argpartition(log_p, n_columns - n, axis=1)[:, n_columns - n :]
    values = xp.take_along_axis(log_p, columns, axis=1)
    least = values.min(axis=1, keepdims=True)
    n_equal_or_greater = (log_p >= least).sum(axis=1, keepdims=True)
    tied = xp.flatnonzero((n_equal_or_greater > n) & (least > -xp.inf))
    if len(tied):  # the partition has chosen among equals as it liked
        columns[tied] = xp.argsort(-log_p[tied], axis=1, kind="stable")[:, :n]
        values = xp.take_along_axis(log_p, columns, axis=1)
    values, columns = to_host(values), to_host(columns)
    order = np.lexsort((columns, -values))
    return _take(values, order).astype(np.float64), _take(columns, order)


def _take(x: Any, columns: IntArray) -> Any:
    return np.take_along_axis(x, columns, axis=1)
