"""Sentencepiece models under other ids, and tokenizers of other programs: the same pieces, the same text."""

import base64
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from small_sentences import LINES, sentencepiece_model

from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.extras.convert.tokenizer_files import read_tokenizer
from minitransformer.extras.convert.vocabulary import (
    parsed,
    with_ids_of,
    without_other_words,
    word_model,
    words_beyond,
    words_of,
)
from minitransformer.model.symbols import END, START, UNKNOWN

SYMBOLS = ["<unk>", "<pad>", "</s>"]


def lines(n: int, seed: int, alphabet: str = "aeinrst") -> list[str]:
    """Words of a small language, in which the same pieces occur again and again."""
    draw = random.Random(seed)
    stems = ["".join(draw.choices(alphabet, k=draw.randint(1, 4))) for _ in range(40)]
    words = ["".join(draw.choices(stems, k=draw.randint(1, 3))) for _ in range(80)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 7))) for _ in range(n)]


@cache
def trained(kind: str, seed: int = 1, alphabet: str = "aeinrst", *, bytes_too: bool = False) -> bytes:
    sizes = {"vocab_size": 50 + 256 * bytes_too, "byte_fallback": bytes_too}
    return sentencepiece_model(lines(300, seed, alphabet), model_type=kind, **sizes)


def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def shuffled(words: list[str]) -> list[str]:
    return SYMBOLS + random.Random(5).sample(words, len(words))


def pieces(model: bytes) -> list[str]:
    """The pieces that text is split into, as sentencepiece names them."""
    known = processor(model)
    return [known.id_to_piece(i) for i in range(len(known)) if not known.is_control(i) and not known.is_unknown(i)]


UNSEEN = ["", " ", "xyz über 東京 😀", "a  b\tc", "nein»", "<pad> </s> <unk> <s>"]


@pytest.mark.parametrize(
    ("kind", "bytes_too"),
    [("unigram", False), ("unigram", True), ("bpe", False), ("bpe", True), ("char", False), ("word", False)],
)
def test_text_is_split_and_joined_as_before_under_the_vocabularys_ids(kind: str, bytes_too: bool) -> None:
    """Among the words are the pieces of a model of another language; BPE must not merge characters to them."""
    model, other = trained(kind, bytes_too=bytes_too), trained("unigram", 2, "aeinrstokl")
    words = shuffled(sorted({*pieces(model), *pieces(other)}))
    assert len(words) > len(pieces(model)) + 10
    before, after = processor(model), processor(with_ids_of(model, words))
    ids = {piece: words.index(piece) for piece in pieces(model)}
    others = {word for word in words if len(word) == 1} - set(pieces(model))  # characters of the other model alone
    assert (after.get_piece_size(), after.unk_id(), after.bos_id(), after.eos_id()) == (len(words), UNKNOWN, START, END)
    assert after.decode([START, END]) == ""
    for line in [*lines(300, 1), *lines(300, 2, "aeinrstokl"), *lines(300, 3), *UNSEEN]:
        expected = before.encode(line, out_type=str)
        if kind != "word" and not bytes_too and set("".join(expected)) & others:
            continue  # such characters are tested below
        assert after.encode(line, out_type=str) == expected
        assert after.encode(line) == [ids.get(piece, UNKNOWN) for piece in expected]
        assert after.decode(after.encode(line)) == before.decode(before.encode(line))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_character_that_only_the_vocabulary_has_is_found_there(kind: str) -> None:
    """As by other programs, which look the pieces of a line up: here "(" is a word, and no piece of the model."""
    model = trained(kind)
    words = shuffled([*pieces(model), "(", ")", "er("])
    before, after = processor(model), processor(with_ids_of(model, words))
    for line in lines(50, 1):
        bracketed = f"({line}) # {line}"
        expected = before.encode(bracketed, out_type=str)
        assert expected[1] == "("
        assert after.encode(bracketed) == [words.index(each) if each in words else UNKNOWN for each in expected]
        assert after.decode(after.encode(bracketed)).startswith("(")


def test_words_that_only_another_unigram_model_has_are_decoded() -> None:
    model = trained("unigram")
    after = processor(with_ids_of(model, [*SYMBOLS, *pieces(model), "▁foreign", "er"]))
    assert after.decode([after.piece_to_id("▁foreign"), after.piece_to_id("er")]) == "foreigner"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_language_code_is_one_id_before_the_words_that_follow_and_what_was_added_is_removed_again(kind: str) -> None:
    model, codes = trained(kind), [">>fra<<", ">>cmn_Hans<<"]
    words = shuffled([*pieces(model), "▁foreign", "er", *codes])
    changed = with_ids_of(model, words)
    after, before, removed = (processor(some) for some in (changed, model, without_other_words(changed)))
    for line in lines(100, 4):
        expected = before.encode(line, out_type=str)
        for code in codes:
            assert after.encode(f"{code} {line}", out_type=str) == ["▁" + code, *expected]
            assert after.encode(f"{code} {line}")[0] == words.index(code)
        assert removed.encode(line, out_type=str) == expected
    assert words_of(changed) == words
    assert words_of(without_other_words(changed)) == [word for word in words if word not in ("▁foreign", "er", *codes)]


def test_pieces_that_the_vocabulary_lacks_or_has_twice_are_named() -> None:
    model = trained("bpe")
    lacking = [word for word in pieces(model) if word not in ("a", "▁")]
    assert words_beyond(model, [*SYMBOLS, *lacking]) == [word for word in pieces(model) if word in ("a", "▁")]
    with pytest.raises(ConversionError, match="2 pieces are not in the vocabulary, the first is '(▁|a)'"):
        with_ids_of(model, [*SYMBOLS, *lacking])
    with pytest.raises(ConversionError, match="the word 'a' twice"):
        with_ids_of(model, [*SYMBOLS, *pieces(model), "a"])


def test_words_without_a_model_are_separated_by_blanks() -> None:
    words = [*SYMBOLS, "the", "hou@@", "se", "."]
    model = processor(word_model(words))
    assert model.encode("the hou@@ se xyz  .") == [3, 4, 5, UNKNOWN, 6]
    assert model.decode([3, 4, 5, 6]) == "the hou@@ se ."
    assert [model.id_to_piece(i) for i in (0, 1, 2)] == SYMBOLS


def test_each_of_several_unknown_words_has_an_id() -> None:
    words, other = [*SYMBOLS, "the", "house"], [*SYMBOLS, "das", "Haus"]
    for models in ((word_model(words), word_model(other)), (word_model(words),)):
        tokenizer = Tokenizer(*models)
        line = "xyz uvw the  xyz uvw the"
        assert tokenizer.encode_source([line]) == [[0, 0, 3, 0, 0, 3]]
        assert tokenizer.source_pieces(line) == ["▁xyz", "▁uvw", "▁the", "▁xyz", "▁uvw", "▁the"]
        known = "das" if len(models) == 2 else "the"
        assert tokenizer.encode_target([f"xyz uvw {known}", "<s> </s>"]) == [[0, 0, 3], [0, 0]]
        assert tokenizer.target_pieces(f"xyz uvw {known}") == ["▁xyz", "▁uvw", f"▁{known}"]


def test_a_word_model_of_sentencepiece_splits_as_sentencepiece_does() -> None:
    """With such a model, users of the other program get one token of several unknown words."""
    model = trained("word")
    tokenizer = Tokenizer(with_ids_of(model, [*SYMBOLS, *pieces(model)]))
    assert tokenizer.encode_source(["xyz uvw"]) == [[UNKNOWN]]


def test_subwords_of_sentencepiece_are_no_words() -> None:
    with pytest.raises(ConversionError, match=r"1 words are pieces of sentencepiece, such as '▁the': .* source.spm"):
        word_model([*SYMBOLS, "▁the", "re"])


TEXTS = [LINES[0], "a red  dog ＳＥＥＳ <2de> houses é", "@@", ""]
OPTIONS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe", "vocab_size": 50},
    "bytes": {"model_type": "bpe", "vocab_size": 300, "byte_fallback": True, "normalization_rule_name": "identity"},
    "user symbols": {"model_type": "bpe", "vocab_size": 50, "user_defined_symbols": ["<2de>", "@@"]},
    "unigram": {"model_type": "unigram", "vocab_size": 40},
    "t5": {"model_type": "unigram", "vocab_size": 40, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
}


def as_json(model: bytes) -> dict[str, Any]:
    """A tokenizer.json as Hugging Face's converter makes it of a model of sentencepiece."""
    message = parsed(model)
    kinds, spec = message.SentencePiece, message.trainer_spec
    ids = {piece.piece: i for i, piece in enumerate(message.pieces)}
    added = [
        {"id": ids[piece.piece], "content": piece.piece, "special": piece.type != kinds.USER_DEFINED}
        for piece in message.pieces
        if piece.type in (kinds.UNKNOWN, kinds.CONTROL, kinds.USER_DEFINED)
    ]
    if spec.model_type == spec.UNIGRAM:
        scores = [[piece.piece, piece.score] for piece in message.pieces]
        words: dict[str, Any] = {"type": "Unigram", "unk_id": spec.unk_id, "vocab": scores}
    else:
        merged = sorted(
            (piece for piece in message.pieces if piece.type == kinds.NORMAL), key=lambda piece: -piece.score
        )
        pairs = [(piece.piece[:i], piece.piece[i:]) for piece in merged for i in range(1, len(piece.piece))]
        merges = [list(pair) for pair in pairs if set(pair) <= set(ids)]
        words = {"type": "BPE", "unk_token": "<unk>", "vocab": ids, "merges": merges}
    charsmap = base64.b64encode(message.normalizer_spec.precompiled_charsmap).decode()
    steps = [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []
    return {
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [*steps, {"type": "Strip"}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": words | {"byte_fallback": spec.byte_fallback, "fuse_unk": True},
    }


def written(folder: Path, content: bytes | dict[str, Any]) -> Path:
    path = folder / ("tokenizer.json" if isinstance(content, dict) else "spm.model")
    path.write_bytes(json.dumps(content).encode() if isinstance(content, dict) else content)
    return path


@pytest.mark.parametrize("form", ["sentencepiece", "json"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_text_is_split_as_by_the_other_program(options: dict[str, Any], form: str, tmp_path: Path) -> None:
    model = sentencepiece_model(LINES, **options)
    other = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = read_tokenizer(written(tmp_path, as_json(model) if form == "json" else model))
    assert (ours.is_joint, ours.kind) == (True, options["model_type"])
    for text in TEXTS:
        assert ours.source_pieces(text) == other.encode(text, out_type=str)
    symbols = [ours.source.unk_id(), ours.source.bos_id(), ours.source.eos_id()]
    assert symbols == [UNKNOWN, START, END]
    assert ours.decode_target(ours.encode_target([LINES[0]])) == [LINES[0]]
    assert ours.n_source_words == other.get_piece_size()  # T5 has <pad> in the place of <s>


BPE = as_json(sentencepiece_model(LINES, **OPTIONS["bpe"]))
BLANKS_AS_BLANKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def test_runs_of_blanks_are_kept_as_in_llama(tmp_path: Path) -> None:
    model = sentencepiece_model(LINES, **OPTIONS["bytes"], remove_extra_whitespaces=False)
    steps = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, BLANKS_AS_BLANKS]}
    ours = read_tokenizer(written(tmp_path, as_json(model) | {"normalizer": steps, "pre_tokenizer": None}))
    other = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in ("  a   red dog ", "a dog"):
        assert ours.source_pieces(text) == other.encode(text, out_type=str)
    assert "▁" in ours.source_pieces("a   red")


def bpe_with(**settings: Any) -> dict[str, Any]:
    return BPE | {"model": BPE["model"] | settings}


def bpe_with_token(**flags: Any) -> dict[str, Any]:
    return BPE | {"added_tokens": [*BPE["added_tokens"], {"id": 60, "content": "foo", "special": False, **flags}]}


@pytest.mark.parametrize(("content", "message"), [
    (b"#version: 0.2\nt h\n", "codes of subword-nmt, which mark the ends of words"),
    (sentencepiece_model(LINES, model_type="char"), "of the type CHAR"),
    (sentencepiece_model(LINES, model_type="word", vocab_size=20), "of the type WORD"),
    (sentencepiece_model(LINES, vocab_size=40, treat_whitespace_as_suffix=True), "treat_whitespace_as_suffix"),
    (b"", "the file is empty"), (b"text", "not a sentencepiece model"),
    (trained("bpe")[:200], "not a sentencepiece model"), ({"model": {"type": "WordPiece"}}, "WordPiece"),
    ({}, "cannot be read as a tokenizer"), (BPE | {"pre_tokenizer": {"type": "ByteLevel"}}, "its step ByteLevel"),
    (BPE | {"normalizer": {"type": "NFKC"}}, "its step NFKC"),
    (BPE | {"added_tokens": []}, "the word '<s>' twice"),
    (bpe_with(end_of_word_suffix="</w>"), "end_of_word_suffix = '</w>'"),
    (bpe_with(fuse_unk=False), "fuse_unk = false cannot be expressed: .* set it to true in the file; train"),
    (bpe_with(dropout=0.1), "dropout = 0.1 cannot be expressed"),
    (bpe_with(ignore_merges=True), "ignore_merges = True cannot be expressed"),
    (bpe_with_token(single_word=True), "single_word = True of 'foo' cannot be expressed"),
    (bpe_with_token(lstrip=True), "lstrip = True of 'foo' cannot be expressed"),
    (BPE | {"normalizer": BLANKS_AS_BLANKS | {"content": "_"}}, "its step Replace cannot be expressed"),
    (bpe_with(vocab=dict.fromkeys(["a", "b", "bc", "abc", "c"], 0), merges=["a b", "b c", "ab c"]),
        "'a' and 'bc' would be merged"),
])  # fmt: skip
def test_what_cannot_be_expressed_is_refused_by_name(content: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConversionError, match=f"^{path}: .*{message}"):
        read_tokenizer(path)
