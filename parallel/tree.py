"""The fixed binary tree along which arrays are added: the sum has the same bits for any number of ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

FlatArray: TypeAlias = np.ndarray[Any, Any]
Tree: TypeAlias = "FlatArray | tuple[Tree, Tree]"

CHUNK = 1 << 15  # elements added or rounded at once, so that intermediate arrays stay in the CPU's cache


def subtrees_within(ranks: Collection[int], whole: range) -> list[range]:
    """Return the largest subtrees of the tree over ``whole`` whose leaves are all among these ranks."""
    if all(rank in ranks for rank in whole):
        return [whole]
    return [] if len(whole) == 1 else [subtree for half in _halves(whole) for subtree in subtrees_within(ranks, half)]


def tree_of(whole: range, sums: Mapping[range, FlatArray], first: int) -> Tree:
    """Return the tree over ``whole``, whose leaves are the subtrees with known sums.

    Of two siblings, the subtree that contains rank ``first`` comes first.  Addition commutes, so bits do not change.
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


def slice_tree(tree: Tree, within: slice) -> Tree:
    """Return the same tree with each array cut to the slice ``within``."""
    return (slice_tree(tree[0], within), slice_tree(tree[1], within)) if isinstance(tree, tuple) else tree[within]


def add_along_tree(tree: Tree, out: FlatArray) -> None:
    """Write (s₀ + s₁) + (s₂ + s₃) to ``out`` for the tree ((s₀, s₁), (s₂, s₃)); ``out`` may be s₀."""
    for start in range(0, len(out), CHUNK):
        chunk = slice(start, start + CHUNK)
        _add(slice_tree(tree, chunk), out[chunk])


def _add(tree: Tree, out: FlatArray) -> None:
    if not isinstance(tree, tuple):
        out[...] = tree
        return
    left, right = tree
    if isinstance(left, tuple):
        _add(left, out)
        left = out
    if isinstance(right, tuple):
        right_sum = np.empty_like(out)
        _add(right, right_sum)
        right = right_sum
    np.add(left, right, out=out)
