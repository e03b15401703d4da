"""JoeyNMT's Transformers, read from a state dict.

Source: JoeyNMT 2.3, ``joeynmt/transformer_layers.py``, ``encoders.py``, ``decoders.py`` and ``vocabulary.py``
    (https://github.com/joeynmt/joeynmt).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation
from minitransformer.convert.ctranslate2_tokenizer import sentencepiece_models, with_tokenizer_of
from minitransformer.convert.parts import ConversionError, Parts
from minitransformer.convert.state_dict import (
    WEIGHTS,
    StateDict,
    TrainingSettings,
    embeddings,
    read_lines,
    vocabulary_settings,
)
from minitransformer.convert.vocabulary import Vocabulary

CONFIG = "config.json"
VOCABULARIES = ("src_vocab.txt", "trg_vocab.txt")
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
_STACKS = ("encoder", "decoder")
_ATTENTIONS = {
    "encoder": {"self_attention": "src_src_att"},
    "decoder": {"self_attention": "trg_trg_att", "source_attention": "src_trg_att"},
}
_PROJECTIONS = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
_NORMS = {
    "encoder": {"self_attention": "layer_norm"},
    "decoder": {"self_attention": "x_layer_norm", "source_attention": "dec_layer_norm"},
}
_FEED_FORWARD = {
    "feed_forward.hidden": "feed_forward.pwff_layer.0",
    "feed_forward.output": "feed_forward.pwff_layer.3",
    "feed_forward_residual.norm": "feed_forward.layer_norm",
}
_IGNORED = r"(en|de)coder\.pe\.pe"  # sinusoids


def is_joeynmt(path: Path) -> bool:
    """Return whether a directory has a state dict, a configuration and the vocabularies of JoeyNMT."""
    return all((path / name).is_file() for name in (WEIGHTS, CONFIG, *VOCABULARIES))


def read_joeynmt(directory: Path, source_model: Path | None = None, target_model: Path | None = None) -> Parts:
    """Read ``model.safetensors``, ``config.json`` and the vocabularies; for subwords see ``sentencepiece_models``.

    The padding symbol is an ordinary word here, because JoeyNMT's softmax has it, too.
    Raises: ConversionError if a setting is missing, or if the model has what ours lacks; CorruptFileError if a file is
    missing or corrupt.
    """
    settings, arrays = TrainingSettings(directory / CONFIG), StateDict(directory / WEIGHTS)
    _require_supported(settings)
    models = sentencepiece_models(directory, source_model, target_model)
    vocabularies = (_vocabulary(directory / name, settings) for name in VOCABULARIES)
    source, target, tokenizer = with_tokenizer_of(models, *vocabularies)
    depths = arrays.count_layers("encoder"), arrays.count_layers("decoder")
    config = _configuration(settings, arrays, depths)
    output = arrays.take("decoder.output_layer.weight")
    tables = [_embedding(settings, arrays, *names) for names in (("src", "encoder"), ("trg", "decoder"))]
    weights = embeddings(source, target, tables[0], tables[1], output)
    for ours, theirs in _modules(depths):
        weights |= arrays.linear(ours, theirs)
    for stack in _STACKS if config["norm"] == "pre" else ():
        weights |= arrays.linear(f"{stack}.norm", f"{stack}.layer_norm")
    arrays.require_none_left(_IGNORED)
    return Parts(ModelConfig(**config, **vocabulary_settings(source, target, weights)), weights, tokenizer)


def _require_supported(settings: TrainingSettings) -> None:
    """Raise ConversionError if the model is no Transformer, or has scaled residual connections."""
    for stack in _STACKS:
        kind = settings.of(f"model.{stack}.type", str, "recurrent")
        if kind != "transformer":
            raise ConversionError(
                f"{settings.path}: model.{stack}.type = {kind!r} is not supported; only 'transformer'"
            )
    settings.refuse({f"model.{stack}.alpha": 1.0 for stack in _STACKS})


def _vocabulary(path: Path, settings: TrainingSettings) -> Vocabulary:
    """Read a vocabulary, which has a word in each line."""
    words = read_lines(path)
    ids = {word: i for i, word in enumerate(words)}
    if len(ids) < len(words):
        raise ConversionError(f"{path}: expected each word once; it is of another kind")
    defaults = {"unknown": ("unk", "<unk>"), "start": ("bos", "<s>"), "end": ("eos", "</s>")}
    symbols = {
        ours: settings.of(f"data.special_symbols.{theirs}_token", str, word)
        for ours, (theirs, word) in defaults.items()
    }
    return Vocabulary.of(ids, **symbols)


def _configuration(settings: TrainingSettings, arrays: StateDict, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the configuration of the layers and of the search.  Raises: ConversionError."""
    n_heads = settings.common(int, *(f"model.{stack}.num_heads" for stack in _STACKS))
    usual = "pre" if "encoder.layer_norm.weight" in arrays else "post"  # the first versions do not say it
    norms = {settings.of(f"model.{stack}.layer_norm", str, usual) for stack in _STACKS}
    activations = {settings.of(f"model.{stack}.activation", str, "relu") for stack in _STACKS}
    if len(norms) > 1 or not norms <= {"pre", "post"} or len(activations) > 1 or not activations <= set(ACTIVATIONS):
        raise ConversionError(
            f"{settings.path}: layer_norm must be the same, pre or post, and activation the same, one of"
            f" {', '.join(ACTIVATIONS)}, in encoder and decoder; got {sorted(norms)} and {sorted(activations)}"
        )
    return {
        **arrays.sizes("encoder.layers.0.feed_forward.pwff_layer.0.weight", n_heads),
        "n_layers": depths[0],
        "n_decoder_layers": depths[1] if depths[1] != depths[0] else None,
        "activation": ACTIVATIONS[activations.pop()],
        "norm": norms.pop(),
        "attention_bias": True,
        "normalisation": "gnmt",
        "alpha": max(0.0, settings.of("testing.beam_alpha", float, -1.0)),  # -1: no penalty
    }


def _embedding(settings: TrainingSettings, arrays: StateDict, side: str, stack: str) -> Any:
    """Return a table of embeddings; our model multiplies it by √D, JoeyNMT only if ``scale`` is set."""
    table = arrays.take(f"{side}_embed.lut.weight")
    if settings.of(f"model.{stack}.embeddings.scale", bool, False):
        return table
    return table / math.sqrt(table.shape[-1])


def _modules(depths: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Yield our name and theirs of each linear map and each layer norm in the layers."""
    for stack, n_layers in zip(_STACKS, depths, strict=True):
        for i in range(n_layers):
            layer = f"{stack}.layers.{i}"
            for attention, theirs in _ATTENTIONS[stack].items():
                yield f"{layer}.{attention}_residual.norm", f"{layer}.{_NORMS[stack][attention]}"
                for part, projection in _PROJECTIONS.items():
                    yield f"{layer}.{attention}.{part}", f"{layer}.{theirs}.{projection}"
            for ours, name in _FEED_FORWARD.items():
                yield f"{layer}.{ours}", f"{layer}.{name}"
