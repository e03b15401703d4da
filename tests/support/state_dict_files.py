"""Small checkpoints of fairseq (in the older format) and JoeyNMT, written without PyTorch; all weights are random."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece.sentencepiece_model_pb2  # noqa: F401  (so that no reader imports it: fuzzed ones open no such file)
from pytorch_files import older_file, zip_file

D_MODEL, D_FF = 4, 6
WORDS = ["alpha", "beta", "gamma", "delta"]
RANDOM = np.random.default_rng(1)

FAIRSEQ = {
    **{f"self_attn.{part}_proj": (D_MODEL, D_MODEL) for part in ("q", "k", "v", "out")},
    **{f"encoder_attn.{part}_proj": (D_MODEL, D_MODEL) for part in ("q", "k", "v", "out")},
    **{f"{part}_layer_norm": (D_MODEL,) for part in ("self_attn", "encoder_attn", "final")},
    "fc1": (D_FF, D_MODEL),
    "fc2": (D_MODEL, D_FF),
}
JOEYNMT = {
    **{f"{attention}.{part}_layer": (D_MODEL, D_MODEL) for attention in ("src_src_att", "trg_trg_att",
        "src_trg_att") for part in ("q", "k", "v", "output")},
    **{name: (D_MODEL,) for name in ("layer_norm", "x_layer_norm", "dec_layer_norm", "feed_forward.layer_norm")},
    "feed_forward.pwff_layer.0": (D_FF, D_MODEL), "feed_forward.pwff_layer.3": (D_MODEL, D_FF),
}  # fmt: skip


def write_fairseq(directory: Path, words: Sequence[str] = WORDS) -> None:
    n_words = len(words) + 4
    shapes = {"encoder.embed_tokens": (n_words, D_MODEL), "decoder.embed_tokens": (n_words, D_MODEL)}
    for stack in ("encoder", "decoder"):
        shapes |= _layer(f"{stack}.layers.0", FAIRSEQ, "" if stack == "decoder" else "encoder_attn")
    heads = {f"{stack}_attention_heads": 2 for stack in ("encoder", "decoder")}
    norms = {f"{stack}_normalize_before": False for stack in ("encoder", "decoder")}
    settings = argparse.Namespace(**heads, **norms, source_lang="en", target_lang="de")
    checkpoint = older_file({"args": settings, "model": _arrays(shapes)})
    (directory / "checkpoint_best.pt").write_bytes(checkpoint)
    for language in ("en", "de"):
        (directory / f"dict.{language}.txt").write_text("".join(f"{word} 5\n" for word in words), encoding="utf-8")


def write_joeynmt(directory: Path, words: Sequence[str] = WORDS) -> None:
    n_words = len(words) + 4
    shapes = dict.fromkeys(("src_embed.lut", "trg_embed.lut", "decoder.output_layer"), (n_words, D_MODEL))
    shapes |= _layer("encoder.layers.0", JOEYNMT, "trg_att", "x_layer_norm", "dec_layer_norm")
    shapes |= _layer("decoder.layers.0", JOEYNMT, "src_src_att", "0.layer_norm")
    stack = {"type": "transformer", "num_heads": 2, "embeddings": {"scale": True}}
    (directory / "best.ckpt").write_bytes(zip_file({"steps": 3, "model_state": _arrays(shapes)}))
    (directory / "config.json").write_text(json.dumps({"model": {"encoder": stack, "decoder": stack}}))
    for side in ("src", "trg"):
        lines = "".join(f"{word}\n" for word in ("<unk>", "<pad>", "<s>", "</s>", *words))
        (directory / f"{side}_vocab.txt").write_text(lines, encoding="utf-8")


def _layer(layer: str, shapes: dict[str, tuple[int, ...]], *without: str) -> dict[str, tuple[int, ...]]:
    named = {f"{layer}.{name}": shape for name, shape in shapes.items()}
    return {name: shape for name, shape in named.items() if not any(part and part in name for part in without)}


def _arrays(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray[Any, Any]]:
    arrays = {f"{name}.weight": RANDOM.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return arrays | {
        f"{name}.bias": np.zeros(shape[0], np.float32)
        for name, shape in shapes.items()
        if "embed" not in name and name != "decoder.output_layer"
    }
