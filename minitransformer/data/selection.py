"""The selection of pairs: unusable pairs, too long pairs and copies of held-out pairs are dropped and counted."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from minitransformer.config import DataConfig
from minitransformer.data.survey import Found, Pair
from minitransformer.model.batch import IdPair

SHORT = 20  # tokens: pairs with at most this many on both sides are never dropped as "too unequal"


class HeldOut(NamedTuple):
    """A held-out pair, its ids, and its location in the training text (None for a pair from other text)."""

    pair: Pair
    ids: IdPair
    location: str | None


def worth_training_on(
    pairs: Iterable[IdPair],
    config: DataConfig,
    dropped: dict[str, Found],
    location: Callable[[int], str],
    copies: Collection[int] = (),
    first: int = 0,
) -> Iterator[tuple[int, IdPair]]:
    """Yield the usable training pairs with their indices; count dropped pairs by reason, with their first locations.

    ``copies`` are the indices of copies of held-out pairs.  ``first`` is the index of the first pair.
    """
    for i, (source, target) in enumerate(pairs, first):
        reason = "copies of held-out pairs" if i in copies else reason_to_drop((source, target), config)
        if reason:
            dropped.setdefault(reason, Found()).add(location(i))
        else:
            yield i, (source, target)


def worth_holding_out(
    pairs: Iterable[Pair],
    encoded: Iterable[IdPair],
    config: DataConfig,
    dropped: dict[str, Found],
    location: Callable[[int], str | None],
) -> Iterator[HeldOut]:
    """Yield held-out pairs with their ids; a pair of the training text that training would drop is only counted.

    ``location`` returns a pair's location in the training text; None for a pair from other text.
    """
    for i, (pair, ids) in enumerate(zip(pairs, encoded, strict=True)):
        reason, here = reason_to_drop(ids, config), location(i)
        if reason and here:
            dropped.setdefault(reason, Found()).add(here)
        else:
            yield HeldOut(pair, ids, here)


def find_copies(
    held_out: Sequence[HeldOut], normalised: Sequence[Pair], training: Iterable[tuple[int, Pair]], config: DataConfig
) -> list[array[int]]:
    """Return the indices of each held-out pair's copies: training pairs with the same normalised source and target.

    Memory holds only the held-out pairs and the indices of copies.

    Args:
        normalised: the held-out pairs, see ``Tokenizer.normalised``.
        training: normalised pairs of the training text, with their indices.
    """
    found: dict[Pair, array[int]] = {
        pair: array("q")
        for pair, (_, ids, _) in zip(normalised, held_out, strict=True)
        if reason_to_drop(ids, config) is None  # else training drops its copies for the same reason
    }
    for i, pair in training:
        if pair in found:
            found[pair].append(i)
    return [found.get(pair, array("q")) for pair in normalised]


def separate(
    held_out: Sequence[HeldOut], copies: Sequence[Sequence[int]], dropped: dict[str, Found], in_training: Found
) -> tuple[Sequence[HeldOut], set[int]]:
    """Return the pairs that stay held out, and the indices of their copies, which the training text must not contain.

    Pairs from the training text are sorted by their number of copies, fewest first; equal numbers are in random order.
    Pairs stay held out until more copies would be dropped than there are held-out pairs.  The remaining pairs are
    counted in ``dropped``; training keeps their copies, and so all frequent sentences.
    If no pair can stay, or if the pairs are from other text, all pairs stay and no copy is dropped.  Then the numbers
    of pairs with copies are added to ``in_training``.
    """
    is_from_training = any(one.location for one in held_out)
    removed = set[int]()
    in_random_order = Random(0).sample(copies, len(copies)) if is_from_training else []
    for indices in sorted(in_random_order, key=len):
        if len(removed) + len(indices) <= len(held_out):
            removed.update(indices)
    apart = [one for one, indices in zip(held_out, copies, strict=True) if removed.issuperset(indices)]
    trained_on = [i for i, indices in enumerate(copies) if not removed.issuperset(indices)]
    if not apart or not is_from_training:
        for i in trained_on:
            in_training.add(i + 1)
        return held_out, removed
    for i in trained_on:
        dropped.setdefault("copies of training pairs", Found()).add(str(held_out[i].location))
    return apart, removed


def worth_scoring(pairs: Iterable[IdPair], longest: int, unscored: Found) -> Iterator[IdPair]:
    """Yield held-out pairs of at most ``longest`` tokens a side; add the numbers of longer pairs to ``unscored``."""
    for number, (source, target) in enumerate(pairs, 1):
        if max(len(source), len(target)) > longest:
            unscored.add(number)
        else:
            yield source, target


def reason_to_drop(pair: IdPair, config: DataConfig) -> str | None:
    """Return why a pair is of no use for training; None if it is usable."""
    shorter, longer = sorted(map(len, pair))
    if shorter == 0:
        return "empty"
    if longer > config.max_length:
        return "too long"
    if longer > max(SHORT, config.max_ratio * shorter):
        return "too unequal"
    return None
