"""Arguments for operations: small sizes, and values of many kinds from a seeded generator."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autograd import KeyRanges, Segments

KINDS = ("normal", "large", "tiny", "ties", "equal rows", "mixed")
AXES = "BTSDHKVW"
SIZES = st.fixed_dictionaries({axis: st.integers(1, 5) for axis in AXES})
SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Draw:
    """Arrays over named axes, with values of one kind."""

    random: np.random.Generator
    sizes: dict[str, int]
    kind: str = "normal"

    def __call__(self, *axes: str | int) -> Any:
        return self._units(axes) * self._magnitude(axes)

    def away_from_zero(self, *axes: str | int) -> Any:
        """No element below a tenth of its magnitude."""
        x = self._units(axes)
        return (x + np.copysign(0.1, x)) * self._magnitude(axes)

    def logits(self, *axes: str | int) -> Any:
        """Large ones lie close together: of numbers far apart softmax is 0 and 1, and flat."""
        units, magnitude = self._units(axes), self._magnitude(axes)
        return units + magnitude if self.kind == "large" else units * magnitude

    def mild(self, *axes: str | int) -> Any:
        """Neither large nor mixed nor near zero: where rounding would exceed what a step moves."""
        kind = "normal" if self.kind in ("large", "mixed") else self.kind
        return Draw(self.random, self.sizes, kind).away_from_zero(*axes)

    def integers(self, below: int, *axes: str | int) -> Any:
        return self.random.integers(0, below, self.shape(axes))

    def shape(self, axes: tuple[str | int, ...]) -> tuple[int, ...]:
        return tuple(self.sizes[axis] if isinstance(axis, str) else axis for axis in axes)

    @cached_property
    def mask(self) -> KeyRanges:
        """Spans of B segments of 1 … T queries over 1 … S keys each."""
        query_lengths = self.random.integers(1, self.sizes["T"] + 1, self.sizes["B"])
        keys = Segments.of_lengths(self.random.integers(1, self.sizes["S"] + 1, self.sizes["B"]))
        start, length = np.repeat(keys.starts, query_lengths), np.repeat(keys.lengths, query_lengths)
        ends = np.sort(self.random.integers(0, length, (2, len(length))), axis=0)
        return KeyRanges(start + ends[0], start + ends[1] + 1, Segments.of_lengths(query_lengths), keys)

    def _units(self, axes: tuple[str | int, ...]) -> Any:
        x = self.random.standard_normal(self.shape(axes))
        if self.kind == "ties":
            return np.rint(x)
        return np.broadcast_to(x[..., :1], x.shape).copy() if self.kind == "equal rows" else x

    def _magnitude(self, axes: tuple[str | int, ...]) -> Any:
        if self.kind == "mixed":
            return 10 ** self.random.uniform(-3, 3, self.shape(axes))
        low, high = {"large": (3, 6), "tiny": (-6, -3)}.get(self.kind, (0, 0))
        return 10 ** self.random.uniform(low, high)


def full_mask(query_lengths: list[int], key_lengths: list[int]) -> KeyRanges:
    """Every query sees all keys of its segment."""
    queries, keys = Segments.of_lengths(query_lengths), Segments.of_lengths(key_lengths)
    first = np.repeat(keys.starts, query_lengths)
    return KeyRanges(first, first + np.repeat(keys.lengths, query_lengths), queries, keys)


def normal(*shape: int, seed: int = 0) -> Any:
    """Return normal numbers that depend on the shape and the seed alone."""
    return Draw(np.random.default_rng((seed, *shape)), {})(*shape)
