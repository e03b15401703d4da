"""The Transformer as textbooks write it: sentences padded to rows of one length, boolean masks, plain NumPy.

It shares no code with the model, only the names of its weights.  A mask is True where looking is forbidden.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minitransformer import ModelConfig
from minitransformer.model.symbols import END, START


def padded(sentences: Sequence[Sequence[int]], pad: int) -> tuple[Any, Any]:
    """Ids (B, L), and where they are padding (B, L)."""
    longest = max(len(sentence) for sentence in sentences)
    ids = np.array([[*sentence, *[pad] * (longest - len(sentence))] for sentence in sentences])
    lengths = np.array([len(sentence) for sentence in sentences])
    return ids, np.arange(longest) >= lengths[:, None]


def padding_mask(key_is_padding: Any) -> Any:
    """(B, 1, L): nobody looks at padding."""
    return key_is_padding[:, None, :]


def look_ahead_mask(length: int) -> Any:
    """(L, L): nobody looks at what comes later."""
    return np.arange(length)[None, :] > np.arange(length)[:, None]


def distance_mask(length: int, neighbourhood: int | None) -> Any:
    """(L, L): nobody looks further than r places (section 4)."""
    distance = np.abs(np.arange(length)[None, :] - np.arange(length)[:, None])
    return distance > (length if neighbourhood is None else neighbourhood)


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Equation 1, with illegal connections set to (almost) −∞: section 3.2.3.  Shapes: (…, Q, K), (…, S, K), (…, S, V).

    −10⁹ rather than −∞, so that the row of a padded query that sees nothing is a number too.
    """
    scores = np.where(mask, -1e9, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True) @ v


def positional_encoding(length: int, d_model: int, layout: str) -> Any:
    """Section 3.5, or the layout of tensor2tensor, entry by entry."""
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            if layout == "interleaved":
                angle, sine, cosine = pos / 10_000 ** (2 * i / d_model), 2 * i, 2 * i + 1
            else:
                angle, sine, cosine = pos / 10_000 ** (i / (d_model / 2 - 1)), i, d_model // 2 + i
            table[pos, sine], table[pos, cosine] = np.sin(angle), np.cos(angle)
    return table


class PaddedTransformer:
    """Figure 1, with weights by the names of ``Transformer.weights()``."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Any]) -> None:
        assert config.activation == "relu"
        self.config, self.weights = config, weights

    def log_probabilities(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], pad: int) -> Any:
        """log p of every next token, without padding: (target tokens, W) in sentence order."""
        source_ids, source_padding = padded([[*source, END] for source in sources], pad)
        start = END if self.config.start == "end" else START
        target_ids, target_padding = padded([[start, *target] for target in targets], pad)
        encoded = self.encode(source_ids, source_padding)
        decoded = self.decode(target_ids, target_padding, encoded, source_padding)
        logits = decoded @ self.table("projection").T + self.weights.get("softmax_bias", 0)
        largest = logits.max(-1, keepdims=True)
        log_p = logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))
        return log_p[~target_padding]

    def encode(self, ids: Any, is_padding: Any) -> Any:
        mask = padding_mask(is_padding) | distance_mask(ids.shape[1], self.config.neighbourhood)
        x = self.embed("source", ids)
        for n in range(self.config.n_layers):
            layer = f"encoder.layers.{n}"
            x = self.residual(f"{layer}.self_attention", x, lambda name, y: self.multi_head(name, y, y, mask))
            x = self.residual(f"{layer}.feed_forward", x, self.feed_forward)
        return x if self.config.norm == "post" else self.layer_norm("encoder.norm", x)

    def decode(self, ids: Any, is_padding: Any, encoded: Any, source_is_padding: Any) -> Any:
        far = distance_mask(ids.shape[1], self.config.neighbourhood)
        mask = padding_mask(is_padding) | look_ahead_mask(ids.shape[1]) | far
        source_mask = padding_mask(source_is_padding)
        x = self.embed("target", ids)
        for n in range(self.config.n_decoder_layers or self.config.n_layers):
            layer = f"decoder.layers.{n}"
            x = self.residual(f"{layer}.self_attention", x, lambda name, y: self.multi_head(name, y, y, mask))
            x = self.residual(
                f"{layer}.source_attention", x, lambda name, y: self.multi_head(name, y, encoded, source_mask)
            )
            x = self.residual(f"{layer}.feed_forward", x, self.feed_forward)
        return x if self.config.norm == "post" else self.layer_norm("decoder.norm", x)

    def table(self, use: str) -> Any:
        """The embedding matrix for a use, wherever it is kept: section 3.4."""
        if self.config.tied == "all":
            return self.weights["source_embedding.weight"]
        if self.config.tied == "target" and use == "projection":
            return self.weights["target_embedding.weight"]
        return self.weights["projection.weight" if use == "projection" else f"{use}_embedding.weight"]

    def embed(self, side: str, ids: Any) -> Any:
        d_model, layout, first = self.config.d_model, self.config.positions, self.config.first_position
        x, end = self.table(side)[ids] * np.sqrt(d_model), first + ids.shape[1]
        if side == "target" and self.config.start == "zero":
            x[:, 0] = 0
        if layout == "learned":
            return x + self.weights[f"{side}_positions.weight"][first:end]
        return x + positional_encoding(end, d_model, layout)[first:]

    def residual(self, name: str, x: Any, sublayer: Any) -> Any:
        """LayerNorm(x + Sublayer(x)), section 3.1; or x + Sublayer(LayerNorm(x))."""
        if self.config.norm == "post":
            return self.layer_norm(f"{name}_residual.norm", x + sublayer(name, x))
        return x + sublayer(name, self.layer_norm(f"{name}_residual.norm", x))

    def layer_norm(self, name: str, x: Any) -> Any:
        deviation = np.sqrt(x.var(-1, keepdims=True) + self.config.layer_norm_eps)
        return self.weights[f"{name}.gain"] * (x - x.mean(-1, keepdims=True)) / deviation + self.weights[f"{name}.bias"]

    def multi_head(self, name: str, x: Any, memory: Any, mask: Any) -> Any:
        """Section 3.2.2, one head after the other."""
        heads = [
            np.split(self.linear(f"{name}.{use}", of_whom), self.config.n_heads, axis=-1)
            for use, of_whom in (("query", x), ("key", memory), ("value", memory))
        ]
        attended = [attention(q, k, v, mask) for q, k, v in zip(*heads, strict=True)]
        return self.linear(f"{name}.output", np.concatenate(attended, axis=-1))

    def feed_forward(self, name: str, x: Any) -> Any:
        """Equation 2."""
        return self.linear(f"{name}.output", np.maximum(0, self.linear(f"{name}.hidden", x)))

    def linear(self, name: str, x: Any) -> Any:
        return x @ self.weights[f"{name}.weight"] + self.weights.get(f"{name}.bias", 0)
