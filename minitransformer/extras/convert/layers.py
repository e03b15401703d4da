"""The layers of foreign models: their sizes in our configuration, and their weights under our names.

Some programs add position encodings with another order of features than ours.  The weights of such a model get our
order by ``with_features``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from autograd.packed_weight import nearest_bfloat16
from minitransformer.config import ModelConfig
from minitransformer.config.checks import WIDTH
from minitransformer.config.model import PositionLayout
from minitransformer.extras.convert.foreign_files import WeightsFile
from minitransformer.extras.convert.parts import Array, ConversionError
from minitransformer.model.positions import sinusoids

# Names of parameters whose last axis has the features of the residual stream, and of parameters whose first axis does.
_LAST_AXIS = re.compile(
    r"(source_embedding|target_embedding|projection|source_positions|target_positions)\.weight"
    r"|.*norm\.(gain|bias)|.*\.output\.(weight|bias)"
)
_FIRST_AXIS = re.compile(r".*\.(query|key|value|hidden)\.weight")


def sines_first(d_model: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indices of the sines in "interleaved" position encodings, then the indices of the cosines.

    In this order, position encodings are [sin(pos / 10000^(2i/D)) …, cos(pos / 10000^(2i/D)) …].  The layout "halves"
    has other frequencies.
    """
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def with_features(
    weights: Mapping[str, np.ndarray[Any, Any]], order: np.ndarray[Any, np.dtype[np.int64]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights with the features of the residual stream in another order.

    Feature i of the new residual stream is feature ``order[i]`` of the old one.  Reorder the rows of matrices that read
    the residual stream, the columns of matrices and tables that write to it, and gains and biases of layer norm.  The
    model's results stay the same if sinusoids, which are no weights, get the new order, too.
    """
    return {
        name: array[..., order]
        if _LAST_AXIS.fullmatch(name)
        else array[order]
        if _FIRST_AXIS.fullmatch(name)
        else array
        for name, array in weights.items()
    }


_MOST_FIRST_POSITIONS = 4  # try the first positions 0 to 3: fairseq's is 2, OpenNMT-tf's 1, other programs' 0
BFLOAT16_ERROR = 2e-3  # greatest error of a sine that is stored in bfloat16; 5e-4 in float16
_ROUNDING_OF_ANGLES = 2e-7  # relative error of positions × frequencies in float32


@dataclass(frozen=True)
class Sinusoids:
    """A table of sinusoids: its layout, its first position, and whether its columns are sorted.

    Sorted columns are the columns of the layout "interleaved" with all sines before all cosines.
    """

    layout: PositionLayout
    first_position: int
    is_sorted: bool = False


COMPUTED = Sinusoids("halves", 1)  # the sinusoids that CTranslate2 computes if a model has no table


def _rounding(table: Array) -> float:
    """Return the greatest error of sines in the smallest float type that holds all values of a table."""
    if np.array_equal(nearest_bfloat16(table), table):
        return BFLOAT16_ERROR
    return 5e-4 if np.array_equal(table.astype(np.float16), table) else 1e-5


def recognise_sinusoids(table: Array) -> Sinusoids | None:
    """Return the sinusoids that a table (N, D) contains, up to rounding errors; None if it contains anything else.

    Tables with sorted columns are in MarianMT models of Hugging Face's transformers.  (Marian itself uses the layout
    "halves".)
    Source: CTranslate2 4.8.5, ``_make_sinusoidal_position_encodings`` of ``converters/marian.py``.
    """
    n, d_model = table.shape
    if d_model % 2:
        return None
    rounding = _rounding(table)
    candidates: tuple[tuple[PositionLayout, bool], ...] = (
        ("interleaved", False),
        ("halves", False),
        ("interleaved", True),
    )
    for layout, is_sorted in candidates:
        expected = sinusoids(n + _MOST_FIRST_POSITIONS, d_model, layout)
        if is_sorted:
            expected = expected[:, sines_first(d_model)]
        for first in range(_MOST_FIRST_POSITIONS):
            tolerance = rounding + _ROUNDING_OF_ANGLES * np.arange(first, first + n)[:, None]
            if (np.abs(table - expected[first : first + n]) <= tolerance).all():
                return Sinusoids(layout, first, is_sorted)
    return None


def table_of(positions: Sinusoids, n: int, d_model: int) -> Array:
    """Return the first n rows (n, D) of a table of sinusoids."""
    rows = sinusoids(n + positions.first_position, d_model, positions.layout)[positions.first_position :]
    return (rows[:, sines_first(d_model)] if positions.is_sorted else rows).astype(np.float32)


STACKS = ("encoder", "decoder")
ModuleNames = Mapping[str, str]  # our name of a linear map or layer norm → the other program's name

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
FAIRSEQ_NAMES: Mapping[str, ModuleNames] = {  # for each stack; MarianMT of transformers has them, too
    "encoder": {ours: theirs for ours, theirs in _FAIRSEQ_DECODER.items() if not ours.startswith("source_attention")},
    "decoder": _FAIRSEQ_DECODER,
}


def layer_sizes(path: Path, d_model: int, d_ff: int, n_heads: int, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of ``ModelConfig`` that are sizes or numbers of layers.

    Args:
        depths: the numbers of layers of encoder and decoder.

    Call this before arrays of these sizes are made: a file can name any sizes.
    Raises: ConversionError if a size is not positive or is too large, or if ``d_model`` is no multiple of ``n_heads``.
    """
    if min(d_model, d_ff, n_heads, *depths) < 1 or max(d_model, d_ff, n_heads) >= WIDTH[1]:
        raise ConversionError(
            f"{path}: d_model {d_model}, d_ff {d_ff}, {n_heads} heads, {depths[0]} and {depths[1]} layers: expected"
            f" positive numbers, and sizes below {WIDTH[1]:,}; is the model complete, and of this kind?"
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
    """Return the number of encoder layers and of decoder layers in a state dict of PyTorch."""
    found = [match for name in arrays if (match := re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name))]
    encoder, decoder = (
        1 + max((int(match[2]) for match in found if match[1] == stack), default=-1) for stack in STACKS
    )
    return encoder, decoder


def modules(depths: tuple[int, int], names: Mapping[str, ModuleNames]) -> Iterator[tuple[str, str]]:
    """Yield two names of each linear map and each layer norm in the layers: our name, and the other program's name.

    Args:
        depths: the numbers of layers of encoder and decoder.
        names: the names within a layer, for each stack.
    """
    for stack, n_layers in zip(STACKS, depths, strict=True):
        for i in range(n_layers):
            for ours, theirs in names[stack].items():
                yield f"{stack}.layers.{i}.{ours}", f"{stack}.layers.{i}.{theirs}"


def read_layers(
    arrays: WeightsFile, depths: tuple[int, int], names: Mapping[str, ModuleNames], *, norm: str, prefix: str = ""
) -> dict[str, Array]:
    """Return the weights of all layers in a state dict, and for ``norm`` "pre" of the layer norms after both stacks.

    Args:
        depths, names: see ``modules``.
        prefix: the beginning of all names in the state dict.

    Raises: ConversionError if an array is missing.
    """
    at_the_end = [(f"{stack}.norm", f"{stack}.layer_norm") for stack in STACKS] if norm == "pre" else []
    weights: dict[str, Array] = {}
    for ours, theirs in chain(modules(depths, names), at_the_end):  # no list: a corrupt file may claim 2⁶² layers
        weight = f"{ours}.gain" if ours.endswith(".norm") else f"{ours}.weight"
        weights[weight] = arrays.take(f"{prefix}{theirs}.weight").T
        weights[f"{ours}.bias"] = arrays.take(f"{prefix}{theirs}.bias")
    return weights


class LinearMap(NamedTuple):
    """A linear map of CTranslate2, and our linear maps whose outputs it concatenates.

    ``theirs`` is CTranslate2's name, ``ours`` are our names, and ``sizes`` the numbers of outputs of our maps.
    """

    theirs: str
    ours: tuple[str, ...]
    n_inputs: int
    sizes: tuple[int, ...]

    @property
    def has_optional_bias(self) -> bool:
        """True for maps of attention, which have a bias only if ``attention_bias`` is true."""
        return "attention/" in self.theirs


def stacks_of(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of layers of each stack."""
    yield "encoder", config.n_layers
    yield "decoder", config.decoder_depth


def linear_maps(config: ModelConfig) -> Iterator[LinearMap]:
    """Yield all linear maps in CTranslate2's layers."""
    d, keys, values = config.d_model, config.n_heads * config.d_k, config.n_heads * config.d_v
    for stack, n_layers in stacks_of(config):
        for i in range(n_layers):
            theirs, ours = f"{stack}/layer_{i}", f"{stack}.layers.{i}"
            own, source, network = f"{ours}.self_attention", f"{ours}.source_attention", f"{ours}.feed_forward"
            self_names = (f"{own}.query", f"{own}.key", f"{own}.value")
            yield LinearMap(f"{theirs}/self_attention/linear_0", self_names, d, (keys, keys, values))
            yield LinearMap(f"{theirs}/self_attention/linear_1", (f"{own}.output",), values, (d,))
            if stack == "decoder":
                source_names = (f"{source}.key", f"{source}.value")
                yield LinearMap(f"{theirs}/attention/linear_0", (f"{source}.query",), d, (keys,))
                yield LinearMap(f"{theirs}/attention/linear_1", source_names, d, (keys, values))
                yield LinearMap(f"{theirs}/attention/linear_2", (f"{source}.output",), values, (d,))
            yield LinearMap(f"{theirs}/ffn/linear_0", (f"{network}.hidden",), d, (config.d_ff,))
            yield LinearMap(f"{theirs}/ffn/linear_1", (f"{network}.output",), config.d_ff, (d,))


def norms(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield two names of every layer norm: CTranslate2's name, and our name."""
    for stack, n_layers in stacks_of(config):
        for i in range(n_layers):
            theirs, ours = f"{stack}/layer_{i}", f"{stack}.layers.{i}"
            yield f"{theirs}/self_attention/layer_norm", f"{ours}.self_attention_residual.norm"
            if stack == "decoder":
                yield f"{theirs}/attention/layer_norm", f"{ours}.source_attention_residual.norm"
            yield f"{theirs}/ffn/layer_norm", f"{ours}.feed_forward_residual.norm"
        if config.norm == "pre":
            yield f"{stack}/layer_norm", f"{stack}.norm"
