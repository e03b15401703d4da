"""A random choice between weighted alternatives."""

from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

Option = TypeVar("Option")


class Weighted(Generic[Option]):
    """Alternatives, each with its relative frequency."""

    def __init__(self, *alternatives: tuple[Option, int]) -> None:
        """Take pairs of an alternative and its weight."""
        self.alternatives = alternatives
        self._options = [option for option, _ in alternatives]
        self._cumulative_weights = list(accumulate(weight for _, weight in alternatives))

    def draw(self, random: Random) -> Option:
        """One alternative, with a probability in proportion to its weight."""
        return random.choices(self._options, cum_weights=self._cumulative_weights)[0]
