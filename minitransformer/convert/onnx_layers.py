"""The layers of the Transformer as nodes of an ONNX graph: the same equations as in ``minitransformer.model.layers``.

Sentences are rows of equal length here, with padding at their end; axes are B, L (or S, T), D, H, K and V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.convert.onnx_graph import GraphBuilder, Value
from minitransformer.convert.parts import SEARCH_ONLY
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import END, START

N_POSITIONS = 2_048  # rows of the table of sinusoids: twice what a Translator reads
HIDDEN = -1e9  # score of a key that a query may not see; a finite number, so that padding cannot become NaN


def positions_in_table(config: ModelConfig) -> int:
    """Return the rows of a graph's position table: the longest sentence in tokens, start or end symbol included."""
    return config.longest_sentence if config.positions == "learned" else N_POSITIONS


def axis_size(g: GraphBuilder, x: Value, axis: int) -> Value:
    """Return the size of an axis as a scalar."""
    return g.node("Squeeze", g.node("Shape", x, start=axis, end=axis + 1))


def integer_range(g: GraphBuilder, start: Value, limit: Value) -> Value:
    """Return the integers from ``start`` up to, but without, ``limit``."""
    return g.node("Range", start, limit, g.integers(1))


def is_token(g: GraphBuilder, lengths: Value, indices: Value) -> Value:
    """Return whether each index is inside its sentence.  Shapes: lengths (B,), indices (S,) → (B, 1, 1, S)."""
    return g.node("Less", indices, g.node("Unsqueeze", lengths, g.integers([1, 2, 3])))


def distances(g: GraphBuilder, queries: Value, keys: Value) -> Value:
    """Return how far each key is before each query, negative if after.  Shapes: (T,) and (S,) → (T, S)."""
    return g.node("Sub", g.node("Unsqueeze", queries, g.integers([1])), keys)


def embedded(g: GraphBuilder, config: ModelConfig, side: str, table: str, ids: Value, indices: Value) -> Value:
    """Embed ids and add the encoding of their positions.  Shapes: ids (B, L), indices (L,) → (B, L, D)."""
    start = config.start if side == "target" else "symbol"
    starts = g.node("Equal", ids, g.integers(START))
    if start == "end":
        ids = g.node("Where", starts, g.integers(END), ids)
    x = g.node("Mul", g.node("Gather", g.weight(table), ids), g.floats(math.sqrt(config.d_model)))
    if start == "zero":
        x = g.node("Where", g.node("Unsqueeze", starts, g.integers([2])), g.floats(0), x)
    return g.node("Add", x, g.node("Gather", _POSITION_TABLES[config.positions](g, config, side), indices))


def _sinusoids(g: GraphBuilder, config: ModelConfig, side: str) -> Value:
    first = config.first_position
    return g.floats(sinusoids(first + N_POSITIONS, config.d_model, config.positions)[first:], "positions")


def _learned_positions(g: GraphBuilder, config: ModelConfig, side: str) -> Value:
    first, table = config.first_position, g.weight(f"{side}_positions.weight")
    return g.node("Slice", table, g.integers([first]), g.integers([config.max_positions])) if first else table


_POSITION_TABLES: dict[str, Callable[[GraphBuilder, ModelConfig, str], Value]] = {  # row i encodes the i-th token
    "interleaved": _sinusoids, "halves": _sinusoids, "learned": _learned_positions,
}  # fmt: skip


def linear(g: GraphBuilder, name: str, x: Value) -> Value:
    """Compute x W + b, or x W if the model has no such bias."""
    y = g.node("MatMul", x, g.weight(f"{name}.weight"))
    return g.node("Add", y, g.weight(f"{name}.bias")) if g.has_weight(f"{name}.bias") else y


def heads(g: GraphBuilder, config: ModelConfig, x: Value) -> Value:
    """Split features into heads.  Shapes: (B, L, H·K) → (B, H, L, K)."""
    split = g.node("Reshape", x, g.integers([0, 0, config.n_heads, -1]))
    return g.node("Transpose", split, perm=[0, 2, 1, 3])


def attention(
    g: GraphBuilder, config: ModelConfig, name: str, x: Value, keys_values: tuple[Value, Value], mask: Value
) -> Value:
    """Attend to keys and values under a mask.

    Shapes: x (B, T, D), keys (B, H, S, K), values (B, H, S, V), mask: broadcasts to (B, H, T, S); returns (B, T, D).
    """
    keys, values = keys_values
    queries = g.node("Mul", heads(g, config, linear(g, f"{name}.query", x)), g.floats(1 / math.sqrt(config.d_k)))
    scores = g.node("MatMul", queries, g.node("Transpose", keys, perm=[0, 1, 3, 2]))
    weights = g.node("Softmax", g.node("Where", mask, scores, g.floats(HIDDEN)), axis=-1)
    attended = g.node("Transpose", g.node("MatMul", weights, values), perm=[0, 2, 1, 3])
    return linear(g, f"{name}.output", g.node("Reshape", attended, g.integers([0, 0, -1])))


def keys_and_values(g: GraphBuilder, config: ModelConfig, name: str, x: Value) -> tuple[Value, Value]:
    """Compute keys and values of x.  Shapes: (B, S, D) → (B, H, S, K) and (B, H, S, V)."""
    keys, values = (heads(g, config, linear(g, f"{name}.{part}", x)) for part in ("key", "value"))
    return keys, values


def layer_norm(g: GraphBuilder, config: ModelConfig, name: str, x: Value) -> Value:
    """Normalise the features of each token."""
    gain, bias = g.weight(f"{name}.gain"), g.weight(f"{name}.bias")
    return g.node("LayerNormalization", x, gain, bias, axis=-1, epsilon=config.layer_norm_eps)


def residual(g: GraphBuilder, config: ModelConfig, name: str, x: Value, sublayer: Callable[[Value], Value]) -> Value:
    """Apply a sublayer with its residual connection; ``name`` is the sublayer's."""
    norm = f"{name}_residual.norm"
    if config.norm == "post":
        return layer_norm(g, config, norm, g.node("Add", x, sublayer(x)))
    return g.node("Add", x, sublayer(layer_norm(g, config, norm, x)))


def last_norm(g: GraphBuilder, config: ModelConfig, stack: str, x: Value) -> Value:
    """Apply the norm at the end of a stack, which only models with ``norm`` "pre" have."""
    return layer_norm(g, config, f"{stack}.norm", x) if config.norm == "pre" else x


def feed_forward(g: GraphBuilder, config: ModelConfig, name: str, x: Value) -> Value:
    """Compute the feed-forward network."""
    return linear(g, f"{name}.output", _ACTIVATIONS[config.activation](g, linear(g, f"{name}.hidden", x)))


def _relu(g: GraphBuilder, x: Value) -> Value:
    return g.node("Relu", x)


def _swish(g: GraphBuilder, x: Value) -> Value:
    return g.node("Mul", x, g.node("Sigmoid", x))


def _gelu(g: GraphBuilder, x: Value) -> Value:
    return _half_of_product(g, x, g.node("Erf", g.node("Mul", x, g.floats(np.sqrt(0.5)))))


def _gelu_tanh(g: GraphBuilder, x: Value) -> Value:
    cubed = g.node("Mul", g.node("Mul", x, x), x)
    inner = g.node("Add", x, g.node("Mul", cubed, g.floats(0.044715)))
    return _half_of_product(g, x, g.node("Tanh", g.node("Mul", inner, g.floats(np.sqrt(2 / np.pi)))))


def _half_of_product(g: GraphBuilder, x: Value, curve: Value) -> Value:
    """Compute x / 2 · (1 + curve)."""
    return g.node("Mul", g.node("Mul", x, g.floats(0.5)), g.node("Add", curve, g.floats(1)))


# Opset 17 has no operators for the last three.  Source: Ramachandran et al. 2017 (swish); Hendrycks and Gimpel 2016
# (GELU and its approximation by tanh).
_ACTIVATIONS = {"relu": _relu, "swish": _swish, "gelu": _gelu, "gelu_tanh": _gelu_tanh}
CHOICES: Mapping[str, Mapping[Any, Any]] = {  # what a graph can express, and by which nodes where these are a function
    "activation": _ACTIVATIONS,
    "positions": _POSITION_TABLES,
    "norm": {"post": None, "pre": None},
    "start": {"symbol": None, "zero": None, "end": None},
    "tied": {"all": None, "target": None, "none": None},
    **SEARCH_ONLY,
}
