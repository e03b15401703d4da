"""The majority's tree has the constituents that it should have, and no other."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.extras.parsing.majority import majority_tree
from minitransformer.extras.parsing.penn import read_tree, write_tree
from minitransformer.extras.parsing.tree import Closing, Leaf, Opening, Step, Tree

FIVE = [Leaf("NN", word) for word in "abcde"]


def heights(tree: Tree) -> Iterator[tuple[str, int, int, int]]:
    """Yield label, start, end and height of each constituent; 0 is the innermost over the same words."""
    n_found: Counter[tuple[int, int]] = Counter()
    for label, start, end in tree.constituents():
        yield label, start, end, n_found[start, end]
        n_found[start, end] += 1


@st.composite
def walks(draw: st.DrawFn, start: int = 0, end: int = len(FIVE)) -> list[Step]:
    """Any brackets over the words [start, end), up to two around each part."""
    labels = draw(st.lists(st.sampled_from(["S", "NP", "VP"]), max_size=2))
    inner: list[Step] = [FIVE[start]]
    if end - start > 1:
        middle = draw(st.integers(start + 1, end - 1))
        inner = draw(walks(start, middle)) + draw(walks(middle, end))
    return [*map(Opening, labels), *inner, *map(Closing, reversed(labels))]


ballots = st.lists(st.tuples(walks(), st.floats(-9, 0)), min_size=1, max_size=6)


@given(ballots=ballots)
def test_it_has_the_constituents_with_more_than_half_of_the_probability(
    ballots: list[tuple[list[Step], float]],
) -> None:
    trees = [Tree(tuple(walk)) for walk, _ in ballots]
    p = np.exp([logarithm for _, logarithm in ballots])
    shares = {
        each: sum(p[i] for i, tree in enumerate(trees) if each in set(heights(tree))) / p.sum()
        for tree in trees
        for each in heights(tree)
    }
    found = majority_tree(trees, [logarithm - 700 for _, logarithm in ballots])  # not all of a beam's probability
    assert found.leaves == FIVE
    got = Counter((label, start, end) for label, start, end, _ in heights(found))
    assert got == Counter(each[:3] for each, share in shares.items() if share > 0.5 + 1e-9)


@pytest.mark.parametrize(("written", "p", "expected"), [
    # A preposition is attached to the noun with 0.4, to the verb with 0.6 in two trees of which none is the best.
    (["(S (NN a) (VP (NN b) (NP (NN c) (PP (NN d) (NN e)))))", "(S (NN a) (VP (NN b) (NP (NN c)) (PP (NN d) (NN e))))",
      "(S (NN a) (VP (NN b) (NP (NN c)) (X (PP (NN d) (NN e)))))"], [0.4, 0.3, 0.3],
     "(S (NN a) (VP (NN b) (NP (NN c)) (PP (NN d) (NN e))))"),
    # No tree has more than half: only what two of three have stays, each at its height.
    (["(S (VP (NN a) (NN b)))", "(S (NP (NN a) (NN b)))", "(X (NP (NN a) (NN b)))"], [0.4, 0.3, 0.3],
     "(S (NP (NN a) (NN b)))"),
    # Exactly half is no majority.
    (["(S (NP (NN a)) (NN b))", "(S (NN a) (NP (NN b)))"], [0.5, 0.5], "(S (NN a) (NN b))"),
    # The leaves are those of the first tree, which the search found best.
    (["(S (NN a) (NN b))", "(S (VB a) (JJ b))"], [0.4, 0.6], "(S (NN a) (NN b))"),
])  # fmt: skip
def test_it_decides_as_by_hand(written: list[str], p: list[float], expected: str) -> None:
    trees = [read_tree(text) for text in written]
    assert write_tree(majority_tree(trees, np.log(p).tolist())) == f"(TOP {expected})"


def test_the_tree_of_an_empty_sentence_is_empty() -> None:
    assert majority_tree([Tree(())], [0.0]) == Tree(())
