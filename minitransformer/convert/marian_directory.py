"""MarianMT models of Hugging Face's transformers, read: config.json, model.safetensors, vocab.json, *.spm.

Source: transformers 5.24, models/marian (https://github.com/huggingface/transformers), whose numbers are reproduced.
    Its position encodings have the frequencies of the paper, 10000^(-2i/D), with all sines before all cosines.  Marian
    itself has other frequencies.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from autograd.array import IntArray
from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation, PositionLayout
from minitransformer.convert.foreign_files import SOURCE_FILE, TARGET_FILE, SettingsFile, WeightsFile, read_bytes
from minitransformer.convert.layers import FAIRSEQ_NAMES, layer_sizes, read_layers
from minitransformer.convert.parts import Array, ConversionError, Parts, Vocabulary
from minitransformer.convert.positions import sines_first, with_features
from minitransformer.convert.vocabulary import embeddings, vocabulary_settings, with_tokenizer
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import START
from minitransformer.system.files import read_json

CONFIG, WEIGHTS, VOCABULARY, TARGET_VOCABULARY = "config.json", "model.safetensors", "vocab.json", "target_vocab.json"
TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer_config.json", "generation_config.json"
PREFIX = "model."  # of the names of all arrays in the layers
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
UNKNOWN_WORD, START_WORD = "<unk>", "<s>"
EMBEDDINGS = (  # older versions store all of them, though they are one matrix
    "model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight",
)  # fmt: skip
_COPIES = "|".join(EMBEDDINGS)
EPSILON = 1e-5  # of layer norm, PyTorch's default
FLOAT16_ERROR = 1e-3  # of a sine that is stored in float16

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
_ALLOWED = {  # settings of a configuration, and the values with which transformers computes what we do
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


def is_marian(path: Path) -> bool:
    """Return whether a directory has the configuration and the weights of a MarianMT model."""
    if not ((path / CONFIG).is_file() and (path / WEIGHTS).is_file()):
        return False
    fields = read_json(path / CONFIG)
    return isinstance(fields, dict) and fields.get("model_type") == "marian"


def read_marian(path: Path) -> Parts:
    """Read a MarianMT directory.

    Raises: ConversionError if a setting is missing, or if the model has what ours cannot express; CorruptFileError if a
    file is missing or corrupt.
    """
    settings, arrays = SettingsFile.load(path / CONFIG), WeightsFile.load(path / WEIGHTS)
    models = read_bytes(path / SOURCE_FILE), read_bytes(path / TARGET_FILE)
    depths = settings.of("encoder_layers", int), settings.of("decoder_layers", int)
    layers = _configuration(path, settings, depths)
    layout, order, added = _read_positions(arrays, layers["d_model"])
    has_own_padding = added is not None
    source, target, tokenizer = with_tokenizer(*_vocabularies(path, settings, has_own_padding), models)
    tables, bias = _tables(arrays, settings), arrays.take_if_there("final_logits_bias")
    if has_own_padding:
        tables = (tables[0][:-1], tables[1][:-1], tables[2][:-1])
        bias = None if bias is None else bias[..., :-1]
    weights = embeddings(source, target, tables, bias)
    starts_from = weights.get("target_embedding.weight", weights["source_embedding.weight"])[START]
    if added is not None and np.abs(added - math.sqrt(len(starts_from)) * starts_from).max() > FLOAT16_ERROR:
        raise _unknown_positions(arrays.path)
    weights |= read_layers(arrays, depths, FAIRSEQ_NAMES, norm="post", prefix=PREFIX)
    arrays.require_none_left(_COPIES)
    config = ModelConfig(
        **layers,
        **vocabulary_settings(source, target, weights),
        positions=layout,
        start="symbol" if starts_from.any() else "zero",
    )
    parts = Parts(config, weights, tokenizer, (source, target)).require_fitting()
    return dataclasses.replace(parts, weights=with_features(weights, np.argsort(order)))


def _vocabularies(path: Path, settings: SettingsFile, has_own_padding: bool) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target; they are equal if both languages share one.

    Args:
        has_own_padding: whether the padding symbol, the last word, is another word than the start symbol.
    """
    separate = SettingsFile.load_if_there(path / TOKENIZER_CONFIG).of("separate_vocabs", bool, False)
    source_ids = _ids(path / VOCABULARY)
    target_ids = _ids(path / TARGET_VOCABULARY) if separate else source_ids
    words = {number: word for word, number in target_ids.items()}
    start, end = (words.get(settings.of(name, int)) for name in ("decoder_start_token_id", "eos_token_id"))
    if start is None or end is None or start == end:
        raise ConversionError(
            f"{settings.path}: decoder_start_token_id and eos_token_id must be ids of two words of {VOCABULARY}"
        )
    if has_own_padding:
        if separate or target_ids[start] != max(target_ids.values()) or START_WORD not in target_ids:
            raise _unknown_positions(path / WEIGHTS)
        target_ids.pop(start)
        start = START_WORD
    source, target = (
        Vocabulary.of(ids, unknown=UNKNOWN_WORD, start=start, end=end) for ids in (source_ids, target_ids)
    )
    return source, target


def _ids(path: Path) -> dict[str, int]:
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise ConversionError(f"{path}: expected a JSON object with the id of each word; it is of another kind")
    return ids


def _tables(arrays: WeightsFile, settings: SettingsFile) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax.

    Our embeddings are always multiplied by √D.  If the model does not (scale_embedding), its embeddings are divided by
    √D, and are no longer the matrix of the softmax.
    """
    _, of_source, of_target, of_softmax = EMBEDDINGS
    is_softmax = settings.of("tie_word_embeddings", bool, True)
    if settings.of("share_encoder_decoder_embeddings", bool, True):
        source = target = arrays.take(*EMBEDDINGS)
    else:
        source, target = arrays.take(of_source), arrays.take(of_target, *[of_softmax] * is_softmax)
    output = target if is_softmax else arrays.take(of_softmax)
    if settings.of("scale_embedding", bool, False):
        return source, target, output
    scale = np.float32(1 / math.sqrt(settings.of("d_model", int)))
    return source * scale, target * scale, output


def _read_positions(arrays: WeightsFile, d_model: int) -> tuple[PositionLayout, IntArray, Array | None]:
    """Return the layout of the position encodings, the order of its features, and what is added to the first row.

    A table in the file replaces the sinusoids of transformers: so a model can have those of Marian, layout "halves".
    The decoder's first row is always that of the start symbol, whose embedding may be added to it (``marian_writing``).
    Raises: ConversionError if a table is of another kind.
    """
    orders: dict[PositionLayout, IntArray] = {"interleaved": sines_first(d_model), "halves": np.arange(d_model)}
    default = sinusoids(3, d_model)[:, orders["interleaved"]]
    tables = [default if table is None else table for table in map(arrays.take_if_there, POSITIONS)]
    for layout, order in orders.items():
        expected = [sinusoids(len(table), d_model, layout)[:, order] for table in tables]
        if all(map(_are_close, tables, expected)):
            return layout, order, None
        if _are_close(tables[0], expected[0]) and len(tables[1]) > 1 and _are_close(tables[1][1:], expected[1][1:]):
            return layout, order, tables[1][0] - expected[1][0]
    raise _unknown_positions(arrays.path)


def _unknown_positions(path: Path) -> ConversionError:
    return ConversionError(f"{path}: {POSITIONS[0]} is no table of sinusoids; trained positions are not supported")


def _are_close(table: Array, expected: Array) -> bool:
    return table.shape == expected.shape and bool(np.abs(table - expected).max() < FLOAT16_ERROR)


def _configuration(path: Path, settings: SettingsFile, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of the model's layers and of its search."""
    settings.refuse(_ALLOWED)
    d_ff, n_heads = (
        settings.common(int, f"encoder_{name}", f"decoder_{name}") for name in ("ffn_dim", "attention_heads")
    )
    generation = SettingsFile.load(path / GENERATION_CONFIG) if (path / GENERATION_CONFIG).exists() else settings
    return {
        **layer_sizes(settings.path, settings.of("d_model", int), d_ff, n_heads, depths),
        "activation": settings.choice(ACTIVATIONS, "activation_function", default="gelu"),
        "attention_bias": True,
        "layer_norm_eps": EPSILON,
        "p_drop": settings.of("dropout", float, 0.1),
        "label_smoothing_over": "V",
        "normalisation": "length",
        "alpha": generation.of("length_penalty", float, 1.0),
    }
