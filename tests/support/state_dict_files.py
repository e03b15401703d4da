"""Checkpoints of fairseq and JoeyNMT, written without PyTorch: models of ours under the names of these programs."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2_models import random_parts
from pytorch_files import older_file, zip_file

from minitransformer import ModelConfig
from minitransformer.extras.convert.parts import Parts

WORDS = ["alpha", "beta", "gamma", "delta"]
SYMBOLS = {"fairseq": ["<s>", "<pad>", "</s>", "<unk>"], "joeynmt": ["<unk>", "<pad>", "<s>", "</s>"]}
CONVENTIONS: dict[str, dict[str, Any]] = {
    "fairseq": {"positions": "halves", "first_position": 2, "layer_norm_eps": 1e-5}, "joeynmt": {},
}  # fmt: skip
SMALL = {"n_layers": 1, "d_model": 4, "d_ff": 6, "d_k": 2, "d_v": 2, "tied": "none"}
NAMES = {  # patterns of our names, and what stands in their place
    "fairseq": {
        "source_embedding": "encoder.embed_tokens", "target_embedding": "decoder.embed_tokens",
        "source_positions": "encoder.embed_positions", "target_positions": "decoder.embed_positions",
        "projection": "decoder.output_projection", "coder.norm": "coder.layer_norm",
        "self_attention_residual.norm": "self_attn_layer_norm", "feed_forward_residual.norm": "final_layer_norm",
        "source_attention_residual.norm": "encoder_attn_layer_norm", "self_attention": "self_attn",
        "source_attention": "encoder_attn", "query|key|value": lambda match: f"{match[0][0]}_proj",
        "attn.output": "attn.out_proj", "feed_forward.hidden": "fc1", "feed_forward.output": "fc2", "gain": "weight",
    },
    "joeynmt": {
        "source_embedding": "src_embed.lut", "target_embedding": "trg_embed.lut",
        "projection": "decoder.output_layer", "coder.norm": "coder.layer_norm",
        "(encoder.*)self_attention_residual.norm": r"\1layer_norm",
        "(decoder.*)self_attention_residual.norm": r"\1x_layer_norm",
        "source_attention_residual.norm": "dec_layer_norm", "feed_forward_residual.norm": "feed_forward.layer_norm",
        "(encoder.*)self_attention": r"\1src_src_att", "(decoder.*)self_attention": r"\1trg_trg_att",
        "source_attention": "src_trg_att", "query|key|value": lambda match: f"{match[0][0]}_layer",
        "att.output": "att.output_layer", "feed_forward.hidden": "feed_forward.pwff_layer.0",
        "feed_forward.output": "feed_forward.pwff_layer.3", "gain": "weight",
    },
}  # fmt: skip


def random_model(program: str, words: Sequence[Sequence[str]], **changes: Any) -> Parts:
    """A model with random weights that a program can have, with the ids of the program; its tokenizer is not used."""
    n_source, n_target = (4 + len(side) for side in words)
    sizes = {"vocabulary_size": n_target, "source_vocabulary_size": n_source if n_source != n_target else None}
    return random_parts({"attention_bias": True, **CONVENTIONS[program], **sizes, **changes})


def tables(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The embeddings and the matrix of the softmax, each under a name of its own."""
    source = weights["source_embedding.weight"]
    target = weights.get("target_embedding.weight", source)
    output = weights.get("projection.weight", target)
    return {"source_embedding.weight": source, "target_embedding.weight": target, "projection.weight": output}


def state_dict(program: str, weights: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The weights under the program's names; it has matrices of linear maps as (out, in)."""
    arrays = {}
    for ours, array in (weights | tables(weights)).items():
        name = ours
        for pattern, theirs in NAMES[program].items():
            name = re.sub(pattern, theirs, name)
        arrays[name] = np.ascontiguousarray(
            array.T if re.search(r"(query|key|value|output|hidden)\.w", ours) else array
        )
    return arrays


def settings_of(program: str, config: ModelConfig, *, scale: bool = True) -> dict[str, Any]:
    if program == "fairseq":
        activation = {"gelu_tanh": "gelu_fast"}.get(config.activation, config.activation)
        heads = {f"{stack}_attention_heads": config.n_heads for stack in ("encoder", "decoder")}
        norms = {f"{stack}_normalize_before": config.norm == "pre" for stack in ("encoder", "decoder")}
        languages = {"source_lang": "en", "target_lang": "de"}
        return heads | norms | languages | {"activation_fn": activation, "no_scale_embedding": False}
    stack = {
        "type": "transformer", "num_heads": config.n_heads, "layer_norm": config.norm, "activation": config.activation,
        "embeddings": {"embedding_dim": config.d_model, "scale": scale},
    }  # fmt: skip
    return {"model": {"encoder": stack, "decoder": stack}, "testing": {"beam_alpha": 0.7}}


def write_vocabularies(program: str, directory: Path, words: Sequence[Sequence[str]]) -> None:
    for i, some in enumerate(words):
        if program == "fairseq":
            name, lines = f"dict.{('en', 'de')[i]}.txt", [f"{word} {100 - count}" for count, word in enumerate(some)]
        else:
            name, lines = f"{('src', 'trg')[i]}_vocab.txt", [*SYMBOLS[program], *some]
        (directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_fairseq(directory: Path, words: Sequence[str] = WORDS) -> None:
    """Write a small model in the older format of PyTorch; its matrix of the softmax is that of the target."""
    parts = random_model("fairseq", (words, words), **SMALL)
    arrays = state_dict("fairseq", parts.weights)
    del arrays["decoder.output_projection.weight"]
    settings = argparse.Namespace(**settings_of("fairseq", parts.config))
    (directory / "checkpoint_best.pt").write_bytes(older_file({"args": settings, "model": arrays}))
    write_vocabularies("fairseq", directory, (words, words))


def write_joeynmt(directory: Path, words: Sequence[str] = WORDS) -> None:
    parts = random_model("joeynmt", (words, words), **SMALL)
    arrays = state_dict("joeynmt", parts.weights)
    (directory / "best.ckpt").write_bytes(zip_file({"steps": 3, "model_state": arrays}))
    (directory / "config.json").write_text(json.dumps(settings_of("joeynmt", parts.config)))
    write_vocabularies("joeynmt", directory, (words, words))
