"""A tree is the walk around it: openings, leaves and closings in their order.

So whatever is done with a tree is one pass over a sequence with a stack of its own, and no tree is too deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

OUTERMOST = "TOP"  # what the writer puts around every tree


class Opening(NamedTuple):
    """The left bracket of a constituent; "" stands for a bracket without a label."""

    label: str


class Leaf(NamedTuple):
    """A word with its part of speech."""

    tag: str
    word: str


class Closing(NamedTuple):
    """The right bracket of the constituent of this label."""

    label: str


Step: TypeAlias = Opening | Leaf | Closing


class Constituent(NamedTuple):
    """The words [start, end) under one label."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A tree, or a row of them: every opening has its closing, of the same label, in the right order.

    Raises: ValueError if they do not match.
    """

    walk: tuple[Step, ...]

    def __post_init__(self) -> None:
        open_labels: list[str] = []
        for step in self.walk:
            if isinstance(step, Opening):
                open_labels.append(step.label)
            elif isinstance(step, Closing) and (not open_labels or open_labels.pop() != step.label):
                raise ValueError(f"Tree: a closing of {step.label!r} without its opening")
        if open_labels:
            raise ValueError(f"Tree: {open_labels[-1]!r} is not closed")

    @property
    def leaves(self) -> list[Leaf]:
        """The words with their tags, in their order."""
        return [step for step in self.walk if isinstance(step, Leaf)]

    @property
    def words(self) -> list[str]:
        """The words, in their order."""
        return [leaf.word for leaf in self.leaves]

    def with_leaves(self, leaves: Iterable[Leaf]) -> Tree:
        """The same brackets over other leaves.  Raises: ValueError if there are more or fewer of them."""
        new, walk = iter(leaves), list[Step]()
        try:
            walk.extend(next(new) if isinstance(step, Leaf) else step for step in self.walk)
        except RuntimeError as error:  # next() has found the end
            raise ValueError("Tree.with_leaves: fewer leaves than the tree has") from error
        if next(new, None) is not None:
            raise ValueError("Tree.with_leaves: more leaves than the tree has")
        return Tree(tuple(walk))

    def constituents(self) -> Iterator[Constituent]:
        """All brackets with the words that they span, in the order of their ends."""
        starts: list[int] = []
        n_words = 0
        for step in self.walk:
            match step:
                case Opening():
                    starts.append(n_words)
                case Leaf():
                    n_words += 1
                case Closing(label):
                    yield Constituent(label, starts.pop(), n_words)


def without_empty(walk: Iterable[Step]) -> list[Step]:
    """The walk without constituents that hold no leaf, nor what becomes empty by that."""
    kept: list[Step] = []
    for step in walk:
        if isinstance(step, Closing) and kept and isinstance(kept[-1], Opening):
            kept.pop()
        else:
            kept.append(step)
    return kept
