"""Trees as symbols and back: exactly, and from sequences that tell no tree."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import treebank
from tree_draws import LABELS, WORDS, trees

from minitransformer.config import LeafSymbols
from minitransformer.extras.parsing.linear import leaves_of, linearised, looks, tree_of
from minitransformer.extras.parsing.penn import read_tree, write_tree
from minitransformer.extras.parsing.plain import plain
from minitransformer.extras.parsing.tree import Constituent, Tree

TREEBANKS = ["craft-treebank/dev.mrg.xz", "gum-const/dev.mrg.xz", "handparsed/train.mrg.gz", "ptb-sample/dev.mrg.gz"]
LARGE = ["craft-treebank/train.mrg.xz", "gum-const/train.mrg.xz", "ptb-sample/train.mrg.gz"]

GO = "(S (VP (VB Go)) (. .))"
DOG = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"

symbols = st.lists(
    st.sampled_from([*(f"({label}" for label in LABELS), *(f"){label}" for label in LABELS), "XX", ",", ".", "-LRB-"])
)
sentences = st.lists(st.sampled_from([*WORDS, ",", ".", "-LRB-", "``"]), max_size=8)


def test_trees_of_the_source_are_written_as_there() -> None:
    """Figures 1 and 2 of Vinyals et al. 2015; the second with its tags made alike."""
    assert " ".join(linearised(read_tree(GO))) == "(S (VP XX )VP . )S"
    assert " ".join(linearised(read_tree(DOG), "tags")) == "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"
    assert " ".join(linearised(read_tree(DOG))) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S"
    kinds: tuple[LeafSymbols, ...] = ("normalised", "tags")
    assert tuple(leaves_of(linearised(read_tree(DOG), leaves)) for leaves in kinds) == kinds


@given(trees)
def test_symbols_tell_the_tree(tree: Tree) -> None:
    assert tree_of(linearised(tree, "tags"), tree.words) == tree
    again = tree_of(linearised(tree), tree.words)
    assert list(again.constituents()) == list(tree.constituents())
    assert again.words == tree.words
    assert linearised(again) == linearised(tree)


@given(symbols, sentences)
def test_whatever_a_model_says_a_tree_over_the_words_comes_out(sequence: list[str], words: list[str]) -> None:
    tree = tree_of(sequence, words)
    assert tree.words == words
    assert all(c.start < c.end for c in tree.constituents())
    assert {c.label for c in tree.constituents()} <= {symbol[1:] for symbol in sequence}
    assert read_tree(write_tree(tree)).words == words


@pytest.mark.parametrize(("sequence", "words", "expected"), [
    ("(S (NP XX", "dog barks", "(S (NP (XX dog) (XX barks)))"),  # not closed; a word without a leaf
    ("(S XX )S )S )NP XX", "dog barks", "(S (XX dog)) (XX barks)"),  # closed too often
    ("(S (NP (VP XX )NP XX )S", "dog barks", "(S (NP (VP (XX dog))) (XX barks))"),  # closes what stands within
    ("(S (NP )NP XX )S", "dog", "(S (XX dog))"),  # around nothing
    ("(S (NP XX XX )NP XX )S", "dog", "(S (NP (XX dog)))"),  # surplus leaves
    ("(S (NP XX )NP . )S", "the big dog .", "(S (NP (XX the) (XX big) (XX dog)) (. .))"),
    ("(S (NP XX XX XX )NP , XX )S", "dog , cat", "(S (NP (XX dog)) (, ,) (XX cat))"),  # the comma stays a comma
    ("(S XX )S", ", dog", "(S (, ,) (XX dog))"),
    # better unlike than alone
    ("(S (NP XX )NP (PP , )PP XX )S", "a b c d", "(S (NP (XX a)) (PP (, b)) (XX c) (XX d))"),
    ("(S (NP , )NP (VP NN )VP )S", "dog", "(S (VP (NN dog)))"),  # a tag stands for a word as XX does
    ("", "dog .", "(XX dog) (. .)"), ("(S XX )S", "", ""),
])  # fmt: skip
def test_sequences_that_tell_no_tree_are_mended(sequence: str, words: str, expected: str) -> None:
    assert tree_of(sequence.split(), words.split()) == read_tree(expected)


@pytest.mark.parametrize(
    ("word", "symbol"),
    [(",", ","), ("?", "."), ("--", ":"), ("(", "-LRB-"), ("]", "-RRB-"), ('"', "''"), ("$", "$"), ("U.S.", "XX")],
)
def test_punctuation_looks_like_its_tag(word: str, symbol: str) -> None:
    assert looks(word) == symbol


def test_a_very_deep_tree_goes_through() -> None:
    tree = read_tree("(NP " * 5_000 + "(NN x)" + ")" * 5_000)
    assert tree_of(linearised(tree, "tags"), ["x"]) == tree


def test_a_line_of_any_length_is_mended_in_little_memory() -> None:
    """Each leaf and each word of it would be compared with all others."""
    words = ["dog"] * 10_000
    tracemalloc.start()
    try:
        tree = tree_of(["(S", *["XX"] * 30, ")S"], words)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tree.words == words
    assert list(tree.constituents()) == [Constituent("S", 0, len(words))]
    assert peak < 5e6


@pytest.mark.parametrize("name", [*TREEBANKS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_every_tree_of_a_treebank_goes_there_and_back(name: str) -> None:
    trees = [plain(raw) for raw in treebank(name)]
    assert len(trees) > 200
    for tree in trees:
        assert tree_of(linearised(tree, "tags"), tree.words) == tree
        assert linearised(tree_of(linearised(tree), tree.words)) == linearised(tree)
    for tree in trees[::3]:
        assert plain(read_tree(write_tree(tree))) == tree
