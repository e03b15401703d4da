"""The fastest PyTorch code that we can write for this model: packed tokens in batches of one shape, compiled.

``torch.nn.attention.varlen`` (FlashAttention; PyTorch 2.10 and later) computes attention within packed sentences.
Activations are in bfloat16 between sublayers, too.  No shape changes from batch to batch: filler sentences, which do
not count, fill a batch up.  So the model is compiled for one shape, and can be captured in CUDA graphs.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from torch_peer import Attention, TorchTraining, TorchTransformer, count
from workload import IdPairs

from minitransformer import ModelConfig
from minitransformer.model.symbols import END, START

LONGEST = 128  # tokens of a sentence; the kernel's grid is made for it
STEP = 64  # capacities are multiples of it
NO_LABEL = -100
CAUSAL: dict[str, Any] = (  # PyTorch 2.10 has another name for it
    {"window_size": (-1, 0)} if "window_size" in inspect.signature(varlen_attn).parameters else {"is_causal": True}
)


class Packed(NamedTuple):
    """A batch of one shape.  Shapes: ids, positions and labels (T,); ends of sentences (B + 1,), beginning with 0."""

    source: Any
    source_positions: Any
    source_ends: Any
    target: Any
    target_positions: Any
    target_ends: Any
    labels: Any

    @classmethod
    def of(cls, pairs: IdPairs, n_tokens: int, n_sentences: int) -> Packed:
        """Pack pairs; filler sentences fill each side up to ``n_tokens``, empty ones up to ``n_sentences``."""
        sources, targets = zip(*pairs, strict=True)
        labels = [token for target in targets for token in (*target, END)]
        sides = [[[*source, END] for source in sources], [[START, *target] for target in targets]]
        missing = [n_tokens - sum(map(len, side)) for side in sides]
        n_pieces = count_pieces(missing)
        arrays = []
        for side, n_missing in zip(sides, missing, strict=True):
            pieces = np.diff(np.linspace(0, n_missing, n_pieces + 1).astype(int))
            lengths = np.array([*map(len, side), *pieces])
            assert lengths.max() <= LONGEST
            positions = np.concatenate([np.arange(length) for length in lengths])
            ends = np.full(n_sentences + 1, n_tokens)
            ends[: len(lengths) + 1] = np.cumsum([0, *lengths])
            ids = np.array([*(token for sentence in side for token in sentence), *[END] * n_missing])
            arrays += [torch.tensor(ids), torch.tensor(positions), torch.tensor(ends, dtype=torch.int32)]
        return cls(*arrays, torch.tensor([*labels, *[NO_LABEL] * missing[1]]))


def capacities(batches: list[IdPairs]) -> tuple[int, int]:
    """Return the tokens per side and the sentences that suffice to pack each of these batches."""
    tokens = np.array([[sum(len(ids) + 1 for ids in side) for side in zip(*pairs, strict=True)] for pairs in batches])
    n_tokens = -(-tokens.max() // STEP) * STEP
    while any(count_pieces(missing) > missing.min() for missing in n_tokens - tokens):
        n_tokens += STEP
    n_sentences = max(
        len(pairs) + count_pieces(missing) for pairs, missing in zip(batches, n_tokens - tokens, strict=True)
    )
    return int(n_tokens), -(-n_sentences // STEP) * STEP


def count_pieces(missing: Any) -> int:
    """Return the number of filler sentences for the missing tokens; each has at most LONGEST tokens on a side."""
    return int(-(-max(missing) // LONGEST))


def attend(q: Any, k: Any, v: Any, q_ends: Any, k_ends: Any, *, causal: bool) -> Any:
    """Compute softmax attention within sentences.  Shapes: q, k, v (T, H, K) → (T, H, K)."""
    if q.device.type == "cpu":  # for which PyTorch has no kernel
        return _attend_by_mask(q, k, v, q_ends, k_ends, causal=causal)
    return varlen_attn(q, k, v, q_ends, k_ends, LONGEST, LONGEST, **(CAUSAL if causal else {}))


def _attend_by_mask(q: Any, k: Any, v: Any, q_ends: Any, k_ends: Any, *, causal: bool) -> Any:
    positions = [torch.arange(len(x), dtype=torch.int32) for x in (q, k)]
    of_query, of_key = (
        torch.searchsorted(ends, position, right=True)
        for ends, position in zip((q_ends, k_ends), positions, strict=True)
    )
    mask = of_query[:, None] == of_key
    if causal:
        mask = mask & (positions[0][:, None] >= positions[1])
    heads = functional.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=mask)
    return heads[0].transpose(0, 1)


class PackedAttention(Attention):
    """An ``Attention`` for packed tokens; a side is given by the ends of its sentences."""

    def forward(self, x: Any, memory: Any, of_x: Any, of_memory: Any, causal: bool) -> Any:
        if self.key_value is None:
            q, k, v = self.query(x).chunk(3, -1)
        else:
            q, (k, v) = self.query(x), self.key_value(memory).chunk(2, -1)
        heads = attend(*(y.unflatten(-1, (self.n_heads, -1)) for y in (q, k, v)), of_x, of_memory, causal=causal)
        return self.output(heads.flatten(1))


class NarrowNorm(nn.LayerNorm):
    """A LayerNorm whose output is in bfloat16 if autocast is on, as its matrix products need."""

    def forward(self, x: Any) -> Any:
        return narrowed(super().forward(x))


def narrowed(x: Any) -> Any:
    """Return x in the dtype of autocast, if autocast is on."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


class PackedTransformer(TorchTransformer):
    """``TorchTransformer`` on ``Packed`` batches."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, attention=PackedAttention, norm=NarrowNorm)

    def start(self, ids: Any, positions: Any) -> Any:
        x = self.embedding(ids) * math.sqrt(self.config.d_model) + self.positions[positions]
        return narrowed(functional.dropout(x, self.config.p_drop, self.training))

    def forward(self, *batch: Any) -> Any:
        """Return the summed loss of a ``Packed`` batch."""
        packed = Packed(*batch)
        memory, x = (
            self.start(packed.source, packed.source_positions),
            self.start(packed.target, packed.target_positions),
        )
        for layer in self.encoder:
            memory = layer(memory, None, packed.source_ends, packed.source_ends)
        for layer in self.decoder:
            x = layer(x, memory, packed.target_ends, packed.source_ends)
        return functional.cross_entropy(
            functional.linear(x, self.embedding.weight),
            packed.labels,
            ignore_index=NO_LABEL,
            label_smoothing=self.config.label_smoothing,
            reduction="sum",
        )


def packed_training(
    config: ModelConfig, batches: list[IdPairs], *, bf16: bool, device: str, compilation: dict[str, Any] | None
) -> TorchTraining:
    """Return a training of the packed model."""
    torch.manual_seed(1)
    n_tokens, n_sentences = capacities(batches)
    packed = [Packed.of(pairs, n_tokens, n_sentences) for pairs in batches]
    return TorchTraining(
        PackedTransformer(config),
        [tuple(batch) for batch in packed],
        count(batches),
        bf16=bf16,
        device=device,
        compilation=compilation,
    )
