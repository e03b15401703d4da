"""The Transformers of fairseq and of JoeyNMT in plain PyTorch, written down from their papers' equations and the names
of their weights: what a checkpoint of theirs has, and the logits that it means."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from against_torch import torch
from safetensors.torch import save_file

functional, nn = torch.nn.functional, torch.nn
ACTIVATIONS = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_fast": lambda x: functional.gelu(x, approximate="tanh"),
    "swish": functional.silu,
}


@dataclass(frozen=True)
class Shape:
    """What both programs leave open."""

    n_words: tuple[int, int]
    d_model: int = 8
    d_ff: int = 12
    n_heads: int = 2
    depths: tuple[int, int] = (2, 2)
    pre: bool = False
    activation: str = "relu"
    tied: str = "all"
    learned: bool = False
    scale: bool = True


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    """Of one sentence, with biases.  Shapes: (T, D), (S, D) → (T, D)."""

    def __init__(self, shape: Shape, query: str, key: str, value: str, output: str) -> None:
        super().__init__()
        self.names, self.n_heads = (query, key, value, output), shape.n_heads
        for name in self.names:
            setattr(self, name, nn.Linear(shape.d_model, shape.d_model))

    def forward(self, x: Any, memory: Any, *, causal: bool = False) -> Any:
        query, key, value, output = (getattr(self, name) for name in self.names)
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(0, 1) for y in (query(x), key(memory), value(memory)))
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores.masked_fill(torch.ones(len(x), len(memory)).triu(1).bool(), -math.inf)
        return output((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


class FairseqLayer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape, *, is_decoder: bool) -> None:
        super().__init__()
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        self.shape, self.is_decoder = shape, is_decoder
        self.self_attn, self.self_attn_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model)
        if is_decoder:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model)
        self.fc1, self.fc2 = nn.Linear(shape.d_model, shape.d_ff), nn.Linear(shape.d_ff, shape.d_model)
        self.final_layer_norm = nn.LayerNorm(shape.d_model)

    def forward(self, x: Any, memory: Any = None) -> Any:
        pre = self.shape.pre
        x = residual(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, y, causal=self.is_decoder), pre=pre)
        if self.is_decoder:
            x = residual(x, self.encoder_attn_layer_norm, lambda y: self.encoder_attn(y, memory), pre=pre)
        activation = ACTIVATIONS[self.shape.activation]
        return residual(x, self.final_layer_norm, lambda y: self.fc2(activation(self.fc1(y))), pre=pre)


class JoeyFeedForward(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.layer_norm = shape, nn.LayerNorm(shape.d_model, eps=1e-6)
        first, last = nn.Linear(shape.d_model, shape.d_ff), nn.Linear(shape.d_ff, shape.d_model)
        self.pwff_layer = nn.ModuleDict({"0": first, "3": last})  # between them an activation and dropout

    def forward(self, x: Any) -> Any:
        first, last = self.pwff_layer.values()
        activation = ACTIVATIONS[self.shape.activation]
        return residual(x, self.layer_norm, lambda y: last(activation(first(y))), pre=self.shape.pre)


class JoeyLayer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape, *, is_decoder: bool) -> None:
        super().__init__()
        names = ("q_layer", "k_layer", "v_layer", "output_layer")
        self.shape, self.is_decoder = shape, is_decoder
        if is_decoder:
            self.trg_trg_att, self.x_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model, eps=1e-6)
            self.src_trg_att, self.dec_layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model, eps=1e-6)
        else:
            self.src_src_att, self.layer_norm = Attention(shape, *names), nn.LayerNorm(shape.d_model, eps=1e-6)
        self.feed_forward = JoeyFeedForward(shape)

    def forward(self, x: Any, memory: Any = None) -> Any:
        pre = self.shape.pre
        if not self.is_decoder:
            return self.feed_forward(residual(x, self.layer_norm, lambda y: self.src_src_att(y, y), pre=pre))
        x = residual(x, self.x_layer_norm, lambda y: self.trg_trg_att(y, y, causal=True), pre=pre)
        return self.feed_forward(residual(x, self.dec_layer_norm, lambda y: self.src_trg_att(y, memory), pre=pre))


def residual(x: Any, norm: Any, sublayer: Any, *, pre: bool) -> Any:
    return x + sublayer(norm(x)) if pre else norm(x + sublayer(x))


class Stack(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, shape: Shape, side: int, layer: type[Any], eps: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(shape, is_decoder=side == 1) for _ in range(shape.depths[side]))
        self.layer_norm = nn.LayerNorm(shape.d_model, eps=eps) if shape.pre else None

    def forward(self, x: Any, *memory: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *memory)
        return x if self.layer_norm is None else self.layer_norm(x)


class Fairseq(nn.Module):  # type: ignore[misc, name-defined]
    """Ids: <s> 0, <pad> 1, </s> 2, <unk> 3; the decoder starts with </s>; positions start with 2."""

    max_positions = 30

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder, self.decoder = (Stack(shape, side, FairseqLayer, 1e-5) for side in (0, 1))
        for stack, n_words in zip((self.encoder, self.decoder), shape.n_words, strict=True):
            stack.embed_tokens = nn.Embedding(n_words, shape.d_model, padding_idx=1)
            if shape.learned:
                stack.embed_positions = nn.Embedding(self.max_positions + 2, shape.d_model, padding_idx=1)
            else:
                stack.embed_positions = nn.Module()
                stack.embed_positions.register_buffer("_float_tensor", torch.zeros(1))
            stack.register_buffer("version", torch.tensor([3.0]))
        self.decoder.output_projection = nn.Linear(shape.d_model, shape.n_words[1], bias=False)
        if shape.tied == "all":
            self.decoder.embed_tokens = self.encoder.embed_tokens
        if shape.tied != "none":
            self.decoder.output_projection.weight = self.decoder.embed_tokens.weight
        randomise(self)

    def forward(self, source: Sequence[int], target: Sequence[int]) -> Any:
        encoded = self.encoder(self.embed(self.encoder, [*source, 2]))
        return self.decoder.output_projection(self.decoder(self.embed(self.decoder, [2, *target]), encoded))

    def embed(self, stack: Any, ids: list[int]) -> Any:
        positions = torch.arange(2, len(ids) + 2)
        if self.shape.learned:
            encodings = stack.embed_positions(positions)
        else:
            half = self.shape.d_model // 2
            angles = positions[:, None] * torch.exp(torch.arange(half) * -math.log(10_000) / (half - 1))
            encodings = torch.cat([angles.sin(), angles.cos()], dim=1)
        return stack.embed_tokens(torch.tensor(ids)) * math.sqrt(self.shape.d_model) + encodings

    def settings(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "arch": "transformer_wmt_en_de",
            "encoder_attention_heads": shape.n_heads,
            "decoder_attention_heads": shape.n_heads,
            "encoder_normalize_before": shape.pre,
            "decoder_normalize_before": shape.pre,
            "activation_fn": shape.activation,
            "no_scale_embedding": False,
        }


class Joey(nn.Module):  # type: ignore[misc, name-defined]
    """Ids: <unk> 0, <pad> 1, <s> 2, </s> 3."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder, self.decoder = (Stack(shape, side, JoeyLayer, 1e-6) for side in (0, 1))
        for stack in (self.encoder, self.decoder):
            stack.pe = nn.Module()
            stack.pe.register_buffer("pe", torch.zeros(1, 5_000, shape.d_model))
        self.src_embed, self.trg_embed = nn.Module(), nn.Module()
        for embed, n_words in zip((self.src_embed, self.trg_embed), shape.n_words, strict=True):
            embed.lut = nn.Embedding(n_words, shape.d_model, padding_idx=1)
        self.decoder.output_layer = nn.Linear(shape.d_model, shape.n_words[1], bias=False)
        if shape.tied == "all":
            self.trg_embed.lut = self.src_embed.lut
        if shape.tied != "none":
            self.decoder.output_layer.weight = self.trg_embed.lut.weight
        randomise(self)

    def forward(self, source: Sequence[int], target: Sequence[int]) -> Any:
        encoded = self.encoder(self.embed(self.src_embed, [*source, 3]))
        return self.decoder.output_layer(self.decoder(self.embed(self.trg_embed, [2, *target]), encoded))

    def embed(self, embed: Any, ids: list[int]) -> Any:
        d_model = self.shape.d_model
        frequencies = torch.exp(torch.arange(0, d_model, 2) * -math.log(10_000) / d_model)
        angles = torch.arange(len(ids))[:, None] * frequencies
        encodings = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        return embed.lut(torch.tensor(ids)) * (math.sqrt(d_model) if self.shape.scale else 1) + encodings

    def settings(self) -> dict[str, Any]:
        shape = self.shape
        stack = {
            "type": "transformer", "num_heads": shape.n_heads, "layer_norm": "pre" if shape.pre else "post",
            "activation": shape.activation, "embeddings": {"embedding_dim": shape.d_model, "scale": shape.scale},
        }  # fmt: skip
        return {"model": {"encoder": stack, "decoder": stack}, "testing": {"beam_alpha": 0.7}}


def randomise(model: Any) -> None:
    """Weights that all count: gains away from 1, biases away from 0.  The row of padding stays 0."""
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=random))
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                module.weight *= 0.5
                module.weight[1] = 0


def save(model: Any, directory: Path, settings_file: str) -> None:
    """What a user has after the conversion of the checkpoint."""
    arrays = {name: value.clone().contiguous() for name, value in model.state_dict().items()}
    save_file(arrays, directory / "model.safetensors")
    (directory / settings_file).write_text(json.dumps(model.settings()), encoding="utf-8")
