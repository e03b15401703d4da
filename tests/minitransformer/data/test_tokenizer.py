"""Subwords: text to ids and back, and what becomes of a model file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minitransformer.config import TokenizerType
from minitransformer.data.corpus import Pair
from minitransformer.data.survey import CorpusError
from minitransformer.data.tokenizer import Tokenizer, _sample
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
def test_the_vocabulary_has_the_size_that_was_asked_for(tokenizer: Tokenizer) -> None:
    assert (tokenizer.n_source_words, tokenizer.n_target_words) == (50, 50)


@EVERY
@settings(max_examples=40, deadline=None)
@given(words=st.lists(st.sampled_from(GERMAN_WORDS), max_size=12))
def test_decoding_gives_back_what_was_encoded(tokenizer: Tokenizer, words: list[str]) -> None:
    line = " ".join(words)
    assert tokenizer.decode_target(tokenizer.encode_target([line])) == [line]


@EVERY
@settings(max_examples=40, deadline=None)
@given(source=st.lists(st.sampled_from(ENGLISH_WORDS)), target=st.lists(st.sampled_from(GERMAN_WORDS)))
def test_known_text_has_no_reserved_ids(tokenizer: Tokenizer, source: list[str], target: list[str]) -> None:
    ids = tokenizer.encode_source([" ".join(source)])[0] + tokenizer.encode_target([" ".join(target)])[0]
    assert all(3 <= i < 50 for i in ids)


@EVERY
def test_symbols_of_sentencepiece_in_the_text_never_become_start_or_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_source(["<s> the </s> dog <unk> <pad>"])[0]
    assert {1, 2}.isdisjoint(ids)


@EVERY
def test_a_character_never_seen_is_unknown_and_its_neighbours_are_not(tokenizer: Tokenizer) -> None:
    known, strange = tokenizer.encode_source(["dog", "dog \N{SNOWMAN}"])
    assert strange[: len(known)] == known
    assert strange[-1] == 0


@EVERY
def test_an_empty_line_has_no_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_source(["", "dog", " "])[::2] == [[], []]
    assert tokenizer.decode_target([[]]) == [""]


def test_a_joint_vocabulary_encodes_both_sides_alike() -> None:
    assert JOINT.is_joint
    assert JOINT.encode_source(["der kleine dog"]) == JOINT.encode_target(["der kleine dog"])


def test_separate_vocabularies_know_their_own_side_only() -> None:
    assert not SEPARATE.is_joint
    assert 0 in SEPARATE.encode_source(["möchte Bäume"])[0]
    assert 0 not in SEPARATE.encode_target(["möchte Bäume"])[0]


@pytest.fixture(scope="module", params=[("bpe", True), ("unigram", False)], ids=["bpe-joint", "unigram-separate"])
def large(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer with a vocabulary that counts as large."""
    kind, joint = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minitransformer.data.tokenizer.LARGE_VOCABULARY", 305)
        return Tokenizer.train(PAIRS, vocabulary_size=305, kind=kind, joint=joint)


def test_a_large_vocabulary_has_the_256_bytes_among_as_many_pieces_as_were_asked_for(large: Tokenizer) -> None:
    for side in (large.source, large.target):
        assert side.get_piece_size() == 305
        assert sum(side.is_byte(i) for i in range(305)) == 256
    assert not any(JOINT.source.is_byte(i) for i in range(50))


@pytest.mark.parametrize("line", ["der Hund Mårthen", "\N{SNOWMAN}", "日本 und 中国", "\N{GRINNING FACE}der", "Ω"])
def test_no_text_is_unknown_to_a_large_vocabulary_and_decoding_gives_it_back(large: Tokenizer, line: str) -> None:
    assert 0 not in large.encode_source([line])[0]
    assert large.decode_target(large.encode_target([line])) == [line]


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(3, 304), max_size=12))
@example(ids=[3 + ord("\n"), 3 + ord("\r")])
def test_any_row_of_ids_of_a_large_vocabulary_is_decoded_to_one_line(large: Tokenizer, ids: list[int]) -> None:
    text = large.decode_target([ids])[0]
    assert not {"\n", "\r"} & set(text)


def test_bytes_that_are_no_utf_8_are_decoded_to_the_replacement_character(large: Tokenizer) -> None:
    first, breaks = large.target.piece_to_id("<0xC3>"), [large.target.piece_to_id(f"<0x0{x}>") for x in "AD"]
    dog = large.encode_target(["Hund"])[0]
    assert large.decode_target([[first, *dog], [first], [*dog, *breaks, *dog]]) == [
        "\ufffd Hund",
        "\ufffd",
        "Hund   Hund",
    ]


def test_the_kinds_cut_words_differently() -> None:
    lines = [target for _, target in PAIRS]
    assert BY_KIND["bpe", True].encode_target(lines) != BY_KIND["unigram", True].encode_target(lines)


def test_training_twice_gives_the_same_vocabulary() -> None:
    again = Tokenizer.train(PAIRS, vocabulary_size=50)
    assert [again.source.id_to_piece(i) for i in range(50)] == [JOINT.source.id_to_piece(i) for i in range(50)]


def test_a_large_corpus_is_sampled_evenly_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.data.tokenizer.MAX_TRAINING_SENTENCES", 300)
    pairs = [(str(2 * i), str(2 * i + 1)) for i in range(1_500)]
    sampled = [int(line) for line in _sample(pairs, slice(0, 2))]
    assert len(sampled) == 300
    assert sampled == sorted(set(sampled))
    assert np.histogram(sampled, 3, (0, 3_000))[0] == pytest.approx([100] * 3, abs=25)  # 3 standard deviations
    assert [int(line) % 2 for line in _sample(pairs, slice(1, 2))] == [1] * 300


@pytest.mark.parametrize("n_pairs", [149, 150])
def test_a_corpus_that_is_small_enough_is_taken_whole(n_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.data.tokenizer.MAX_TRAINING_SENTENCES", 300)
    pairs = [(f"source {i}", f"target {i}") for i in range(n_pairs)]
    assert list(_sample(pairs, slice(0, 2))) == [line for pair in pairs for line in pair]


@pytest.mark.parametrize("kind", KINDS)
def test_too_large_a_vocabulary_is_refused_with_the_option_to_change(kind: TokenizerType) -> None:
    with pytest.raises(CorpusError, match="cannot make 5000 pieces of this text") as caught:
        Tokenizer.train(PAIRS, vocabulary_size=5_000, kind=kind)
    assert "give it more text or change data.vocabulary_size" in str(caught.value)


def test_too_large_a_unigram_vocabulary_is_reported_the_largest_possible_which_then_works() -> None:
    with pytest.raises(CorpusError, match=r": at most \d+ are possible") as caught:
        Tokenizer.train(PAIRS, vocabulary_size=5_000, kind="unigram")
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    assert Tokenizer.train(PAIRS, vocabulary_size=largest, kind="unigram").n_source_words == largest


def test_too_small_a_vocabulary_is_reported_the_smallest_possible_which_then_works() -> None:
    with pytest.raises(
        CorpusError, match=r"cannot make 5 pieces .*: its characters and the reserved symbols are \d+;"
    ) as e:
        Tokenizer.train(PAIRS, vocabulary_size=5)
    smallest = int(str(e.value).split("symbols are ")[1].split(";")[0])
    assert Tokenizer.train(PAIRS, vocabulary_size=smallest).n_source_words == smallest


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


@pytest.mark.parametrize(
    ("kind", "n"),  # each side is counted, then read
    [
        ({"kind": "bpe"}, 2),
        ({"kind": "unigram"}, 2),
        ({"joint": False}, 4),
        ({"joint": False, "symbols": True}, 4),
        ({"joint": False, "symbols": True, "kind": "word"}, 2),
    ],
)
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError("disk"), CorpusError("text"), MemoryError(), RuntimeError("other")]
)
def test_what_ends_the_reading_of_text_is_not_taken_for_a_fault_of_the_vocabulary(
    error: BaseException, kind: dict[str, Any], n: int
) -> None:
    with pytest.raises(type(error)) as caught:
        Tokenizer.train(Ended(error, n), vocabulary_size=50, **kind)
    assert caught.value is error


def test_no_text_at_all_is_refused() -> None:
    with pytest.raises(CorpusError, match="cannot make 50 pieces of this text"):
        Tokenizer.train([], vocabulary_size=50)


@pytest.mark.parametrize("lines", [["", "dog"], ["dog " * 9_000]], ids=["empty", "very long"])
def test_lines_that_are_no_sentences_do_not_stop_training(lines: list[str]) -> None:
    tokenizer = Tokenizer.train([*PAIRS, *((line, line) for line in lines)], vocabulary_size=50)
    assert tokenizer.n_source_words == 50


@EVERY
def test_load_gives_back_what_was_saved(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.is_joint == tokenizer.is_joint
    assert loaded.encode_source(["the old dog"]) == tokenizer.encode_source(["the old dog"])
    assert loaded.encode_target(["der alte Hund"]) == tokenizer.encode_target(["der alte Hund"])


def test_files_have_the_documented_names(tmp_path: Path) -> None:
    JOINT.save(tmp_path / "joint")
    SEPARATE.save(tmp_path / "separate")
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("joint", "separate")]
    assert names[0] == ["tokenizer.checksums.json", "tokenizer.model"]
    assert names[1] == ["tokenizer.checksums.json", "tokenizer.source.model", "tokenizer.target.model"]


@pytest.mark.parametrize("tokenizer", [JOINT, SEPARATE], ids=["joint", "separate"])
def test_a_flipped_bit_is_noticed_if_there_are_checksums(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path)
    for name in tokenizer.files:
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:200] + bytes([whole[200] ^ 4]) + whole[201:])
        with pytest.raises(CheckpointError, match=rf"no usable tokenizer here .*{name}: has changed since"):
            Tokenizer.load(tmp_path)
        (tmp_path / name).write_bytes(whole)
    (tmp_path / "tokenizer.checksums.json").unlink()
    assert Tokenizer.load(tmp_path).equals(tokenizer)


def test_separate_vocabularies_saved_over_a_joint_one_are_what_is_loaded(tmp_path: Path) -> None:
    JOINT.save(tmp_path)
    SEPARATE.save(tmp_path)
    assert not Tokenizer.load(tmp_path).is_joint


@pytest.mark.parametrize("size", [0, 1, 100, -1], ids=["no byte", "a byte", "100 bytes", "all but one byte"])
def test_a_truncated_model_file_is_refused_with_directory_and_remedy(tmp_path: Path, size: int) -> None:
    JOINT.save(tmp_path)
    path = tmp_path / "tokenizer.model"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="no usable tokenizer here") as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "name the directory of prepared data" in str(caught.value)


@pytest.mark.parametrize("missing", ["tokenizer.source.model", "tokenizer.target.model"])
def test_one_missing_side_is_refused_and_named(tmp_path: Path, missing: str) -> None:
    SEPARATE.save(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(CheckpointError, match=missing):
        Tokenizer.load(tmp_path)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no usable tokenizer here") as caught:
        Tokenizer.load(tmp_path / "nowhere")
    assert "name the directory of prepared data, or of a trained model" in str(caught.value)
