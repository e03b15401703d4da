"""A reader of JoeyNMT's Transformers.

Source: JoeyNMT 2.3, ``joeynmt/transformer_layers.py``, ``encoders.py``, ``decoders.py`` and ``vocabulary.py``
    (https://github.com/joeynmt/joeynmt).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation
from minitransformer.extras.convert.foreign_files import (
    SettingsFile,
    WeightsFile,
    foreign_content,
    read_lines,
    sentencepiece_models,
    weights_file,
)
from minitransformer.extras.convert.layers import (
    STACKS,
    ModuleNames,
    Sinusoids,
    count_layers,
    layer_sizes,
    read_layers,
    recognise_sinusoids,
)
from minitransformer.extras.convert.parts import Array, ConversionError, Parts, Vocabulary
from minitransformer.extras.convert.vocabulary import embeddings, vocabulary_settings, with_tokenizer

CONFIG, CHECKPOINTS = "config.json", ("best.ckpt", "*.ckpt")
VOCABULARIES = ("src_vocab.txt", "trg_vocab.txt")
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
_NAMES: dict[str, ModuleNames] = {  # for each stack: our name of a module → JoeyNMT's
    "encoder": {
        "self_attention.query": "src_src_att.q_layer",
        "self_attention.key": "src_src_att.k_layer",
        "self_attention.value": "src_src_att.v_layer",
        "self_attention.output": "src_src_att.output_layer",
        "self_attention_residual.norm": "layer_norm",
        "feed_forward.hidden": "feed_forward.pwff_layer.0",
        "feed_forward.output": "feed_forward.pwff_layer.3",
        "feed_forward_residual.norm": "feed_forward.layer_norm",
    },
    "decoder": {
        "self_attention.query": "trg_trg_att.q_layer",
        "self_attention.key": "trg_trg_att.k_layer",
        "self_attention.value": "trg_trg_att.v_layer",
        "self_attention.output": "trg_trg_att.output_layer",
        "self_attention_residual.norm": "x_layer_norm",
        "source_attention.query": "src_trg_att.q_layer",
        "source_attention.key": "src_trg_att.k_layer",
        "source_attention.value": "src_trg_att.v_layer",
        "source_attention.output": "src_trg_att.output_layer",
        "source_attention_residual.norm": "dec_layer_norm",
        "feed_forward.hidden": "feed_forward.pwff_layer.0",
        "feed_forward.output": "feed_forward.pwff_layer.3",
        "feed_forward_residual.norm": "feed_forward.layer_norm",
    },
}
_EMBEDDINGS, _OUTPUT = ("src_embed.lut.weight", "trg_embed.lut.weight"), "decoder.output_layer.weight"


def is_joeynmt(path: Path) -> bool:
    """Return whether a directory has the weights, the configuration and the vocabularies of a JoeyNMT model.

    Raises: ConversionError if it has several .ckpt checkpoints, and none of the names in ``CHECKPOINTS`` or
    ``WEIGHTS``.
    """
    has_texts = all((path / name).is_file() for name in (CONFIG, *VOCABULARIES))
    return has_texts and weights_file(path, *CHECKPOINTS).is_file()


def read_joeynmt(directory: Path, source_spm: Path | None = None, target_spm: Path | None = None) -> Parts:
    """Read a checkpoint, ``config.json`` and the vocabularies; for subwords see ``sentencepiece_models``.

    The padding symbol becomes an ordinary word of our vocabulary, because JoeyNMT's softmax has a row for it.
    Raises: ConversionError if a vocabulary or a setting is missing, if a .ckpt checkpoint is corrupt, or if our
    Transformer lacks a feature of the model; CheckpointError if ``config.json`` or ``model.safetensors`` is missing or
    corrupt.
    """
    models = sentencepiece_models(directory, source_spm, target_spm)
    settings = SettingsFile.load(directory / CONFIG)
    arrays = WeightsFile.load(weights_file(directory, *CHECKPOINTS), "model_state")
    for stack in STACKS:
        settings.choice({"transformer": None}, f"model.{stack}.type", default="recurrent")
        settings.refuse({f"model.{stack}.alpha": 1.0})  # a factor of residual connections
    vocabularies = [_vocabulary(directory / name, settings) for name in VOCABULARIES]
    source, target, tokenizer = with_tokenizer(vocabularies[0], vocabularies[1], models)
    depths = count_layers(arrays)
    config = _configuration(settings, arrays, depths)
    weights = embeddings(source, target, _tables(settings, arrays, config["d_model"]))
    weights |= read_layers(arrays, depths, _NAMES, norm=config["norm"])
    _require_sinusoids(arrays)
    arrays.require_none_left()
    model_config = ModelConfig(**config, **vocabulary_settings(source, target, weights))
    return Parts(model_config, weights, tokenizer, (source, target))


def _vocabulary(path: Path, settings: SettingsFile) -> Vocabulary:
    """Read a vocabulary: each line has a word.  The settings name the symbols."""
    words = read_lines(path)
    ids = {word: i for i, word in enumerate(words)}
    if len(ids) < len(words):
        raise ConversionError(f"{path}: expected each word once; it is of another kind")
    defaults = {"unknown": ("unk", "<unk>"), "start": ("bos", "<s>"), "end": ("eos", "</s>")}
    symbols = {
        ours: settings.of(f"data.special_symbols.{theirs}_token", str, word)
        for ours, (theirs, word) in defaults.items()
    }
    with foreign_content(path, "a vocabulary"):
        return Vocabulary.of(ids, **symbols)


def _configuration(settings: SettingsFile, arrays: WeightsFile, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of the layers and of the search.

    Raises: ConversionError if a setting is missing or not supported.
    """
    n_heads = settings.common(int, *(f"model.{stack}.num_heads" for stack in STACKS))
    usual = "pre" if "encoder.layer_norm.weight" in arrays else "post"  # the first versions lack the setting
    norms, activations = ([f"model.{stack}.{name}" for stack in STACKS] for name in ("layer_norm", "activation"))
    d_ff, d_model = arrays.shape("encoder.layers.0.feed_forward.pwff_layer.0.weight")
    return {
        **layer_sizes(settings.path, d_model, d_ff, n_heads, depths),
        "activation": settings.choice(ACTIVATIONS, *activations, default="relu"),
        "norm": settings.choice({"pre": "pre", "post": "post"}, *norms, default=usual),
        "attention_bias": True,
        "normalisation": "gnmt",
        "alpha": max(0.0, settings.of("testing.beam_alpha", float, -1.0)),  # -1: no penalty
    }


def _tables(settings: SettingsFile, arrays: WeightsFile, d_model: int) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax.

    Our model multiplies embeddings by √D, JoeyNMT only if the setting ``scale`` is true.  If ``scale`` is false, divide
    the embeddings by √D.
    Raises: ConversionError if a matrix is missing, or if matrices differ although a setting ties them.
    """
    for setting, names in (("tied_embeddings", _EMBEDDINGS), ("tied_softmax", (_EMBEDDINGS[1], _OUTPUT))):
        if settings.of(f"model.{setting}", bool, False):
            arrays.require_equal(f"model.{setting}", *names)
    source, target = (
        arrays.take(name)
        if settings.of(f"model.{stack}.embeddings.scale", bool, False)
        else arrays.take(name) / np.float32(math.sqrt(d_model))
        for name, stack in zip(_EMBEDDINGS, STACKS, strict=True)
    )
    return source, target, arrays.take(_OUTPUT)


def _require_sinusoids(arrays: WeightsFile) -> None:
    """Remove the tables of position encodings; raise ConversionError if one does not have interleaved sinusoids."""
    for name in (f"{stack}.pe.pe" for stack in STACKS):
        table = arrays.take_if_there(name)
        if table is None:
            continue
        found = recognise_sinusoids(table[0]) if table.ndim == 3 and len(table) == 1 else None
        if found != Sinusoids("interleaved", first_position=0):
            raise ConversionError(f"{arrays.path}: {name} is not JoeyNMT's table of sinusoids; no other is supported")
