"""Translation of raw text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from autograd import to_host
from autograd.array import Device, IntArray
from minitransformer.config import ConfigError, ModelConfig
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.beam import Advance, Constraint, Hypothesis, SearchConfig, beam_search
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.system.threads import available_cores, map_in_threads

HYPOTHESES_AT_ONCE = 512  # live hypotheses of one batch: enough to fill the matrix products
SCORES_AT_ONCE = 512 * 128**2  # of queries and keys in a batch, for each head: bounds the memory for very long lines
FEW = 8  # sentences: fewer are faster in one batch, with BLAS on all cores
MAX_SOURCE_TOKENS = 1_024  # the rest of a longer line is cut off, so that memory stays bounded

WeightsDtype: TypeAlias = Literal["float32", "int8"]


@dataclass(frozen=True)
class Translation:
    """One translation of one line: its text, log p in nats, and log p divided by the length penalty."""

    text: str
    log_probability: float
    score: float


class Translator:
    """A trained model with its tokenizer.  Create a new one after the model's parameters change.

    Args:
        weights: "float32"; or "int8", which rounds each weight to one of 255 levels: faster for few sentences at once,
            a quarter of the memory, and slightly worse translations.
    """

    def __init__(self, model: Transformer, tokenizer: Tokenizer, *, weights: WeightsDtype = "float32") -> None:
        if weights not in get_args(WeightsDtype):
            raise ConfigError(f"weights: expected one of {get_args(WeightsDtype)}; got {weights!r}")
        self.model, self.tokenizer, self.weights = model.for_search(int8=weights == "int8"), tokenizer, weights

    @classmethod
    def load(cls, directory: str | Path, *, device: Device = "cpu", weights: WeightsDtype = "float32") -> Translator:
        """Load the translator of a run; see ``load_with_tokenizer``."""
        return cls(*load_with_tokenizer(Path(directory), device=device), weights=weights)

    def fingerprint(self) -> str:
        """Return a checksum of configuration, weights, their dtype and tokenizer, which identifies the translator."""
        checksum = hashlib.blake2b(self.model.config.to_json().encode(), digest_size=16)
        checksum.update(self.weights.encode())
        checksum.update(to_host(self.model.parameters.values).data)
        for model in self.tokenizer.models:
            checksum.update(model)
        return checksum.hexdigest()

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = SearchConfig.beam,
        alpha: float | None = SearchConfig.alpha,
        n_threads: int | None = None,
    ) -> list[str]:
        """Return the best translation of each line; the translation of an empty line is empty.

        ``alpha`` is the exponent of the length penalty; None takes the model's.
        """
        config = SearchConfig(beam=beam, alpha=alpha)
        return [best[0].text for best in self.n_best(lines, config, n_threads=n_threads)]

    def n_best(
        self,
        lines: Sequence[str],
        config: SearchConfig,
        *,
        n_threads: int | None = None,
        constraint_of: Callable[[IntArray], Constraint | None] = lambda numbers: None,
        advance: Advance = lambda n: None,
    ) -> list[list[Translation]]:
        """Return up to ``config.n_best`` translations of each line, best first; at least one.

        Lines are translated in batches of similar length, on ``n_threads`` threads (None: all cores; 1 on a GPU).
        ``constraint_of`` returns the constraint of the search for the lines with the given indices.  ``advance`` is
        called, on any thread, with the number of lines that were translated since the last call.
        """
        sources = [ids[: self.longest_source] for ids in self.tokenizer.encode_source(lines)]
        found: list[list[Hypothesis]] = [[Hypothesis(0.0, 0.0, ())] for _ in lines]
        n_threads = n_threads or (1 if self.model.device == "cuda" else available_cores())
        batches = _batches_by_length(sources, config.beam)
        searched = map_in_threads(
            lambda batch: beam_search(self.model, [sources[i] for i in batch], config, constraint_of(batch), advance),
            batches,
            n_threads,
        )
        for batch, results in zip(batches, searched, strict=True):
            for i, hypotheses in zip(batch, results, strict=True):
                found[i] = hypotheses
        return [self._decoded(hypotheses) for hypotheses in found]

    @property
    def longest_source(self) -> int:
        """The greatest number of subword tokens of a line that are translated; the rest of the line is cut off."""
        if self.model.config.positions == "learned":
            return min(MAX_SOURCE_TOKENS, self.model.config.longest_sentence - 1)  # and the end symbol
        return MAX_SOURCE_TOKENS

    def cut(self, lines: Sequence[str]) -> list[int]:
        """Return the indices of the lines that are too long to be translated completely."""
        return [i for i, ids in enumerate(self.tokenizer.encode_source(lines)) if len(ids) > self.longest_source]

    def _decoded(self, hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        texts = self.tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
        return [
            Translation(_one_line(text), hypothesis.log_probability, hypothesis.score)
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]


def load_with_tokenizer(directory: Path, *, device: Device = "cpu") -> tuple[Transformer, Tokenizer]:
    """Load the model and the tokenizer of a training run.

    Raises: CheckpointError if one is missing, or if their vocabularies differ in size, because ids would then mean
    other words.
    """
    model, tokenizer = Transformer.load(directory, device=device), Tokenizer.load(directory)
    require_same_words(directory, model.config, tokenizer)
    return model, tokenizer


def require_same_words(directory: Path, config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError if a model and the tokenizer in its directory have vocabularies of different sizes."""
    expected = config.n_source_words, config.vocabulary_size
    found = tokenizer.n_source_words, tokenizer.n_target_words
    if found != expected:
        raise CheckpointError(
            f"{directory}: the model has {expected[0]:,} source and {expected[1]:,} target words, but its tokenizer"
            f" {found[0]:,} and {found[1]:,}: it belongs to another model; restore the tokenizer of this model"
        )


def _one_line(text: str) -> str:
    """Join the lines of a text: generated line separators must not split a line of output."""
    return " ".join(text.splitlines()).strip()


def _batches_by_length(sources: Sequence[Sequence[int]], beam: int) -> list[IntArray]:
    """Return batches of the indices of non-empty sources, longest first; a batch has a bounded number of hypotheses.

    Batches of very long sources are smaller, because attention scores grow with the square of the length.  The batches
    do not depend on the number of threads, so the results have the same bits for any number.  Two batches are formed at
    once: sources are assigned to them alternately.
    """
    full = [i for i, source in enumerate(sources) if len(source)]
    by_length = np.array(sorted(full, key=lambda i: -len(sources[i])), np.int64)
    batches, start = list[IntArray](), 0
    while start < len(by_length):
        longest = len(sources[by_length[start]]) + 1  # and the end symbol
        at_once = 2 * max(1, min(HYPOTHESES_AT_ONCE // beam, SCORES_AT_ONCE // longest**2))
        dealt = by_length[start : start + at_once]
        batches += [dealt] if len(dealt) < FEW else [dealt[0::2], dealt[1::2]]
        start += at_once
    return batches
