"""Writers of Marian's own models: a .npz file, or the binary file that Bergamot reads, with vocabularies."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.data.rare_words import splits_at_blanks
from minitransformer.extras.convert.marian_directory import require_expressible
from minitransformer.extras.convert.marian_npz import (
    ACTIVATIONS,
    DECODER_FILE,
    END_WORD,
    NORMS,
    REQUIRED,
    SETTINGS_ARRAY,
    UNKNOWN_WORD,
    parameter_names,
)
from minitransformer.extras.convert.parts import (
    SEARCH_ONLY,
    Array,
    ConversionError,
    Parts,
    expressed,
    warning_of_penalty,
)
from minitransformer.extras.convert.vocabulary import in_marians_order, tokens_of
from minitransformer.inference.search import SearchConfig
from minitransformer.model.storage import Storage
from minitransformer.model.symbols import END, UNKNOWN
from minitransformer.system.files import atomic_write, write_text

LOG = logging.getLogger(__name__)
MODEL_FILE, BINARY_FILE = "model.npz", "model.bin"
_TYPES = {"int8": 0x101, "float32": 0x404}  # numbers of types in the binary format
_ALIGNMENT = 256  # bytes
_EPSILON = 1e-6  # of layer norm
_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "activation": {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())},  # reversed: swish, not gelu
    "norm": {ours: theirs for theirs, ours in NORMS.items()},
    "positions": {"halves": None},
    "start": {"zero": None},
    "tied": {"all": "tied-embeddings-all", "target": "tied-embeddings", "none": None},
    **SEARCH_ONLY,
}


def write_marian_npz(parts: Parts, directory: Path, _: Storage = "float32") -> None:
    """Write ``model.npz``, ``decoder.yml`` and vocabularies, with which ``marian-decoder -c decoder.yml`` translates.

    Raises: ConversionError if Marian cannot express the model; CheckpointError if a file cannot be written.
    """
    np.savez(directory / MODEL_FILE, **_items(parts))
    write_text(directory / DECODER_FILE, _decoder(parts.config, MODEL_FILE, _write_vocabularies(parts, directory)))


def write_bergamot(parts: Parts, directory: Path, _: Storage = "float32") -> None:
    """Write a directory for Bergamot, Marian in a browser: ``model.bin``, ``config.yml`` and sentencepiece models.

    Raises: ConversionError if Marian cannot express the model, or if the tokenizer splits lines at blanks;
    CheckpointError if a file cannot be written.
    """
    items = _items(parts)
    if any(map(splits_at_blanks, parts.tokenizer.models)):
        raise ConversionError("tokenizer: Bergamot needs sentencepiece models, and this model splits lines at blanks")
    with atomic_write(directory / BINARY_FILE) as temporary:
        temporary.write_bytes(_binary(items))
    decoder = _decoder(parts.config, BINARY_FILE, _write_vocabularies(parts, directory))
    write_text(directory / "config.yml", decoder + _yaml({"gemm-precision": "float32"}))


def _items(parts: Parts) -> dict[str, Any]:
    """Return the content of a model's file: all arrays under Marian's names, and the settings.

    Marian has no start symbol, so its row of the embeddings is left out.  The probability of this symbol, which is
    never generated, is divided among the other words.
    """
    config, choices = parts.config, expressed("Marian", parts.config, _CHOICES)
    require_expressible("Marian", parts, (UNKNOWN_WORD, END_WORD))
    if config.layer_norm_eps != _EPSILON:
        LOG.warning(
            f"Marian's layer norm adds {_EPSILON} to the variance, this model {config.layer_norm_eps}: probabilities"
            " change slightly"
        )
    if penalty := warning_of_penalty(config, config.own_alpha, "Marian has no other"):
        LOG.warning(penalty)
    text = _yaml(_settings(config, choices)).encode() + b"\0"
    arrays = {**_arrays(parts), SETTINGS_ARRAY: np.frombuffer(text, np.int8)}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # the order that Marian reads


def _binary(items: Mapping[str, Array]) -> bytes:
    """Return arrays in Marian's binary format, version 1: headers, names, shapes, and values at multiples of 256 bytes.

    Source: marian-dev, ``src/common/binary.cpp`` and ``types.h``.
    """
    values = [array.tobytes() + bytes(-array.nbytes % _ALIGNMENT) for array in items.values()]
    names = [name.encode() + b"\0" for name in items]
    head = struct.pack("<2Q", 1, len(items))
    for name, array, content in zip(names, items.values(), values, strict=True):
        head += struct.pack("<4Q", len(name), _TYPES[array.dtype.name], array.ndim, len(content))
    head += b"".join(names)
    head += b"".join(struct.pack(f"<{array.ndim}i", *array.shape) for array in items.values())
    padding = -(len(head) + 8) % _ALIGNMENT
    return head + struct.pack("<Q", padding) + bytes(padding) + b"".join(values)


def _decoder(config: ModelConfig, model: str, vocabularies: list[str]) -> str:
    """Return the content of decoder.yml: the names of the model's files, and the settings of the search."""
    return _yaml(
        {
            "relative-paths": True,
            "models": [model],
            "vocabs": vocabularies,
            "beam-size": SearchConfig.beam,
            "normalize": config.own_alpha,
            "word-penalty": 0,
        }
    )


def _arrays(parts: Parts) -> dict[str, Array]:
    """Return the weights under Marian's names; vectors have the shape (1, n)."""
    config, weights = parts.config, parts.weights
    tables = {
        name: _in_marians_order(weights[name]) for name in weights if not name.startswith(("encoder.", "decoder."))
    }
    source, bias = tables["source_embedding.weight"], np.zeros(config.vocabulary_size - 1, np.float32)
    if config.tied == "all":
        arrays = {"Wemb": source}
    else:
        arrays = {"encoder_Wemb": source, "decoder_Wemb": tables["target_embedding.weight"]}
    if config.tied == "none":
        arrays["decoder_ff_logit_out_W"] = tables["projection.weight"].T
    arrays["decoder_ff_logit_out_b"] = tables.get("softmax_bias", bias)[None]
    for ours, theirs in parameter_names((config.n_layers, config.decoder_depth)):
        if ours.endswith(".weight"):
            arrays[theirs] = weights[ours]
        else:  # attention without biases has zeros
            arrays[theirs] = weights.get(ours, np.zeros(config.d_model, np.float32))[None]
    return arrays


def _in_marians_order(table: Array) -> Array:
    """Return the rows of a table in the order of Marian: the end, the unknown word, all words."""
    return np.concatenate([table[[END, UNKNOWN]], table[END + 1 :]])


def _settings(config: ModelConfig, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the model, which Marian reads from the array ``SETTINGS_ARRAY``."""
    before, after, top = choices["norm"]
    ties = {name: name == choices["tied"] for name in ("tied-embeddings", "tied-embeddings-all", "tied-embeddings-src")}
    return {
        **{name: values[0] for name, values in REQUIRED.items()},
        **ties,
        "dim-vocabs": [config.n_source_words - 1, config.vocabulary_size - 1],
        "dim-emb": config.d_model,
        "enc-depth": config.n_layers,
        "dec-depth": config.decoder_depth,
        "transformer-heads": config.n_heads,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": choices["activation"],
        "transformer-preprocess": before,
        "transformer-postprocess": f"d{after}",  # d is dropout
        "transformer-postprocess-top": top,
        "transformer-guided-alignment-layer": "last",
    }


def _write_vocabularies(parts: Parts, directory: Path) -> list[str]:
    """Write the vocabularies, and return the names of their files for source and target."""
    models = parts.tokenizer.models
    sides = ("",) if len(models) == 1 else (".src", ".trg")
    names = []
    for side, model in zip(sides, models, strict=True):
        if splits_at_blanks(model):
            names.append(f"vocab{side}.yml")
            words = [END_WORD, UNKNOWN_WORD, *tokens_of(model)[END + 1 :]]
            lines = [f"{json.dumps(word, ensure_ascii=False)}: {number}\n" for number, word in enumerate(words)]
            write_text(directory / names[-1], "".join(lines))
        else:
            names.append(f"vocab{side}.spm")
            (directory / names[-1]).write_bytes(in_marians_order(model))
    return [names[0], names[-1]]


def _yaml(settings: Mapping[str, Any]) -> str:
    """Return settings as YAML, of which JSON's values are a part."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
