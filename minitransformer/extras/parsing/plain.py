"""Conversion of a treebank's trees to the plain trees on which parsers are trained and evaluated."""

from __future__ import annotations

from functools import lru_cache

from minitransformer.extras.parsing.tree import OUTERMOST, Closing, Leaf, Opening, Step, Tree, without_empty

TRACE = "-NONE-"
_OUTERMOST = {"", OUTERMOST, "ROOT"}


def plain(tree: Tree) -> Tree:
    """Remove functional tags, traces, constituents that become empty, and an outermost bracket without information.

    Source: Bies et al. 1995, Bracketing Guidelines for Treebank II Style (functional tags, null elements); Collins
    1997 (both left out).
    """
    steps: list[Step] = []
    for step in tree.walk:
        match step:
            case Leaf(tag, word):
                if tag != TRACE:
                    steps.append(Leaf(category(tag), word))
            case Opening(label):
                steps.append(Opening(category(label)))
            case Closing(label):
                steps.append(Closing(category(label)))
    return Tree(tuple(_within_outermost(without_empty(steps))))


@lru_cache(maxsize=4_096)  # there are few different labels
def category(label: str) -> str:
    """Return a label without functional tags and indices: NP for NP-SBJ-1 and NP=2; -LRB- and PRP$ do not change."""
    return label.partition("-")[0].partition("=")[0] or label


def _within_outermost(steps: list[Step]) -> list[Step]:
    """Remove the brackets labelled "", TOP or ROOT that enclose the whole tree."""
    ends = _ends(steps)
    for n, step in enumerate(steps):
        if not isinstance(step, Opening) or step.label not in _OUTERMOST or ends[n] != len(steps) - 1 - n:
            return steps[n : len(steps) - n]
    return steps


def _ends(steps: list[Step]) -> dict[int, int]:
    """Map the index of every opening to the index of its closing."""
    ends, open_indices = dict[int, int](), list[int]()
    for i, step in enumerate(steps):
        match step:
            case Opening():
                open_indices.append(i)
            case Closing():
                ends[open_indices.pop()] = i
    return ends
