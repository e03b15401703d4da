"""The encoder and the decoder: section 3.1, Figure 1."""

from __future__ import annotations

from typing import Protocol

from autograd import AttentionMask, Layer, RandomStream, Tensor
from minitransformer.config import ModelConfig
from minitransformer.model.layers import (
    FeedForward,
    KeysValues,
    LayerNorm,
    MultiHeadAttention,
    Residual,
    keys_values_of_each,
)


class KeyValueCache(Protocol):
    """The key/value cache of one decoder layer's self-attention."""

    def extend(self, keys_values: KeysValues) -> KeysValues:
        """Append the keys and values of the newest tokens; return the keys and values of all tokens so far."""


class EncoderLayer(Layer):
    """Self-attention, then the feed-forward network, each with a residual connection.  Shapes: (S, D) → (S, D)."""

    def __init__(self, config: ModelConfig) -> None:
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def __call__(self, x: Tensor, mask: AttentionMask, random: RandomStream | None = None) -> Tensor:
        y = self.self_attention_residual.sublayer_input(x)
        y = self.self_attention(*self.self_attention.queries_keys_values(y), mask, random)
        x = self.self_attention_residual(x, y, random)
        y = self.feed_forward(self.feed_forward_residual.sublayer_input(x), random)
        return self.feed_forward_residual(x, y, random)


class DecoderLayer(Layer):
    """Masked self-attention, attention to the encoder's output, the feed-forward network.  Shapes: (T, D) → (T, D)."""

    def __init__(self, config: ModelConfig) -> None:
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.source_attention = MultiHeadAttention(config)
        self.source_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def __call__(
        self,
        x: Tensor,
        memory: KeysValues,
        self_mask: AttentionMask,
        source_mask: AttentionMask,
        random: RandomStream | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Apply the layer.

        ``memory`` holds the keys and values that ``source_attention`` computes from the encoder's output.
        """
        y = self.self_attention_residual.sublayer_input(x)
        queries, newest = self.self_attention.queries_keys_values(y)
        y = self.self_attention(queries, cache.extend(newest) if cache else newest, self_mask, random)
        x = self.self_attention_residual(x, y, random)
        queries = self.source_attention.queries(self.source_attention_residual.sublayer_input(x))
        y = self.source_attention(queries, memory, source_mask, random)
        x = self.source_attention_residual(x, y, random)
        y = self.feed_forward(self.feed_forward_residual.sublayer_input(x), random)
        return self.feed_forward_residual(x, y, random)


class Encoder(Layer):
    """N encoder layers; with ``norm`` "pre", one more norm at the end."""

    def __init__(self, config: ModelConfig) -> None:
        self.layers = [EncoderLayer(config) for _ in range(config.n_layers)]
        self.norm = LayerNorm(config.d_model, eps=config.layer_norm_eps) if config.norm == "pre" else None

    def __call__(self, x: Tensor, mask: AttentionMask, random: RandomStream | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask, random)
        return self.norm(x) if self.norm else x


class Decoder(Layer):
    """N decoder layers; with ``norm`` "pre", one more norm at the end."""

    def __init__(self, config: ModelConfig) -> None:
        self.layers = [DecoderLayer(config) for _ in range(config.decoder_depth)]
        self.norm = LayerNorm(config.d_model, eps=config.layer_norm_eps) if config.norm == "pre" else None

    def memory(self, encoded: Tensor) -> list[KeysValues]:
        """Compute each layer's keys and values from the encoder's output (S, D)."""
        return keys_values_of_each([layer.source_attention for layer in self.layers], encoded)

    def __call__(
        self,
        x: Tensor,
        memory: list[KeysValues],
        self_mask: AttentionMask,
        source_mask: AttentionMask,
        random: RandomStream | None = None,
        caches: list[KeyValueCache] | None = None,
    ) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x, memory[i], self_mask, source_mask, random, caches[i] if caches else None)
        return self.norm(x) if self.norm else x
