"""Reads a model in CTranslate2's binary format (version 2) as one of ours.

Source: the layout of converted OpenNMT-tf Transformers: pre-norm with last norms, matrices (out, in), the queries, keys
and values of self-attention fused into one, the keys and values of encoder-decoder attention into another.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minitransformer import ModelConfig, Transformer

Arrays = dict[str, Any]

N_HEADS = 8  # revision 2 of "TransformerBase" does not store it
FORMAT_VERSION = 2


class Trained(NamedTuple):
    """A model of ours with another's weights, and the words of its source and target ids."""

    model: Transformer
    source_words: list[str]
    target_words: list[str]


class _Reader:
    """Little-endian numbers and strings, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, n_bytes: int) -> bytes:
        self.place += n_bytes
        return self.data[self.place - n_bytes : self.place]

    def number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0])

    def string(self) -> str:
        return self.take(self.number("H")).rstrip(b"\0").decode()

    def array(self) -> Any:
        shape = [self.number("I") for _ in range(self.number("B"))]
        item_size, n_items = self.number("B"), self.number("I")
        assert item_size == 4, f"expected float32, got items of {item_size} bytes"
        return np.frombuffer(self.take(item_size * n_items), "<f4").reshape(shape)


def read_arrays(path: Path) -> Arrays:
    """Every array of a model file, by CTranslate2's names."""
    reader = _Reader(path.read_bytes())
    version, spec = reader.number("I"), reader.string()
    assert (version, spec) == (FORMAT_VERSION, "TransformerBase"), f"{path}: {version=}, {spec=}"
    reader.number("I")  # revision of the spec
    arrays = {reader.string(): reader.array() for _ in range(reader.number("I"))}
    assert reader.place == len(reader.data), f"{path}: {len(reader.data) - reader.place} bytes left over"
    return arrays


def load(folder: Path, dtype: str) -> Trained:
    """The model of a folder that holds model.bin and both vocabularies."""
    arrays = read_arrays(folder / "model.bin")
    theirs = {side: _words(folder / f"{side}_vocabulary.txt") for side in ("source", "target")}
    ours = {side: _in_our_order(words) for side, words in theirs.items()}
    rows = {side: [theirs[side].index(word) for word in ours[side]] for side in ours}
    weights = _weights(arrays, rows["source"], rows["target"])
    model = Transformer(_config(arrays), seed=None, dtype=dtype)
    model.set_weights(weights)
    return Trained(model, ours["source"], ours["target"])


def _words(path: Path) -> list[str]:
    """The words of the embedding's rows; the row of unknown words comes last and is not in the file."""
    return [*path.read_text(encoding="utf-8").splitlines(), "<unk>"]


def _in_our_order(words: list[str]) -> list[str]:
    """UNKNOWN, START and END where we have them, and padding, which we have none of, where it disturbs nobody."""
    special = ["<unk>", "<s>", "</s>", "<blank>"]
    return [*special[:3], *(word for word in words if word not in special), special[3]]


def _config(arrays: Arrays) -> ModelConfig:
    n_words, d_model = arrays["decoder/embeddings/weight"].shape
    return ModelConfig(
        vocabulary_size=n_words,
        source_vocabulary_size=len(arrays["encoder/embeddings/weight"]),
        n_layers=sum(name.endswith("self_attention/linear_0/weight") for name in arrays) // 2,
        d_model=d_model,
        d_ff=len(arrays["encoder/layer_0/ffn/linear_0/weight"]),
        n_heads=N_HEADS,
        d_k=d_model // N_HEADS,
        d_v=d_model // N_HEADS,
        positions="halves",
        first_position=1,
        norm="pre",
        layer_norm_eps=1e-5,
        attention_bias=True,
        softmax_bias=True,
        tied="none",
    )


def _weights(arrays: Arrays, source_rows: list[int], target_rows: list[int]) -> Arrays:
    """The same arrays by our names."""
    weights = {
        "source_embedding.weight": arrays["encoder/embeddings/weight"][source_rows],
        "target_embedding.weight": arrays["decoder/embeddings/weight"][target_rows],
        "projection.weight": arrays["decoder/projection/weight"][target_rows],
        "softmax_bias": arrays["decoder/projection/bias"][target_rows],
        **_norm(arrays, "encoder/layer_norm", "encoder.norm"),
        **_norm(arrays, "decoder/layer_norm", "decoder.norm"),
    }
    for name in arrays:
        stack, layer, *rest = name.split("/")
        if rest == ["ffn", "linear_0", "weight"]:
            theirs, ours = f"{stack}/{layer}", f"{stack}.{layer.replace('layer_', 'layers.')}"
            weights |= _layer(arrays, theirs, ours, attends_to_source=stack == "decoder")
    return weights


def _layer(arrays: Arrays, theirs: str, ours: str, *, attends_to_source: bool) -> Arrays:
    attention, source_attention = f"{ours}.self_attention", f"{ours}.source_attention"
    weights = {
        **_norm(arrays, f"{theirs}/self_attention/layer_norm", f"{attention}_residual.norm"),
        **_linear(arrays, f"{theirs}/self_attention/linear_0", *_parts(attention, "query", "key", "value")),
        **_linear(arrays, f"{theirs}/self_attention/linear_1", f"{attention}.output"),
        **_norm(arrays, f"{theirs}/ffn/layer_norm", f"{ours}.feed_forward_residual.norm"),
        **_linear(arrays, f"{theirs}/ffn/linear_0", f"{ours}.feed_forward.hidden"),
        **_linear(arrays, f"{theirs}/ffn/linear_1", f"{ours}.feed_forward.output"),
    }
    if attends_to_source:
        weights |= {
            **_norm(arrays, f"{theirs}/attention/layer_norm", f"{source_attention}_residual.norm"),
            **_linear(arrays, f"{theirs}/attention/linear_0", f"{source_attention}.query"),
            **_linear(arrays, f"{theirs}/attention/linear_1", *_parts(source_attention, "key", "value")),
            **_linear(arrays, f"{theirs}/attention/linear_2", f"{source_attention}.output"),
        }
    return weights


def _parts(name: str, *parts: str) -> list[str]:
    return [f"{name}.{part}" for part in parts]


def _norm(arrays: Arrays, theirs: str, ours: str) -> Arrays:
    return {f"{ours}.gain": arrays[f"{theirs}/gamma"], f"{ours}.bias": arrays[f"{theirs}/beta"]}


def _linear(arrays: Arrays, theirs: str, *ours: str) -> Arrays:
    """One matrix (out, in) with its bias as one or more (in, out), in the order of its rows."""
    weights = np.split(arrays[f"{theirs}/weight"], len(ours))
    biases = np.split(arrays[f"{theirs}/bias"], len(ours))
    return {
        name: value
        for one, weight, bias in zip(ours, weights, biases, strict=True)
        for name, value in ((f"{one}.weight", weight.T), (f"{one}.bias", bias))
    }
