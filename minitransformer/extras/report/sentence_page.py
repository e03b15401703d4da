"""One sentence through a model, step by step, as one self-contained HTML file."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from autograd.array import FloatArray
from autograd.ops.softmax import softmax_values
from minitransformer.config import ModelConfig
from minitransformer.extras.report.attended import END_MARK, START_MARK, TokenPair, origin_of, shown_pieces, token_pair
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.self_contained import page_of_view
from minitransformer.extras.report.sentence import SentenceNumbers, sentence_numbers
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.model.symbols import END, START

SCRIPTS, HEADING = ("state.js", "figures.js", "steps.js"), "One sentence through the model"
STEPS = 32_767  # a number is stored in 16 bits, as a multiple of its array's greatest magnitude / STEPS
MOST_NUMBERS = 8_000_000  # numbers of a page; they take 21 MB
N_BEST = 10  # number of next words that are shown


def sentence_page(
    translator: Translator, sentence: str, target: str | None = None, search: SearchConfig | None = None
) -> tuple[str, str]:
    """Return the page and the translation that it shows.

    Raises: ReportError for the reasons of ``token_pair``, if logits are not finite, or if a page would have more than
        MOST_NUMBERS numbers.
    """
    tokens = token_pair(translator, sentence, target, search)
    numbers = sentence_numbers(translator.model, tokens.source_ids, tokens.target_ids)
    if not np.isfinite(numbers.logits).all():
        raise ReportError("sentence: logits are not finite numbers; the model has diverged: take another checkpoint")
    data = {
        "sentence": tokens.sentence,
        "translation": tokens.translation,
        "origin": origin_of(translator),
        "colours": head_colours(translator.model.config.n_heads),
        "blocks": blocks_of(translator.model.config),
        "pieces": _pieces(tokens),
        "labels": {
            "source": [*shown_pieces(tokens.source_pieces), END_MARK],
            "target": [START_MARK, *shown_pieces(tokens.target_pieces)],
        },
        "arrays": _encoded_arrays(numbers, translator.model.config),
        "places": _places(translator, tokens, numbers),
    }
    title = f"{sentence} → {tokens.translation}"
    return page_of_view("sentence_page", SCRIPTS, HEADING, title, data), tokens.translation


def blocks_of(config: ModelConfig) -> list[dict[str, Any]]:
    """Return the blocks of the model, the steps of each, and the figures that show each step.

    A figure names an array (see ``SentenceNumbers.arrays``), and the side of the tokens that its rows and columns are.
    """
    return [
        _embedding("source"),
        *(_layer(config, "encoder", i) for i in range(config.n_layers)),
        _embedding("target"),
        *(_layer(config, "decoder", i) for i in range(config.decoder_depth)),
        {"name": "prediction", "steps": [{"kind": "prediction", "figures": []}]},
    ]


def _embedding(side: str) -> dict[str, Any]:
    """Return the block of one side's pieces, their embeddings and positions."""
    titles = {"embedding": "√d · embedding", "position": "position", "sum": "their sum"}
    figures = [_figure(title, side, f"{side}.{name}") for name, title in titles.items()]
    steps = [{"kind": f"{side}-pieces", "pieces": side, "figures": []}, {"kind": "embedding", "figures": figures}]
    return {"name": f"{side} words", "steps": steps}


def _layer(config: ModelConfig, stack: str, index: int) -> dict[str, Any]:
    """Return the block of one layer: the steps of each sublayer and of its norm."""
    name, side = f"{stack}.layers.{index}", "source" if stack == "encoder" else "target"
    own = {"self_attention": "self"} if stack == "encoder" else {"self_attention": "masked"}
    source = {} if stack == "encoder" else {"source_attention": "source"}
    steps = list[dict[str, Any]]()
    for sublayer, kind in (own | source | {"feed_forward": ""}).items():
        path = f"{name}.{sublayer}"
        work = _attention(path, kind, side) if kind else _network(config, path, side)
        norm = _norm(config, f"{path}_residual.norm.gain", side)
        steps += [norm, *work] if config.norm == "pre" else [*work, norm]
    depth = config.n_layers if stack == "encoder" else config.decoder_depth
    if config.norm == "pre" and index + 1 == depth:
        steps.append({**_norm(config, f"{stack}.norm.gain", side), "kind": "last-norm"})
    return {"name": f"{stack} {index + 1}", "steps": steps}


def _attention(name: str, kind: str, side: str) -> list[dict[str, Any]]:
    keys = "source" if kind == "source" else side
    figures = {
        "projections": [
            _figure(array, rows, f"{name}.{array}")
            for array, rows in (("queries", side), ("keys", keys), ("values", keys))
        ],
        "scores": [_figure("scores", side, f"{name}.scores", columns=keys)],
        "weights": [_figure("weights", side, f"{name}.weights", columns=keys)],
        "mixed": [_figure("weights · values", side, f"{name}.mixed")],
        "joined": [_figure("all heads · Wᴼ", side, f"{name}.output.weight")],
    }
    return [{"kind": step, "attention": kind, "figures": shown} for step, shown in figures.items()]


def _network(config: ModelConfig, name: str, side: str) -> list[dict[str, Any]]:
    return [
        {"kind": "hidden", "figures": [_figure(f"after {config.activation}", side, f"{name}.hidden.weight")]},
        {"kind": "network", "figures": [_figure("result", side, f"{name}.output.weight")]},
    ]


def _norm(config: ModelConfig, name: str, side: str) -> dict[str, Any]:
    kind = "pre-norm" if config.norm == "pre" else "norm"
    return {"kind": kind, "figures": [_figure("normalised", side, name)]}


def _figure(title: str, rows: str, array: str, **columns: str) -> dict[str, Any]:
    return {"title": title, "rows": rows, "array": array, **columns}


def _pieces(tokens: TokenPair) -> dict[str, list[dict[str, Any]]]:
    sides = {
        "source": zip([*tokens.source_pieces, END_MARK], [*tokens.source_ids, END], strict=True),
        "target": zip([START_MARK, *tokens.target_pieces], [START, *tokens.target_ids], strict=True),
    }
    return {side: [{"piece": piece, "id": i} for piece, i in pieces] for side, pieces in sides.items()}


def _places(translator: Translator, tokens: TokenPair, numbers: SentenceNumbers) -> list[list[dict[str, Any]]]:
    """Return N_BEST next words after each input: the most probable ones and the translation's word."""
    probabilities = softmax_values(numbers.logits.astype(np.float64))
    written, piece_of = [*tokens.target_ids, END], translator.tokenizer.target.id_to_piece
    places = []
    for logits, p, chosen in zip(numbers.logits, probabilities, written, strict=True):
        best = np.argsort(-p, kind="stable")[:N_BEST].tolist()
        words = best if chosen in best else [*best[:-1], chosen]
        pieces = [END_MARK if i == END else shown_pieces(["x", piece_of(i)])[1] for i in words]
        places.append(
            [
                {"piece": piece, "logit": float(logits[i]), "p": float(p[i]), "chosen": i == chosen}
                for piece, i in zip(pieces, words, strict=True)
            ]
        )
    return places


def _encoded_arrays(numbers: SentenceNumbers, config: ModelConfig) -> dict[str, Any]:
    """Return the arrays of all figures by name; the scores −∞ of forbidden keys become −STEPS − 1.

    Raises: ReportError if the page would have more than MOST_NUMBERS numbers.
    """
    arrays, steps = numbers.arrays(), [step for block in blocks_of(config) for step in block["steps"]]
    shown = {figure["array"]: arrays[figure["array"]] for step in steps for figure in step["figures"]}
    if sum(array.size for array in shown.values()) > MOST_NUMBERS:
        raise ReportError(
            f"sentence: more than {MOST_NUMBERS:,} numbers are too many for a page; give a shorter sentence"
        )
    return {name: _encoded(array) for name, array in shown.items()}


def _encoded(array: FloatArray) -> dict[str, Any]:
    finite = np.isfinite(array)
    greatest = float(np.abs(array, where=finite, out=np.zeros_like(array)).max(initial=0)) or 1.0
    steps = np.rint(np.where(finite, array, 0) / greatest * STEPS).astype("<i2")
    steps[~finite] = -STEPS - 1
    return {
        "shape": list(array.shape),
        "greatest": greatest,
        "steps": base64.b64encode(steps.tobytes()).decode("ascii"),
    }
