"""Attention as one self-contained HTML file: no network, no fonts, no library."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template
from typing import Any, get_args

import numpy as np

from autograd.array import FloatArray
from minitransformer.report.attended import AttendedPair, Kind
from minitransformer.report.colours import head_colours
from minitransformer.report.merging import merge_words

SCRIPTS = ("state.js", "address.js", "controls.js", "draw.js")
WEIGHT_STEPS = 65_535  # weights are stored in 16 bits: 0 … 1 in steps of 1.5e-5


def attention_page(pair: AttendedPair) -> str:
    """Return the page: data, style, script, and a policy that allows only this style and this script.

    Words are data only: the script inserts them as text, and in the file they are escaped so that no word can end its
    HTML element.
    """
    script, style = "".join(map(_part, SCRIPTS)), _part("page.css")
    return Template(_part("page.html")).substitute(
        policy=_policy(script, style),
        title=html.escape(f"Attention: {pair.sentence}"),
        style=style,
        data=embedded_json(page_data(pair)),
        script=script,
    )


def page_data(pair: AttendedPair) -> dict[str, Any]:
    """Return the data that the page's script reads; "words" is None if no word has several pieces."""
    merged = merge_words(pair)
    return {
        "sentence": pair.sentence,
        "translation": pair.translation,
        "origin": pair.origin,
        "colours": head_colours(pair.weights.encoder.shape[1]),
        "pieces": _kinds(pair),
        "words": None if (merged.source, merged.outputs) == (pair.source, pair.outputs) else _kinds(merged),
    }


def _kinds(pair: AttendedPair) -> dict[str, Any]:
    kinds = {}
    for kind in get_args(Kind):
        queries, keys, weights = pair.of_kind(kind)
        kinds[kind] = {
            "layers": len(weights), "queries": queries, "keys": keys, "weights": packed_weights(weights),
        }  # fmt: skip
    return kinds


def packed_weights(weights: FloatArray) -> str:
    """Encode weights in [0, 1] as base64 of little-endian 16-bit numbers, in C order."""
    steps = np.rint(np.clip(weights, 0, 1) * WEIGHT_STEPS).astype("<u2")
    return base64.b64encode(steps.tobytes()).decode("ascii")


def embedded_json(data: Any) -> str:
    """Return JSON that is safe in a script element: it contains neither "<" nor characters beyond ASCII."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(script: str, style: str) -> str:
    """Return a Content-Security-Policy: allow only this script and this style; forbid loading, forms and base URLs."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _part(name: str) -> str:
    return (files("minitransformer.report") / "attention_page" / name).read_text(encoding="utf-8")
