"""Tokenizers of other programs split text as there; our symbols come first; what cannot be expressed is named."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from small_sentences import LINES, sentencepiece_model

from minitransformer.extras.convert.parts import ConversionError
from minitransformer.extras.convert.tokenizer_files import read_tokenizer
from minitransformer.extras.convert.vocabulary import parsed
from minitransformer.model.symbols import END, START, UNKNOWN

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
        "model": words | {"byte_fallback": spec.byte_fallback},
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


@pytest.mark.parametrize(("content", "message"), [
    (b"#version: 0.2\nt h\n", "codes of subword-nmt, which mark the ends of words"),
    (sentencepiece_model(LINES, model_type="char"), "of the type CHAR"),
    (sentencepiece_model(LINES, model_type="word", vocab_size=20), "of the type WORD"),
    (sentencepiece_model(LINES, vocab_size=40, treat_whitespace_as_suffix=True), "treat_whitespace_as_suffix"),
    (b"", "the file is empty"), (b"text", "not a sentencepiece model"), ({"model": {"type": "WordPiece"}}, "WordPiece"),
    ({}, "cannot be read as a tokenizer"), (BPE | {"pre_tokenizer": {"type": "ByteLevel"}}, "its step ByteLevel"),
    (BPE | {"normalizer": {"type": "NFKC"}}, "its step NFKC"),
    (BPE | {"model": BPE["model"] | {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix = '</w>'"),
    (BPE | {"model": BPE["model"] | {"vocab": dict.fromkeys("ab", 0) | {"bc": 0, "abc": 0, "c": 0},
                                     "merges": ["a b", "b c", "ab c"]}}, "'a' and 'bc' would be merged"),
])  # fmt: skip
def test_what_cannot_be_expressed_is_refused_by_name(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=message):
        read_tokenizer(written(tmp_path, content))
