"""A reader of CTranslate2 models.

A directory has ``model.bin``, the vocabularies and, since version 6 of the binary format, ``config.json``.  It has no
tokenizer, so that the reader must make one from sentencepiece models, or from the words in the vocabularies.  Matrices
are stored as (out, in).  One matrix has the queries, keys and values of self-attention, another matrix the keys and
values of encoder-decoder attention.

``model.bin`` is read in versions 2 to 6, and written in version 6.
All numbers are little-endian.  A string is its length in 2 bytes, the final NUL counted, and its bytes.

=====================  =================================================================================
version                4 bytes
name of the model      string, such as "TransformerSpec"
revision of the model  4 bytes
number of variables    4 bytes; then for each: name, rank (1 byte), dimensions (4 bytes each), and the data
data, version ≥ 4      type (1 byte), number of bytes (4 bytes), values
data, version < 4      bytes of a value (1 byte), number of values (4 bytes), values
number of aliases      4 bytes, version ≥ 3; then for each: alias, name of the variable
=====================  =================================================================================

Source: CTranslate2 4.8.5, ``python/ctranslate2/specs/model_spec.py`` and ``transformer_spec.py``,
``src/models/model.cc`` and ``src/layers/transformer.cc``.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from autograd.packed_weight import bfloat16_values
from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation, NormPlacement, Start
from minitransformer.extras.convert.foreign_files import (
    SettingsFile,
    WeightsFile,
    foreign_content,
    read_bytes,
    read_lines,
    sentencepiece_models,
)
from minitransformer.extras.convert.layers import (
    COMPUTED,
    STACKS,
    linear_maps,
    norms,
    recognise_sinusoids,
    sines_first,
    table_of,
    with_features,
)
from minitransformer.extras.convert.parts import Array, ContentError, ConversionError, Parts, Vocabulary, looked_up
from minitransformer.extras.convert.vocabulary import embeddings, vocabulary_settings, with_tokenizer
from minitransformer.model.symbols import END, START
from minitransformer.system.files import read_json

Weights = dict[str, Array]

MODEL_FILE = "model.bin"
ACTIVATIONS: dict[int, Activation] = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
NORMS: dict[int, NormPlacement] = {0: "post", 1: "pre"}
POSITIONS = {stack: f"{stack}/position_encodings/encodings" for stack in STACKS}
_HEADS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16}  # number of heads if the file has none
_OLDEST_REVISION, _NEWEST_REVISION = 2, 7


def is_ctranslate2(directory: Path) -> bool:
    """Return whether a directory has the files of a CTranslate2 model."""
    has_vocabulary = any(_vocabulary_path(directory, name) for name in (SHARED, SOURCE, TARGET))
    return has_vocabulary and (directory / MODEL_FILE).is_file()


def read_ctranslate2(directory: Path, source_spm: Path | None = None, target_spm: Path | None = None) -> Parts:
    """Read the directory of a CTranslate2 model.

    Args:
        source_spm, target_spm: paths of the sentencepiece models with which the model was trained; None for the files
            that ``sentencepiece_models`` finds.

    Raises: ConversionError if a file is missing, if ``model.bin`` is corrupt, or if our Transformer lacks a feature of
    the model; CorruptFileError if a JSON file is corrupt.
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
    source, target = read_vocabularies(directory, settings)
    require_symbols(directory, settings, source, target)
    source, target, tokenizer = with_tokenizer(source, target, models)
    config = _layers_config(path, file, variables, settings)
    bias = variables.optional("decoder/projection/bias", (target.n_foreign,))
    weights = embeddings(source, target, _tables(variables, config.d_model, source, target), bias)
    start: Start = "end" if settings.first == settings.end else "symbol"
    config = replace(
        config, **vocabulary_settings(source, target, weights), start="zero" if settings.starts_from_zero else start
    )
    config, weights = _read_positions(variables, config, weights | read_layers(variables, config))
    variables.require_none_left()
    return Parts(config, weights, tokenizer, (source, target))


def _layers_config(path: Path, file: ModelFile, variables: Variables, settings: Settings) -> ModelConfig:
    """Return the configuration of the layers.

    Raises: ConversionError if encoder and decoder have different settings, or a feature that our Transformer lacks.
    """

    def common_value(name: str, default: int) -> int:
        found = [variables.integer(default, f"{stack}/{name}") for stack in STACKS]
        if found[0] != found[1]:
            raise ConversionError(f"{path}: {name} is {found[0]} in the encoder and {found[1]} in the decoder")
        return found[0]

    n_heads, pre_norm, activation = (
        common_value(name, variables.integer(default, name))  # older files have one number for both stacks
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
        d_model=d_model,
        d_ff=d_ff,
        n_heads=n_heads,
        d_k=d_head,
        d_v=d_head,
        activation=looked_up(str(path), "activation", activation, ACTIVATIONS),
        norm=norm,
        layer_norm_eps=settings.layer_norm_eps,
        attention_bias=bool(variables.ending_with(*(f"attention/linear_{i}/bias" for i in range(3)))),
        source_end=settings.source_end,
        normalisation="length",
        alpha=1.0,
    )


def _depth(path: Path, variables: Variables, stack: str) -> int:
    n = 0
    while f"{stack}/layer_{n}/ffn/linear_0/weight" in variables:
        n += 1
    if not n:
        raise ConversionError(f"{path}: the {stack} has no layers; the file is corrupt, or a model of another kind")
    return n


def _head_size(path: Path, variables: Variables, d_model: int, n_heads: int) -> int:
    """Return the size of a head's queries, keys and values; CTranslate2 stores the size only if it is not D / h."""
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
    """Return an embedding table, multiplied by CTranslate2's factor and divided by √D, the factor of our model."""
    matrix = variables.array(f"{name}/weight", shape)
    factor = variables.scalar(f"{stack}/scale_embeddings", f"{name}/multiply_by_sqrt_depth")
    if factor is None or (factor.dtype == np.int8 and factor):
        return matrix
    relative = (1.0 if factor.dtype == np.int8 else float(factor)) / math.sqrt(shape[1])
    return matrix if math.isclose(relative, 1, rel_tol=1e-6) else matrix * np.float32(relative)


def _read_positions(variables: Variables, config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return configuration and weights with positions: sinusoids if both stacks have the same, else learned tables."""
    tables = [variables.table(POSITIONS[stack], config.d_model) for stack in STACKS]
    kinds = [COMPUTED if table is None else recognise_sinusoids(table) for table in tables]
    first = kinds[0]
    if first is not None and kinds[1] == first:
        if first.is_sorted:
            weights = with_features(weights, np.argsort(sines_first(config.d_model)))
        return replace(config, positions=first.layout, first_position=first.first_position), weights
    n = min(len(table) for table in tables if table is not None)
    learned = [table_of(COMPUTED, n, config.d_model) if table is None else table[:n] for table in tables]
    position_tables = {"source_positions.weight": learned[0], "target_positions.weight": learned[1]}
    return replace(config, positions="learned", max_positions=n), weights | position_tables


SETTINGS_FILE = "config.json"
_EPSILON = 1e-5  # of layer norms, if config.json has none


@dataclass(frozen=True)
class Settings:
    """A model's symbols and settings.

    ``first`` is the first input of the decoder.  Some decoders start with the end symbol: ``first`` is then equal to
    ``end``, not to ``start``.  If ``starts_from_zero``, the decoder's first input is a zero vector.
    """

    unknown: str
    end: str
    first: str
    start: str
    starts_from_zero: bool
    source_end: bool
    layer_norm_eps: float


def read_settings(directory: Path, variables: Variables) -> Settings:
    """Read the settings in ``config.json``, or in the variables of older models.

    A model whose decoder starts from a zero vector comes from Marian, and was trained with an end symbol after every
    source.  ``source_end`` is then True, even if ``add_source_eos`` is false in the file.  The file has false if the
    tokenizer of Hugging Face's transformers appended the symbol.
    Raises: ConversionError if a setting is of another type, or needs a feature that our Transformer lacks;
    CorruptFileError if ``config.json`` is corrupt.
    """
    has_source_bos = bool(variables.integer(0, "with_source_bos"))
    has_source_eos = bool(variables.integer(0, "with_source_eos"))
    has_target_bos = variables.integer(1, "with_target_bos")
    starts_from_zero = bool(variables.integer(0, "decoder/start_from_zero_embedding"))
    path = directory / SETTINGS_FILE
    file = SettingsFile.load_if_there(path)
    unknown, end = file.of("unk_token", str, "<unk>"), file.of("eos_token", str, "</s>")
    if file.is_null("decoder_start_token"):
        raise ConversionError(
            f"{path}: decoder_start_token is null: users give the first symbol of each translation, as in models of"
            " many languages, which ours cannot do; write one symbol there to convert the model for one language"
        )
    start = file.of("bos_token", str, "<s>")
    first = file.of("decoder_start_token", str, "<s>" if has_target_bos else end)
    if file.of("add_source_bos", bool, has_source_bos):
        raise ConversionError(f"{path}: sources begin with a start symbol (add_source_bos), which ours do not")
    return Settings(
        unknown,
        end,
        first,
        start if start not in (unknown, end) else "<s>",
        starts_from_zero,
        file.of("add_source_eos", bool, has_source_eos) or starts_from_zero,
        file.of("layer_norm_epsilon", float, _EPSILON),
    )


def require_symbols(directory: Path, settings: Settings, source: Vocabulary, target: Vocabulary) -> None:
    """Raise ConversionError if a vocabulary lacks a symbol that the model reads or writes."""
    if settings.unknown in (settings.first, settings.end):
        raise ConversionError(f"{directory}: {settings.unknown!r} is the unknown word and another symbol, too")
    needed = [(target, END), (source, END)] if settings.source_end else [(target, END)]
    if settings.first != settings.end:
        needed.append((target, START))
    for vocabulary, i in needed:
        if vocabulary.rows[i] is None:
            raise ConversionError(
                f"{directory}: the vocabulary lacks the symbol {vocabulary.words[i]!r}; name the model's own symbols"
                f" in {SETTINGS_FILE} (eos_token, decoder_start_token)"
            )


SHARED, SOURCE, TARGET = "shared_vocabulary", "source_vocabulary", "target_vocabulary"


def read_vocabularies(directory: Path, settings: Settings) -> tuple[Vocabulary, Vocabulary]:
    """Read the vocabularies of source and target, which are equal if the model has one for both.

    Raises: ConversionError if a file is missing or of another kind; CorruptFileError if a JSON file is corrupt.
    """
    shared = _vocabulary_path(directory, SHARED)
    paths = [shared or _vocabulary_path(directory, name) for name in (SOURCE, TARGET)]
    if None in paths:
        raise ConversionError(
            f"{directory}: expected {SHARED}.json (or .txt), or {SOURCE} and {TARGET}; is it a CTranslate2 model?"
        )
    source, target = (_vocabulary(path, settings) for path in paths if path)
    return source, target


def _vocabulary_path(directory: Path, name: str) -> Path | None:
    paths = directory / f"{name}.json", directory / f"{name}.txt"
    return next((path for path in paths if path.is_file()), None)


def _vocabulary(path: Path, settings: Settings) -> Vocabulary:
    """Return the vocabulary in a file; append the unknown word if the file lacks it, as CTranslate2 does.

    The file may lack the start and end symbols.  A model whose decoder starts with the end symbol does not use its
    start symbol.
    """
    words = read_json(path) if path.suffix == ".json" else read_lines(path)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConversionError(f"{path}: expected a list of words; the file is corrupt, or of another kind")
    ids = {word: row for row, word in enumerate(words)}
    if len(ids) < len(words):
        twice = next(word for i, word in enumerate(words) if ids[word] != i)
        raise ConversionError(f"{path}: the word {twice!r} occurs twice; every id needs a word of its own")
    ids.setdefault(settings.unknown, len(ids))
    start = settings.first if settings.first != settings.end else settings.start
    return Vocabulary.in_our_order(ids, (settings.unknown, start, settings.end))


def read_layers(variables: Variables, config: ModelConfig) -> dict[str, Array]:
    """Return the weights of all layers under our names; a bias that the model lacks is 0.

    Raises: ConversionError if a variable is missing, or has another shape than the configuration requires.
    """
    weights: dict[str, Array] = {}
    for linear in linear_maps(config):
        n_outputs, cuts = sum(linear.sizes), np.cumsum(linear.sizes)[:-1]
        matrix = variables.array(f"{linear.theirs}/weight", (n_outputs, linear.n_inputs))
        bias = variables.optional(f"{linear.theirs}/bias", (n_outputs,))
        parts = np.split(matrix, cuts), np.split(np.zeros(n_outputs, np.float32) if bias is None else bias, cuts)
        for name, weight, offset in zip(linear.ours, *parts, strict=True):
            weights[f"{name}.weight"] = np.ascontiguousarray(weight.T)
            if config.attention_bias or not linear.has_optional_bias:
                weights[f"{name}.bias"] = offset
    for theirs, ours in norms(config):
        weights[f"{ours}.gain"] = variables.array(f"{theirs}/gamma", (config.d_model,))
        weights[f"{ours}.bias"] = variables.array(f"{theirs}/beta", (config.d_model,))
    return weights


_IGNORED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
_UNSUPPORTED = {  # part of a variable's name → the feature that the variable belongs to
    "relative_": "relative positions",
    "rotary_": "rotary positions",
    "alibi": "attention with linear biases (ALiBi)",
    "linear_0_noact": "gated feed-forward networks",
    "layernorm_embedding": "a layer norm after the embeddings",
    "encoder/embeddings_1": "source features",
    "multi_query": "multi-query attention",
    "num_heads_kv": "multi-query attention",
    "queries_scale": "another factor of the queries than 1/√d_k",
    "scale_outputs": "a factor of the decoder's output",
    "shared_layer_norm": "parallel residual connections",
    "merged_encoder_attention": "one attention to source and target",
}


class Variables(WeightsFile):
    """The variables of a model: matrices and vectors in float32, and single numbers in their stored types."""

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Remove and return a variable.  Raises: ConversionError if it is missing or of another shape."""
        found = self.optional(name, shape)
        if found is None:
            raise self.unfit(name, f"shape {shape}")
        return found

    def optional(self, name: str, shape: tuple[int, ...]) -> Array | None:
        """Remove and return a variable; None if it is missing.  Raises: ConversionError if it is of another shape."""
        if name in self._arrays and self._arrays[name].shape != shape:
            raise self.unfit(name, f"shape {shape}")
        return self.take_if_there(name)

    def table(self, name: str, n_columns: int) -> Array | None:
        """Remove and return a matrix; None if missing.  Raises: ConversionError if it has not ``n_columns`` columns."""
        return self.array(name, (self.shape(name)[0], n_columns)) if name in self._arrays else None

    def scalar(self, *names: str) -> Array | None:
        """Remove the single numbers with these names, and return the first that exists, in its stored type, or None.

        Raises: ConversionError if the first is an array of several numbers.
        """
        found = [self._arrays.pop(name) for name in names if name in self._arrays]
        if found and found[0].size != 1:
            raise ConversionError(f"{self.path}: {names[0]}: expected a number, got an array {found[0].shape}")
        return found[0].reshape(()) if found else None

    def integer(self, default: int, *names: str) -> int:
        """Return the first of these numbers, or ``default``, as an int.  Raises: ConversionError if it is not whole."""
        found = self.scalar(*names)
        if found is not None and not (found.dtype.kind == "i" or float(found).is_integer()):
            raise ConversionError(f"{self.path}: {names[0]}: expected a whole number, got {found}")
        return default if found is None else int(found)

    def ending_with(self, *endings: str) -> list[str]:
        """Return the names of the variables whose names end with one of ``endings``."""
        return [name for name in self._arrays if name.endswith(endings)]

    def expect_supported(self) -> None:
        """Raise ConversionError if a variable belongs to a feature that our Transformer lacks."""
        for part, feature in _UNSUPPORTED.items():
            if found := [name for name in self.left() if part in name]:
                raise ConversionError(
                    f"{self.path}: the model has {feature} ({found[0]}), which this Transformer does not"
                )

    def left(self) -> list[str]:
        """Return the names of the remaining variables, without flags that are 0, and without ``_IGNORED``."""
        return sorted(
            name
            for name, array in self._arrays.items()
            if name.rpartition("/")[2] not in _IGNORED and not (array.ndim == 0 and not array)
        )


OLDEST_VERSION, NEWEST_VERSION = 2, 6
_FIRST_VERSION_WITH_ALIASES, _FIRST_VERSION_WITH_TYPES = 3, 4
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_TYPE_OF_SIZE = {1: "int8", 2: "int16", 4: "float32"}  # before version 4
_NUMPY_TYPES = {
    "float32": "<f4", "int8": "<i1", "int16": "<i2", "int32": "<i4", "float16": "<f2", "bfloat16": "<u2",
}  # fmt: skip
SCALE = "_scale"
_OLD_INT16_SCALE = 1_000.0  # scale of int16 variables if the file has none
_MOST_AXES = 4


@dataclass(frozen=True)
class ModelFile:
    """The content of a ``model.bin``: name and revision of the model, and its variables in their stored types.

    Variables that are stored in bfloat16 are float32 with the same values.
    """

    model: str
    revision: int
    variables: Mapping[str, Array]


def read_model_file(path: Path) -> ModelFile:
    """Read a ``model.bin``; an alias becomes a variable with the same array.

    Raises: ConversionError if the file cannot be read, is truncated or corrupt, is of an unknown version, has a
    variable of an unknown type, or has two different arrays of one name.
    """
    stream = io.BytesIO(read_bytes(path))
    with foreign_content(path, f"{MODEL_FILE} of CTranslate2"):
        version = _number(stream, "I")
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise ContentError(
                f"expected version {OLDEST_VERSION} to {NEWEST_VERSION} of CTranslate2's format, got {version};"
                " convert the original model again with a CTranslate2 that writes one of these"
            )
        model, revision = _string(stream), _number(stream, "I")
        variables: dict[str, Array] = {}
        for _ in range(_number(stream, "I")):
            name = _string(stream)
            _add(variables, name, _array(stream, name, version))
        for _ in range(_number(stream, "I") if version >= _FIRST_VERSION_WITH_ALIASES else 0):
            alias, name = _string(stream), _string(stream)
            for ending in ("", SCALE):
                if name in variables and name + ending in variables:
                    _add(variables, alias + ending, variables[name + ending])
        if stream.read(1):
            raise ValueError("bytes are left over")
    return ModelFile(model, revision, variables)


def _number(stream: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", stream.read(struct.calcsize(f"<{kind}")))[0])


def _string(stream: BinaryIO) -> str:
    length = _number(stream, "H")
    (content,) = struct.unpack(f"{length}s", stream.read(length))
    return str(content.removesuffix(b"\0").decode())


def _array(stream: BinaryIO, name: str, version: int) -> Array:
    shape = tuple(_number(stream, "I") for _ in range(_number(stream, "B")))
    kind = _number(stream, "B")
    if version >= _FIRST_VERSION_WITH_TYPES:
        type_name = TYPES[kind] if kind < len(TYPES) else f"number {kind}"
        n_bytes = _number(stream, "I")
    else:
        type_name = _TYPE_OF_SIZE.get(kind, f"of {kind} bytes")
        n_bytes = _number(stream, "I") * kind
    if type_name not in _NUMPY_TYPES:
        raise ContentError(
            f"{name} is of type {type_name}; expected one of {', '.join(_NUMPY_TYPES)}: convert the original model"
            " again with another quantization, such as float32"
        )
    dtype = np.dtype(_NUMPY_TYPES[type_name])
    if math.prod(shape) * dtype.itemsize != n_bytes or not n_bytes or len(shape) > _MOST_AXES:
        raise ValueError(f"{name} has shape {shape} of {type_name}, but {n_bytes:,} bytes")
    stored: Array = np.frombuffer(stream.read(n_bytes), dtype, math.prod(shape)).reshape(shape)
    return np.asarray(bfloat16_values(stored)) if type_name == "bfloat16" else stored


def _add(variables: dict[str, Array], name: str, array: Array) -> None:
    """Add a variable.  Raises: ValueError if ``variables`` has another array under this name."""
    known = variables.setdefault(name, array)
    if known is not array and not np.array_equal(known, array):
        raise ValueError(f"{name} is the name of two different arrays")


def dequantised(path: Path, variables: Mapping[str, Array]) -> dict[str, Array]:
    """Return all variables except scales; convert arrays to float32, and leave single numbers as they are.

    A stored integer is the value × scale, rounded.  An array has one scale, or a scale for each row.  Without a scale
    in the file, the scale of an int16 array is 1000.
    Raises: ConversionError if an array of int8 or int32 has no scale, or if scales are not positive numbers.
    """
    found: dict[str, Array] = {}
    for name, stored in variables.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in variables:
            continue
        if stored.ndim and stored.dtype.kind == "i":
            found[name] = _dequantise(path, name, stored, variables.get(name + SCALE))
        else:
            found[name] = stored.astype(np.float32, copy=False) if stored.ndim else stored
    return found


def _dequantise(path: Path, name: str, stored: Array, scale: Array | None) -> Array:
    if scale is None and stored.dtype.itemsize == 2:
        scale = np.array(_OLD_INT16_SCALE)
    fits = scale is not None and scale.dtype.kind == "f" and scale.shape in ((), stored.shape[:1])
    if scale is None or not fits or not (np.isfinite(scale) & (scale > 0)).all():
        got = "none" if scale is None else f"an array {scale.shape} of {scale.dtype}"
        raise ConversionError(
            f"{path}: {name} is quantised ({stored.dtype}): expected positive scales, one for each of its"
            f" {len(stored)} rows or one for all, in {name}{SCALE}; got {got}.  Convert the original model again"
        )
    columns = scale.astype(np.float32).reshape(-1, *[1] * (stored.ndim - 1))
    return stored.astype(np.float32) / columns
