"""The paper's Transformer in PyTorch: padded batches, boolean masks, and weights by our names."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from against_torch import torch

from minitransformer import ModelConfig
from minitransformer.model.symbols import END, START

PADDING = 0  # any id will do: nobody may look at it
functional = torch.nn.functional


def torch_weights(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Our weights, in float64, to be differentiated."""
    return {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}


@dataclass(frozen=True)
class Padded:
    """Sentences as rows of equal length.  Shapes: ids and is_token (B, L)."""

    ids: Any
    is_token: Any

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Padded:
        longest = max(map(len, sentences))
        ids = [[*sentence, *[PADDING] * (longest - len(sentence))] for sentence in sentences]
        is_token = [[place < len(sentence) for place in range(longest)] for sentence in sentences]
        return cls(torch.tensor(ids), torch.tensor(is_token))


def self_mask(side: Padded, neighbourhood: int | None, *, causal: bool) -> Any:
    """(B, 1, L, L), true where a query may see a key: tokens of its own sentence that are near, and not later ones."""
    positions = torch.arange(side.ids.shape[1])
    behind = positions[:, None] - positions
    near = behind.abs() <= (neighbourhood if neighbourhood is not None else math.inf)
    sees = near & (behind >= 0 if causal else True) & side.is_token[:, None, :]
    return (sees | (behind == 0))[:, None]  # padding sees itself, so that its softmax is a number


class TorchTransformer:
    """The paper's Transformer on padded batches, with weights by our names."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Any]) -> None:
        self.config, self.weights = config, weights

    def loss(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Any:
        source = Padded.of([[*ids, END] for ids in sources])
        decoder_input = Padded.of([[START, *ids] for ids in targets])
        labels = Padded.of([[*ids, END] for ids in targets])
        logits = self.decode(decoder_input, self.encode(source), source)
        per_token = -(self.wanted(logits, labels.ids) * torch.log_softmax(logits, dim=-1)).sum(-1)
        return per_token[labels.is_token].sum()

    def wanted(self, logits: Any, labels: Any) -> Any:
        """The label-smoothed distributions that the softmax should have."""
        smoothing, over, n = self.config.label_smoothing, self.config.label_smoothing_over, logits.shape[-1]
        share = smoothing / {"V-1": n - 1, "V": n, "V-2": n - 2}[over]
        wanted = torch.full_like(logits, share)
        if over == "V-2":
            wanted[..., START] = 0
        return wanted.scatter(-1, labels[..., None], 1 - smoothing + (share if over == "V" else 0))

    def encode(self, source: Padded) -> Any:
        x = self.embed("source", source.ids)
        mask = self_mask(source, self.config.neighbourhood, causal=False)
        for i in range(self.config.n_layers):
            layer = f"encoder.layers.{i}"
            x = self.residual(f"{layer}.self_attention", x, lambda name, y: self.attention(name, y, y, mask))
            x = self.residual(f"{layer}.feed_forward", x, self.feed_forward)
        return self.last_norm("encoder", x)

    def decode(self, target: Padded, encoded: Any, source: Padded) -> Any:
        x = self.embed("target", target.ids)
        look_ahead = self_mask(target, self.config.neighbourhood, causal=True)
        no_padding = source.is_token[:, None, None, :]
        for i in range(self.config.n_decoder_layers or self.config.n_layers):
            layer = f"decoder.layers.{i}"
            x = self.residual(f"{layer}.self_attention", x, lambda name, y: self.attention(name, y, y, look_ahead))
            x = self.residual(
                f"{layer}.source_attention", x, lambda name, y: self.attention(name, y, encoded, no_padding)
            )
            x = self.residual(f"{layer}.feed_forward", x, self.feed_forward)
        return functional.linear(
            self.last_norm("decoder", x), self.table("projection"), self.weights.get("softmax_bias")
        )

    def table(self, use: str) -> Any:
        shared_by_target = {"all": "source_embedding", "target": "target_embedding", "none": "target_embedding"}
        names = {
            "source": "source_embedding",
            "target": shared_by_target[self.config.tied],
            "projection": "projection" if self.config.tied == "none" else shared_by_target[self.config.tied],
        }
        return self.weights[f"{names[use]}.weight"]

    def embed(self, side: str, ids: Any) -> Any:
        embedded = functional.embedding(ids, self.table(side)) * math.sqrt(self.config.d_model)
        first, n = self.config.first_position, ids.shape[1]
        if self.config.positions == "learned":
            return embedded + self.weights[f"{side}_positions.weight"][first : first + n]
        return embedded + sinusoids(first + n, self.config.d_model, self.config.positions)[first:]

    def residual(self, name: str, x: Any, sublayer: Any) -> Any:
        if self.config.norm == "post":
            return self.layer_norm(f"{name}_residual.norm", x + sublayer(name, x))
        return x + sublayer(name, self.layer_norm(f"{name}_residual.norm", x))

    def last_norm(self, stack: str, x: Any) -> Any:
        return self.layer_norm(f"{stack}.norm", x) if self.config.norm == "pre" else x

    def layer_norm(self, name: str, x: Any) -> Any:
        gain, bias = self.weights[f"{name}.gain"], self.weights[f"{name}.bias"]
        return functional.layer_norm(x, (self.config.d_model,), gain, bias, eps=self.config.layer_norm_eps)

    def attention(self, name: str, x: Any, memory: Any, mask: Any) -> Any:
        query = self.heads(self.linear(f"{name}.query", x))
        key, value = (self.heads(self.linear(f"{name}.{part}", memory)) for part in ("key", "value"))
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.config.d_k)
        attended = scores.masked_fill(~mask, -math.inf).softmax(-1) @ value
        return self.linear(f"{name}.output", attended.transpose(1, 2).flatten(2))

    def linear(self, name: str, x: Any) -> Any:
        """With a bias where our model has one."""
        return functional.linear(x, self.weights[f"{name}.weight"].T, self.weights.get(f"{name}.bias"))

    def heads(self, x: Any) -> Any:
        """(B, L, H · size) → (B, H, L, size)."""
        return x.unflatten(-1, (self.config.n_heads, -1)).transpose(1, 2)

    def feed_forward(self, name: str, x: Any) -> Any:
        activate = {
            "relu": functional.relu,
            "swish": functional.silu,
            "gelu": functional.gelu,
            "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
        }[self.config.activation]
        return self.linear(f"{name}.output", activate(self.linear(f"{name}.hidden", x)))


def sinusoids(n_positions: int, d_model: int, layout: str) -> Any:
    """The paper's formula, or tensor2tensor's, entry by entry."""
    half = d_model // 2
    rows = [[0.0] * d_model for _ in range(n_positions)]
    for position, i in product(range(n_positions), range(half)):
        if layout == "interleaved":
            angle, sine, cosine = position / 10_000 ** (2 * i / d_model), 2 * i, 2 * i + 1
        else:
            angle, sine, cosine = position * math.exp(-i * math.log(10_000) / (half - 1)), i, half + i
        rows[position][sine], rows[position][cosine] = math.sin(angle), math.cos(angle)
    return torch.tensor(rows, dtype=torch.float64)
