"""Models of CTranslate2, read as models of ours.

A directory has ``model.bin``, the vocabularies and, since version 6 of the binary format, ``config.json``.  It has no
tokenizer: ours is made of sentencepiece models, or of the words themselves.

Source: CTranslate2 4.8.5, ``python/ctranslate2/specs/transformer_spec.py`` and ``src/layers/transformer.cc``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation, NormPlacement, Start
from minitransformer.convert.ctranslate2_format import ModelFile, dequantised, read_model_file
from minitransformer.convert.ctranslate2_layers import read_layers
from minitransformer.convert.ctranslate2_positions import COMPUTED, recognise_sinusoids, table_of
from minitransformer.convert.ctranslate2_settings import Settings, read_settings, require_symbols
from minitransformer.convert.ctranslate2_variables import Variables
from minitransformer.convert.ctranslate2_vocabulary import has_vocabulary, read_vocabularies
from minitransformer.convert.foreign_files import sentencepiece_models
from minitransformer.convert.layers import STACKS
from minitransformer.convert.parts import Array, ConversionError, Parts, Vocabulary, looked_up
from minitransformer.convert.positions import sines_between, with_features
from minitransformer.convert.vocabulary import embeddings, vocabulary_settings, with_tokenizer

Weights = dict[str, Array]

MODEL_FILE = "model.bin"
ACTIVATIONS: dict[int, Activation] = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
NORMS: dict[int, NormPlacement] = {0: "post", 1: "pre"}
POSITIONS = {stack: f"{stack}/position_encodings/encodings" for stack in STACKS}
_HEADS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16}  # if the file does not say how many
_OLDEST_REVISION, _NEWEST_REVISION = 2, 7


def is_ctranslate2(directory: Path) -> bool:
    """Return whether a directory has the files of a CTranslate2 model."""
    return (directory / MODEL_FILE).is_file() and has_vocabulary(directory)


def read_ctranslate2(directory: Path, source_spm: Path | None = None, target_spm: Path | None = None) -> Parts:
    """Read the directory of a CTranslate2 model.

    Args:
        source_spm, target_spm: the sentencepiece models with which the model was trained; see
            ``sentencepiece_models``.

    Raises: ConversionError if a file is missing, or if the model has what ours lacks; CorruptFileError if a JSON
    file is corrupt.
    """
    models = sentencepiece_models(directory, source_spm, target_spm)
    path = directory / MODEL_FILE
    file = read_model_file(path)
    if file.model not in _HEADS:
        raise ConversionError(f"{path}: expected a model of kind {' or '.join(_HEADS)}; got {file.model!r:.80}")
    if not _OLDEST_REVISION <= file.revision <= _NEWEST_REVISION:
        raise ConversionError(
            f"{path}: expected revision {_OLDEST_REVISION} to {_NEWEST_REVISION} of {file.model}, got"
            f" {file.revision}; convert the original model again with a CTranslate2 that writes one of these"
        )
    variables = Variables(path, dequantised(path, file.variables))
    variables.expect_supported()
    settings = read_settings(directory, variables)
    source, target = read_vocabularies(directory, settings.symbols)
    require_symbols(directory, settings, source, target)
    source, target, tokenizer = with_tokenizer(source, target, models)
    config = _layers_config(path, file, variables, settings)
    bias = variables.optional("decoder/projection/bias", (target.n_foreign,))
    weights = embeddings(source, target, _tables(variables, config.d_model, source, target), bias)
    start: Start = "end" if settings.symbols.first == settings.symbols.end else "symbol"
    config = replace(
        config,
        **vocabulary_settings(source, target, weights),
        start="zero" if settings.starts_from_zero else start,
    )
    config, weights = _read_positions(file, variables, config, weights | read_layers(variables, config))
    variables.require_none_left()
    return Parts(config, weights, tokenizer, (source, target))


def _layers_config(path: Path, file: ModelFile, variables: Variables, settings: Settings) -> ModelConfig:
    """Return the configuration of the layers.

    Raises: ConversionError if encoder and decoder differ, or if they have what ours lacks.
    """

    def of_both(name: str, default: int) -> int:
        found = [variables.integer(default, f"{stack}/{name}") for stack in STACKS]
        if found[0] != found[1]:
            raise ConversionError(f"{path}: {name} is {found[0]} in the encoder and {found[1]} in the decoder")
        return found[0]

    n_heads, pre_norm, activation = (
        of_both(name, variables.integer(default, name))  # older files have one number for both stacks
        for name, default in (("num_heads", _HEADS[file.model]), ("pre_norm", 1), ("activation", 0))
    )
    norm = looked_up(str(path), "pre_norm", pre_norm, NORMS)
    if norm == "pre" and any(f"{stack}/layer_norm/gamma" not in variables for stack in STACKS):
        raise ConversionError(f"{path}: a stack with norms before its sublayers has none at its end, as ours have")
    if "encoder/layer_0/ffn/layer_norm/beta" not in variables:
        raise ConversionError(f"{path}: layer norms have no bias (RMS norm?), which ours have")
    n_layers, n_decoder_layers = (_depth(path, variables, stack) for stack in STACKS)
    d_model, d_ff = variables.shape("encoder/layer_0/ffn/linear_1/weight")
    d_head = _head_size(path, variables, d_model, n_heads)
    return ModelConfig(
        n_layers=n_layers,
        n_decoder_layers=n_decoder_layers if n_decoder_layers != n_layers else None,
        d_model=d_model, d_ff=d_ff, n_heads=n_heads, d_k=d_head, d_v=d_head,
        activation=looked_up(str(path), "activation", activation, ACTIVATIONS),
        norm=norm,
        layer_norm_eps=settings.layer_norm_eps,
        attention_bias=bool(variables.ending_with(*(f"attention/linear_{i}/bias" for i in range(3)))),
        source_end=settings.source_end,
        normalisation="length",
        alpha=1.0,
    )  # fmt: skip


def _depth(path: Path, variables: Variables, stack: str) -> int:
    n = 0
    while f"{stack}/layer_{n}/ffn/linear_0/weight" in variables:
        n += 1
    if not n:
        raise ConversionError(f"{path}: the {stack} has no layers; the file is corrupt, or a model of another kind")
    return n


def _head_size(path: Path, variables: Variables, d_model: int, n_heads: int) -> int:
    """Return the size of a head's queries, keys and values, which CTranslate2 stores only if it is not D / h."""
    n_outputs, _ = variables.shape("encoder/layer_0/self_attention/linear_0/weight")
    size = d_model // max(1, n_heads)
    sizes = {variables.integer(size, name) for name in variables.ending_with("attention/head_dim")} or {size}
    if len(sizes) > 1 or 3 * n_heads * max(sizes) != n_outputs:
        raise ConversionError(
            f"{path}: expected {n_heads} heads of {sorted(sizes)} features in queries, keys and values; got"
            f" {n_outputs} features in all three"
        )
    return sizes.pop()


def _tables(variables: Variables, d_model: int, source: Vocabulary, target: Vocabulary) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax."""
    name = "encoder/embeddings_0" if "encoder/embeddings_0/weight" in variables else "encoder/embeddings"
    return (
        _embedding(variables, "encoder", name, (source.n_foreign, d_model)),
        _embedding(variables, "decoder", "decoder/embeddings", (target.n_foreign, d_model)),
        variables.array("decoder/projection/weight", (target.n_foreign, d_model)),
    )


def _embedding(variables: Variables, stack: str, name: str, shape: tuple[int, int]) -> Array:
    """Return an embedding, multiplied by what its factor is of ours, √D."""
    matrix = variables.array(f"{name}/weight", shape)
    factor = variables.scalar(f"{stack}/scale_embeddings", f"{name}/multiply_by_sqrt_depth")
    if factor is None or (factor.dtype == np.int8 and factor):
        return matrix
    relative = (1.0 if factor.dtype == np.int8 else float(factor)) / math.sqrt(shape[1])
    return matrix if math.isclose(relative, 1, rel_tol=1e-6) else matrix * np.float32(relative)


def _read_positions(
    file: ModelFile, variables: Variables, config: ModelConfig, weights: Weights
) -> tuple[ModelConfig, Weights]:
    """Return configuration and weights with positions: sinusoids where both tables contain the same, else learned."""
    tables = [variables.table(POSITIONS[stack], config.d_model) for stack in STACKS]
    kinds = [
        COMPUTED if table is None else recognise_sinusoids(table, file.variables[POSITIONS[stack]].dtype.name)
        for stack, table in zip(STACKS, tables, strict=True)
    ]
    first = kinds[0]
    if first is not None and kinds[1] == first:
        if first.is_sorted:
            weights = with_features(weights, sines_between(config.d_model))
        return replace(config, positions=first.layout, first_position=first.first_position), weights
    n = min(len(table) for table in tables if table is not None)
    learned = [table_of(COMPUTED, n, config.d_model) if table is None else table[:n] for table in tables]
    of_sides = {"source_positions.weight": learned[0], "target_positions.weight": learned[1]}
    return replace(config, positions="learned", max_positions=n), weights | of_sides
