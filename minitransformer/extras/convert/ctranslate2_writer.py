"""A writer of models as directories of CTranslate2.

Source: CTranslate2 4.8.5, ``python/ctranslate2/specs/transformer_spec.py``: revision 7 of ``TransformerSpec``.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.data.rare_words import is_of_words, splits_at_blanks
from minitransformer.data.tokenizer import JOINT_FILE, Tokenizer
from minitransformer.extras.convert.ctranslate2 import (
    ACTIVATIONS,
    MODEL_FILE,
    NEWEST_VERSION,
    NORMS,
    POSITIONS,
    SCALE,
    SETTINGS_FILE,
    SHARED,
    SOURCE,
    TARGET,
    TYPES,
    ModelFile,
)
from minitransformer.extras.convert.foreign_files import SOURCE_FILE, TARGET_FILE
from minitransformer.extras.convert.layers import COMPUTED, STACKS, Sinusoids, linear_maps, norms, table_of
from minitransformer.extras.convert.parts import (
    SEARCH_ONLY,
    Array,
    ConversionError,
    Parts,
    expressed,
    warning_of_penalty,
)
from minitransformer.extras.convert.vocabulary import tokens_of
from minitransformer.model.storage import Storage
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.files import atomic_write, write_text

LOG = logging.getLogger(__name__)
_MODEL, _REVISION = "TransformerSpec", 7
_EMBEDDINGS = {"encoder": "encoder/embeddings_0/weight", "decoder": "decoder/embeddings/weight"}
_PROJECTION = "decoder/projection/weight"
_ALIGNMENT_LAYER, _ALIGNMENT_HEADS = -1, 1  # the last layer and its first head: CTranslate2 aligns words by them


N_STORED = 2_048  # rows of a stored table of sinusoids, as in CTranslate2's own converter of Marian models

_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "activation": {name: number for number, name in ACTIVATIONS.items()},
    "norm": {name: number for number, name in NORMS.items()},
    "positions": dict.fromkeys(("interleaved", "halves", "learned")),
    "start": {"symbol": (START, 0), "zero": (START, 1), "end": (END, 0)},  # the symbol, whether it is zero
    "tied": {"all": (True, True), "target": (False, True), "none": (False, False)},  # tied to target: source, softmax
    **SEARCH_ONLY,
}


def write_ctranslate2(parts: Parts, directory: Path, storage: Storage = "float32") -> None:
    """Write the directory of a CTranslate2 model, and ``tokenizer.model`` or ``source.spm`` and ``target.spm``.

    If words are separated by blanks, there are no sentencepiece models.
    Raises: as ``write_model``.
    """
    write_model(parts, directory, storage)
    if not all(map(splits_at_blanks, parts.tokenizer.models)):
        _write_tokenizer(parts.tokenizer, directory)
    reason = "CTranslate2's models store none, and its search has this by default"
    if penalty := warning_of_penalty(parts.config, 1, reason):
        LOG.warning(penalty)


def write_model(parts: Parts, directory: Path, storage: Storage) -> None:
    """Write ``model.bin`` (binary version 6), ``config.json`` and the vocabularies of a CTranslate2 model.

    Raises: ConversionError if CTranslate2 cannot express the model, or if a weight is not finite or too large for
    ``storage``; CheckpointError if a file cannot be written.
    """
    config, choices = parts.config, expressed("CTranslate2", parts.config, _CHOICES)
    _require_expressible(parts)
    variables = layers_as_variables(config, parts.weights) | _attributes(config, choices)
    aliases = _add_embeddings(variables, parts, *choices["tied"])
    _add_positions(variables, aliases, config, parts.weights)
    file = ModelFile(_MODEL, _REVISION, stored_as(variables, storage))
    write_model_file(directory / MODEL_FILE, file, aliases)
    models = parts.tokenizer.models
    source, target = tokens_of(models[0]), tokens_of(models[-1])
    vocabularies = {SHARED: source} if source == target else {SOURCE: source, TARGET: target}
    files: dict[str, Any] = {f"{name}.json": words for name, words in vocabularies.items()}
    files[SETTINGS_FILE] = _settings(config, target, choices["start"][0])
    for name, content in files.items():
        write_text(directory / name, json.dumps(content, indent=2, sort_keys=True) + "\n")


def _require_expressible(parts: Parts) -> None:
    """Raise ConversionError if CTranslate2 lacks the model's kind of attention or of tokenizer."""
    config = parts.config
    if config.neighbourhood is not None:
        raise ConversionError(
            "model.neighbourhood: CTranslate2 has no self-attention that is limited to near positions; train a model"
            " without this setting"
        )
    if config.d_k != config.d_v:
        raise ConversionError(
            f"model.d_k is {config.d_k}, model.d_v {config.d_v}: CTranslate2 has queries, keys and values of one size"
        )
    if is_of_words(parts.tokenizer.source):
        raise ConversionError("tokenizer: CTranslate2 has no classes of rare words, which parsers read")


def _attributes(config: ModelConfig, choices: dict[str, Any]) -> dict[str, Array]:
    """Return CTranslate2's variables that are single numbers."""
    both = {
        "num_heads": np.int16(config.n_heads),
        "pre_norm": np.int8(choices["norm"]),
        "activation": np.int8(choices["activation"]),
        "scale_embeddings": np.int8(1),
    }
    numbers = {f"{stack}/{name}": number for stack in STACKS for name, number in both.items()} | {
        "encoder/embeddings_merge": np.int8(0),
        "encoder/multi_query_attention": np.int8(0),
        "decoder/alignment_layer": np.int16(_ALIGNMENT_LAYER),
        "decoder/alignment_heads": np.int16(_ALIGNMENT_HEADS),
        "decoder/start_from_zero_embedding": np.int8(choices["start"][1]),
    }
    if config.n_heads * config.d_k != config.d_model:
        attentions = {linear.theirs.rpartition("/")[0] for linear in linear_maps(config) if linear.has_optional_bias}
        numbers |= {f"{attention}/head_dim": np.int32(config.d_k) for attention in attentions}
    return {name: np.array(number) for name, number in numbers.items()}


def _add_embeddings(
    variables: dict[str, Array], parts: Parts, is_source_tied: bool, is_softmax_tied: bool
) -> dict[str, str]:
    """Add the embeddings, and the matrix and the bias of the softmax, to ``variables``.

    Returns: aliases: the name of each tied matrix → the name of the matrix that is stored.
    """
    weights, aliases = parts.weights, {}
    if is_source_tied:
        variables[_EMBEDDINGS["decoder"]] = weights["source_embedding.weight"]
        aliases[_EMBEDDINGS["encoder"]] = _EMBEDDINGS["decoder"]
    else:
        variables[_EMBEDDINGS["encoder"]] = weights["source_embedding.weight"]
        variables[_EMBEDDINGS["decoder"]] = weights["target_embedding.weight"]
    if is_softmax_tied:
        aliases[_PROJECTION] = _EMBEDDINGS["decoder"]
    else:
        variables[_PROJECTION] = weights["projection.weight"]
    if parts.config.softmax_bias:
        variables["decoder/projection/bias"] = weights["softmax_bias"]
    return aliases


def _add_positions(
    variables: dict[str, Array], aliases: dict[str, str], config: ModelConfig, weights: Mapping[str, Array]
) -> None:
    """Add the tables of positions, unless CTranslate2 computes them; encoder and decoder share a table of sinusoids."""
    if config.positions == "learned":
        for stack, side in zip(STACKS, ("source", "target"), strict=True):
            variables[POSITIONS[stack]] = weights[f"{side}_positions.weight"][config.first_position :]
    elif (positions := Sinusoids(config.positions, config.first_position)) != COMPUTED:
        variables[POSITIONS["decoder"]] = table_of(positions, N_STORED, config.d_model)
        aliases[POSITIONS["encoder"]] = POSITIONS["decoder"]


def _settings(config: ModelConfig, words: list[str], start: int) -> dict[str, Any]:
    return {
        "add_source_bos": False,
        "add_source_eos": config.source_end,
        "bos_token": words[START],
        "decoder_start_token": words[start],
        "eos_token": words[END],
        "layer_norm_epsilon": config.layer_norm_eps,
        "multi_query_attention": False,
        "unk_token": words[UNKNOWN],
    }


def _write_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    names = (JOINT_FILE,) if tokenizer.is_joint else (SOURCE_FILE, TARGET_FILE)
    for name, model in zip(names, tokenizer.models, strict=True):
        with atomic_write(directory / name) as temporary:
            temporary.write_bytes(model)


def layers_as_variables(config: ModelConfig, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights of all layers under CTranslate2's names."""
    variables: dict[str, Array] = {}
    for linear in linear_maps(config):
        matrices = [weights[f"{name}.weight"].T for name in linear.ours]
        variables[f"{linear.theirs}/weight"] = np.concatenate(matrices)
        if config.attention_bias or not linear.has_optional_bias:
            biases = [weights[f"{name}.bias"] for name in linear.ours]
            variables[f"{linear.theirs}/bias"] = np.concatenate(biases)
    for theirs, ours in norms(config):
        variables[f"{theirs}/gamma"] = weights[f"{ours}.gain"]
        variables[f"{theirs}/beta"] = weights[f"{ours}.bias"]
    return variables


_MAX_INT8 = np.float32(127)


def write_model_file(path: Path, file: ModelFile, aliases: Mapping[str, str]) -> None:
    """Write a ``model.bin`` of version 6.

    Args:
        aliases: second name of a variable → its name in ``file``.

    Raises: CheckpointError if the file cannot be written.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as out:
        out.write(struct.pack("<I", NEWEST_VERSION) + _string(file.model) + struct.pack("<I", file.revision))
        out.write(struct.pack("<I", len(file.variables)))
        for name, values in sorted(file.variables.items()):
            dimensions = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
            kind = struct.pack("<BI", TYPES.index(values.dtype.name), values.nbytes)
            out.write(_string(name) + dimensions + kind)
            out.write(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
        out.write(struct.pack("<I", len(aliases)))
        for alias, name in sorted(aliases.items()):
            out.write(_string(alias) + _string(name))


def _string(text: str) -> bytes:
    encoded = text.encode() + b"\0"
    return struct.pack("<H", len(encoded)) + encoded


def stored_as(variables: Mapping[str, Array], storage: Storage) -> dict[str, Array]:
    """Return variables in the types in which they are stored.

    ``storage`` float16 converts float32 variables with at least one axis.  int8 converts the variables NAME/weight:
    each row is multiplied by its scale, 127 / (largest absolute value), and rounded.  NAME/weight_scale has the scales.
    Raises: ConversionError if a value is not finite, or too large for float16.
    """
    found = {}
    for name, values in variables.items():
        limit = np.finfo(np.float16 if storage == "float16" else np.float32).max
        if values.dtype.kind == "f" and not (np.abs(values) <= limit).all():
            raise ConversionError(
                f"{name}: expected finite values of at most {limit:g} ({storage}), got {np.abs(values).max():g};"
                " store the model as float32, or take another checkpoint if it has diverged"
            )
        found[name] = values
        if storage == "float16" and values.ndim and values.dtype.kind == "f":
            found[name] = values.astype(np.float16)
        elif storage == "int8" and name.endswith("/weight"):
            largest = np.abs(values).max(axis=1)
            least = _MAX_INT8 / np.finfo(np.float32).max  # the scale of smaller values would be infinite
            scale = _MAX_INT8 / np.where(largest == 0, _MAX_INT8, np.maximum(largest, least))
            found[name] = np.rint(values * scale[:, None]).astype(np.int8)
            found[name + SCALE] = scale
    return found
