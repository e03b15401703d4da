"""MarianMT models of Hugging Face's transformers, read: config.json, model.safetensors, vocab.json, *.spm.

Source: transformers 5.24, models/marian (https://github.com/huggingface/transformers), whose numbers are reproduced.
    Its position encodings have the frequencies of the paper, 10000^(-2i/D), with all sines before all cosines.  Marian
    itself has other frequencies.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from autograd.array import IntArray
from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation, PositionLayout, Tying
from minitransformer.convert.foreign_files import Arrays, Fields, read_bytes
from minitransformer.convert.parts import ConversionError, Parts
from minitransformer.convert.positions import sines_first, with_features
from minitransformer.convert.vocabulary import Array, Vocabulary, with_tokenizer
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import START
from minitransformer.system.files import read_arrays, read_json

CONFIG, WEIGHTS, VOCABULARY, TARGET_VOCABULARY = "config.json", "model.safetensors", "vocab.json", "target_vocab.json"
TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer_config.json", "generation_config.json"
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
UNKNOWN_WORD = "<unk>"
EMBEDDINGS = (  # older versions store all of them, though they are one matrix
    "model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight",
)  # fmt: skip
EPSILON = 1e-5  # of layer norm, PyTorch's default
FLOAT16_ERROR = 1e-3  # of a sine that is stored in float16

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
_MODULES = {  # of a layer: ours and theirs
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.out_proj",
    "self_attention_residual.norm": "self_attn_layer_norm",
    "source_attention.query": "encoder_attn.q_proj",
    "source_attention.key": "encoder_attn.k_proj",
    "source_attention.value": "encoder_attn.v_proj",
    "source_attention.output": "encoder_attn.out_proj",
    "source_attention_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.hidden": "fc1",
    "feed_forward.output": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
_REFUSED = {  # settings of a configuration, and the values with which transformers computes what we do
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
    fields = Fields.load(path / CONFIG)
    arrays = Arrays(path / WEIGHTS, read_arrays(path / WEIGHTS))
    models = read_bytes(path / SOURCE_MODEL), read_bytes(path / TARGET_MODEL)
    source, target, tokenizer = with_tokenizer(*_vocabularies(path, fields), models)
    matrices, tied = _embeddings(arrays, fields)
    weights = {"source_embedding.weight": source.matrix(matrices["source"])}
    embedded = target.matrix(matrices["target"])
    if tied != "all":
        weights["target_embedding.weight"] = embedded
    if tied == "none":
        weights["projection.weight"] = target.matrix(matrices["output"])
    bias = target.bias(arrays.find("final_logits_bias", default=np.zeros(len(matrices["output"]), np.float32)).ravel())
    if bias is not None:
        weights["softmax_bias"] = bias
    for ours, theirs in modules(fields.of("encoder_layers", int), fields.of("decoder_layers", int)):
        weights |= _module(ours, arrays, theirs)
    config = dataclasses.replace(
        _configuration(path, fields),
        tied=tied,
        vocabulary_size=len(target.words),
        source_vocabulary_size=None if len(source.words) == len(target.words) else len(source.words),
        softmax_bias=bias is not None,
        start="symbol" if embedded[START].any() else "zero",
    )
    if unread := [name for name in arrays.unread() if name not in {*EMBEDDINGS, *POSITIONS}]:
        raise ConversionError(f"{arrays.path}: weights that our models lack: {', '.join(unread[:5])}")
    return _with_positions(Parts(config, weights, tokenizer).require_fitting(), arrays)


def _vocabularies(path: Path, fields: Fields) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target; they are equal if both languages share one."""
    tokenizer = Fields.load(path / TOKENIZER_CONFIG) if (path / TOKENIZER_CONFIG).exists() else None
    separate = tokenizer is not None and tokenizer.of("separate_vocabs", bool, False)
    source_ids = _ids(path / VOCABULARY)
    target_ids = _ids(path / TARGET_VOCABULARY) if separate else source_ids
    words = {number: word for word, number in target_ids.items()}
    start, end = (words.get(fields.of(name, int)) for name in ("decoder_start_token_id", "eos_token_id"))
    if start is None or end is None or start == end:
        raise ConversionError(
            f"{fields.path}: decoder_start_token_id and eos_token_id must be ids of two words of {VOCABULARY}"
        )
    source, target = (
        Vocabulary.of(ids, unknown=UNKNOWN_WORD, start=start, end=end) for ids in (source_ids, target_ids)
    )
    return source, target


def _ids(path: Path) -> dict[str, int]:
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise ConversionError(f"{path}: expected a JSON object with the id of each word; it is of another kind")
    return ids


def _embeddings(arrays: Arrays, fields: Fields) -> tuple[dict[str, Array], Tying]:
    """Return the matrices of source, target and softmax, and which of them our model has as one.

    Our embeddings are always multiplied by √D.  If the model does not (scale_embedding), its embeddings are divided by
    √D, and are no longer the matrix of the softmax.
    """
    of_both, of_source, *of_target = EMBEDDINGS
    shared = fields.of("share_encoder_decoder_embeddings", bool, True)
    is_softmax = fields.of("tie_word_embeddings", bool, True)
    scale = 1.0 if fields.of("scale_embedding", bool, False) else 1 / math.sqrt(fields.of("d_model", int))
    if shared:
        source = target = arrays.find(of_both, of_source, *of_target)
    else:
        source, target = arrays.find(of_source), arrays.find(*of_target[: 1 + is_softmax])
    output = target if is_softmax else arrays.find("lm_head.weight")
    matrices = {"source": source * np.float32(scale), "target": target * np.float32(scale), "output": output}
    return matrices, "none" if scale != 1 or not is_softmax else "all" if shared else "target"


def modules(n_encoder_layers: int, n_decoder_layers: int) -> Iterator[tuple[str, str]]:
    """Yield our name and theirs of each linear map and each layer norm in the layers."""
    for stack, n_layers in (("encoder", n_encoder_layers), ("decoder", n_decoder_layers)):
        for i in range(n_layers):
            for ours, theirs in _MODULES.items():
                if stack == "decoder" or not ours.startswith("source_attention"):
                    yield f"{stack}.layers.{i}.{ours}", f"model.{stack}.layers.{i}.{theirs}"


def _module(ours: str, arrays: Arrays, theirs: str) -> dict[str, Array]:
    """Return weight and bias of a linear map, or gain and bias of a layer norm."""
    weight, bias = (arrays.find(f"{theirs}.{name}") for name in ("weight", "bias"))
    return {f"{ours}.gain" if ours.endswith(".norm") else f"{ours}.weight": weight.T, f"{ours}.bias": bias}


def _with_positions(parts: Parts, arrays: Arrays) -> Parts:
    """Return a model with the layout of the position encodings, and with features in its order.

    A table in the file replaces the sinusoids of transformers: so a model can have those of Marian, layout "halves".
    Raises: ConversionError if a table is of another kind.
    """
    d_model = parts.config.d_model
    orders: dict[PositionLayout, IntArray] = {"interleaved": sines_first(d_model), "halves": np.arange(d_model)}
    default = sinusoids(3, d_model)[:, orders["interleaved"]]
    tables = [arrays.find(name, default=default) for name in POSITIONS]
    for layout, order in orders.items():
        expected = [sinusoids(len(table), d_model, layout)[:, order] for table in tables]
        if all(map(_are_close, tables, expected)):
            config = dataclasses.replace(parts.config, positions=layout)
            return Parts(config, with_features(parts.weights, np.argsort(order)), parts.tokenizer)
    raise ConversionError(
        f"{arrays.path}: {POSITIONS[0]} is no table of sinusoids; trained positions are not supported"
    )


def _are_close(table: Array, expected: Array) -> bool:
    return table.shape == expected.shape and bool(np.abs(table - expected).max() < FLOAT16_ERROR)


def _configuration(path: Path, fields: Fields) -> ModelConfig:
    """Return the settings of the model's layers and of its search."""
    for name, value in _REFUSED.items():
        if fields.of(name, bool, value) != value:
            raise ConversionError(f"{fields.path}: {name} = {not value} is not supported")
    d_ff, n_heads = (_common(fields, f"encoder_{name}", f"decoder_{name}") for name in ("ffn_dim", "attention_heads"))
    activation, d_model = fields.of("activation_function", str, "gelu"), fields.of("d_model", int)
    if activation not in ACTIVATIONS:
        raise ConversionError(
            f"{fields.path}: activation_function = {activation} is not supported; only {', '.join(ACTIVATIONS)}"
        )
    generation = Fields.load(path / GENERATION_CONFIG) if (path / GENERATION_CONFIG).exists() else fields
    encoder_layers, decoder_layers = fields.of("encoder_layers", int), fields.of("decoder_layers", int)
    return ModelConfig(
        d_model=d_model,
        d_ff=d_ff,
        n_heads=n_heads,
        d_k=d_model // n_heads,
        d_v=d_model // n_heads,
        n_layers=encoder_layers,
        n_decoder_layers=None if encoder_layers == decoder_layers else decoder_layers,
        activation=ACTIVATIONS[activation],
        attention_bias=True,
        layer_norm_eps=EPSILON,
        p_drop=fields.of("dropout", float, 0.1),
        label_smoothing_over="V",
        normalisation="length",
        alpha=generation.of("length_penalty", float, 1.0),
    )


def _common(fields: Fields, of_encoder: str, of_decoder: str) -> int:
    """Return a setting that encoder and decoder must share."""
    value: int = fields.of(of_encoder, int)
    if value < 1 or fields.of(of_decoder, int) != value:
        raise ConversionError(
            f"{fields.path}: {of_encoder} and {of_decoder} must be the same positive number, as in our models;"
            f" got {value} and {fields.of(of_decoder, int)}"
        )
    return value
