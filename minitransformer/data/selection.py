"""The selection of pairs: unusable pairs of training text, and pairs too long for the loss, are dropped and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from minitransformer.config import DataConfig
from minitransformer.data.corpus import Pair
from minitransformer.data.survey import Found
from minitransformer.model.batch import IdPair

SHORT = 20  # tokens: pairs with at most this many on both sides are never dropped as "too unequal"


def worth_training_on(
    pairs: Iterable[IdPair], config: DataConfig, dropped: dict[str, Found], location: Callable[[int], str]
) -> Iterator[IdPair]:
    """Yield the usable training pairs; count the others by reason in ``dropped``, with their first locations."""
    for i, (source, target) in enumerate(pairs):
        reason = _reason_to_drop(len(source), len(target), config)
        if reason:
            dropped.setdefault(reason, Found()).add(location(i))
        else:
            yield source, target


def worth_holding_out(
    pairs: Iterable[Pair], encoded: Iterable[IdPair], config: DataConfig, dropped: dict[str, Found],
    location: Callable[[int], str | None],
) -> Iterator[tuple[Pair, IdPair]]:  # fmt: skip
    """Yield held-out pairs with their ids, without those of the training text that training drops; count these, too.

    ``location`` returns where in the training text a pair is, None if it is in other text.
    """
    for i, (pair, ids) in enumerate(zip(pairs, encoded, strict=True)):
        reason, here = _reason_to_drop(len(ids[0]), len(ids[1]), config), location(i)
        if reason and here:
            dropped.setdefault(reason, Found()).add(here)
        else:
            yield pair, ids


def worth_scoring(pairs: Iterable[IdPair], longest: int, unscored: Found) -> Iterator[IdPair]:
    """Yield the held-out pairs of at most ``longest`` tokens a side; add the numbers of the others to ``unscored``."""
    for number, (source, target) in enumerate(pairs, 1):
        if max(len(source), len(target)) > longest:
            unscored.add(number)
        else:
            yield source, target


def _reason_to_drop(n_source: int, n_target: int, config: DataConfig) -> str | None:
    shorter, longer = sorted((n_source, n_target))
    if shorter == 0:
        return "empty"
    if longer > config.max_length:
        return "too long"
    if longer > max(SHORT, config.max_ratio * shorter):
        return "too unequal"
    return None
