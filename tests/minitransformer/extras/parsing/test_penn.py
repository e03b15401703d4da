"""Trees in brackets and as sequences of symbols, and the words of sentences."""

import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_data import treebank
from tree_draws import LABELS, WORDS, trees, trees_of_treebanks

from minitransformer.config import LeafSymbols
from minitransformer.data.survey import CorpusError
from minitransformer.extras.parsing.linear import leaves_of, linearised, looks, tree_of
from minitransformer.extras.parsing.penn import read_candidates, read_gold_trees, read_tree, read_trees, write_tree
from minitransformer.extras.parsing.plain import plain
from minitransformer.extras.parsing.tree import Closing, Constituent, Leaf, Opening, Tree
from minitransformer.extras.parsing.words import Splitting, split_words

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
    depth = 20_000  # each outermost bracket looked for the end of the whole: minutes
    text = "(NP " * depth + "(NN x)" + ")" * depth
    (tree,) = read_trees(written(tmp_path / "deep", text))
    assert len(tree.walk) == 2 * depth + 1
    assert write_tree(tree) == f"(TOP {text})"
    assert tree_of(linearised(tree, "tags"), ["x"]) == tree
    assert plain(read_tree("( " * depth + "(NP (NN x))" + ")" * depth)) == read_tree("(NP (NN x))")


def test_blanks_within_a_leaf_become_underscores_other_spaces_stay_and_brackets_are_written_as_signs() -> None:
    assert read_tree("(NP (NN  Xpd \tTTD ) (NN a\u00a0b))").words == ["Xpd_TTD", "a\u00a0b"]
    assert write_tree(Tree((Leaf("NN", "f(x)"),))) == "(TOP (NN f-LRB-x-RRB-))"


@pytest.mark.parametrize(("text", "message"), [
    ("(S (NN a))\n(S (NN b)\n(NP (NN c))\n",
        r"bad, line 3: the file ends within the tree that begins in line 2; brackets that are not closed: 1"),
    ("(S (NN a)))\n", r"bad, line 1: '\)' without '\('"),
    ("(S (NN a))\n(S\nword\n(NN a))\n", r"bad, lines 2 to 4: 'word' is outside of a leaf's brackets"),
    ("(S (NN))\n", r"bad, line 1: \(NN\): a bracket without a word; expected Penn brackets"),
    ("()\n", r"bad, line 1: \(\): a bracket without a word"),
    ("(S (NN a (NN b)))\n", r"bad, line 1: 'a' is outside"),
])  # fmt: skip
def test_what_is_no_tree_is_named_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        list(read_trees(written(tmp_path / "bad", text)))


def test_a_line_without_a_tree_is_an_empty_tree_or_an_error_of_its_own_sentence(tmp_path: Path) -> None:
    lines = "(S (NN a))\n\n(NN b) (NN c)\n(())\n()\n(S (NN a)\n(S (NN d))\n"
    *trees, error, last = read_candidates(written(tmp_path / "lines", lines))
    assert [tree.words for tree in (*trees, last) if isinstance(tree, Tree)] == [["a"], [], ["b", "c"], [], [], ["d"]]
    expected = "lines, line 6: brackets that are not closed: 1; expected complete trees in one line"
    assert str(error) == f"{tmp_path}/{expected}"


def test_gold_trees_stand_in_lines_or_over_several(tmp_path: Path) -> None:
    in_lines = written(tmp_path / "lines", "(S (NN a))\n\n(NN b) (NN c)\n")
    assert [tree.words for tree in read_gold_trees(in_lines)] == [["a"], [], ["b", "c"]]
    as_published = written(tmp_path / "mrg", "\n( (S \n    (NN a) )\n  )\n\n( (NP (NN b)\n (NN c)) )\n")
    assert [tree.words for tree in read_gold_trees(as_published)] == [["a"], ["b", "c"]]
    with pytest.raises(CorpusError, match=r"cut, line 2: the file ends within the tree that begins in line 2"):
        list(read_gold_trees(written(tmp_path / "cut", "(S (NN a))\n(S (NN b)\n")))


def test_a_walk_that_does_not_match_is_no_tree_and_other_leaves_must_be_as_many() -> None:
    for walk in ((Opening("S"),), (Closing("S"),), (Opening("S"), Leaf("NN", "a"), Closing("NP"))):
        with pytest.raises(ValueError, match=r"Tree: "):
            Tree(walk)
    tree = read_tree(BARKS)
    assert tree.with_leaves(Leaf("XX", word.upper()) for word in tree.words).words == ["THE", "DOG", "BARKS"]
    with pytest.raises(ValueError, match="fewer"):
        tree.with_leaves(tree.leaves[:2])
    with pytest.raises(ValueError, match="more"):
        tree.with_leaves([*tree.leaves, Leaf("NN", "x")])


@pytest.mark.parametrize(("treebank", "expected"), [
    ("( (S (NP-SBJ-1 (NN a)) (VP (VB b) (NP (-NONE- *-1)))))", "(S (NP (NN a)) (VP (VB b)))"),
    ("(S (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .))", "(S (VP (VBD said)) (. .))"),
    ("(TOP (S (-LRB- -LRB-) (NN x)))", "(S (-LRB- -LRB-) (NN x))"),
    ("(ROOT (NP=2 (NN x) (NP-TMP=3 (NN y))))", "(NP (NN x) (NP (NN y)))"),
    ("(S (ADVP|PRT (PRP$ x)) (= y))", "(S (ADVP|PRT (PRP$ x)) (= y))"),
    ("( (NP (NN x)) (. .))", "(NP (NN x)) (. .)"),  # a row of two, once the outermost bracket is gone
    ("(TOP (NP (NN x))) (TOP (NP (NN y)))", "(TOP (NP (NN x))) (TOP (NP (NN y)))"),  # two trees, none around both
    ("( (NP (-NONE- *)))", ""),
])  # fmt: skip
def test_what_parsers_are_judged_on_is_left(treebank: str, expected: str) -> None:
    assert plain(read_tree(treebank)) == read_tree(expected)


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


TREEBANKS = ["craft-treebank/dev.mrg.xz", "gum-const/dev.mrg.xz", "handparsed/train.mrg.gz", "ptb-sample/dev.mrg.gz"]
LARGE = ["craft-treebank/train.mrg.xz", "gum-const/train.mrg.xz", "ptb-sample/train.mrg.gz"]

GO = "(S (VP (VB Go)) (. .))"
DOG = "(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))"

symbols = st.lists(
    st.sampled_from([*(f"({label}" for label in LABELS), *(f"){label}" for label in LABELS), "XX", ",", ".", "-LRB-"])
)
sentences = st.lists(st.sampled_from([*WORDS, ",", ".", "-LRB-", "``"]), max_size=8)


def test_punctuation_looks_like_its_tag() -> None:
    words = [",", "?", "--", "(", "]", '"', "$", "U.S."]
    assert list(map(looks, words)) == [",", ".", ":", "-LRB-", "-RRB-", "''", "$", "XX"]


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


def test_a_line_of_any_length_is_mended_in_little_memory() -> None:
    """Each leaf and each word of it would be compared with all others."""
    words = ["dog"] * 10_000
    tracemalloc.start()
    try:
        tree = tree_of(["(S", *["XX"] * 30, ")S"], words)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert tree == Tree((Opening("S"), *(Leaf("XX", "dog") for _ in words), Closing("S")))


@pytest.mark.parametrize("name", [*TREEBANKS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_every_tree_of_a_treebank_goes_there_and_back(name: str) -> None:
    trees = [plain(raw) for raw in treebank(name)]
    assert len(trees) > 200
    for tree in trees:
        assert tree_of(linearised(tree, "tags"), tree.words) == tree
        assert linearised(tree_of(linearised(tree), tree.words)) == linearised(tree)
    for tree in trees[::3]:
        assert plain(read_tree(write_tree(tree))) == tree


@pytest.mark.parametrize(("sentence", "words"), [
    ("They weren't fed; \"why?\" he'd say...", "They were n't fed ; `` why ? '' he 'd say ..."),
    ("Mr. Smith's $5,000 can't go -- ok.", "Mr. Smith 's $ 5,000 ca n't go -- ok ."),
    ("(See Fig. 1A, p<0.05.)", "-LRB- See Fig. 1A , p < 0.05 . -RRB-"),
    ("The dogs' bowl: ratio 1:2,000, etc.", "The dogs ' bowl : ratio 1:2,000 , etc ."),
    ("“It’s 3.5%”, I cannot [1].", "`` It 's 3.5 % '' , I can not [ 1 ] ."),
    ("I've ‘seen’ it: they're here, I'll go", "I 've `` seen ' it : they 're here , I 'll go"),
    ("'Twas d'ye gonna, more'n 'tis wanna", "'T was d' ye gon na , more 'n 't is wan na"),
    ("Gimme and lemme, gotta it's 'this' isn't", "Gim me and lem me , got ta it 's 'this ' is n't"),
    ("cannots gonnas wannabe twas atis", "cannots gonnas wannabe twas atis"),
    ("", ""),
])  # fmt: skip
def test_sentences_are_split_as_in_the_penn_treebank(sentence: str, words: str) -> None:
    assert split_words(sentence) == words.split()
    assert split_words(f"{sentence}\n") == words.split()


def test_words_that_are_split_already_stay_but_for_brackets_and_hyphens_stand_apart_in_ontonotes() -> None:
    words = split_words("TNF-α and/or IL-2 -- well-", "ontonotes")
    assert " ".join(words) == "TNF - α and / or IL - 2 -- well-"
    assert split_words("the U.S. 's ( dog. )", "blanks") == ["the", "U.S.", "'s", "-LRB-", "dog.", "-RRB-"]
    assert split_words(" 10\u00a0mg\tof  it\r\n", "blanks") == ["10\u00a0mg", "of", "it"]
    with pytest.raises(ValueError, match="expected one of"):
        split_words("a", "moses")  # type: ignore[arg-type]


@given(st.text(), st.sampled_from(["penn", "ontonotes", "blanks"]))
def test_every_line_has_words_without_blanks(line: str, splitting: Splitting) -> None:
    assert all(word and not set(word) & set(" ()\n") for word in split_words(line, splitting))
