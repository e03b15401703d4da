"""All numbers of a model for one sentence and its translation: the result of each step of the forward pass.

The model's own operations run; an observer stores their results.  A result has the name of a parameter, an argument of
the operation, such as "encoder.layers.0.self_attention.query.weight".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autograd import no_tape, to_host
from autograd.array import Array, FloatArray
from autograd.op import Operation, Run, observed
from autograd.ops.softmax import softmax_values
from autograd.tensor import Backward
from minitransformer.extras.known_layers import UnknownLayerError, require_known_layers
from minitransformer.extras.report.errors import ReportError
from minitransformer.model.batch import Batch, Ids
from minitransformer.model.symbols import START
from minitransformer.model.transformer import Transformer

QUERY = ".query.weight"


@dataclass
class HeadNumbers:
    """The numbers that one attention sublayer computes.

    Shapes: queries (T, H, K), keys (S, H, K), values (S, H, V), scores and weights (H, T, S), mixed (T, H, V).
    """

    queries: FloatArray
    keys: FloatArray
    values: FloatArray
    scores: FloatArray
    """Q Kᵀ / √d_k; −∞ where the mask forbids a key."""
    weights: FloatArray
    mixed: FloatArray
    """The result: the weights times the values."""


@dataclass
class SentenceNumbers:
    """The numbers of a forward pass, in the order of computation.

    ``results`` maps a parameter's name to the last result of an operation with this parameter; if an activation (swish
    or GELU) is applied to the result, the activation's result replaces it.  ``inputs`` maps the name to the first
    argument of the operation with the parameter.  ``attention`` has names of sublayers.
    """

    results: dict[str, FloatArray] = field(default_factory=dict)
    inputs: dict[str, FloatArray] = field(default_factory=dict)
    attention: dict[str, HeadNumbers] = field(default_factory=dict)
    embedded: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)
    """For source and target: the scaled embeddings and the positions' encodings, (T, D) each."""
    logits: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    """Logits of the next token after each decoder input, (T, W)."""

    def arrays(self) -> dict[str, FloatArray]:
        """Return all numbers but logits by name, such as "encoder.layers.0.self_attention.scores".

        Shapes: (T, D), or one matrix for each head: (H, T, K), (H, T, V) or (H, T, S).
        """
        named = dict(self.results)
        for side, (embedding, position) in zip(("source", "target"), self.embedded, strict=True):
            named |= {f"{side}.embedding": embedding, f"{side}.position": position, f"{side}.sum": embedding + position}
        for name, heads in self.attention.items():
            for kind, array in vars(heads).items():
                named[f"{name}.{kind}"] = array if kind in ("scores", "weights") else array.swapaxes(0, 1)
        return named


def sentence_numbers(model: Transformer, source: Ids, target: Ids) -> SentenceNumbers:
    """Compute the numbers of a sentence, with ``target`` as the decoder's input; both lack start and end symbols.

    Raises: ReportError if the model has a layer that is not the paper's.
    """
    plain = plain_model(model, "sentence")
    recorder = _Recorder(plain)
    with no_tape(), observed(recorder):
        batch = Batch.from_token_ids([source], [target], source_end=model.config.source_end)
        logits = plain.logits(batch)
    recorder.numbers.logits = to_host(logits.value)
    if recorder.rows:  # a target that starts from a zero vector: its embeddings and encodings
        embeddings, encodings = recorder.rows
        embeddings = embeddings * plain.target_embedding.scale
        embeddings[batch.decoder_ids == START] = 0
        recorder.numbers.embedded.append((embeddings, encodings))
    return recorder.numbers


def plain_model(model: Transformer, page: str) -> Transformer:
    """Return a copy of the model with weights that are not packed for search.

    Raises: ReportError, with the kind of ``page``, if the model has a layer that is not the paper's.
    """
    plain = type(model)(model.config, seed=None, device=model.device)
    plain.parameters.values[...] = model.parameters.values
    try:
        require_known_layers(plain)
    except UnknownLayerError as error:
        raise ReportError(f"{page}: the page cannot draw this model: {error}") from error
    return plain


class _Recorder:
    """An observer of operations that stores their results in ``numbers``."""

    def __init__(self, model: Transformer) -> None:
        self.numbers = SentenceNumbers()
        self.rows: list[FloatArray] = []
        """Embeddings, then encodings, if the model looks them up by separate operations."""
        self._names = {id(parameter.value): name for name, parameter in model.named_parameters()}
        self._newest = ""  # name of the parameter of the newest result
        self._newest_query = ""  # name of the newest query's weight

    def __call__(self, operation: Operation, run: Run, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        value, backward = run(*arguments, **static)
        match operation.__name__:
            case "embedding_with_positions":
                table, ids, encodings, positions = map(to_host, arguments[:4])
                self.numbers.embedded.append((static["scale"] * table[ids], encodings[positions]))
            case "embedding":
                self.rows.append(to_host(value))
            case "attention":
                sublayer = self._newest_query.removesuffix(QUERY)
                queries, keys, values, mixed = map(to_host, (*arguments, value))
                self.numbers.attention[sublayer] = _heads(queries, keys, values, static["mask"], mixed)
            case "swish" | "gelu" | "gelu_tanh":
                self.numbers.results[self._newest] = to_host(value)
            case _:
                self._record_result(value, arguments)
        return value, backward

    def _record_result(self, value: Array, arguments: Sequence[Any]) -> None:
        """Store the result of an operation with a parameter, under the name of its first parameter."""
        names = [self._names[id(x)] for x in arguments[1:] if id(x) in self._names]
        if not names:
            return
        self._newest = names[0]
        if self._newest.endswith(QUERY):
            self._newest_query = self._newest
        self.numbers.inputs[self._newest] = to_host(arguments[0])
        self.numbers.results[self._newest] = to_host(value)


def _heads(queries: FloatArray, keys: FloatArray, values: FloatArray, mask: Any, mixed: FloatArray) -> HeadNumbers:
    scores = np.einsum("thk,shk->hts", queries, keys) / math.sqrt(queries.shape[-1])
    bias = mask.bias(np, scores.dtype)
    if bias is not None:
        scores = scores + bias[0]
    return HeadNumbers(queries, keys, values, scores, softmax_values(scores), mixed)
