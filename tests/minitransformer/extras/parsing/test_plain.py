"""Trees without functional tags, traces and what they leave empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from tree_draws import trees, trees_of_treebanks

from minitransformer.extras.parsing.penn import read_tree, write_tree
from minitransformer.extras.parsing.plain import category, plain
from minitransformer.extras.parsing.tree import Closing, Opening, Tree


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("NP-SBJ", "NP"), ("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("NP-TMP=3", "NP"), ("S", "S"), ("PRP$", "PRP$"),
        ("-LRB-", "-LRB-"), ("-NONE-", "-NONE-"), ("ADVP|PRT", "ADVP|PRT"), ("", ""), ("=", "="),
    ],
)  # fmt: skip
def test_functional_tags_go_and_brackets_stay(label: str, expected: str) -> None:
    assert category(label) == expected


@pytest.mark.parametrize(("treebank", "expected"), [
    ("( (S (NP-SBJ-1 (NN a)) (VP (VB b) (NP (-NONE- *-1)))))", "(S (NP (NN a)) (VP (VB b)))"),
    ("(S (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))", "(S (VP (VBD said)) (. .))"),
    ("(TOP (S (-LRB- -LRB-) (NN x)))", "(S (-LRB- -LRB-) (NN x))"),
    ("(ROOT (NP=2 (NN x)))", "(NP (NN x))"),
    ("( (NP (NN x)) (. .))", "(NP (NN x)) (. .)"),  # a row of two, once the outermost bracket is gone
    ("(TOP (NP (NN x))) (TOP (NP (NN y)))", "(TOP (NP (NN x))) (TOP (NP (NN y)))"),  # two trees, none around both
    ("( (NP (-NONE- *)))", ""),
])  # fmt: skip
def test_what_parsers_are_judged_on_is_left(treebank: str, expected: str) -> None:
    assert plain(read_tree(treebank)) == read_tree(expected)


def test_however_many_outermost_brackets_there_are_they_go_in_one_pass() -> None:
    depth = 20_000  # each looked for the end of the whole: minutes
    assert plain(read_tree("( " * depth + "(NP (NN x))" + ")" * depth)) == read_tree("(NP (NN x))")


@given(trees_of_treebanks)
def test_words_stay_and_nothing_is_left_to_take_away(tree: Tree) -> None:
    cleaned = plain(tree)
    assert cleaned.words == [leaf.word for leaf in tree.leaves if leaf.tag != "-NONE-"]
    assert plain(cleaned) == cleaned
    assert all(c.start < c.end and "-" not in c.label for c in cleaned.constituents())


@given(trees)
def test_a_plain_tree_is_left_alone_within_any_outermost_bracket(tree: Tree) -> None:
    assert plain(tree) == tree
    for label in ("", "TOP", "ROOT"):
        assert plain(Tree((Opening(label), *tree.walk, Closing(label)))) == tree
    assert plain(read_tree(write_tree(tree))) == tree
