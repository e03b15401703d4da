"""The choice of the length penalty's exponent α on held-out text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from minitransformer.inference.bleu import SCORE_DIGITS, Score, bleu, is_better
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.model.files import load_model_config, load_model_files, require_no_bundle, save_model_files

ALPHAS = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1)


class Tried(NamedTuple):
    """An exponent α, and BLEU of the translations that a search with it finds."""

    alpha: float
    score: Score


def try_alphas(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    search: SearchConfig,
    alphas: Sequence[float] = ALPHAS,
    *,
    language: str | None = None,
) -> Iterator[Tried]:
    """Translate the sources with each α, and yield BLEU for the language of the references, if it is known.

    A greater α prefers longer translations, so it mends translations that are too short (brevity penalty below 1).
    """
    for alpha in alphas:
        found = translator.n_best(sources, dataclasses.replace(search, alpha=alpha))
        yield Tried(alpha, bleu([best[0].text for best in found], [references], language=language))


class Choice(NamedTuple):
    """The chosen exponent α, and all exponents with the best BLEU of those tried."""

    alpha: float
    best: tuple[float, ...]


def choose_alpha(tried: Sequence[Tried], own: float) -> Choice:
    """Choose an exponent: ``own``, which the model has, unless others that were tried have a greater printed BLEU."""
    scores = {alpha: round(score.value, SCORE_DIGITS) for alpha, score in tried}
    greatest = max(scores.values())
    best = tuple(sorted(alpha for alpha, score in scores.items() if score == greatest))
    if not is_better(greatest, scores[own], greatest=True):
        return Choice(own, best)
    # An edge of a plateau lies next to worse exponents, so its middle is more likely to be good for other text, too.
    middles = best[(len(best) - 1) // 2], best[len(best) // 2]
    return Choice(min(middles, key=lambda alpha: abs(alpha - own)), best)


def require_storable(directory: Path, alphas: Sequence[float]) -> None:
    """Raise CheckpointError or ConfigError before a search, if ``store_alpha`` could not store one of ``alphas``."""
    require_no_bundle(directory)
    config = load_model_config(directory)
    for alpha in alphas:
        dataclasses.replace(config, alpha=alpha)


def store_alpha(directory: Path, alpha: float) -> float:
    """Store α in a model's configuration, for all later searches; return the former one.

    Raises: CheckpointError if the model cannot be read or written; ConfigError for an invalid α.
    """
    config, weights = load_model_files(directory)
    save_model_files(directory, dataclasses.replace(config, alpha=alpha), weights)
    return config.alpha
