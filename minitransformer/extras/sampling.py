"""Translations drawn at random from the model's distribution.

A sample is a function of the seed, the line's number and the sample's number.  Other lines of the batch, and the number
of threads, change the model's probabilities by no more than rounding, which can change a token only if the random
number lies on the border between two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autograd import no_tape, to_host
from autograd.array import BoolArray, FloatArray, IntArray
from autograd.precision import tf32_products
from autograd.random import StreamId, named_stream_id, uniform
from minitransformer.config import ConfigError
from minitransformer.inference.search import (
    Advance,
    Constraint,
    Hypothesis,
    Request,
    Search,
    SearchConfig,
    Wanted,
    forbidden_tokens,
)
from minitransformer.model.batch import Ids
from minitransformer.model.symbols import END, START
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import require_wanted


@dataclass(frozen=True)
class Sampling:
    """The settings of sampling; the defaults draw from the model's own distribution."""

    seed: int = 1
    """Seed of the random numbers; the same seed gives the same samples."""
    temperature: float = 1.0
    """T: a token is drawn with a probability proportional to p^(1/T); below 1, likely tokens become more likely."""
    top_p: float = 1.0
    """Draw from the smallest set of most likely tokens whose probabilities add up to this (after the temperature)."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"sampling.seed: expected a number in [0, 2⁶⁴); got {self.seed}")
        if not 0.01 <= self.temperature <= 100:
            raise ConfigError(f"sampling.temperature: expected a number from 0.01 to 100; got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"sampling.top_p: expected a number above 0 and at most 1; got {self.top_p}")

    def sample(
        self,
        models: Sequence[Transformer],
        sources: Sequence[Ids],
        config: SearchConfig,
        numbers: Sequence[int],
        advance: Advance = lambda n: None,
        constraint: Constraint | None = None,
        n_given: Sequence[int] | None = None,
        wanted: Wanted | None = None,
    ) -> list[list[Hypothesis]]:
        """Draw ``config.n_best`` translations of each source; return them in the order of the draws.

        A translation may occur twice.  The log p of a translation is the model's, without temperature and top_p.  START
        and UNKNOWN are never drawn.  At the greatest length, only END is drawn.

        Args:
            models, sources, advance, constraint, n_given, wanted: see ``beam_search``.
            numbers: the line number of each source, which determines the random numbers of the source.

        Raises: SearchError if the models' outputs are not finite, or if the constraint allows no translation.
        """
        config = config.for_model(models[0].config)
        with no_tape(), tf32_products(models[0].rounds_to_tf32):
            request = Request(models, sources, config, constraint, advance, n_given, wanted)
            return _SamplingSearch(request, self, numbers).run()


def draw(log_p: FloatArray, number: float, sampling: Sampling) -> int:
    """Return the index of the token that ``number``, a random number in [0, 1), chooses.

    The interval is divided into parts, one for each token, in the order of the tokens' indices.  The length of a part
    is the token's probability.  (In the order of probabilities, rounding could exchange two tokens that are nearly
    equally likely.)
    Source: Holtzman et al. 2020, "The curious case of neural text degeneration", section 3.1 (top-p, nucleus sampling)
    and equation 4 (temperature).
    Shapes: log_p (n,), −∞ for tokens that are not allowed.  The probabilities need not add up to 1.
    """
    p = np.exp((log_p - log_p.max()) / sampling.temperature)
    p /= p.sum()
    tokens = _nucleus(p, sampling.top_p)
    ends = p[tokens].cumsum()
    index = np.searchsorted(ends, number * ends[-1], side="right")
    return int(tokens[min(index, len(tokens) - 1)])


def _nucleus(p: FloatArray, top_p: float) -> IntArray:
    """Return the smallest set of most likely tokens whose probabilities add up to at least ``top_p``, in index order.

    Only tokens with probabilities above (1 − top_p) / n are sorted.  The other tokens have together at most 1 − top_p,
    so that the sorted tokens are enough.
    """
    some: IntArray = np.flatnonzero(p > (1 - top_p) / len(p))
    if top_p == 1:
        return some
    order = some[np.argsort(-p[some], kind="stable")]
    n_needed = 1 + int(np.searchsorted(p[order].cumsum(), top_p))
    return np.sort(order[:n_needed])


class _SamplingSearch(Search):
    """A search that draws tokens at random: n samples of each of S unfinished sentences.

    Shapes: ``ids`` (S, n, steps); ``log_p`` (S, n); ``ended`` (S, n) bool; ``uniforms`` (S, n, greatest length), the
        random number of each step.
    """

    def __init__(self, request: Request, sampling: Sampling, numbers: Sequence[int]) -> None:
        super().__init__(request, len(request.sources))
        self.predictor.encode(request.sources)
        self.predictor.load(self.sentences)
        n_sources, n_best, constraint = len(request.sources), request.config.n_best, request.constraint
        self.sampling, self.never_generated, shape = sampling, self.never(), (n_sources, n_best)
        longest = int(self.max_lengths.max())
        self.uniforms = np.stack([_uniforms(sampling.seed, number, n_best, longest) for number in numbers])
        self.ids: IntArray = np.full((*shape, 1), START)
        self.log_p: FloatArray = np.zeros(shape)
        self.ended: BoolArray = np.zeros(shape, np.bool_)
        self.finished: list[list[Hypothesis]] = [[] for _ in request.sources]
        if constraint is not None:
            constraint.select(np.repeat(np.arange(shape[0]), shape[1]))

    def run(self) -> list[list[Hypothesis]]:
        """Draw the next token of every sample until all samples have ended; return the samples of each source."""
        length = 0
        while len(self.sentences):
            require_wanted()
            length += 1
            self._draw(self._log_probabilities(length), length)
            self.update_wanted()
            self._remove_finished()
        return self.results(self.finished)

    def _log_probabilities(self, length: int) -> FloatArray:
        """Compute log p (S·n, W) of all tokens as the next token of every sample."""
        n_sentences, n, _ = self.ids.shape
        slots = np.broadcast_to(np.arange(n)[:, None], (n_sentences, n, length))  # a sample keeps its own keys
        self.predictor.reserve(length)
        decoded = self.predictor.decode(self.ids[:, :, -1].ravel(), slots, length)
        return to_host(self.predictor.log_probabilities(decoded)).astype(np.float64)

    def _draw(self, log_p: FloatArray, length: int) -> None:
        n_sentences, n, _ = self.ids.shape
        last = np.repeat(self.max_lengths[self.sentences] <= length, n)
        forbidden = forbidden_tokens(self.never_generated, self.constraint, last if last.any() else None)
        np.copyto(log_p, -np.inf, where=forbidden)
        tokens: IntArray = np.full(len(last), END)
        numbers = self.uniforms[:, :, length - 1].ravel()
        usable = log_p.max(axis=1) > -np.inf  # a sample with NaN, or without a token, ends and is no hypothesis
        for row in np.flatnonzero(usable & ~self.ended.ravel()):
            tokens[row] = draw(log_p[row], numbers[row], self.sampling)
        token_log_p = log_p[np.arange(len(tokens)), tokens].reshape(n_sentences, n)
        tokens = tokens.reshape(n_sentences, n)
        self.log_p = np.where(self.ended, self.log_p, self.log_p + token_log_p)
        self.ids = np.concatenate([self.ids, tokens[:, :, None]], axis=2)
        self.ended = self.ended | (tokens == END)
        if self.constraint is not None:
            self.constraint.follow(np.arange(len(last)), tokens.ravel())

    def _remove_finished(self) -> None:
        """Remove sentences that are no longer wanted, and sentences whose samples have all ended."""
        done = self.ended.all(axis=1) | ~self.is_wanted[self.sentences]
        for row in np.flatnonzero(done):
            sentence = int(self.sentences[row])
            self.finished[sentence] = [
                self._hypothesis(sentence, ids, float(log_p))
                for ids, log_p in zip(self.ids[row], self.log_p[row], strict=True)
                if np.isfinite(log_p)
            ]
        if not done.any():
            return
        self.advance(int(done.sum()))
        kept = np.flatnonzero(~done)
        self.sentences, self.uniforms, self.ids = self.sentences[kept], self.uniforms[kept], self.ids[kept]
        self.log_p, self.ended = self.log_p[kept], self.ended[kept]
        self.predictor.select(kept)
        if self.constraint is not None:
            n = self.ids.shape[1]
            self.constraint.select((kept[:, None] * n + np.arange(n)).ravel())

    def _hypothesis(self, sentence: int, ids: IntArray, log_p: float) -> Hypothesis:
        """Return a sample of a source as a hypothesis; ``ids`` begin with START, and have END after the last token."""
        words = ids[1 : 1 + int(np.argmax(ids[1:] == END))]
        penalty = self.config.length_penalty(len(words) + 1)
        return self.hypothesis(sentence, log_p / penalty, log_p, words.tolist())


def _uniforms(seed: int, number: int, n_samples: int, length: int) -> FloatArray:
    """Return the random numbers (n_samples, length) of a line; a longer array begins with the same numbers."""
    stream = named_stream_id(seed, "sampling").stream
    return np.stack([uniform(StreamId(seed, stream, number, i), (length,)) for i in range(n_samples)])
