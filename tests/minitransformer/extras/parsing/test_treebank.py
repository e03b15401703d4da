"""Treebanks as pairs of words and symbols, and what of them becomes tokens."""

from pathlib import Path
from typing import Any

import pytest
from toy_treebank import write_toy_treebank

from minitransformer.config import ConfigError, DataConfig
from minitransformer.data.corpus import text_files
from minitransformer.data.prepare import prepare
from minitransformer.data.survey import CorpusError
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.parsing.task import ParsingTask

TREES = """\
( (S (NP-SBJ-1 (NNP Mr.) (NNP Ox)) (VP (VBZ barks) (NP (-NONE- *T*-1))) (. .)) )
( (NP (-NONE- *)) )
( (NP (NN 10%) (-LRB- -LRB-)) )
"""


def config_of(folder: Path, **fields: Any) -> DataConfig:
    trees = {"train_trees": ("t.mrg",), "validation_trees": ("v.mrg",)}
    sizes: dict[str, Any] = {"vocabulary_size": 60, "joint_vocabulary": False}
    return DataConfig(**({"raw": folder} | trees | sizes | fields))


def test_pairs_are_words_and_symbols(tmp_path: Path) -> None:
    for name in ("t.mrg", "v.mrg"):
        (tmp_path / name).write_text(TREES, encoding="utf-8")
    corpus = ParsingTask().corpus(config_of(tmp_path))
    pairs = [("Mr. Ox barks .", "(S (NP XX XX )NP (VP XX )VP . )S"), ("10% -LRB-", "(NP XX -LRB- )NP")]
    assert list(corpus.train()) == list(corpus.train()) == list(corpus.validation()) == pairs
    assert list(corpus.test()) == []
    both = ParsingTask().corpus(config_of(tmp_path, train_trees=("t.mrg", "v.mrg")))
    assert [both.location(i) for i in (1, 2)] == ["t.mrg, tree 2", "v.mrg, tree 1"]
    with pytest.raises(IndexError):
        both.location(4)
    tagged = ParsingTask().corpus(config_of(tmp_path, leaf_symbols="tags", train_trees=("t.mrg", "v.mrg")))
    assert [target for _, target in tagged.train()] == ["(S (NP NNP NNP )NP (VP VBZ )VP . )S", "(NP NN -LRB- )NP"] * 2


@pytest.mark.parametrize(("kind", "size"), [("bpe", 60), ("word", 20)])
def test_each_symbol_is_its_own_token_and_words_are_subwords_or_tokens(kind: str, size: int, tmp_path: Path) -> None:
    write_toy_treebank(tmp_path / "t.mrg", 300, seed=1)
    write_toy_treebank(tmp_path / "v.mrg", 20, seed=2)
    config = config_of(tmp_path, tokenizer=kind, vocabulary_size=size)
    assert list(text_files(config)) == ["t.mrg", "v.mrg"]
    data = prepare(config, tmp_path / "data", open_corpus=ParsingTask().corpus)
    assert data.manifest["files"].keys() == {"t.mrg", "v.mrg"}
    assert (data.manifest["train_pairs"], data.manifest["validation_pairs"]) == (300, 20)
    assert data.manifest["target_words"] == 3 + len(["(S", ")S", "(NP", ")NP", "(VP", ")VP", "(PP", ")PP", "XX", "."])
    store = data.stores["validation"].read()
    for i, (words, symbols) in enumerate(data.text("validation")):
        source, target = store.pair(i)
        assert len(source) == len(words.split()) if kind == "word" else len(source) >= len(words.split())
        assert len(target) == len(symbols.split())
        assert data.tokenizer.decode_target([target]) == [symbols]


def test_symbols_are_taken_as_they_stand() -> None:
    """Not normalised, not cut at brackets or digits; what was never seen is unknown."""
    symbols = "(NP -LRB- `` '' ½ X12 )NP"
    tokenizer = Tokenizer.train([("a b c d e f", symbols)] * 5, vocabulary_size=15, joint=False, symbols=True)
    ids = tokenizer.encode_target([symbols, "(NP (WHNP )NP"])
    assert tokenizer.decode_target(ids[:1]) == [symbols]
    assert sorted(ids[0]) == list(range(3, 10))
    assert ids[1] == [ids[0][0], 0, ids[0][-1]]


def test_a_symbol_of_a_very_long_tree_is_a_token_too() -> None:
    """Longer lines than sentencepiece trains on, whose symbols would be unknown."""
    long = " ".join(["(S", *["XX"] * 10_000, "RARE", ")S"])
    pairs = [("a b c d e f", "(S XX )S"), ("a b", long)]
    tokenizer = Tokenizer.train(pairs, vocabulary_size=15, joint=False, symbols=True)
    assert sorted(tokenizer.target_symbols[3:]) == sorted(["(S", ")S", "XX", "RARE"])


def test_held_out_trees_that_are_also_trained_on_are_counted(tmp_path: Path) -> None:
    write_toy_treebank(tmp_path / "t.mrg", 300, seed=1)
    other = "( (S (NP (NN dog)) (VP (VBZ sees) (NP (NN dog)) (NP (NN dog)))) )\n"
    trees = (tmp_path / "t.mrg").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "v.mrg").write_text(other + trees[7].replace("NP-SBJ", "NP-OBJ") + other, encoding="utf-8")
    data = prepare(config_of(tmp_path, vocabulary_size=40), tmp_path / "data", open_corpus=ParsingTask().corpus)
    assert data.manifest["validation_in_training"] == 1
    assert data.manifest["train_pairs"] == 300


@pytest.mark.parametrize(("fields", "message"), [
    ({"validation_trees": ()}, "name both data.train_trees and data.validation_trees"),
    ({"train_trees": ()}, "name both data.train_trees and data.validation_trees"),
    ({"train_source": ("a",), "train_target": ("b",)}, "or text, not one of each"),
    ({"joint_vocabulary": True}, "set data.joint_vocabulary = false"),
])  # fmt: skip
def test_options_that_make_no_treebank_are_named(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(tmp_path, **fields)


def test_broken_files_are_named_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "t.mrg").write_text(TREES, encoding="utf-8")
    for text, message in (
        (None, "v.mrg.*not found"), ("( (NP (-NONE- *)) )\n", "v.mrg: holds no trees"),
        ("(S (NN a))\n(S\n", "v.mrg, line 2: the file ends within the tree that begins in line 2"),
    ):  # fmt: skip
        if text is not None:
            (tmp_path / "v.mrg").write_text(text, encoding="utf-8")
        with pytest.raises(CorpusError, match=message):
            ParsingTask().corpus(config_of(tmp_path))
