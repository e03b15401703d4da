"""Readers of other programs' tokenizers for new trainings: sentencepiece models, and Hugging Face's tokenizer.json.

Ids 0 to 2 become our symbols for unknown words, start and end.  Other control symbols, such as <pad>, are left out.

Source: sentencepiece_model.proto of sentencepiece; the documentation of Hugging Face's tokenizers 0.23.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.foreign_files import foreign_content, read_bytes
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.extras.convert.vocabulary import model_format, parsed, with_ids_of
from minitransformer.model.symbols import BLANK

_CODES = b"#version:"  # beginning of a file of subword-nmt
_ALTERNATIVE = "train a tokenizer on your text, or give a model of sentencepiece"


def read_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer in a file, for both languages.

    Raises: ConversionError if the file cannot be read, or if our tokenizer cannot split text as the other program does.
    """
    content = read_bytes(path)
    if content.startswith(_CODES):
        _refuse(path, "are codes of subword-nmt, which mark the ends of words; our pieces mark their beginnings")
    with foreign_content(path, "a tokenizer"):
        model = _from_json(path, json.loads(content)) if path.suffix.lower() == ".json" else parsed(content)
        kinds, spec = model_format().ModelProto.SentencePiece, model.trainer_spec
        if spec.model_type not in (spec.UNIGRAM, spec.BPE):
            _refuse(path, f"is of the type {spec.ModelType.Name(spec.model_type)}; only UNIGRAM and BPE are known")
        if spec.treat_whitespace_as_suffix:
            _refuse(path, "marks the ends of words (treat_whitespace_as_suffix); our pieces mark their beginnings")
        words = [piece.piece for piece in model.pieces if piece.type not in (kinds.UNKNOWN, kinds.CONTROL)]
        symbols = [spec.unk_piece, spec.bos_piece, spec.eos_piece]
        return Tokenizer(with_ids_of(bytes(model.SerializeToString()), [*symbols, *words]))


def _refuse(path: Path, reason: str) -> NoReturn:
    raise ConversionError(f"{path}: {reason}; {_ALTERNATIVE}")


def _from_json(path: Path, fields: Mapping[str, Any]) -> Any:
    """Return a sentencepiece model, as a message of protobuf, that splits text as a tokenizer.json does.

    Raises: ConversionError if there is no such model; any error for corrupt fields.
    """
    model, message = fields["model"], model_format().ModelProto()
    kinds = message.SentencePiece
    if model.get("type") not in ("Unigram", "BPE"):
        _refuse(path, f"is of the type {model.get('type')}; only Unigram and BPE are known")
    is_unigram = model["type"] == "Unigram"
    _require_expressible(path, model, "continuing_subword_prefix", "end_of_word_suffix", "dropout", "ignore_merges")
    scores = dict(model["vocab"]) if is_unigram else _scores_of_merges(path, model["vocab"], model["merges"])
    unknown = model.get("unk_token") or "<unk>"
    if is_unigram and model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    added = {each["content"]: each["special"] for each in fields.get("added_tokens") or ()}
    for each in fields.get("added_tokens") or ():
        if not each["special"]:
            _require_expressible(path, each, "single_word", "lstrip", "rstrip")
    for piece in dict.fromkeys([unknown, *scores, *added]):
        is_byte = bool(model.get("byte_fallback")) and len(piece) == 6 and piece.startswith("<0x")
        special = kinds.CONTROL if added.get(piece) else kinds.USER_DEFINED
        kind = kinds.UNKNOWN if piece == unknown else kinds.BYTE if is_byte else special if piece in added else None
        message.pieces.add(piece=piece, score=scores.get(piece, 0.0), type=kinds.NORMAL if kind is None else kind)
    spec = message.trainer_spec
    spec.model_type = spec.UNIGRAM if is_unigram else spec.BPE
    spec.byte_fallback, spec.unk_piece = bool(model.get("byte_fallback")), unknown
    _set_normaliser(path, fields, message.normalizer_spec)
    if not (is_unigram or model.get("byte_fallback") or model.get("fuse_unk")):
        _refuse(
            path,
            "fuse_unk = false cannot be expressed: unknown characters in a row are one token here; if that is good"
            " enough, set it to true in the file",
        )
    return message


def _require_expressible(path: Path, fields: Mapping[str, Any], *names: str) -> None:
    """Raise ConversionError if one of the settings is given, because it changes how text is split."""
    for name in names:
        if fields.get(name):
            token = f" of {fields['content']!r:.100}" if "content" in fields else ""
            _refuse(path, f"{name} = {fields[name]!r:.100}{token} cannot be expressed")


def _scores_of_merges(path: Path, vocabulary: Mapping[str, int], merges: list[Any]) -> dict[str, float]:
    """Return scores of the pieces, with which sentencepiece merges the same pairs of pieces in the same order.

    sentencepiece merges any two pieces whose concatenation is a piece.  So ``merges`` must have all such pairs, and
    pairs with the same concatenation must be adjacent.  Both are true for a tokenizer.json that was made from a
    sentencepiece model.
    Raises: ConversionError if ``merges`` lacks such a pair, or if pairs are not adjacent.
    """
    ranks: dict[str, int] = {}
    pairs = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in merges]
    known, last = set(pairs), None
    for rank, (left, right) in enumerate(pairs):
        merged = left + right
        for i in range(1, len(merged)):
            pair = merged[:i], merged[i:]
            if merged != last and (merged in ranks or (set(pair) <= vocabulary.keys() and pair not in known)):
                _refuse(path, f"merges pairs otherwise than sentencepiece: {pair[0]!r} and {pair[1]!r} would be merged")
        ranks.setdefault(merged, rank)
        last = merged
    return {piece: -float(ranks.get(piece, len(merges))) for piece in vocabulary}


def _set_normaliser(path: Path, fields: Mapping[str, Any], spec: Any) -> None:
    """Set how sentencepiece normalises characters and blanks.  Raises: ConversionError for an unknown step."""
    spec.name, spec.add_dummy_prefix, spec.remove_extra_whitespaces = "identity", False, False
    for step in (*_steps(fields, "normalizer", "normalizers"), *_steps(fields, "pre_tokenizer", "pretokenizers")):
        match step:
            case {"type": "Precompiled", "precompiled_charsmap": charsmap}:
                spec.name, spec.precompiled_charsmap = "", base64.b64decode(charsmap)
            case {"type": "Metaspace", "replacement": replacement} if replacement == BLANK:
                spec.add_dummy_prefix = step.get("prepend_scheme", "always") != "never"
            case {"type": "Prepend", "prepend": prepended} if prepended == BLANK:
                spec.add_dummy_prefix = True
            case {"type": "Replace", "pattern": {"String": " "}, "content": content} if content == BLANK:
                pass  # sentencepiece writes blanks as BLANK
            case {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content} if content in (BLANK, " "):
                spec.remove_extra_whitespaces = True
            case {"type": "Strip" | "WhitespaceSplit"}:
                spec.remove_extra_whitespaces = True
            case _:
                _refuse(path, f"its step {step.get('type')} cannot be expressed")


def _steps(fields: Mapping[str, Any], name: str, inner: str) -> list[Mapping[str, Any]]:
    """Return the steps of the field ``name``, which may be null, one step, or a sequence of steps under ``inner``."""
    step = fields.get(name)
    steps: list[Mapping[str, Any]] = [] if step is None else step[inner] if step["type"] == "Sequence" else [step]
    return steps
