"""Models of ours, written as directories of CTranslate2.

Source: CTranslate2 4.8.5, ``python/ctranslate2/specs/transformer_spec.py``: revision 7 of ``TransformerSpec``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.convert.ctranslate2 import ACTIVATIONS, MODEL_FILE, NORMS, POSITIONS
from minitransformer.convert.ctranslate2_format import ModelFile, stored_as, write_model_file
from minitransformer.convert.ctranslate2_layers import layers_as_variables, linear_maps
from minitransformer.convert.ctranslate2_positions import STORED_TABLES, StoredTables
from minitransformer.convert.ctranslate2_settings import SETTINGS_FILE
from minitransformer.convert.ctranslate2_vocabulary import vocabulary_files
from minitransformer.convert.foreign_files import SOURCE_FILE, TARGET_FILE
from minitransformer.convert.layers import STACKS
from minitransformer.convert.parts import SEARCH_ONLY, ConversionError, Parts, expressed
from minitransformer.convert.pieces import tokens_of
from minitransformer.data.rare_words import is_of_words, splits_at_blanks
from minitransformer.data.tokenizer import JOINT_FILE, Tokenizer
from minitransformer.model.storage import Storage
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.files import atomic_write, write_text

Array = np.ndarray[Any, Any]

_MODEL, _REVISION = "TransformerSpec", 7
_EMBEDDINGS = {"encoder": "encoder/embeddings_0/weight", "decoder": "decoder/embeddings/weight"}
_PROJECTION = "decoder/projection/weight"
_OF_LAST_LAYER, _OF_FIRST_HEAD = -1, 1  # the attention that CTranslate2 returns as alignment, if it is asked for it
_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "activation": {name: number for number, name in ACTIVATIONS.items()},
    "norm": {name: number for number, name in NORMS.items()},
    "positions": STORED_TABLES,
    "start": {"symbol": (START, 0), "zero": (START, 1), "end": (END, 0)},  # the symbol, and whether it is a zero vector
    "tied": {"all": (True, True), "target": (False, True), "none": (False, False)},  # source and softmax to the target
    **SEARCH_ONLY,
}


def write_ctranslate2(parts: Parts, directory: Path, storage: Storage = "float32") -> None:
    """Write the directory of a CTranslate2 model, and the sentencepiece models beside it.

    Files: ``model.bin`` (binary version 6), ``config.json``, the vocabularies, and ``tokenizer.model`` or
    ``source.spm`` and ``target.spm``, unless words are separated by blanks.
    Raises: ConversionError if CTranslate2 has no such model, or if a weight is too large for ``storage``.
    """
    config, choices = parts.config, expressed("CTranslate2", parts.config, _CHOICES)
    _require_expressible(parts)
    variables = layers_as_variables(config, parts.weights) | _attributes(config, choices)
    aliases = _add_embeddings(variables, parts, *choices["tied"])
    _add_positions(variables, aliases, choices["positions"](config, parts.weights))
    file = ModelFile(_MODEL, _REVISION, stored_as(variables, storage))
    write_model_file(directory / MODEL_FILE, file, aliases)
    models = parts.tokenizer.models
    source, target = tokens_of(models[0]), tokens_of(models[-1])
    for name, content in vocabulary_files(source, target).items():
        write_text(directory / name, content)
    write_text(
        directory / SETTINGS_FILE,
        json.dumps(_settings(config, target, choices["start"][0]), indent=2, sort_keys=True) + "\n",
    )
    if not all(map(splits_at_blanks, models)):
        _write_tokenizer(parts.tokenizer, directory)


def _require_expressible(parts: Parts) -> None:
    """Raise ConversionError if CTranslate2 has no such model."""
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
    """Return the variables of a model that are single numbers."""
    both = {
        "num_heads": np.int16(config.n_heads),
        "pre_norm": np.int8(choices["norm"]),
        "activation": np.int8(choices["activation"]),
        "scale_embeddings": np.int8(1),
    }
    numbers = {f"{stack}/{name}": number for stack in STACKS for name, number in both.items()} | {
        "encoder/embeddings_merge": np.int8(0),
        "encoder/multi_query_attention": np.int8(0),
        "decoder/alignment_layer": np.int16(_OF_LAST_LAYER),
        "decoder/alignment_heads": np.int16(_OF_FIRST_HEAD),
        "decoder/start_from_zero_embedding": np.int8(choices["start"][1]),
    }
    if config.n_heads * config.d_k != config.d_model:
        attentions = {linear.theirs.rpartition("/")[0] for linear in linear_maps(config) if linear.has_optional_bias}
        numbers |= {f"{attention}/head_dim": np.int32(config.d_k) for attention in attentions}
    return {name: np.array(number) for name, number in numbers.items()}


def _add_embeddings(
    variables: dict[str, Array], parts: Parts, is_source_tied: bool, is_softmax_tied: bool
) -> dict[str, str]:
    """Add embeddings, projection and its bias; return the names of those that are the target's embeddings."""
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


def _add_positions(variables: dict[str, Array], aliases: dict[str, str], tables: StoredTables) -> None:
    """Add the tables of positions, unless CTranslate2 computes them; if both are one table, one is an alias."""
    if tables is not None:
        variables[POSITIONS["decoder"]] = tables[1]
        if tables[0] is tables[1]:
            aliases[POSITIONS["encoder"]] = POSITIONS["decoder"]
        else:
            variables[POSITIONS["encoder"]] = tables[0]


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
