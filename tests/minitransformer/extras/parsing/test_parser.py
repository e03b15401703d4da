"""Whatever the model: trees over the words come out, the best that the beam can find."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import SEEDS, ranked
from shared_data import treebank
from tree_draws import trees

from minitransformer import ModelConfig, Transformer, Translator, presets
from minitransformer.data.lexicon import makes_trees
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.parsing.brackets import DEEPEST, MOST_AT_ONCE, BracketConstraint, BracketVocabulary
from minitransformer.extras.parsing.linear import linearised, looks, tree_of
from minitransformer.extras.parsing.parser import PARSING, Parser
from minitransformer.extras.parsing.plain import plain
from minitransformer.extras.parsing.tree import Leaf, Tree
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.model.symbols import END
from minitransformer.text.translation import Translation

SYMBOLS = ["<unk>", "<s>", "</s>", "(S", ")S", "(NP", ")NP", "XX", "."]
VOCABULARY = BracketVocabulary(SYMBOLS)
MODEL = ModelConfig(vocabulary_size=len(SYMBOLS), n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)


@pytest.mark.parametrize("n_models", [1, 2])
@given(seed=SEEDS, words=st.sampled_from([["a"], ["a", "."], ["."], ["a", "b"]]))
@settings(max_examples=4)
def test_a_wide_beam_finds_the_best_tree_of_all(n_models: int, seed: int, words: list[str]) -> None:
    """Among all sequences up to 5 symbols that are trees, by trying each; by one model, or an ensemble."""
    models = [Transformer(MODEL, seed=seed + i, dtype="float64") for i in range(n_models)]
    for model in models:
        model.parameters.values *= 2.5
    source = [3] * len(words)
    config = SearchConfig(beam=150, alpha=0.3, n_best=3, max_extra_tokens=6 - len(source))
    found = beam_search(models, [source], config, BracketConstraint(VOCABULARY, [words]))[0]
    sequences = itertools.chain.from_iterable(itertools.product(range(3, 9), repeat=n) for n in range(6))
    tree_ids = []
    for ids in sequences:  # by another way than the search's
        symbols = [SYMBOLS[i] for i in ids]
        leaves = [symbol for symbol in symbols if symbol[0] not in "()"]
        if leaves == [looks(word) for word in words] and linearised(tree_of(symbols, words)) == symbols:
            tree_ids.append(ids)
    # what the greatest length cuts off is a hypothesis too, though no tree
    best = ranked(models, source, tree_ids, config)
    whole = [h for h in found if h.ids in set(tree_ids)]
    assert [h.ids for h in whole] == [h.ids for h in best[: len(whole)]]
    assert all(len(h.ids) == 5 for h in found if h not in whole)


@given(tree=trees)
def test_every_tree_may_be_found(tree: Tree) -> None:
    """None of its symbols is forbidden, if its punctuation looks like that; what is, would make it none."""
    words = [{"XX": "dog"}.get(symbol, symbol) for symbol in linearised(tree) if symbol[0] not in "()"]
    symbols = linearised(tree.with_leaves(Leaf(looks(word), word) for word in words))
    vocabulary = ["<unk>", "<s>", "</s>", *dict.fromkeys([*symbols, "(X", ")X", "XX", "."])]
    constraint = BracketConstraint(BracketVocabulary(vocabulary), [words])
    for symbol in symbols:
        forbidden = constraint.forbidden()[0]
        assert not forbidden[vocabulary.index(symbol)]
        assert forbidden[[END, vocabulary.index(")X")]].all()
        constraint.follow(np.array([0]), np.array([vocabulary.index(symbol)]))
    assert np.flatnonzero(~constraint.forbidden()[0][3:]).size == 0
    assert not constraint.forbidden()[0][END]


LEAVES = ["SYM", "POS", "#", "$", ",", ".", ":", "``", "''", "-LRB-", "-RRB-", "XX"]


def allowed_by(constraint: BracketConstraint) -> list[str]:
    return [symbol for symbol, never in zip(LEAVES, constraint.forbidden()[0][3:], strict=True) if not never]


@pytest.mark.parametrize(("word", "leaves"), [
    ("dog", ["SYM", "POS", "XX"]), ("5'", ["SYM", "POS", "XX"]), (",", [","]), ("!", ["."]),
    ("(", ["-LRB-"]), ("“", ["``"]),
    # As CRAFT has "–" for a colon, a symbol and a hyphen, and all have "'" for a possessive and a quotation mark.
    *((word, LEAVES) for word in ("–", "—", "-", "'", "#", ":", ";", "/", "~", "''")),
    # Foreign dollars have the tag "$" in the Penn Treebank, but are proper nouns to others.
    ("US$", LEAVES), ("C$", LEAVES),
])  # fmt: skip
def test_words_and_signs_have_leaves_of_their_kind_or_any_if_treebanks_differ(word: str, leaves: list[str]) -> None:
    constraint = BracketConstraint(BracketVocabulary([*SYMBOLS[:3], *LEAVES]), [[word]])
    assert allowed_by(constraint) == leaves


def test_a_leaf_stands_for_a_word_that_looks_like_it_or_for_any_if_none_does() -> None:
    constraint = BracketConstraint(BracketVocabulary([*SYMBOLS[:3], ".", "XX"]), [["a", ".", ","]])
    for token, allowed in ((4, [1]), (3, [0]), (4, [0, 1])):
        assert np.flatnonzero(~constraint.forbidden()[0][3:]).tolist() == allowed
        constraint.follow(np.array([0]), np.array([token]))


def test_a_word_of_the_lexicon_has_a_leaf_that_it_had_in_training() -> None:
    vocabulary = BracketVocabulary([*SYMBOLS[:3], *LEAVES], {20: [3, 5], 22: [7]})
    constraint = BracketConstraint(vocabulary, [["dog", "cat", ","], ["dog"]], [[20, 21, 22], [20, 21]])
    for leaf, allowed in ((5, ["SYM", "#"]), (4, ["SYM", "POS", "XX"]), (7, [","])):
        assert allowed_by(constraint) == allowed
        constraint.follow(np.array([0, 1]), np.array([leaf, leaf]))
    other = BracketConstraint(vocabulary, [["dog"]], [[20, 21]])  # two subwords are no word of the lexicon
    assert not other.forbidden()[0][LEAVES.index("POS") + 3]


@pytest.mark.parametrize("name", ["craft-treebank/dev.mrg.xz", "gum-const/dev.mrg.xz", "ptb-sample/dev.mrg.gz"])
def test_the_trees_of_treebanks_are_within_reach(name: str) -> None:
    """All but one in a hundred, whose tags are mistakes; of every twenty-second tree."""
    found = [tree for tree in map(plain, treebank(name)[::22]) if tree.walk]
    written = [linearised(tree, "tags") for tree in found]
    vocabulary = [*SYMBOLS[:3], *dict.fromkeys(itertools.chain.from_iterable(written))]
    brackets = BracketVocabulary(vocabulary)
    out_of_reach = 0
    for tree, symbols in zip(found, written, strict=True):
        constraint = BracketConstraint(brackets, [tree.words])
        for token in map(vocabulary.index, symbols):
            if constraint.forbidden()[0][token]:
                out_of_reach += 1
                break
            constraint.follow(np.array([0]), np.array([token]))
    assert out_of_reach <= len(found) / 100


def test_a_vocabulary_tree_ids_has_labelled_brackets_that_close() -> None:
    """A translation's may have brackets, too, but sentencepiece joins none of them with letters."""
    assert makes_trees([*SYMBOLS[:3], "(S", ")S", "XX"])
    for symbols in (["(", ")", "dog"], ["(S", ")NP"], ['("', ')"'], ["dog"]):
        assert not makes_trees([*SYMBOLS[:3], *symbols]), symbols


def test_brackets_do_not_open_for_ever() -> None:
    constraint = BracketConstraint(VOCABULARY, [["a"] * DEEPEST])
    opening, closing, leaf = map(SYMBOLS.index, ("(NP", ")NP", "XX"))
    for n_open in range(1, DEEPEST + 1):
        assert not constraint.forbidden()[0][opening]
        constraint.follow(np.array([0]), np.array([opening]))
        if n_open % MOST_AT_ONCE == 0 or n_open == DEEPEST:
            assert constraint.forbidden()[0][[opening, closing]].all()
            constraint.follow(np.array([0]), np.array([leaf]))
    assert constraint.forbidden()[0][opening]
    assert not constraint.forbidden()[0][closing]


def untrained_parser(symbols: str) -> Parser:
    pairs = [("the dog barks , twice .", symbols)] * 3
    tokenizer = Tokenizer.train(pairs, vocabulary_size=25, joint=False, symbols=True)
    config = dataclasses.replace(
        presets.tiny(tokenizer.n_target_words), source_vocabulary_size=tokenizer.n_source_words, tied="target"
    )
    return Parser(Translator(Transformer(config, seed=3), tokenizer))


@pytest.fixture(scope="module")
def parser() -> Parser:
    return untrained_parser("(S (NP XX )NP (VP XX )VP , . )S")


@pytest.mark.parametrize("beam", [1, 3])
def test_even_without_having_learnt_trees_are_over_the_words(parser: Parser, beam: int) -> None:
    sentences = [["the", "dog", "barks", "."], [], ["a\u00a0b", "-LRB-", "unheard-of", ","], ["."]]
    config = dataclasses.replace(PARSING, beam=beam, max_extra_tokens=20)
    found = parser.parse(sentences, config)
    assert [tree.words for tree in found] == sentences
    assert found == [parser.parse([words], config)[0] for words in sentences]


def test_labels_and_tags_may_hold_any_space_that_treebanks_do_not_separate_by() -> None:
    parser = untrained_parser("(N\u00a0P N\u3000N )N\u00a0P")
    (tree,) = parser.parse([["a", "b"]], dataclasses.replace(PARSING, beam=3, max_extra_tokens=20))
    assert {leaf.tag for leaf in tree.leaves} == {"N\u3000N"}
    assert {constituent.label for constituent in tree.constituents()} <= {"N\u00a0P"}


def test_the_papers_search_is_the_default(monkeypatch: pytest.MonkeyPatch, parser: Parser) -> None:
    seen: list[Any] = []
    found = parser.translator.n_best(["x"], SearchConfig(beam=1))
    monkeypatch.setattr(parser.translator, "n_best", lambda lines, config, **more: seen.append(config) or found)
    parser.parse([["x"]])
    with pytest.raises(TypeError, match=r"a list of words for each sentence, got one str: use \['x', 'y'\]"):
        parser.parse(["x y"])
    assert (seen[0].beam, seen[0].alpha, seen[0].max_extra_tokens) == (21, 0.3, 300)


def test_each_tree_of_the_beam_votes_with_its_probability(monkeypatch: pytest.MonkeyPatch, parser: Parser) -> None:
    """Two of three trees, with 0.6 of the probability, have a VP, though the best tree by score has none."""
    beam = [("(S XX XX )S", 0.4, -1.0), ("(S XX (VP XX )VP )S", 0.3, -2.0), ("(X XX (VP XX )VP )X", 0.3, -3.0)]
    found = [[Translation(text, float(np.log(p)) - 9, score, ()) for text, p, score in beam]]
    seen: list[SearchConfig] = []
    monkeypatch.setattr(parser.translator, "n_best", lambda lines, config, **more: seen.append(config) or found)
    (tree,) = parser.parse([["a", "b"]], dataclasses.replace(PARSING, beam=3), majority=True)
    assert linearised(tree) == ["(S", "XX", "(VP", "XX", ")VP", ")S"]
    assert seen == [dataclasses.replace(PARSING, beam=3, n_best=3)]
