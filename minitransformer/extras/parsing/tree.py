"""Trees as depth-first walks: sequences of openings, leaves and closings.

An operation on a tree is one pass over the sequence, without recursion, so trees may have any depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

OUTERMOST = "TOP"  # the label of the bracket that the writer puts around every tree


class Opening(NamedTuple):
    """The left bracket of a constituent; the label "" means a bracket without a label."""

    label: str


class Leaf(NamedTuple):
    """A word with its part of speech."""

    tag: str
    word: str


class Closing(NamedTuple):
    """The right bracket of a constituent with this label."""

    label: str


Step: TypeAlias = Opening | Leaf | Closing


class Constituent(NamedTuple):
    """A label over the words [start, end)."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A tree, or a sequence of trees, in which every opening has a closing with the same label.

    Raises: ValueError if openings and closings do not match.
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
        """The words with their tags, in the order of the sentence."""
        return [step for step in self.walk if isinstance(step, Leaf)]

    @property
    def words(self) -> list[str]:
        """The words, in the order of the sentence."""
        return [leaf.word for leaf in self.leaves]

    def with_leaves(self, leaves: Iterable[Leaf]) -> Tree:
        """Return a tree with the same brackets over other leaves.  Raises: ValueError if their number differs."""
        new, walk = iter(leaves), list[Step]()
        try:
            walk.extend(next(new) if isinstance(step, Leaf) else step for step in self.walk)
        except RuntimeError as error:  # next() raised StopIteration
            raise ValueError("Tree.with_leaves: fewer leaves than the tree has") from error
        if next(new, None) is not None:
            raise ValueError("Tree.with_leaves: more leaves than the tree has")
        return Tree(tuple(walk))

    def constituents(self) -> Iterator[Constituent]:
        """Yield all constituents, in the order of their closings."""
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
    """Remove all constituents that contain no leaf."""
    kept: list[Step] = []
    for step in walk:
        if isinstance(step, Closing) and kept and isinstance(kept[-1], Opening):
            kept.pop()
        else:
            kept.append(step)
    return kept
