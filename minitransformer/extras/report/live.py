"""A page that computes: a model, its tokenizer, and a program that translates in the browser, as one HTML file."""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd.array import FloatArray
from autograd.packed_weight import PackedDtype, nearest_bfloat16, quantised
from minitransformer.config import ModelConfig
from minitransformer.data.lexicon import makes_trees
from minitransformer.data.protobuf import fields
from minitransformer.extras.report import page, sentence_page
from minitransformer.extras.report.attended import END_MARK, START_MARK, origin_of
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.self_contained import page_with_views
from minitransformer.extras.report.sentence import plain_model
from minitransformer.extras.report.sentence_page import N_BEST, blocks_of
from minitransformer.inference.translator import Translator

SCRIPTS = ("tokenizer.js", "model.js", "search.js", "views.js", "tree.js", "page.js")
VIEWS = {"attention_page": page.SCRIPTS, "sentence_page": sentence_page.SCRIPTS}
MOST_PARAMETERS = 8_000_000  # with more, a page in bfloat16 has over 20 MB
ACTIVATIONS = ("relu", "swish", "gelu_tanh")

# Numbers of fields, and of types of pieces, in sentencepiece_model.proto.
_PIECE, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_KINDS = {1: "unigram", 2: "bpe"}
_KIND, _BYTE_FALLBACK, _BLANK_AS_SUFFIX = 3, 35, 24
_RULES, _SPACES = 2, (3, 4, 5)  # a blank before the text, blanks removed, blanks written as "▁"
_OWN_SYMBOL, _UNUSED = 4, 5


def live_page(translator: Translator, sentences: Sequence[str], weights: PackedDtype = "bfloat16") -> str:
    """Return the page; it offers ``sentences``, and begins with the first.

    Raises: ReportError, see ``model_data``.
    """
    config = translator.model.config
    data = {
        "model": model_data(translator, weights),
        "sentences": list(sentences),
        "languages": [language or "" for language in translator.profile.languages],
        "origin": origin_of(translator) + ("" if weights == "float32" else f"; weights rounded to {weights}"),
        "colours": head_colours(config.n_heads),
        "marks": [START_MARK, END_MARK],
        "blocks": blocks_of(config),
        "nBest": N_BEST,
    }
    return page_with_views("live_page", SCRIPTS, VIEWS, "A Transformer that computes in this page", data)


def model_data(translator: Translator, weights: PackedDtype) -> dict[str, Any]:
    """Return what the page's program reads of a model: configuration, weights, and the tokenizer of each side.

    Raises: ReportError, which names what the program cannot compute.
    """
    model, tokenizer = translator.model, translator.tokenizer
    _check_model(translator)
    plain_model(model, "live")
    source, *target = [tokenizer_data(pieces) for pieces in tokenizer.models]
    config = dataclasses.asdict(dataclasses.replace(model.config, alpha=model.config.own_alpha))
    return {
        "config": config,
        "weights": packed_weights(model.weights(), weights),
        "source": source,
        "target": target[0] if target else None,
        "longest": translator.longest_source,
    }


def packed_weights(arrays: dict[str, FloatArray], dtype: PackedDtype) -> dict[str, Any]:
    """Return arrays as base64, and a table of their names, shapes, dtypes and offsets in bytes.

    Matrices are rounded to ``dtype``; vectors stay float32.  A matrix of int8 follows the float32 scales of its rows.
    """
    table, parts, offset = dict[str, Any](), list[bytes](), 0
    for name, values in arrays.items():
        kind = dtype if values.ndim == 2 else "float32"
        encoded = _encoded(values.astype(np.float32), kind)
        table[name] = {"shape": list(values.shape), "dtype": kind, "offset": offset}
        parts.append(encoded + bytes(-len(encoded) % 4))  # every array begins at a multiple of 4 bytes
        offset += len(parts[-1])
    return {"table": table, "bytes": base64.b64encode(b"".join(parts)).decode("ascii")}


def _encoded(values: Any, dtype: PackedDtype) -> bytes:
    if dtype == "bfloat16":
        return bytes((nearest_bfloat16(values).view(np.uint32) >> 16).astype("<u2").tobytes())
    if dtype == "int8":
        levels, scales = quantised(values)
        return bytes(scales.astype("<f4").tobytes() + levels.astype(np.int8).tobytes())
    return bytes(values.astype("<f4").tobytes())


def tokenizer_data(model: bytes) -> dict[str, Any]:
    """Return the pieces and rules of a sentencepiece model.  Raises: ReportError if the page cannot split text with it.

    Source: sentencepiece_model.proto of sentencepiece.
    """
    parts = [(number, value) for number, _, value in fields(model)]
    trainer, normalizer = ({n: v for number, value in parts if number == each for n, _, v in fields(value)}
                           for each in (_TRAINER, _NORMALIZER))  # fmt: skip
    pieces = [{n: v for n, _, v in fields(value)} for number, value in parts if number == _PIECE]
    types = [piece.get(3, b"\1")[0] for piece in pieces]
    kind = _KINDS.get(trainer.get(_KIND, b"\1")[0])
    _require(kind is not None, "its tokenizer is neither BPE nor unigram")
    _require(_OWN_SYMBOL not in types, "its tokenizer has symbols of its own, such as tags of languages")
    _require(_UNUSED not in types, "its tokenizer has pieces that are not used")
    has_usual_blanks = (
        all(normalizer.get(each, b"\1")[0] for each in _SPACES) and not trainer.get(_BLANK_AS_SUFFIX, b"\0")[0]
    )
    _require(has_usual_blanks, "its tokenizer treats blanks in its own way")
    denormalizer = [v for number, value in parts if number == _DENORMALIZER for n, _, v in fields(value) if n == _RULES]
    _require(not any(denormalizer), "its tokenizer changes characters of translations")
    return {
        "kind": kind,
        "pieces": [piece.get(1, b"").decode("utf-8") for piece in pieces],
        "scores": [float(f"{struct.unpack('<f', piece.get(2, bytes(4)))[0]:.9g}") for piece in pieces],
        "types": "".join(map(str, types)),
        "rules": base64.b64encode(normalizer.get(_RULES, b"")).decode("ascii"),
        "spellsBytes": bool(trainer.get(_BYTE_FALLBACK, b"\0")[0]),
    }


def _check_model(translator: Translator) -> None:
    """Raise ReportError if the page's program cannot compute the model."""
    model, tokenizer = translator.model, translator.tokenizer
    config: ModelConfig = model.config
    _require(not makes_trees(tokenizer.target_symbols), "it is a parser, whose trees need constraints")
    _require(not tokenizer.spells_no_words, "its tokenizer has one id for each word")
    _require(config.source_end, "it appends no end symbol to sources (source_end), which the display needs")
    _require(
        config.activation in ACTIVATIONS,
        f"its activation is {config.activation}; the page has {', '.join(ACTIVATIONS)}",
    )
    n, most = model.n_parameters, MOST_PARAMETERS
    _require(n <= most, f"it has {n:,} parameters, and the page at most {most:,}; other pages show such a model")
    finite = all(np.isfinite(values).all() for values in model.weights().values())
    _require(finite, "its weights are not finite numbers: the model has diverged; take another checkpoint")


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ReportError(f"live: the page cannot compute this model: {problem}")
