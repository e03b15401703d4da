"""Attention as one self-contained HTML file."""

from __future__ import annotations

import base64
from typing import Any, get_args

import numpy as np

from autograd.array import FloatArray
from minitransformer.extras.report.attended import AttendedPair, Kind
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.merging import merge_words
from minitransformer.extras.report.self_contained import page_of_view

SCRIPTS = ("state.js", "address.js", "controls.js", "draw.js")
WEIGHT_STEPS = 65_535  # weights are stored in 16 bits: 0 … 1 in steps of 1.5e-5


def attention_page(pair: AttendedPair) -> str:
    """Return the HTML page of a sentence's attention."""
    title = f"Attention: {pair.sentence}"
    return page_of_view("attention_page", SCRIPTS, "Attention", title, page_data(pair))


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
        kinds[kind] = {"layers": len(weights), "queries": queries, "keys": keys, "weights": _in_16_bits(weights)}
    return kinds


def _in_16_bits(weights: FloatArray) -> str:
    """Encode weights in [0, 1] as base64 of little-endian 16-bit numbers, in C order."""
    steps = np.rint(np.clip(weights, 0, 1) * WEIGHT_STEPS).astype("<u2")
    return base64.b64encode(steps.tobytes()).decode("ascii")
