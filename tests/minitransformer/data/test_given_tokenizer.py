"""The tokenizer of a model on new text: which characters it lacks, and what changes when they are appended."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_sentences import sentencepiece_model

from minitransformer.config import ConfigError, DataConfig
from minitransformer.data.corpus import Pair
from minitransformer.data.given_tokenizer import GivenTokenizer, with_pieces
from minitransformer.data.survey import CorpusError
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import UNKNOWN

OLD = [("the red house", "das rote Haus"), ("the old tree", "der alte Baum"), ("a tree", "ein Baum")] * 20
NEW = [("the café", "das Café"), ("a house No5", "ein Haus No5")] * 10
ADDED = "5CNcfé"  # what no line of OLD has


def corpus_of(pairs: list[Pair]) -> Any:
    """A corpus of which only training text is read."""
    return SimpleNamespace(train=lambda: iter(pairs))


@pytest.mark.parametrize(("kind", "size"), [("bpe", 34), ("unigram", 26)])
def test_old_text_keeps_its_ids_and_new_characters_get_the_next_ones(kind: Any, size: int) -> None:
    old = Tokenizer.train(OLD, vocabulary_size=size, kind=kind)
    new, added = GivenTokenizer(old, extends=True).for_text(corpus_of(NEW))
    assert added == ADDED
    assert (old.kind, new.kind) == (kind, kind)
    for side in (0, 1):
        lines = [pair[side] for pair in OLD]
        assert new.encode_source(lines) == old.encode_source(lines)
    assert [new.target.id_to_piece(size + i) for i in range(6)] == list(ADDED)
    assert new.n_source_words == new.n_target_words == size + 6
    for text in ("das Café", "ein Haus No5"):
        assert UNKNOWN in old.encode_target([text])[0]
        assert UNKNOWN not in new.encode_target([text])[0]
        assert new.decode_target(new.encode_target([text])) == [text]


def test_an_extended_tokenizer_can_be_extended_again_and_is_saved_like_others(tmp_path: Path) -> None:
    old = Tokenizer.train(OLD, vocabulary_size=34)
    once, _ = GivenTokenizer(old, extends=True).for_text(corpus_of(NEW))
    twice, added = GivenTokenizer(once, extends=True).for_text(corpus_of([("the café", "das ☃")]))
    assert added == "☃"
    twice.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.n_target_words == 41
    assert loaded.encode_target(["das ☃"])[0][-1] == 40


def test_sentencepiece_reads_an_extended_model_as_one_that_it_has_written() -> None:
    protobuf = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    old = Tokenizer.train(OLD, vocabulary_size=34).models[0]
    model = protobuf.ModelProto()
    model.ParseFromString(with_pieces(old, ["é" * 200, "x"]))  # 400 bytes: a length of two groups of 7 bits
    assert [piece.piece for piece in model.pieces][34:] == ["é" * 200, "x"]
    assert model.trainer_spec.vocab_size == 36
    assert {piece.score for piece in model.pieces[34:]} == {min(piece.score for piece in model.pieces[3:34])}


def test_without_new_characters_or_with_bytes_for_them_nothing_is_changed(caplog: pytest.LogCaptureFixture) -> None:
    old = Tokenizer.train(OLD, vocabulary_size=34)
    new, added = GivenTokenizer(old, extends=True).for_text(corpus_of(OLD[:3]))
    assert (new.models, added) == (old.models, "")
    lines = [line for pair in OLD for line in pair]
    model = sentencepiece_model(lines, vocab_size=300, model_type="bpe", byte_fallback=True)
    with caplog.at_level(logging.WARNING):
        given = GivenTokenizer(Tokenizer(model)).for_text(corpus_of(NEW))
    assert (given[0].models, given[1], caplog.messages) == ((model,), None, [])


def test_a_tokenizer_of_whole_words_is_not_extended() -> None:
    words = sentencepiece_model([line for pair in OLD for line in pair], vocab_size=10, model_type="word")
    with pytest.raises(CorpusError, match=r"init_extend_vocabulary: .* whole words.*; set it to false"):
        GivenTokenizer(Tokenizer(words), extends=True).for_text(corpus_of(NEW))


def test_trees_are_not_extended(tmp_path: Path) -> None:
    given = GivenTokenizer(Tokenizer.train(OLD, vocabulary_size=34, joint=False), extends=True)
    trees = DataConfig(
        train_trees=("a",),
        validation_trees=("b",),
        joint_vocabulary=False,
        vocabulary_size=given.tokenizer.n_source_words,
    )
    with pytest.raises(ConfigError, match="init_extend_vocabulary is for text: set it to false for a treebank"):
        given.check(trees, tmp_path)
