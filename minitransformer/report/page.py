"""Attention as one HTML file that needs nothing else: no network, no fonts, no library."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template
from typing import Any, get_args

import numpy as np

from minitransformer.inference.attention import FloatArray
from minitransformer.report.attended import AttendedPair, Kind
from minitransformer.report.colours import head_colours

WEIGHT_STEPS = 65_535  # weights travel as 16 bits: 0 … 1 in steps of 1.5e-5


def attention_page(pair: AttendedPair) -> str:
    """The page: its data, its style and its script, and a policy that lets these two run and nothing else.

    Words are only ever data: the script puts them on the page as text, and within the file no character of theirs can
    end the element that they stand in.
    """
    script, style = _part("state.js") + _part("draw.js"), _part("page.css")
    return Template(_part("page.html")).substitute(
        policy=_policy(script, style),
        title=html.escape(f"Attention: {pair.sentence}"),
        style=style,
        data=embedded_json(page_data(pair)),
        script=script,
    )


def page_data(pair: AttendedPair) -> dict[str, Any]:
    """What the script is given."""
    kinds = {}
    for kind in get_args(Kind):
        queries, keys, weights = pair.of_kind(kind)
        kinds[kind] = {"queries": queries, "keys": keys, "weights": packed_weights(weights)}
    n_layers, n_heads = pair.weights.encoder.shape[:2]
    return {
        "sentence": pair.sentence,
        "translation": pair.translation,
        "origin": pair.origin,
        "layers": n_layers,
        "colours": head_colours(n_heads),
        "kinds": kinds,
    }


def packed_weights(weights: FloatArray) -> str:
    """Weights in [0, 1] as base64 of little-endian 16-bit numbers, the last axis running fastest."""
    steps = np.rint(np.clip(weights, 0, 1) * WEIGHT_STEPS).astype("<u2")
    return base64.b64encode(steps.tobytes()).decode("ascii")


def embedded_json(data: Any) -> str:
    """JSON that can stand in a script element: neither "<" nor a character beyond ASCII is left in it."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(script: str, style: str) -> str:
    """The Content-Security-Policy: exactly this script and this style; no loading, no forms, no other base."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _part(name: str) -> str:
    return (files("minitransformer.report") / "attention_page" / name).read_text(encoding="utf-8")
