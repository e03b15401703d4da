"""The fixed order in which arrays are added up, so that the sum has the same bits wherever its summands lie."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

Numbers = np.ndarray[Any, Any]
Tree: TypeAlias = "Numbers | tuple[Tree, Tree]"

PIECE = 1 << 15  # elements added up at once, so that what is on its way between two additions stays in a cache


def subtrees_within(ranks: Collection[int], whole: range) -> list[range]:
    """The largest subtrees whose leaves are all among these ranks, of the tree over a power of two of them."""
    if all(rank in ranks for rank in whole):
        return [whole]
    return [] if len(whole) == 1 else [subtree for half in _halves(whole) for subtree in subtrees_within(ranks, half)]


def tree_of(whole: range, sums: Mapping[range, Numbers], first: int) -> Tree:
    """The tree over ``whole``, down to the subtrees whose sums are there.

    Siblings change places so that what holds rank ``first`` comes first.  Addition commutes: the bits are the same.
    """
    if whole in sums:
        return sums[whole]
    left, right = _halves(whole)
    if first in right:
        left, right = right, left
    return tree_of(left, sums, first), tree_of(right, sums, first)


def _halves(whole: range) -> tuple[range, range]:
    middle = (whole.start + whole.stop) // 2
    return range(whole.start, middle), range(middle, whole.stop)


def part_of(tree: Tree, within: slice) -> Tree:
    """The tree over the same stretch of all its arrays."""
    return (part_of(tree[0], within), part_of(tree[1], within)) if isinstance(tree, tuple) else tree[within]


def add_along_tree(tree: Tree, out: Numbers) -> None:
    """((s₀, s₁), (s₂, s₃)) becomes (s₀ + s₁) + (s₂ + s₃) in ``out``, which may be s₀."""
    for start in range(0, len(out), PIECE):
        piece = slice(start, start + PIECE)
        _add(part_of(tree, piece), out[piece])


def _add(tree: Tree, out: Numbers) -> None:
    if not isinstance(tree, tuple):
        out[...] = tree
        return
    left, right = tree
    if isinstance(left, tuple):
        _add(left, out)
        left = out
    if isinstance(right, tuple):
        of_right = np.empty_like(out)
        _add(right, of_right)
        right = of_right
    np.add(left, right, out=out)
