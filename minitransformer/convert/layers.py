"""The layers of foreign models: their sizes in our configuration, and their weights under our names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from minitransformer.convert.foreign_files import WeightsFile
from minitransformer.convert.parts import Array, ConversionError

STACKS = ("encoder", "decoder")
ModuleNames = Mapping[str, str]  # our name of a linear map or a layer norm in a layer, and theirs

_FAIRSEQ_DECODER: ModuleNames = {
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
FAIRSEQ_NAMES: Mapping[str, ModuleNames] = {  # of each stack; MarianMT of transformers has the same names
    "encoder": {ours: theirs for ours, theirs in _FAIRSEQ_DECODER.items() if not ours.startswith("source_attention")},
    "decoder": _FAIRSEQ_DECODER,
}


def layer_sizes(path: Path, d_model: int, d_ff: int, n_heads: int, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of ``ModelConfig`` that are sizes of layers; ``depths`` are those of encoder and decoder.

    Raises: ConversionError if a size is not positive, or if the heads do not divide d_model.
    """
    if min(d_model, d_ff, n_heads, *depths) < 1:
        raise ConversionError(
            f"{path}: d_model {d_model}, d_ff {d_ff}, {n_heads} heads, {depths[0]} and {depths[1]} layers: expected"
            " positive numbers; is the model complete, and of this kind?"
        )
    if d_model % n_heads:
        raise ConversionError(f"{path}: {n_heads} heads do not divide {d_model} features; correct the setting")
    return {
        "d_model": d_model,
        "d_ff": d_ff,
        "n_heads": n_heads,
        "d_k": d_model // n_heads,
        "d_v": d_model // n_heads,
        "n_layers": depths[0],
        "n_decoder_layers": depths[1] if depths[1] != depths[0] else None,
    }


def count_layers(arrays: WeightsFile) -> tuple[int, int]:
    """Return the numbers of layers of encoder and decoder in a state dict of PyTorch."""
    found = [match for name in arrays if (match := re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name))]
    encoder, decoder = (
        1 + max((int(match[2]) for match in found if match[1] == stack), default=-1) for stack in STACKS
    )
    return encoder, decoder


def modules(depths: tuple[int, int], names: Mapping[str, ModuleNames]) -> Iterator[tuple[str, str]]:
    """Yield our name and theirs of each linear map and each layer norm in the layers.

    Args:
        names: the names of each stack.
    """
    for stack, n_layers in zip(STACKS, depths, strict=True):
        for i in range(n_layers):
            for ours, theirs in names[stack].items():
                yield f"{stack}.layers.{i}.{ours}", f"{stack}.layers.{i}.{theirs}"


def read_layers(
    arrays: WeightsFile, depths: tuple[int, int], names: Mapping[str, ModuleNames], *, norm: str, prefix: str = ""
) -> dict[str, Array]:
    """Return the weights of all layers in a state dict of PyTorch, and of the norms at the end with ``norm`` "pre".

    Args:
        prefix: that of all their names.

    Raises: ConversionError if an array is missing.
    """
    at_the_end = [(f"{stack}.norm", f"{stack}.layer_norm") for stack in STACKS] if norm == "pre" else []
    weights: dict[str, Array] = {}
    for ours, theirs in chain(modules(depths, names), at_the_end):  # no list: a corrupt file may claim 2⁶² layers
        weight = f"{ours}.gain" if ours.endswith(".norm") else f"{ours}.weight"
        weights[weight] = arrays.take(f"{prefix}{theirs}.weight").T
        weights[f"{ours}.bias"] = arrays.take(f"{prefix}{theirs}.bias")
    return weights
