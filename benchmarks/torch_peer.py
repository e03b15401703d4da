"""The paper's model in PyTorch as an expert would run it: the peer of the training benchmarks.

Padded batches of similar lengths, fused query-key-value projections, scaled_dot_product_attention, label smoothing
inside cross_entropy, fused Adam; packed tokens, compilation and bfloat16 as options.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from workload import IdPairs

from minitransformer import ModelConfig
from minitransformer.model.positions import sinusoids
from minitransformer.symbols import END, START

PADDING = 0
Places = Any  # of the tokens of a packed batch among the padded ones; None for a padded batch
Side = tuple[Places, Any, Any]  # and the padded shape (B, L), and which places hold a token (B, 1, 1, L)


def spread(x: Any, places: Places, shape: Any) -> Any:
    """Packed tokens (N, D) → padded ones (B, L, D); padded ones as they are."""
    if places is None:
        return x
    rows = x.new_zeros(shape[0] * shape[1], x.shape[-1])
    return rows.index_copy(0, places, x).unflatten(0, tuple(shape))


def gather(x: Any, places: Places) -> Any:
    """The inverse of ``spread``."""
    return x if places is None else x.flatten(0, 1).index_select(0, places)


class Attention(nn.Module):
    """Multi-head attention without biases; ``fused`` is one projection for queries, keys and values."""

    def __init__(self, config: ModelConfig, *, fused: bool) -> None:
        super().__init__()
        d, self.n_heads = config.d_model, config.n_heads
        width = config.n_heads * config.d_k
        self.query = nn.Linear(d, 3 * width if fused else width, bias=False)
        self.key_value = None if fused else nn.Linear(d, 2 * width, bias=False)
        self.output = nn.Linear(width, d, bias=False)

    def forward(self, x: Any, memory: Any, of_x: Side, of_memory: Side, causal: bool) -> Any:
        if self.key_value is None:
            q, k, v = spread(self.query(x), *of_x[:2]).chunk(3, -1)
        else:
            q = spread(self.query(x), *of_x[:2])
            k, v = spread(self.key_value(memory), *of_memory[:2]).chunk(2, -1)
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (q, k, v))
        mask = None if causal else of_memory[2]
        heads = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.output(gather(heads.transpose(1, 2).flatten(2), of_x[0]))


class Layer(nn.Module):
    """An encoder or a decoder layer, post-norm."""

    def __init__(self, config: ModelConfig, *, decoder: bool) -> None:
        super().__init__()
        d = config.d_model
        self.p_drop = config.p_drop
        self.self_attention = Attention(config, fused=True)
        self.source_attention = Attention(config, fused=False) if decoder else None
        self.hidden, self.output = nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d)
        self.norms = nn.ModuleList(nn.LayerNorm(d, eps=1e-6) for _ in range(3 if decoder else 2))

    def forward(self, x: Any, memory: Any, of_x: Side, of_memory: Side) -> Any:
        causal = self.source_attention is not None
        x = self.norms[0](x + self.drop(self.self_attention(x, x, of_x, of_x, causal)))
        if self.source_attention is not None:
            x = self.norms[1](x + self.drop(self.source_attention(x, memory, of_x, of_memory, False)))
        return self.norms[-1](x + self.drop(self.output(functional.relu(self.hidden(x)))))

    def drop(self, x: Any) -> Any:
        return functional.dropout(x, self.p_drop, self.training)


class TorchTransformer(nn.Module):
    """Post-norm, one matrix for both embeddings and the softmax."""

    def __init__(self, config: ModelConfig, *, packed: bool = False) -> None:
        super().__init__()
        self.config, self.packed = config, packed
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.encoder = nn.ModuleList(Layer(config, decoder=False) for _ in range(config.n_layers))
        self.decoder = nn.ModuleList(Layer(config, decoder=True) for _ in range(config.n_layers))
        self.register_buffer("positions", torch.tensor(sinusoids(256, config.d_model), dtype=torch.float32))

    def embed(self, ids: Any, places: Places) -> Any:
        x = self.embedding(ids) * math.sqrt(self.config.d_model) + self.positions[: ids.shape[1]]
        return functional.dropout(gather(x, places), self.config.p_drop, self.training)

    def side(self, ids: Any) -> Side:
        """Where the tokens of a side are, and which of them can be attended to."""
        real = ids != PADDING
        return real.flatten().nonzero()[:, 0] if self.packed else None, ids.shape, real[:, None, None, :]

    def encode(self, source: Any) -> Any:
        of_source = self.side(source)
        x = self.embed(source, of_source[0])
        for layer in self.encoder:
            x = layer(x, None, of_source, of_source)
        return x

    def forward(self, source: Any, target: Any, labels: Any) -> Any:
        """Summed loss.  Padding behind targets needs no mask: it comes later than every real token."""
        of_source, of_target = self.side(source), self.side(labels)
        memory, x = self.encode(source), self.embed(target, of_target[0])
        for layer in self.decoder:
            x = layer(x, memory, of_target, of_source)
        real = labels != PADDING  # the projection is the greatest product: none of it for padding
        logits = functional.linear(x if self.packed else x[real], self.embedding.weight)
        return functional.cross_entropy(
            logits, labels[real], label_smoothing=self.config.label_smoothing, reduction="sum"
        )


def padded(sequences: list[list[int]]) -> Any:
    """Ids as rows of one length."""
    width = max(map(len, sequences))
    return torch.tensor([[*ids, *[PADDING] * (width - len(ids))] for ids in sequences])


def tensors(pairs: IdPairs) -> tuple[Any, Any, Any]:
    """Sources, decoder inputs and labels of a batch."""
    sources, targets = zip(*pairs, strict=True)
    inputs, labels = padded([[START, *t] for t in targets]), padded([[*t, END] for t in targets])
    return padded([[*s, END] for s in sources]), inputs, labels


class TorchTraining:
    """Updates of the model, one batch after the other."""

    def __init__(
        self,
        config: ModelConfig,
        batches: list[IdPairs],
        *,
        packed: bool,
        compiled: bool,
        bf16: bool,
        device: str = "cpu",
    ) -> None:
        torch.manual_seed(1)
        self.device = device
        self.model = TorchTransformer(config, packed=packed).to(device).train()
        self.loss = torch.compile(self.model, dynamic=True) if compiled else self.model
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.batches, self.bf16, self.step = [tensors(pairs) for pairs in batches], bf16, 0

    def update(self) -> int:
        on_host = self.batches[self.step % len(self.batches)]
        self.step += 1
        n_tokens = int((on_host[2] != PADDING).sum())
        source, target, labels = (ids.to(self.device) for ids in on_host)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            loss = self.loss(source, target, labels)
        (loss / n_tokens).backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        assert np.isfinite(loss.item())
        return n_tokens
