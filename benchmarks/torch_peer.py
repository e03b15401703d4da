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
from minitransformer.model.symbols import END, START

PADDING = 0
Positions = Any  # indices of a packed batch's tokens in the padded batch; None for a padded batch
Side = tuple[Positions, Any, Any]  # positions, padded shape (B, L), and mask of tokens (B, 1, 1, L)


def spread(x: Any, positions: Positions, shape: Any) -> Any:
    """Pad packed tokens (N, D) to (B, L, D); return padded tokens unchanged."""
    if positions is None:
        return x
    rows = x.new_zeros(shape[0] * shape[1], x.shape[-1])
    return rows.index_copy(0, positions, x).unflatten(0, tuple(shape))


def gather(x: Any, positions: Positions) -> Any:
    """Invert ``spread``: pack padded tokens, if the batch is packed."""
    return x if positions is None else x.flatten(0, 1).index_select(0, positions)


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

    def __init__(
        self, config: ModelConfig, *, decoder: bool, attention: type[Attention], norm: type[nn.LayerNorm]
    ) -> None:
        super().__init__()
        d = config.d_model
        self.p_drop = config.p_drop
        self.self_attention = attention(config, fused=True)
        self.source_attention = attention(config, fused=False) if decoder else None
        self.hidden, self.output = nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d)
        self.norms = nn.ModuleList(norm(d, eps=1e-6) for _ in range(3 if decoder else 2))

    def forward(self, x: Any, memory: Any, of_x: Side, of_memory: Side) -> Any:
        causal = self.source_attention is not None
        x = self.norms[0](x + self.drop(self.self_attention(x, x, of_x, of_x, causal)))
        if self.source_attention is not None:
            x = self.norms[1](x + self.drop(self.source_attention(x, memory, of_x, of_memory, False)))
        return self.norms[-1](x + self.drop(self.output(functional.relu(self.hidden(x)))))

    def drop(self, x: Any) -> Any:
        return functional.dropout(x, self.p_drop, self.training)


class TorchTransformer(nn.Module):
    """A post-norm Transformer with one matrix for both embeddings and the softmax."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        packed: bool = False,
        attention: type[Attention] = Attention,
        norm: type[nn.LayerNorm] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        kinds: dict[str, Any] = {"attention": attention, "norm": norm}
        self.config, self.packed = config, packed
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.encoder = nn.ModuleList(Layer(config, decoder=False, **kinds) for _ in range(config.n_layers))
        self.decoder = nn.ModuleList(Layer(config, decoder=True, **kinds) for _ in range(config.n_layers))
        self.register_buffer("positions", torch.tensor(sinusoids(256, config.d_model), dtype=torch.float32))

    def embed(self, ids: Any, positions: Positions) -> Any:
        x = self.embedding(ids) * math.sqrt(self.config.d_model) + self.positions[: ids.shape[1]]
        return functional.dropout(gather(x, positions), self.config.p_drop, self.training)

    def side(self, ids: Any) -> Side:
        """Return the positions of a side's tokens, the padded shape, and the mask of tokens."""
        real = ids != PADDING
        return real.flatten().nonzero()[:, 0] if self.packed else None, ids.shape, real[:, None, None, :]

    def encode(self, source: Any) -> Any:
        of_source = self.side(source)
        x = self.embed(source, of_source[0])
        for layer in self.encoder:
            x = layer(x, None, of_source, of_source)
        return x

    def forward(self, source: Any, target: Any, labels: Any, positions: Any) -> Any:
        """Return the summed loss of labels at ``positions``.  The causal mask also hides the padding after targets."""
        of_source, of_target = self.side(source), self.side(labels)
        memory, x = self.encode(source), self.embed(target, of_target[0])
        for layer in self.decoder:
            x = layer(x, memory, of_target, of_source)
        x = x if self.packed else gather(x, positions)  # not padding: the projection is the largest product
        return functional.cross_entropy(
            functional.linear(x, self.embedding.weight),
            labels.flatten().index_select(0, positions),
            label_smoothing=self.config.label_smoothing,
            reduction="sum",
        )


def padded(sequences: list[list[int]]) -> Any:
    """Return ids as rows, padded to one length."""
    width = max(map(len, sequences))
    return torch.tensor([[*ids, *[PADDING] * (width - len(ids))] for ids in sequences])


def tensors(pairs: IdPairs) -> tuple[Any, Any, Any, Any]:
    """Return sources, decoder inputs and labels of a batch, and the positions of labels that are not padding."""
    sources, targets = zip(*pairs, strict=True)
    inputs, labels = padded([[START, *t] for t in targets]), padded([[*t, END] for t in targets])
    return padded([[*s, END] for s in sources]), inputs, labels, (labels != PADDING).flatten().nonzero()[:, 0]


class TorchTraining:
    """A training of a model: ``model(*batch)`` is a batch's summed loss, which is divided by its ``n_tokens``."""

    def __init__(
        self,
        model: nn.Module,
        batches: list[tuple[Any, ...]],
        n_tokens: list[int],
        *,
        bf16: bool,
        device: str = "cpu",
        compilation: dict[str, Any] | None = None,
    ) -> None:
        self.device, self.bf16, self.step = device, bf16, 0
        self.model = model.to(device).train()
        self.compute = self.model if compilation is None else torch.compile(self.model, **compilation)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        pinned = [[x.pin_memory() if device == "cuda" else x for x in batch] for batch in batches]
        self.batches, self.n_tokens = pinned, n_tokens
        self.losses: list[Any] = []

    @classmethod
    def padded(
        cls,
        config: ModelConfig,
        batches: list[IdPairs],
        *,
        packed: bool,
        compiled: bool,
        bf16: bool,
        device: str = "cpu",
    ) -> TorchTraining:
        """Return a training of a ``TorchTransformer``."""
        torch.manual_seed(1)
        return cls(
            TorchTransformer(config, packed=packed),
            [tensors(pairs) for pairs in batches],
            count(batches),
            bf16=bf16,
            device=device,
            compilation={"dynamic": True} if compiled else None,
        )

    def loss(self, batch: list[Any]) -> Any:
        """Return the loss, summed over target tokens."""
        on_device = [x.to(self.device, non_blocking=True) for x in batch]
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            return self.compute(*on_device)

    def update(self) -> int:
        """Make one update without waiting for the GPU; return its number of target tokens."""
        number = self.step % len(self.batches)
        self.step += 1
        loss = self.loss(self.batches[number]) / self.n_tokens[number]
        loss.backward()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self.losses.append(loss.detach().clone())
        return self.n_tokens[number]

    def updates(self, n: int | None = None) -> int:
        """Make ``n`` updates, or one for each batch, and wait for their losses; return the number of target tokens."""
        n_tokens = sum(self.update() for _ in range(n or len(self.batches)))
        assert np.isfinite(torch.stack(self.losses).cpu()).all()
        self.losses.clear()
        return n_tokens

    def peak_mb(self) -> float:
        """Return the peak memory in MB that PyTorch has reserved on the GPU; 0 on a CPU."""
        return torch.cuda.max_memory_reserved() / 1e6 if self.device == "cuda" else 0.0


def count(batches: list[IdPairs]) -> list[int]:
    """Return the number of target tokens of each batch, end symbols included."""
    return [sum(len(target) + 1 for _, target in pairs) for pairs in batches]
