"""A writer of a model as two ONNX graphs: the encoder, and the decoder with a key/value cache.

Nodes compute the equations of ``minitransformer.model.layers``.  In the graphs, the sentences of a batch are
padded to equal lengths.  Axes are B, L (or S, T), D, H, K and V.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

from minitransformer.config import ModelConfig
from minitransformer.extras.convert.parts import SEARCH_ONLY, ConversionError, Parts, expressed
from minitransformer.extras.convert.vocabulary import warning_of_words
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.files import atomic_write

OPSET, IR_VERSION = 17, 8  # 17 is the first with LayerNormalization; ONNX 1.12 (2022) has this pair
LARGEST = 2**31 - 2**20  # bytes of weights: protobuf refuses files of 2 GiB, and nodes need some bytes, too

Value: TypeAlias = str  # the name of a value in a graph
Shape: TypeAlias = tuple[str | int, ...]  # a string names a dynamic axis


class GraphBuilder:
    """A graph under construction.  Weights become initialisers, under their own names, when a node first uses them."""

    def __init__(self, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._weights = weights
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._initialisers: dict[Value, np.ndarray[Any, Any]] = {}

    def add_input(self, name: str, shape: Shape, *, integers: bool = False) -> Value:
        """Add an input of float32, or of int64 if ``integers`` is true, and return the input."""
        self._inputs.append(_value_info(name, shape, integers=integers))
        return name

    def add_output(self, name: str, value: Value, shape: Shape) -> None:
        """Make a float32 value an output of the graph under the name ``name``."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_value_info(name, shape))

    def node(self, operator: str, *inputs: Value, **attributes: Any) -> Value:
        """Add a node with one output, and return the output."""
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def has_weight(self, name: str) -> bool:
        return name in self._weights

    def weight(self, name: str) -> Value:
        self._initialisers[name] = np.asarray(self._weights[name], np.float32)
        return name

    def floats(self, value: Any, name: str | None = None) -> Value:
        """Add a constant of float32, and return the constant."""
        return self._constant(np.asarray(value, np.float32), name)

    def integers(self, value: Any) -> Value:
        """Add a constant of int64, and return the constant."""
        return self._constant(np.asarray(value, np.int64), None)

    def _constant(self, value: np.ndarray[Any, Any], name: str | None) -> Value:
        name = name or f"constant_{len(self._initialisers)}"
        self._initialisers[name] = value
        return name

    def model(self, name: str, metadata: Mapping[str, str]) -> ModelProto:
        """Return the graph as a model that ONNX's checker accepts.

        Raises: ConversionError if the weights are too large for one file.
        """
        n_bytes = sum(array.nbytes for array in self._initialisers.values())
        if n_bytes > LARGEST:
            raise ConversionError(
                f"ONNX: the graph {name!r} has {n_bytes:,} bytes of weights, and a file of this format at most"
                f" {LARGEST:,}; convert the model to CTranslate2, which has no such limit"
            )
        initialisers = [numpy_helper.from_array(array, name) for name, array in self._initialisers.items()]
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, initialisers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="minitransformer",
            producer_version=version("minitransformer"),
        )
        helper.set_model_props(model, dict(metadata))
        checker.check_model(model, full_check=True)
        return model


def _value_info(name: str, shape: Shape, *, integers: bool = False) -> ValueInfoProto:
    of = TensorProto.INT64 if integers else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, of, shape)


N_POSITIONS = 2_048  # rows of the table of sinusoids: twice the longest source of a Translator
HIDDEN = -1e9  # score of a key that a query may not see; with −∞, a row without visible keys would become NaN


def positions_in_table(config: ModelConfig) -> int:
    """Return the number of rows of a graph's position table, the most tokens of a sentence with start or end symbol."""
    return config.longest_sentence if config.positions == "learned" else N_POSITIONS


def axis_size(g: GraphBuilder, x: Value, axis: int) -> Value:
    """Return the size of axis ``axis`` as a scalar."""
    return g.node("Squeeze", g.node("Shape", x, start=axis, end=axis + 1))


def integer_range(g: GraphBuilder, start: Value, limit: Value) -> Value:
    """Return the integers from ``start`` to ``limit`` − 1."""
    return g.node("Range", start, limit, g.integers(1))


def is_token(g: GraphBuilder, lengths: Value, indices: Value) -> Value:
    """Return where ``indices`` < ``lengths``: tokens, not padding.  Shapes: (B,) and (S,) → (B, 1, 1, S)."""
    return g.node("Less", indices, g.node("Unsqueeze", lengths, g.integers([1, 2, 3])))


def distances(g: GraphBuilder, queries: Value, keys: Value) -> Value:
    """Return position of query − position of key for all pairs.  Shapes: (T,) and (S,) → (T, S)."""
    return g.node("Sub", g.node("Unsqueeze", queries, g.integers([1])), keys)


def embedded(g: GraphBuilder, config: ModelConfig, side: str, table: str, ids: Value, indices: Value) -> Value:
    """Embed ids, and add the encodings of their positions.  Shapes: ids (B, L), indices (L,) → (B, L, D)."""
    start = config.start if side == "target" else "symbol"
    starts = g.node("Equal", ids, g.integers(START))
    if start == "end":
        ids = g.node("Where", starts, g.integers(END), ids)
    x = g.node("Mul", g.node("Gather", g.weight(table), ids), g.floats(math.sqrt(config.d_model)))
    if start == "zero":
        x = g.node("Where", g.node("Unsqueeze", starts, g.integers([2])), g.floats(0), x)
    return g.node("Add", x, g.node("Gather", position_table(g, config, side), indices))


def position_table(g: GraphBuilder, config: ModelConfig, side: str) -> Value:
    """Return a table whose row i encodes the position of the i-th token."""
    first = config.first_position
    if config.positions != "learned":
        return g.floats(sinusoids(first + N_POSITIONS, config.d_model, config.positions)[first:], "positions")
    table = g.weight(f"{side}_positions.weight")
    return g.node("Slice", table, g.integers([first]), g.integers([config.max_positions])) if first else table


def linear(g: GraphBuilder, name: str, x: Value) -> Value:
    """Compute x W + b, or x W if the model has no bias for this map."""
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
    """Apply a sublayer, named ``name``, with its residual connection and its layer norm."""
    norm = f"{name}_residual.norm"
    if config.norm == "post":
        return layer_norm(g, config, norm, g.node("Add", x, sublayer(x)))
    return g.node("Add", x, sublayer(layer_norm(g, config, norm, x)))


def last_norm(g: GraphBuilder, config: ModelConfig, stack: str, x: Value) -> Value:
    """Apply the layer norm at the end of a stack if ``norm`` is "pre"; otherwise return x."""
    return layer_norm(g, config, f"{stack}.norm", x) if config.norm == "pre" else x


def feed_forward(g: GraphBuilder, config: ModelConfig, name: str, x: Value) -> Value:
    """Compute the feed-forward network named ``name``."""
    return linear(g, f"{name}.output", _ACTIVATIONS[config.activation](g, linear(g, f"{name}.hidden", x)))


def _gelu(g: GraphBuilder, x: Value) -> Value:
    return _half_of_product(g, x, g.node("Erf", g.node("Mul", x, g.floats(np.sqrt(0.5)))))


def _gelu_tanh(g: GraphBuilder, x: Value) -> Value:
    cubed = g.node("Mul", g.node("Mul", x, x), x)
    inner = g.node("Add", x, g.node("Mul", cubed, g.floats(0.044715)))
    return _half_of_product(g, x, g.node("Tanh", g.node("Mul", inner, g.floats(np.sqrt(2 / np.pi)))))


def _half_of_product(g: GraphBuilder, x: Value, curve: Value) -> Value:
    """Compute x / 2 · (1 + curve)."""
    return g.node("Mul", g.node("Mul", x, g.floats(0.5)), g.node("Add", curve, g.floats(1)))


# Opset 17 has no operators for swish and the two GELUs.  Source: Ramachandran et al. 2017 (swish); Hendrycks and Gimpel
# 2016 (GELU and its approximation by tanh).
_ACTIVATIONS: dict[str, Callable[[GraphBuilder, Value], Value]] = {
    "relu": lambda g, x: g.node("Relu", x),
    "swish": lambda g, x: g.node("Mul", x, g.node("Sigmoid", x)),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}
CHOICES: Mapping[str, Mapping[Any, Any]] = {  # setting → values that a graph can express → function that adds nodes
    "activation": _ACTIVATIONS,
    "positions": dict.fromkeys(("interleaved", "halves", "learned")),
    "norm": {"post": None, "pre": None},
    "start": {"symbol": None, "zero": None, "end": None},
    "tied": {"all": None, "target": None, "none": None},
    **SEARCH_ONLY,
}


LOG = logging.getLogger(__name__)
ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder_step.onnx"


def write_onnx(parts: Parts, directory: Path) -> None:
    """Write ``encoder.onnx``, ``decoder_step.onnx`` and the tokenizer's sentencepiece models.

    Raises: ConversionError if a graph cannot express the model, or if its weights are too large for a file;
    CheckpointError if the directory cannot be written.
    """
    expressed("ONNX", parts.config, CHOICES)
    graphs = {ENCODER_FILE: encoder_graph(parts), DECODER_FILE: decoder_graph(parts)}
    for name, model in graphs.items():
        with atomic_write(directory / name) as temporary:
            temporary.write_bytes(model.SerializeToString())
    parts.tokenizer.save(directory)
    if warning := warning_of_words(parts.tokenizer.models):
        LOG.warning(warning)


def encoder_graph(parts: Parts) -> ModelProto:
    """Return the encoder as a graph: from source ids to the keys and values of each layer of the decoder.

    Inputs: ``source_ids`` (batch, source), int64, padded sentences, with end symbols if ``source_end`` is true;
    ``source_lengths`` (batch,), int64, including end symbols.
    Outputs: ``cross_keys.0`` (batch, H, source, K), ``cross_values.0`` (batch, H, source, V), and so on for each layer.
    """
    config, g = parts.config, GraphBuilder(parts.weights)
    ids = g.add_input("source_ids", ("batch", "source"), integers=True)
    lengths = g.add_input("source_lengths", ("batch",), integers=True)
    indices = integer_range(g, g.integers(0), axis_size(g, ids, 1))
    mask = is_token(g, lengths, indices)
    if config.neighbourhood is not None:
        apart = g.node("Abs", distances(g, indices, indices))
        mask = g.node("And", mask, g.node("LessOrEqual", apart, g.integers(config.neighbourhood)))
    x = embedded(g, config, "source", "source_embedding.weight", ids, indices)
    for i in range(config.n_layers):
        x = _encoder_layer(g, config, f"encoder.layers.{i}", x, mask)
    x = last_norm(g, config, "encoder", x)
    for i in range(config.decoder_depth):
        keys_values = keys_and_values(g, config, f"decoder.layers.{i}.source_attention", x)
        for value, (name, shape) in zip(keys_values, _cache_values(config, i, "cross_", "source"), strict=True):
            g.add_output(name, value, shape)
    return g.model("encoder", _metadata(config))


def decoder_graph(parts: Parts) -> ModelProto:
    """Return the decoder as a graph: from the newest target ids to the log-probabilities of the next ones.

    In a search, ``ids`` has one column.  If it has several, a column also sees the columns before it.

    Inputs: ``ids`` (batch, target), int64; ``source_lengths`` and the encoder's outputs; for each layer
    ``past_keys.0`` (batch, H, past, K) and ``past_values.0`` (batch, H, past, V), the keys and values of earlier ids.
    In the first call, past is 0.
    Outputs: ``log_probabilities`` (batch, target, vocabulary) in nats; for each layer ``keys.0``
    (batch, H, past + target, K) and ``values.0``, the keys and values of all ids so far.  The next call receives them
    as ``past_keys.0`` and ``past_values.0``.
    """
    config, g = parts.config, GraphBuilder(parts.weights)
    ids = g.add_input("ids", ("batch", "target"), integers=True)
    lengths = g.add_input("source_lengths", ("batch",), integers=True)
    layers = range(config.decoder_depth)
    cross = [_cache_inputs(g, config, i, "cross_", "source") for i in layers]
    past = [_cache_inputs(g, config, i, "past_", "past") for i in layers]

    n_past = axis_size(g, past[0][0], 2)
    n_keys = g.node("Add", n_past, axis_size(g, ids, 1))
    queries = integer_range(g, n_past, n_keys)
    self_mask = _causal_mask(g, config, queries, n_keys)
    source_mask = is_token(g, lengths, integer_range(g, g.integers(0), axis_size(g, cross[0][0], 2)))
    x = embedded(g, config, "target", _target_table(config), ids, queries)
    for i in layers:
        x = _decoder_layer(g, config, i, x, (past[i], self_mask), (cross[i], source_mask))
    logits = _logits(g, config, last_norm(g, config, "decoder", x))
    shape = ("batch", "target", config.vocabulary_size)
    g.add_output("log_probabilities", g.node("LogSoftmax", logits, axis=-1), shape)
    return g.model("decoder_step", _metadata(config))


def _encoder_layer(g: GraphBuilder, config: ModelConfig, name: str, x: Value, mask: Value) -> Value:
    def self_attention(y: Value) -> Value:
        keys_values = keys_and_values(g, config, f"{name}.self_attention", y)
        return attention(g, config, f"{name}.self_attention", y, keys_values, mask)

    x = residual(g, config, f"{name}.self_attention", x, self_attention)
    return _feed_forward_with_residual(g, config, name, x)


def _decoder_layer(
    g: GraphBuilder,
    config: ModelConfig,
    i: int,
    x: Value,
    past: tuple[tuple[Value, Value], Value],
    cross: tuple[tuple[Value, Value], Value],
) -> Value:
    """Apply a layer of the decoder, and output its keys and values.

    Args:
        past: the keys and values of earlier ids, and the mask of self-attention.
        cross: the keys and values of the source, and the mask of source attention.
    """
    name = f"decoder.layers.{i}"
    (past_keys, past_values), self_mask = past

    def self_attention(y: Value) -> Value:
        keys, values = keys_and_values(g, config, f"{name}.self_attention", y)
        keys = g.node("Concat", past_keys, keys, axis=2)
        values = g.node("Concat", past_values, values, axis=2)
        for value, (output, shape) in zip((keys, values), _cache_values(config, i, "", "past + target"), strict=True):
            g.add_output(output, value, shape)
        return attention(g, config, f"{name}.self_attention", y, (keys, values), self_mask)

    x = residual(g, config, f"{name}.self_attention", x, self_attention)
    source_attention = f"{name}.source_attention"
    x = residual(g, config, source_attention, x, lambda y: attention(g, config, source_attention, y, *cross))
    return _feed_forward_with_residual(g, config, name, x)


def _feed_forward_with_residual(g: GraphBuilder, config: ModelConfig, layer: str, x: Value) -> Value:
    name = f"{layer}.feed_forward"
    return residual(g, config, name, x, lambda y: feed_forward(g, config, name, y))


def _cache_values(config: ModelConfig, i: int, prefix: str, length: str) -> list[tuple[str, Shape]]:
    """Return the name and the shape of the keys of layer i, and of its values."""
    return [
        (f"{prefix}keys.{i}", ("batch", config.n_heads, length, config.d_k)),
        (f"{prefix}values.{i}", ("batch", config.n_heads, length, config.d_v)),
    ]


def _cache_inputs(g: GraphBuilder, config: ModelConfig, i: int, prefix: str, length: str) -> tuple[Value, Value]:
    keys, values = (g.add_input(name, shape) for name, shape in _cache_values(config, i, prefix, length))
    return keys, values


def _causal_mask(g: GraphBuilder, config: ModelConfig, queries: Value, n_keys: Value) -> Value:
    """Return the mask of self-attention: True where a query may see a key.  Shapes: queries (T,) → (T, past + T)."""
    before = distances(g, queries, integer_range(g, g.integers(0), n_keys))
    mask = g.node("GreaterOrEqual", before, g.integers(0))
    if config.neighbourhood is not None:
        mask = g.node("And", mask, g.node("LessOrEqual", before, g.integers(config.neighbourhood)))
    return mask


def _target_table(config: ModelConfig) -> str:
    return "source_embedding.weight" if config.tied == "all" else "target_embedding.weight"


def _logits(g: GraphBuilder, config: ModelConfig, x: Value) -> Value:
    table = "projection.weight" if config.tied == "none" else _target_table(config)
    logits = g.node("MatMul", x, g.node("Transpose", g.weight(table), perm=[1, 0]))
    return g.node("Add", logits, g.weight("softmax_bias")) if config.softmax_bias else logits


def _metadata(config: ModelConfig) -> dict[str, str]:
    return {
        "configuration": config.to_json(),
        "unknown_id": str(UNKNOWN),
        "start_id": str(START),
        "end_id": str(END),
        "source_end": str(int(config.source_end)),
        "longest_sentence": str(positions_in_table(config)),
    }
