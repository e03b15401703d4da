"""Settings, results and errors of a search, and the common part of beam search and sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np

from autograd import namespace, to_device
from autograd.array import Array, BoolArray, IntArray, device_of
from autograd.graphs import GraphStream
from minitransformer.config import ConfigError, ModelConfig, Normalisation
from minitransformer.config.model import ALPHA
from minitransformer.inference.predictor import Predictor
from minitransformer.model.batch import Ids
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.records import require_types

NEVER_GENERATED = [UNKNOWN, START]
MAX_BEAM = 1_000
MAX_LENGTH_FACTOR = 1_000
MAX_NO_REPEAT = 100
FREE_TOKENS = 20  # of a translation beyond ``max_length_factor`` times the tokens of its source
Advance: TypeAlias = Callable[[int], None]  # called on any thread with the number of sentences just finished
Wanted: TypeAlias = Callable[[], Sequence[bool]]  # called after each step: which sentences are still wanted
MAX_ALPHA = 50  # length^α stays finite for a million tokens; a much larger α overflows


class SearchError(UserError, FloatingPointError):
    """An error: no translation was found, because the model's outputs are not finite or a constraint allowed none."""


@dataclass(frozen=True)
class SearchConfig:
    """The settings of a search; beam and α are the paper's (section 6.1), unless the model has its own α.

    Raises: ConfigError for a value out of bounds, or n_best > beam.
    """

    beam: int = 4
    """Hypotheses kept alive for each sentence; 1 is greedy search."""
    alpha: float | None = None
    """Exponent α of the length penalty; with 0, hypotheses are compared by log-probability alone; None takes the
    model's own."""
    n_best: int = 1
    """Translations returned for each sentence, best first."""
    max_extra_tokens: int = 256
    """The greatest number of tokens by which a translation exceeds its source; learned positions may limit it more.
    A ``Translator`` first searches with at most 50, the paper's limit, then again for lines that reach this limit."""
    normalisation: Normalisation | None = None
    """The length penalty: "gnmt", ((5 + length)/6)^α, or "length", length^α; None takes the model's own."""
    max_length_factor: float | None = 6.0
    """A translation has at most this many tokens for each token of its source, plus 20; None: no such limit.
    With both defaults, every target that data.max_length and data.max_ratio accept is short enough."""
    no_repeat: int = 0
    """If not 0, no translation has the same sequence of this many tokens twice."""

    def __post_init__(self) -> None:
        require_types(self, ConfigError, "search.")
        if not 1 <= self.n_best <= self.beam <= MAX_BEAM:
            raise ConfigError(
                f"search: expected {MAX_BEAM:,} ≥ beam ≥ n_best ≥ 1; got beam {self.beam}, n_best {self.n_best}"
            )
        if (self.alpha is not None and not 0 <= self.alpha <= MAX_ALPHA) or self.max_extra_tokens < 1:
            raise ConfigError(
                f"search: expected 0 ≤ alpha ≤ {MAX_ALPHA} and max_extra_tokens ≥ 1;"
                f" got alpha {self.alpha}, max_extra_tokens {self.max_extra_tokens}"
            )
        if not 0 <= self.no_repeat <= MAX_NO_REPEAT:
            raise ConfigError(f"search: expected 0 ≤ no_repeat ≤ {MAX_NO_REPEAT}; got {self.no_repeat}")
        if self.max_length_factor is not None and not 1 <= self.max_length_factor <= MAX_LENGTH_FACTOR:
            raise ConfigError(
                f"search: expected {MAX_LENGTH_FACTOR:,} ≥ max_length_factor ≥ 1; got {self.max_length_factor}"
            )
        if self.normalisation not in (None, *get_args(Normalisation)):
            raise ConfigError(
                f"search: normalisation must be one of {get_args(Normalisation)}; got {self.normalisation!r}"
            )

    def for_model(self, config: ModelConfig) -> SearchConfig:
        """Return these settings with the model's own length penalty and α, unless these settings have them."""
        alpha = config.own_alpha if self.alpha is None else self.alpha
        return dataclasses.replace(self, alpha=alpha, normalisation=self.normalisation or config.normalisation)

    def greatest_lengths(self, n_tokens: IntArray) -> IntArray:
        """Return the greatest lengths (n,) of translations, end symbol included, for sources of ``n_tokens`` (n,)."""
        longest: IntArray = n_tokens + self.max_extra_tokens
        if self.max_length_factor is not None:
            longest = np.minimum(longest, (self.max_length_factor * n_tokens).astype(np.int64) + FREE_TOKENS)
        return longest

    def length_penalty(self, length: float | IntArray) -> Any:
        """Return the divisor of log p for a length in tokens, end symbol included; it grows with the length.

        If ``alpha`` is None, the paper's α is used.
        """
        alpha = ALPHA if self.alpha is None else self.alpha
        return (length if self.normalisation == "length" else (5 + length) / 6) ** alpha


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: target ids without end symbol, log p in nats, and its score, log p / length penalty.

    ``is_cut`` is true if the translation has the greatest length, at which only the end symbol may come next.
    """

    score: float
    log_probability: float
    ids: tuple[int, ...]
    is_cut: bool = False


class Constraint(Protocol):
    """A rule for the next token of each hypothesis, such as a given beginning.

    A hypothesis is a row; a search begins with a row per source.  W is the size of the vocabulary.
    """

    def forbidden(self) -> Any:
        """Return booleans (rows, W), True for tokens that may not come next; (1, W) if all rows are equal."""

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        """Select ``rows`` as ``select`` does, then append the i-th of ``tokens`` to the i-th selected row."""

    def select(self, rows: IntArray) -> None:
        """Replace all rows by these, given by their indices; an index may occur twice or not at all."""


class Sampler(Protocol):
    """A sampler, which draws translations at random in place of a search."""

    def sample(
        self,
        models: Sequence[Transformer],
        sources: Sequence[Ids],
        config: SearchConfig,
        numbers: Sequence[int],
        advance: Advance,
        constraint: Constraint | None,
        n_given: Sequence[int] | None,
        wanted: Wanted | None,
    ) -> list[list[Hypothesis]]:
        """Draw ``config.n_best`` translations of each source; ``numbers`` are the line numbers of the sources."""


class Request(NamedTuple):
    """The arguments of a search; see ``beam_search``."""

    models: Sequence[Transformer]
    sources: Sequence[Ids]
    config: SearchConfig
    constraint: Constraint | None
    advance: Advance
    n_given: Sequence[int] | None
    wanted: Wanted | None

    @property
    def longest_source(self) -> int:
        """The greatest number of tokens of a source, with the end symbol of models that append one."""
        ends = any(model.config.source_end for model in self.models)
        return max(map(len, self.sources)) + ends


class Search:
    """The common part of beam search and sampling: models, limits, the constraint, and the caller's two functions.

    Args:
        n_slots: the number of sources that are searched together.
        stream: the current stream, if it can be captured.
    """

    def __init__(self, request: Request, n_slots: int, stream: GraphStream | None = None) -> None:
        longest = request.longest_source
        self.predictor = Predictor(request.models, n_slots, longest, request.config.beam, stream)
        self.begin(request)

    def begin(self, request: Request) -> None:
        """Set all attributes except ``predictor`` for the sources of ``request``."""
        models, sources, config, constraint, advance, n_given, wanted = request
        self.config, self.sources = config, sources
        self.constraint, self.advance, self._ask_wanted = constraint, advance, wanted
        self.n_target_words = models[0].config.vocabulary_size
        _require_one_each("n_given", sources if n_given is None else n_given, len(sources))
        self.sentences = np.arange(len(sources))  # indices of the sources in the slots
        n_words = np.array([len(source) for source in sources], np.int64)
        longest = n_words if n_given is None else np.maximum(n_words, n_given)
        self.max_lengths = config.greatest_lengths(longest)  # (sources,)
        for model in models:
            if model.config.positions == "learned":  # a table of limited length
                self.max_lengths = np.minimum(self.max_lengths, model.config.longest_sentence)
        self.is_wanted: BoolArray = np.ones(len(sources), np.bool_)  # (sources,)

    def update_wanted(self) -> None:
        """Mark the sources that are no longer wanted; they stay marked."""
        if self._ask_wanted is not None:
            wanted = self._ask_wanted()
            _require_one_each("wanted", wanted, len(self.is_wanted))
            self.is_wanted &= np.asarray(wanted, np.bool_)

    def release_callbacks(self) -> None:
        """Replace the caller's two functions, so that a search that is kept does not keep objects of its caller."""
        self.advance, self._ask_wanted = lambda n: None, None

    def hypothesis(self, sentence: int, score: float, log_probability: float, ids: Sequence[int]) -> Hypothesis:
        """Return a finished hypothesis of a source."""
        is_cut = bool(len(ids) + 1 >= self.max_lengths[sentence])
        return Hypothesis(score, log_probability, tuple(ids), is_cut)

    def results(self, finished: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of each source; [] for an unwanted source.

        Raises: SearchError if a wanted source has no hypothesis.
        """
        found = [hypotheses if wanted else [] for hypotheses, wanted in zip(finished, self.is_wanted, strict=True)]
        for number in np.flatnonzero(self.is_wanted):
            if not found[number]:
                either = "" if self.constraint is None else "the constraint allowed no token at some length, or "
                raise SearchError(
                    f"search: source {number} has no translation of finite log-probability: {either}the model's weights"
                    " or its outputs are not finite; take another checkpoint"
                )
        return found

    def never(self) -> BoolArray:
        """Return booleans (1, W), True for tokens that are never generated."""
        never: BoolArray = np.zeros((1, self.n_target_words), np.bool_)
        never[0, NEVER_GENERATED] = True
        return never


def _require_one_each(name: str, values: Sequence[object], n_sources: int) -> None:
    if len(values) != n_sources:
        raise ValueError(f"search: {name}: expected one for each of {n_sources} sources; got {len(values)}")


def forbidden_tokens(never: Array, constraint: Constraint | None, last: Array | None) -> Array:
    """Return booleans (rows, W), True for tokens that may not come next; (1, W) if they are equal for all hypotheses.

    Args:
        never: booleans (1, W), True for tokens that are never generated; the result is on the same device.
        last: booleans (rows,), True for hypotheses that reach their greatest length with the next token, which must
            then be the end symbol; None if there are none.
    """
    forbidden = never if constraint is None else never | to_device(constraint.forbidden(), device_of(never))
    if last is None:
        return forbidden
    xp = namespace(never)
    return xp.where(last[:, None], xp.arange(never.shape[1]) != END, forbidden)
