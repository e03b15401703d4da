"""A majority of trees: the constituents in which trees with more than half of the probability agree.

Source: Henderson and Brill 1999, "Exploiting Diversity in Natural Language Processing: Combining Parsers" (constituent
voting among parsers with equal votes).
Differs: the trees are those of one search, and each votes with its probability.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minitransformer.extras.parsing.tree import Closing, Constituent, Opening, Step, Tree

HALF = 0.5 + 1e-9  # more than any sum of exactly half, which is rounded


class _Place(NamedTuple):
    """A constituent, and the number of constituents inside it that have the same words."""

    constituent: Constituent
    n_inside: int


def majority_tree(trees: Sequence[Tree], log_probabilities: Sequence[float]) -> Tree:
    """Return the tree of all constituents that have more than half of the trees' probability.

    Two such constituents are together in at least one of the trees, so they never cross.  The leaves are those of the
    first tree.  Of constituents over the same words, each counts at its own height.

    Args:
        trees: at least one tree; all have the same words, and no empty constituent.
        log_probabilities: log p of each tree in nats, up to a common constant.
    """
    weights = np.exp(np.asarray(log_probabilities) - max(log_probabilities))
    votes: Counter[_Place] = Counter()
    for tree, weight in zip(trees, weights / weights.sum(), strict=True):
        for place in _places(tree):
            votes[place] += weight
    return _tree_with([place for place, vote in votes.items() if vote > HALF], trees[0])


def _places(tree: Tree) -> Iterator[_Place]:
    n_found: Counter[tuple[int, int]] = Counter()
    for constituent in tree.constituents():  # inner ones come first
        words = constituent.start, constituent.end
        yield _Place(constituent, n_found[words])
        n_found[words] += 1


def _tree_with(places: Sequence[_Place], tree: Tree) -> Tree:
    """Return the tree of these constituents, which do not cross, over the leaves of ``tree``."""
    outer_first = sorted(places, key=lambda place: (place.constituent.start, -place.constituent.end, -place.n_inside))
    waiting, unclosed, walk = deque(place.constituent for place in outer_first), list[Constituent](), list[Step]()
    for position, leaf in enumerate(tree.leaves):
        while waiting and waiting[0].start == position:
            unclosed.append(waiting.popleft())
            walk.append(Opening(unclosed[-1].label))
        walk.append(leaf)
        while unclosed and unclosed[-1].end == position + 1:
            walk.append(Closing(unclosed.pop().label))
    return Tree(tuple(walk))
