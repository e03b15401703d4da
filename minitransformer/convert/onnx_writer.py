"""Write a model as two ONNX graphs: the encoder, and the decoder with a key/value cache."""

from __future__ import annotations

import logging
from pathlib import Path

from onnx import ModelProto

from minitransformer.config import ModelConfig
from minitransformer.convert.onnx_graph import GraphBuilder, Shape, Value
from minitransformer.convert.onnx_layers import (
    CHOICES,
    attention,
    axis_size,
    distances,
    embedded,
    feed_forward,
    integer_range,
    is_token,
    keys_and_values,
    last_norm,
    positions_in_table,
    residual,
)
from minitransformer.convert.parts import Parts, expressed
from minitransformer.convert.pieces import warning_of_words
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.files import atomic_write

LOG = logging.getLogger(__name__)
ENCODER_FILE, DECODER_FILE = "encoder.onnx", "decoder_step.onnx"


def write_onnx(parts: Parts, directory: Path) -> None:
    """Write ``encoder.onnx``, ``decoder_step.onnx`` and the tokenizer's sentencepiece models.

    Raises: ConversionError if a graph cannot express the model, or if it is too large; CheckpointError if the directory
    cannot be written.
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

    Inputs: ``source_ids`` (batch, source), int64, sentences with end symbols (if ``source_end``) and padding;
    ``source_lengths`` (batch,), int64, end symbols included.
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
        for value, (name, shape) in zip(keys_values, _cached(config, i, "cross_", "source"), strict=True):
            g.add_output(name, value, shape)
    return g.model("encoder", _metadata(config))


def decoder_graph(parts: Parts) -> ModelProto:
    """Return the decoder as a graph: from the newest target ids to the log-probabilities of the next ones.

    In a search the newest ids are one column; several columns are computed at once, each sees those before it.

    Inputs: ``ids`` (batch, target), int64; ``source_lengths`` and the encoder's outputs; ``past_keys.0``
    (batch, H, past, K), ``past_values.0`` (batch, H, past, V) and so on: of all earlier ids, at first empty.
    Outputs: ``log_probabilities`` (batch, target, vocabulary) in nats; ``keys.0`` (batch, H, past + target, K),
    ``values.0`` and so on: of all ids so far, the next call's past.
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
    logits = _projected(g, config, last_norm(g, config, "decoder", x))
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
        past: keys and values of earlier ids, and the mask of self-attention.
        cross: keys and values of the source, and their mask.
    """
    name = f"decoder.layers.{i}"
    (past_keys, past_values), self_mask = past

    def self_attention(y: Value) -> Value:
        keys, values = keys_and_values(g, config, f"{name}.self_attention", y)
        keys = g.node("Concat", past_keys, keys, axis=2)
        values = g.node("Concat", past_values, values, axis=2)
        for value, (output, shape) in zip((keys, values), _cached(config, i, "", "past + target"), strict=True):
            g.add_output(output, value, shape)
        return attention(g, config, f"{name}.self_attention", y, (keys, values), self_mask)

    x = residual(g, config, f"{name}.self_attention", x, self_attention)
    source_attention = f"{name}.source_attention"
    x = residual(g, config, source_attention, x, lambda y: attention(g, config, source_attention, y, *cross))
    return _feed_forward_with_residual(g, config, name, x)


def _feed_forward_with_residual(g: GraphBuilder, config: ModelConfig, layer: str, x: Value) -> Value:
    name = f"{layer}.feed_forward"
    return residual(g, config, name, x, lambda y: feed_forward(g, config, name, y))


def _cached(config: ModelConfig, i: int, prefix: str, length: str) -> list[tuple[str, Shape]]:
    """Return the names and shapes of a layer's keys and values."""
    return [
        (f"{prefix}keys.{i}", ("batch", config.n_heads, length, config.d_k)),
        (f"{prefix}values.{i}", ("batch", config.n_heads, length, config.d_v)),
    ]


def _cache_inputs(g: GraphBuilder, config: ModelConfig, i: int, prefix: str, length: str) -> tuple[Value, Value]:
    keys, values = (g.add_input(name, shape) for name, shape in _cached(config, i, prefix, length))
    return keys, values


def _causal_mask(g: GraphBuilder, config: ModelConfig, queries: Value, n_keys: Value) -> Value:
    """Return which keys each query may see.  Shapes: queries (T,) → (T, past + T)."""
    before = distances(g, queries, integer_range(g, g.integers(0), n_keys))
    mask = g.node("GreaterOrEqual", before, g.integers(0))
    if config.neighbourhood is not None:
        mask = g.node("And", mask, g.node("LessOrEqual", before, g.integers(config.neighbourhood)))
    return mask


def _target_table(config: ModelConfig) -> str:
    return "source_embedding.weight" if config.tied == "all" else "target_embedding.weight"


def _projected(g: GraphBuilder, config: ModelConfig, x: Value) -> Value:
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
