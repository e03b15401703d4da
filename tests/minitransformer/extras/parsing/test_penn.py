"""Penn brackets: what is read is what was written, also without functional tags and traces; what is none is named."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from tree_draws import trees, trees_of_treebanks

from minitransformer.data.survey import CorpusError
from minitransformer.extras.parsing.penn import read_candidates, read_gold_trees, read_tree, read_trees, write_tree
from minitransformer.extras.parsing.plain import category, plain
from minitransformer.extras.parsing.tree import Closing, Constituent, Leaf, Opening, Tree

BARKS = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"
PRETTY = """\
( (S
    (NP-SBJ (DT the)
      (NN dog) )
    (VP (VBZ barks) ))
)  (NP (NN
  Cloning))

( (X (-LRB- -LRB-)))
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_tree_is_the_walk_around_it() -> None:
    tree = read_tree(BARKS)
    assert tree.walk[:5] == (Opening("S"), Opening("NP"), Leaf("DT", "the"), Leaf("NN", "dog"), Closing("NP"))
    assert tree.words == ["the", "dog", "barks"]
    assert list(tree.constituents()) == [Constituent("NP", 0, 2), Constituent("VP", 2, 3), Constituent("S", 0, 3)]
    assert write_tree(tree) == f"(TOP {BARKS})"


@given(trees | trees_of_treebanks)
def test_what_is_written_is_read_again(tree: Tree) -> None:
    assert read_tree(write_tree(tree)).walk == (Opening("TOP"), *tree.walk, Closing("TOP"))


def test_trees_may_take_several_lines_or_share_one(tmp_path: Path) -> None:
    plain, packed = written(tmp_path / "trees.mrg", PRETTY), tmp_path / "trees.mrg.gz"
    packed.write_bytes(gzip.compress(PRETTY.encode()))
    for path in (plain, packed):
        assert [tree.words for tree in read_trees(path)] == [["the", "dog", "barks"], ["Cloning"], ["-LRB-"]]
    first = next(read_trees(plain))
    assert first.walk[:3] == (Opening(""), Opening("S"), Opening("NP-SBJ"))


def test_no_tree_is_too_deep(tmp_path: Path) -> None:
    depth = 20_000
    text = "(NP " * depth + "(NN x)" + ")" * depth
    (tree,) = read_trees(written(tmp_path / "deep", text))
    assert len(tree.walk) == 2 * depth + 1
    assert write_tree(tree) == f"(TOP {text})"


def test_blanks_within_a_leaf_become_underscores_and_other_spaces_stay() -> None:
    assert read_tree("(NP (NN  Xpd \tTTD ) (NN a\u00a0b))").words == ["Xpd_TTD", "a\u00a0b"]


def test_brackets_within_words_are_written_so_that_they_can_be_read() -> None:
    assert write_tree(Tree((Leaf("NN", "f(x)"),))) == "(TOP (NN f-LRB-x-RRB-))"


@pytest.mark.parametrize(("text", "message"), [
    ("(S (NN a))\n(S (NN b)\n(NP (NN c))\n",
        r"bad, line 3: the file ends within the tree that begins in line 2; brackets that are not closed: 1"),
    ("(S (NN a)))\n", r"bad, line 1: '\)' without '\('"),
    ("(S (NN a))\n(S\nword\n(NN a))\n", r"bad, lines 2 to 4: 'word' is outside of a leaf's brackets"),
    ("word\n", r"bad, line 1: 'word' is outside"),
    ("(S (NN))\n", r"bad, line 1: \(NN\): a bracket without a word; expected Penn brackets"),
    ("()\n", r"bad, line 1: \(\): a bracket without a word"),
    ("(S (NN a (NN b)))\n", r"bad, line 1: 'a' is outside"),
    (")(\n", r"bad, line 1: '\)' without '\('"),
])  # fmt: skip
def test_what_is_no_tree_is_named_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        list(read_trees(written(tmp_path / "bad", text)))


def test_line_by_line_an_empty_line_is_an_empty_tree_and_a_line_may_hold_a_row(tmp_path: Path) -> None:
    path = written(tmp_path / "lines", "(S (NN a))\n\n(NN b) (NN c)\n(())\n()\n")
    trees = [tree for tree in read_candidates(path) if isinstance(tree, Tree)]
    assert [tree.words for tree in trees] == [["a"], [], ["b", "c"], [], []]


@pytest.mark.parametrize(("line", "message"), [
    ("(S (NN a)", "brackets that are not closed: 1"), ("(S (NN :)) (NN b))", r"'\)' without '\('"),
    ("(S (NP) (NN a))", r"\(NP\): a bracket without a word"),
])  # fmt: skip
def test_a_parsers_line_that_is_no_tree_is_an_error_of_its_sentence(tmp_path: Path, line: str, message: str) -> None:
    first, error, last = read_candidates(written(tmp_path / "lines", f"(S (NN a))\n{line}\n(S (NN c))\n"))
    assert isinstance(first, Tree)
    assert isinstance(last, Tree)
    assert isinstance(error, CorpusError)
    assert re.fullmatch(f".*lines, line 2: {message}; expected complete trees in one line", str(error))


def test_gold_trees_stand_in_lines_or_over_several(tmp_path: Path) -> None:
    in_lines = written(tmp_path / "lines", "(S (NN a))\n\n(NN b) (NN c)\n")
    assert [tree.words for tree in read_gold_trees(in_lines)] == [["a"], [], ["b", "c"]]
    as_published = written(tmp_path / "mrg", "\n( (S \n    (NN a) )\n  )\n\n( (NP (NN b)\n (NN c)) )\n")
    assert [tree.words for tree in read_gold_trees(as_published)] == [["a"], ["b", "c"]]
    with pytest.raises(CorpusError, match=r"cut, line 2: the file ends within the tree that begins in line 2"):
        list(read_gold_trees(written(tmp_path / "cut", "(S (NN a))\n(S (NN b)\n")))


@pytest.mark.parametrize("walk", [(Opening("S"),), (Closing("S"),), (Opening("S"), Leaf("NN", "a"), Closing("NP"))])
def test_a_walk_that_does_not_match_is_no_tree(walk: tuple[Opening | Closing | Leaf, ...]) -> None:
    with pytest.raises(ValueError, match=r"Tree: "):
        Tree(walk)


def test_other_leaves_must_be_as_many() -> None:
    tree = read_tree(BARKS)
    assert tree.with_leaves(Leaf("XX", word.upper()) for word in tree.words).words == ["THE", "DOG", "BARKS"]
    with pytest.raises(ValueError, match="fewer"):
        tree.with_leaves(tree.leaves[:2])
    with pytest.raises(ValueError, match="more"):
        tree.with_leaves([*tree.leaves, Leaf("NN", "x")])


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
