"""Subwords: text to ids and back, and what becomes of a model file."""

import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_sentences import sentencepiece_model

from minitransformer.config import ConfigError, DataConfig, TokenizerType
from minitransformer.data.given_tokenizer import GivenTokenizer, with_pieces
from minitransformer.data.survey import CorpusError, Pair
from minitransformer.data.tokenizer import Tokenizer, _sample
from minitransformer.model.symbols import UNKNOWN
from minitransformer.system.files import CheckpointError

ENGLISH = """the a small red old green dog cat house garden sees finds wants brings three seven trees windows and but
tomorrow yesterday children neighbours mountain river under behind quickly together"""
GERMAN = """der ein kleine rote alte grüne Hund Katze Haus Garten sieht findet möchte bringt drei sieben Bäume Fenster
und aber morgen gestern Kinder Nachbarn Gebirge Fluss unter hinter schnell zusammen"""
ENGLISH_WORDS, GERMAN_WORDS = ENGLISH.split(), GERMAN.split()
KINDS: tuple[TokenizerType, ...] = ("bpe", "unigram")


def generated_pairs(n: int) -> list[Pair]:
    words = random.Random(3)
    return [(" ".join(words.choices(ENGLISH_WORDS, k=6)), " ".join(words.choices(GERMAN_WORDS, k=6))) for _ in range(n)]


PAIRS = generated_pairs(300)
BY_KIND = {
    (kind, joint): Tokenizer.train(PAIRS, vocabulary_size=50, kind=kind, joint=joint)
    for kind in KINDS
    for joint in (True, False)
}
EVERY = pytest.mark.parametrize("tokenizer", BY_KIND.values(), ids=[f"{kind}-joint-{j}" for kind, j in BY_KIND])
JOINT, SEPARATE = BY_KIND["bpe", True], BY_KIND["bpe", False]


@EVERY
@settings(max_examples=15)
@given(source=st.lists(st.sampled_from(ENGLISH_WORDS)), target=st.lists(st.sampled_from(GERMAN_WORDS), max_size=12))
def test_encoding_is_reversed_without_reserved_ids(tokenizer: Tokenizer, source: list[str], target: list[str]) -> None:
    line = " ".join(target)
    source_ids, target_ids = tokenizer.encode_source([" ".join(source)]), tokenizer.encode_target([line])
    assert tokenizer.decode_target(target_ids) == [line]
    assert all(3 <= i < 50 for i in source_ids[0] + target_ids[0])


@EVERY
def test_symbols_unknown_characters_and_empty_lines(tokenizer: Tokenizer) -> None:
    assert (tokenizer.n_source_words, tokenizer.n_target_words) == (50, 50)
    assert {1, 2}.isdisjoint(tokenizer.encode_source(["<s> the </s> dog <unk> <pad>"])[0])
    known, strange = tokenizer.encode_source(["dog", "dog \N{SNOWMAN}"])
    assert strange[: len(known)] == known
    assert strange[-1] == 0
    assert tokenizer.encode_source(["", "dog", " "])[::2] == [[], []]
    assert tokenizer.decode_target([[]]) == [""]


def test_a_joint_vocabulary_encodes_both_sides_alike_and_separate_ones_know_their_own() -> None:
    assert (JOINT.is_joint, SEPARATE.is_joint) == (True, False)
    assert JOINT.encode_source(["der kleine dog"]) == JOINT.encode_target(["der kleine dog"])
    assert 0 in SEPARATE.encode_source(["möchte Bäume"])[0]
    assert 0 not in SEPARATE.encode_target(["möchte Bäume"])[0]
    lines = [target for _, target in PAIRS]
    assert JOINT.encode_target(lines) != BY_KIND["unigram", True].encode_target(lines)


@pytest.fixture(scope="module", params=[("bpe", True), ("unigram", False)], ids=["bpe-joint", "unigram-separate"])
def large(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer with a vocabulary that counts as large."""
    kind, joint = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.data.tokenizer.LARGE_VOCABULARY", 305)
        return Tokenizer.train(PAIRS, vocabulary_size=305, kind=kind, joint=joint)


def test_a_large_vocabulary_has_256_bytes_so_that_no_text_is_unknown_or_lost(large: Tokenizer) -> None:
    for side in (large.source, large.target):
        assert side.get_piece_size() == 305
        assert sum(side.is_byte(i) for i in range(305)) == 256
    assert not any(JOINT.source.is_byte(i) for i in range(50))
    lines = ["der Hund Mårthen", "\N{SNOWMAN}", "日本 und 中国", "\N{GRINNING FACE}der"]
    assert not any(0 in ids for ids in large.encode_source(lines))
    assert large.decode_target(large.encode_target(lines)) == lines


@settings(max_examples=50)
@given(ids=st.lists(st.integers(3, 304), max_size=12))
@example(ids=[3 + ord("\n"), 3 + ord("\r")])
def test_any_row_of_ids_of_a_large_vocabulary_is_decoded_to_one_line(large: Tokenizer, ids: list[int]) -> None:
    text = large.decode_target([ids])[0]
    assert not {"\n", "\r"} & set(text)


def test_bytes_that_are_no_utf_8_are_decoded_to_the_replacement_character(large: Tokenizer) -> None:
    first, breaks = large.target.piece_to_id("<0xC3>"), [large.target.piece_to_id(f"<0x0{x}>") for x in "AD"]
    dog = large.encode_target(["Hund"])[0]
    decoded = large.decode_target([[first, *dog], [first], [*dog, *breaks, *dog]])
    assert decoded == ["\ufffd Hund", "\ufffd", "Hund   Hund"]


def test_a_large_corpus_is_sampled_evenly_in_order_a_small_one_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.data.tokenizer.MAX_TRAINING_SENTENCES", 300)
    pairs = [(str(2 * i), str(2 * i + 1)) for i in range(1_500)]
    sampled = [int(line) for line in _sample(pairs, slice(0, 2))]
    assert len(sampled) == 300
    assert sampled == sorted(set(sampled))
    assert np.histogram(sampled, 3, (0, 3_000))[0] == pytest.approx([100] * 3, abs=25)  # 3 standard deviations
    assert [int(line) % 2 for line in _sample(pairs, slice(1, 2))] == [1] * 300
    for n_pairs in (149, 150):
        assert [int(line) for line in _sample(pairs[:n_pairs], slice(0, 2))] == list(range(2 * n_pairs))


@pytest.mark.parametrize(("kind", "pairs", "size", "possible"), [
    ("bpe", PAIRS, 5_000, None), ("bpe", [], 50, None), ("unigram", PAIRS, 5_000, r": at most (\d+) are possible"),
    ("bpe", PAIRS, 5, r": its characters and the reserved symbols are (\d+); set .* to more"),
])  # fmt: skip
def test_an_impossible_size_is_explained(
    kind: TokenizerType, pairs: list[Pair], size: int, possible: str | None
) -> None:
    with pytest.raises(CorpusError, match=f"cannot make {size} pieces of this text.* data.vocabulary_size") as caught:
        Tokenizer.train(pairs, vocabulary_size=size, kind=kind)
    if possible is not None:
        n = int(re.findall(possible, str(caught.value))[0])
        assert Tokenizer.train(PAIRS, vocabulary_size=n, kind=kind).n_source_words == n


class Ended(list[Pair]):
    """Pairs that end with an error when they are read for the n-th time."""

    def __init__(self, error: BaseException, n: int) -> None:
        super().__init__(PAIRS)
        self.error, self.n_left = error, n

    def __iter__(self) -> Iterator[Pair]:
        self.n_left -= 1
        yield from PAIRS
        if not self.n_left:
            raise self.error


@pytest.mark.parametrize(("kind", "n"), [  # each side is counted, then read
    ({"kind": "bpe"}, 2), ({"kind": "unigram"}, 2), ({"joint": False}, 4), ({"joint": False, "symbols": True}, 4),
    ({"joint": False, "symbols": True, "kind": "word"}, 2),
])  # fmt: skip
@pytest.mark.parametrize("error", [KeyboardInterrupt(), CorpusError("text"), RuntimeError("other")])
def test_an_end_of_reading_is_no_fault_of_the_vocabulary(error: BaseException, kind: dict[str, Any], n: int) -> None:
    with pytest.raises(type(error)) as caught:
        Tokenizer.train(Ended(error, n), vocabulary_size=50, **kind)
    assert caught.value is error


@EVERY
def test_load_gives_back_what_was_saved_under_the_documented_names(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for each in (JOINT, SEPARATE, tokenizer):  # one saved later replaces those before it
        each.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.checksums.json", *tokenizer.files]
    loaded = Tokenizer.load(tmp_path)
    assert loaded.is_joint == tokenizer.is_joint
    assert loaded.encode_source(["the old dog"]) == tokenizer.encode_source(["the old dog"])
    assert loaded.encode_target(["der alte Hund"]) == tokenizer.encode_target(["der alte Hund"])


@pytest.mark.parametrize(("tokenizer", "names"), [
    (JOINT, ["tokenizer.model"]), (SEPARATE, ["tokenizer.source.model", "tokenizer.target.model"]),
], ids=["joint", "separate"])  # fmt: skip
def test_a_missing_or_changed_model_is_refused(tmp_path: Path, tokenizer: Tokenizer, names: list[str]) -> None:
    remedy = "name the directory of prepared data, or of a trained model"
    tokenizer.save(tmp_path)
    for name in names:
        whole = (tmp_path / name).read_bytes()
        for changed in (b"", whole[:-1], whole[:200] + bytes([whole[200] ^ 4]) + whole[201:]):
            (tmp_path / name).write_bytes(changed)
            fault = "has changed since" if len(changed) == len(whole) else "expected .* it is truncated"
            with pytest.raises(CheckpointError, match=f"^{tmp_path}: no usable tokenizer .*{name}: {fault}.*{remedy}"):
                Tokenizer.load(tmp_path)
        (tmp_path / name).unlink()
        missing = "" if tokenizer.is_joint else name
        with pytest.raises(CheckpointError, match=f"^{tmp_path}: no usable tokenizer here .*{missing}.*{remedy}"):
            Tokenizer.load(tmp_path)
        (tmp_path / name).write_bytes(whole)
    (tmp_path / "tokenizer.checksums.json").unlink()
    assert Tokenizer.load(tmp_path).equals(tokenizer)
    (tmp_path / names[-1]).write_bytes(whole[:100])
    with pytest.raises(CheckpointError, match=f"^{tmp_path}: no usable tokenizer here .*{remedy}"):
        Tokenizer.load(tmp_path)


# The tokenizer of a model on new text: which characters it lacks, and what changes when they are appended

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
    size = given.tokenizer.n_source_words
    trees = DataConfig(train_trees=("a",), validation_trees=("b",), joint_vocabulary=False, vocabulary_size=size)
    with pytest.raises(ConfigError, match="init_extend_vocabulary is for text: set it to false for a treebank"):
        given.check(trees, tmp_path)
