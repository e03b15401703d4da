"""One sentence through a model, step by step, as one self-contained HTML file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd.array import FloatArray
from autograd.ops.softmax import softmax_values
from minitransformer.extras.report.attended import END_MARK, START_MARK, TokenPair, origin_of, shown_pieces, token_pair
from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.self_contained import self_contained_page
from minitransformer.extras.report.sentence import HeadNumbers, SentenceNumbers, sentence_numbers
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.model.symbols import END

SCRIPTS = ("state.js", "figures.js", "steps.js")
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
    data = _Page(translator, tokens, numbers).data()
    return self_contained_page("sentence_page", SCRIPTS, f"{sentence} → {tokens.translation}", data), tokens.translation


class _Page:
    """The data that the page's script reads: matrices, and the steps that show them."""

    def __init__(self, translator: Translator, tokens: TokenPair, numbers: SentenceNumbers) -> None:
        self.translator, self.tokens, self.numbers = translator, tokens, numbers
        self.config = translator.model.config
        self.source = [*shown_pieces(tokens.source_pieces), END_MARK]
        self.inputs = [START_MARK, *shown_pieces(tokens.target_pieces)]
        self.matrices: list[dict[str, Any]] = []
        self.n_numbers = 0

    def data(self) -> dict[str, Any]:
        blocks = [
            self._embedding("source", self.source, 0),
            *(self._layer("encoder", i) for i in range(self.config.n_layers)),
            self._embedding("target", self.inputs, 1),
            *(self._layer("decoder", i) for i in range(self.config.decoder_depth)),
            {"name": "prediction", "steps": [self._prediction()]},
        ]
        return {
            "sentence": self.tokens.sentence,
            "translation": self.tokens.translation,
            "origin": origin_of(self.translator),
            "colours": head_colours(self.config.n_heads),
            "blocks": [block for block in blocks if block["steps"]],
            "matrices": self.matrices,
        }

    def _embedding(self, side: str, labels: list[str], index: int) -> dict[str, Any]:
        """Return the block of one side's pieces, their embeddings and positions."""
        is_source = index == 0
        pieces = [*self.tokens.source_pieces, END_MARK] if is_source else [START_MARK, *self.tokens.target_pieces]
        ids = self.tokens.source_ids if is_source else self.tokens.target_ids
        words = [
            {"piece": piece, "id": i} for piece, i in zip(pieces, [*ids, END] if is_source else [1, *ids], strict=True)
        ]
        steps = [{"kind": f"{side}-pieces", "pieces": words, "figures": []}]
        embedded, encodings = self.numbers.embedded[index]
        parts = {"√d · embedding": embedded, "position": encodings, "their sum": embedded + encodings}
        figures = [self._heat(title, labels, array) for title, array in parts.items()]
        steps.append({"kind": "embedding", "figures": figures})
        return {"name": f"{side} words", "steps": steps}

    def _layer(self, stack: str, index: int) -> dict[str, Any]:
        """Return the block of one layer: the steps of each sublayer and of its norm."""
        name, labels = f"{stack}.layers.{index}", self.source if stack == "encoder" else self.inputs
        own = {"self_attention": "self"} if stack == "encoder" else {"self_attention": "masked"}
        source = {} if stack == "encoder" else {"source_attention": "source"}
        steps = list[dict[str, Any]]()
        for sublayer, kind in (own | source | {"feed_forward": ""}).items():
            path = f"{name}.{sublayer}"
            work = self._attention(path, kind, labels) if kind else self._network(path, labels)
            norm = self._norm(f"{name}.{sublayer}_residual.norm.gain", labels)
            steps += [norm, *work] if self.config.norm == "pre" else [*work, norm]
        depth = self.config.n_layers if stack == "encoder" else self.config.decoder_depth
        if self.config.norm == "pre" and index + 1 == depth:
            steps.append({**self._norm(f"{stack}.norm.gain", labels), "kind": "last-norm"})
        return {"name": f"{stack} {index + 1}", "steps": steps}

    def _attention(self, name: str, kind: str, labels: list[str]) -> list[dict[str, Any]]:
        heads: HeadNumbers = self.numbers.attention[name]
        keys = self.source if kind == "source" else labels
        projections = [
            self._heat("queries", labels, heads.queries.swapaxes(0, 1)),
            self._heat("keys", keys, heads.keys.swapaxes(0, 1)),
            self._heat("values", keys, heads.values.swapaxes(0, 1)),
        ]
        mixed = self._heat("weights · values", labels, heads.mixed.swapaxes(0, 1))
        joined = self._heat("all heads · Wᴼ", labels, self.numbers.results[f"{name}.output.weight"])
        figures = {
            "projections": projections,
            "scores": [self._table("scores", labels, keys, heads.scores)],
            "weights": [self._table("weights", labels, keys, heads.weights)],
            "mixed": [mixed],
            "joined": [joined],
        }
        return [{"kind": step, "attention": kind, "figures": shown} for step, shown in figures.items()]

    def _network(self, name: str, labels: list[str]) -> list[dict[str, Any]]:
        results, activation = self.numbers.results, self.config.activation
        hidden, output = results[f"{name}.hidden.weight"], results[f"{name}.output.weight"]
        return [
            {"kind": "hidden", "figures": [self._heat(f"after {activation}", labels, hidden)]},
            {"kind": "network", "figures": [self._heat("result", labels, output)]},
        ]

    def _norm(self, name: str, labels: list[str]) -> dict[str, Any]:
        kind = "pre-norm" if self.config.norm == "pre" else "norm"
        return {"kind": kind, "figures": [self._heat("normalised", labels, self.numbers.results[name])]}

    def _prediction(self) -> dict[str, Any]:
        """Return a step with N_BEST next words after each input: the most probable ones and the translation's word."""
        probabilities = softmax_values(self.numbers.logits.astype(np.float64))
        written, piece_of = [*self.tokens.target_ids, END], self.translator.tokenizer.target.id_to_piece
        places = []
        for logits, p, chosen in zip(self.numbers.logits, probabilities, written, strict=True):
            best = np.argsort(-p, kind="stable")[:N_BEST].tolist()
            words = best if chosen in best else [*best[:-1], chosen]
            pieces = [END_MARK if i == END else shown_pieces([piece_of(i)])[0] for i in words]
            places.append(
                [
                    {"piece": piece, "logit": float(logits[i]), "p": float(p[i]), "chosen": i == chosen}
                    for piece, i in zip(pieces, words, strict=True)
                ]
            )
        return {"kind": "prediction", "inputs": self.inputs, "places": places, "figures": []}

    def _heat(self, title: str, rows: Sequence[str], array: FloatArray) -> dict[str, Any]:
        """Return a figure of an array (T, D), or (H, T, D) with one picture for each head; ``rows`` labels T."""
        return {"title": title, "rows": list(rows), "matrix": self._matrix(array)}

    def _table(self, title: str, rows: Sequence[str], columns: Sequence[str], array: FloatArray) -> dict[str, Any]:
        """Return a figure of an array (H, T, S) between two sequences of tokens; ``rows`` labels T, ``columns`` S."""
        return {**self._heat(title, rows, array), "columns": list(columns)}

    def _matrix(self, array: FloatArray) -> int:
        """Store an array in ``matrices`` and return its index; the scores −∞ of forbidden keys become −STEPS − 1.

        Raises: ReportError if the page would have more than MOST_NUMBERS numbers.
        """
        self.n_numbers += array.size
        if self.n_numbers > MOST_NUMBERS:
            raise ReportError(
                f"sentence: more than {MOST_NUMBERS:,} numbers are too many for a page; give a shorter sentence"
            )
        finite = np.isfinite(array)
        greatest = float(np.abs(array, where=finite, out=np.zeros_like(array)).max(initial=0)) or 1.0
        steps = np.rint(np.where(finite, array, 0) / greatest * STEPS).astype("<i2")
        steps[~finite] = -STEPS - 1
        encoded = base64.b64encode(steps.tobytes()).decode("ascii")
        self.matrices.append({"shape": list(array.shape), "greatest": greatest, "steps": encoded})
        return len(self.matrices) - 1
