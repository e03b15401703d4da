"""The layers of the Transformer: Vaswani et al. 2017, sections 3.1 to 3.4."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Sequence
from threading import Lock
from typing import TypeAlias, TypeVar

from autograd import AttentionMask, Layer, Parameter, RandomStream, Tensor, ops, to_device
from autograd.array import Array
from autograd.ops.linear import pack_weight
from autograd.packed_weight import PackedDtype
from autograd.parameters import glorot_uniform, ones, scaled_normal, zeros
from autograd.precision import is_16_bit, rounded
from autograd.random import StreamId
from minitransformer.config import ModelConfig
from minitransformer.model.batch import NO_ORDERS, Orders
from minitransformer.model.positions import PositionalEncoding, SamePosition

AnyLayer = TypeVar("AnyLayer", bound=Layer)
KeysValues: TypeAlias = tuple[Tensor, Tensor]  # (S, H, K) and (S, H, V)

_log = logging.getLogger(__name__)
_logged: set[tuple[str, str]] = set()  # operations and classes that ``log_lost_fusion`` has logged
_lock = Lock()


def is_exactly(replaced: type, operation: str, *layers: object) -> bool:
    """Return whether every layer is of the class ``replaced`` itself, so that ``operation`` may compute the layers.

    A layer of another class, also of a derived one, must be called.  The log says so once for each class.
    """
    others = [type(layer) for layer in layers if type(layer) is not replaced]
    for other in others:
        log_lost_fusion(operation, f"{other.__module__}.{other.__qualname__}")
    return not others


def keeps_methods(layer: object, base: type, operation: str, *names: str) -> bool:
    """Return whether the class of ``layer`` has the methods of ``base``, so that ``operation`` may compute them.

    Methods that the class overrides must be called.  The log says so once for each class.
    """
    kind = type(layer)
    changed = [name for name in names if getattr(kind, name, None) is not getattr(base, name)]
    for name in changed:
        log_lost_fusion(operation, f"{kind.__module__}.{kind.__qualname__}.{name}")
    return not changed


def log_lost_fusion(operation: str, called: str) -> None:
    """Log that ``called``, a class or a method, is called because ``operation`` would compute something else."""
    with _lock:
        is_new = (operation, called) not in _logged
        _logged.add((operation, called))
    if is_new:
        _log.info(f"{called} is called; the faster operation {operation} would leave it out")


def drop(x: Tensor, rate: float, random: RandomStream | None) -> Tensor:
    """Apply dropout; return x itself if there is no random stream, or if the rate is 0."""
    stream_id = stream_id_of_mask(rate, random)
    return ops.dropout(x, rate=rate, stream_id=stream_id) if stream_id else x


def stream_id_of_mask(rate: float, random: RandomStream | None) -> StreamId | None:
    """Return the random stream id of the next dropout mask; None without a stream, or if the rate is 0."""
    return random.next_id() if random and rate else None


class Linear(Layer):
    """y = x W + b, or y = x W.  Shapes: (T, in) → (T, out); weight (in, out), bias (out,)."""

    def __init__(self, d_in: int, d_out: int, *, bias: bool, gain: float = 1.0) -> None:
        self.weight: Tensor = Parameter((d_in, d_out), lambda stream_id, shape: gain * glorot_uniform(stream_id, shape))
        self.bias: Tensor | None = Parameter((d_out,), zeros) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


def layer_with_packed_weights(layer: AnyLayer, *, dtype: PackedDtype = "float32") -> AnyLayer:
    """Return a copy of the layer with packed weights (``pack_weight``), valid only until the parameters change."""
    prepared = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, Layer):
            setattr(prepared, name, layer_with_packed_weights(value, dtype=dtype))
        elif isinstance(value, list):
            packed = [layer_with_packed_weights(x, dtype=dtype) if isinstance(x, Layer) else x for x in value]
            setattr(prepared, name, packed)
    if isinstance(prepared, Linear) and is_exactly(Linear, "pack_weight", prepared):
        prepared.weight = Tensor(pack_weight(prepared.weight.value, dtype=dtype))
        if prepared.bias is not None and is_16_bit(prepared.weight.value):  # else each product would round it
            prepared.bias = Tensor(rounded(prepared.bias.value, prepared.weight.dtype))
    return prepared


def mapped(x: Tensor, maps: Sequence[Linear]) -> list[Tensor]:
    """Apply each of the linear maps to x."""
    if not is_exactly(Linear, "linear_maps", *maps):
        return [linear(x) for linear in maps]
    return ops.linear_maps(x, *(parameter for linear in maps for parameter in (linear.weight, linear.bias)))


class LayerNorm(Layer):
    """Layer normalisation with a trained gain and bias, ε inside the square root.  Shapes: (T, D) → (T, D)."""

    def __init__(self, d_model: int, *, eps: float = 1e-6) -> None:
        self.eps = eps
        self.gain = Parameter((d_model,), ones)
        self.bias = Parameter((d_model,), zeros)

    def __call__(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.gain, self.bias, eps=self.eps)


class Embedding(Layer):
    """An embedding table, whose rows are multiplied by √D (section 3.4); its transpose projects to logits."""

    def __init__(self, n_words: int, d_model: int) -> None:
        self.weight = Parameter((n_words, d_model), scaled_normal)
        self.scale = math.sqrt(d_model)

    def __call__(self, ids: Array, order: Array | None = None) -> Tensor:
        """Look up the row of each id; for ``order`` see ``ops.embedding``.  Shapes: ids (T,) → (T, D)."""
        return ops.embedding(self.weight, to_device(ids, self.weight.device), order=order) * self.scale

    def with_positions(
        self,
        ids: Array,
        encoding: PositionalEncoding,
        positions: Array | SamePosition,
        rate: float,
        random: RandomStream | None,
        orders: Orders = NO_ORDERS,
    ) -> Tensor:
        """Look up the row of each id, add the encoding of its position, and apply dropout.

        Shapes: ids and positions (T,) → (T, D).
        """
        operation = "embedding_with_positions"
        is_fused = keeps_methods(encoding, PositionalEncoding, operation, "add_to")
        if not (is_exactly(Embedding, operation, self) and is_fused):
            return drop(encoding.add_to(self(ids, orders.ids), positions, orders.positions), rate, random)
        device = self.weight.device
        table, rows = encoding.table_and_rows(positions, self.weight.dtype, device)
        return ops.embedding_with_positions(
            self.weight,
            to_device(ids, device),
            table,
            rows,
            scale=self.scale,
            rate=rate,
            stream_id=stream_id_of_mask(rate, random),
            order=orders.ids,
            order_of_positions=orders.positions,
        )

    def logits(self, x: Tensor) -> Tensor:
        """Compute x Eᵀ, without bias.  Shapes: x (T, D) → (T, W)."""
        return ops.linear_transposed(x, self.weight)


class MultiHeadAttention(Layer):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Source: section 3.2.2.  The h matrices W_i^Q are columns of one matrix, as are W_i^K and W_i^V.  No map has a bias.
    Shapes: query (D, H·K), key (D, H·K), value (D, H·V), output (H·V, D).
    Differs, if ``attention_bias`` is set: all four projections have a bias, as in PyTorch and models trained with it.
    """

    def __init__(self, config: ModelConfig) -> None:
        bias, gain = config.attention_bias, config.attention_gain
        self.n_heads, self.p_drop = config.n_heads, config.p_drop_attention
        self.query = Linear(config.d_model, config.n_heads * config.d_k, bias=bias, gain=gain)
        self.key = Linear(config.d_model, config.n_heads * config.d_k, bias=bias, gain=gain)
        self.value = Linear(config.d_model, config.n_heads * config.d_v, bias=bias, gain=gain)
        self.output = Linear(config.n_heads * config.d_v, config.d_model, bias=bias)

    def queries(self, x: Tensor) -> Tensor:
        """Compute the queries of all heads.  Shapes: x (T, D) → (T, H, K)."""
        return self.heads(self.query(x))

    def keys_values(self, x: Tensor) -> KeysValues:
        """Compute the keys and values of all heads.  Shapes: x (S, D) → (S, H, K) and (S, H, V)."""
        keys, values = map(self.heads, mapped(x, [self.key, self.value]))
        return keys, values

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Compute queries, keys and values of one x.  Shapes: x (T, D) → (T, H, K), (T, H, K) and (T, H, V)."""
        query, key, value = self.query, self.key, self.value
        is_fused = keeps_methods(self, MultiHeadAttention, "linear_maps", "queries", "keys_values")
        if not (is_exactly(Linear, "linear_maps", query, key, value) and is_fused):
            return self.queries(x), self.keys_values(x)
        maps = ops.linear_maps(x, query.weight, query.bias, key.weight, key.bias, value.weight, value.bias)
        queries, keys, values = map(self.heads, maps)
        return queries, (keys, values)

    def __call__(
        self, queries: Tensor, keys_values: KeysValues, mask: AttentionMask, random: RandomStream | None = None
    ) -> Tensor:
        """Attend to keys and values under a mask.  Shapes: queries (T, H, K) → (T, D)."""
        stream_id = stream_id_of_mask(self.p_drop, random)
        heads = ops.attention(queries, *keys_values, mask=mask, rate=self.p_drop, stream_id=stream_id)
        return self.output(ops.reshape(heads, shape=(len(queries), heads.shape[1] * heads.shape[2])))

    def heads(self, x: Tensor) -> Tensor:
        """Split the features of each row into heads.  Shapes: x (T, H·K) → (T, H, K)."""
        return ops.reshape(x, shape=(len(x), self.n_heads, x.shape[1] // self.n_heads))


def keys_values_of_each(attentions: Sequence[MultiHeadAttention], memory: Tensor) -> list[KeysValues]:
    """Compute each layer's keys and values from ``memory``.  Shapes: (S, D) → keys (S, H, K), values (S, H, V)."""
    if not all([keeps_methods(x, MultiHeadAttention, "linear_maps", "keys_values") for x in attentions]):
        return [attention.keys_values(memory) for attention in attentions]
    keys = mapped(memory, [attention.key for attention in attentions])
    values = mapped(memory, [attention.value for attention in attentions])
    return [(attention.heads(k), attention.heads(v)) for attention, k, v in zip(attentions, keys, values, strict=True)]


_ACTIVATIONS = {  # ReLU is a part of ``linear_relu``
    "relu": None, "swish": ops.swish, "gelu": ops.gelu, "gelu_tanh": ops.gelu_tanh,
}  # fmt: skip


class FeedForward(Layer):
    """FFN(x) = max(0, x W₁ + b₁) W₂ + b₂: section 3.3, equation 2.  Shapes: (T, D) → (T, D).

    Differs, if ``activation`` is not "relu": the function that it names replaces max(0, ·).
    """

    def __init__(self, config: ModelConfig) -> None:
        self.p_drop = config.p_drop_relu
        self.activation = _ACTIVATIONS[config.activation]
        self.hidden = Linear(config.d_model, config.d_ff, bias=True)
        self.output = Linear(config.d_ff, config.d_model, bias=True)

    def __call__(self, x: Tensor, random: RandomStream | None = None) -> Tensor:
        hidden, output, activation = self.hidden, self.output, self.activation
        if not (activation or is_exactly(Linear, "feed_forward", hidden, output)):
            activation = ops.relu
        if activation:
            return output(drop(activation(hidden(x)), self.p_drop, random))
        if random and self.p_drop:
            return output(drop(ops.linear_relu(x, hidden.weight, hidden.bias), self.p_drop, random))
        return ops.feed_forward(x, hidden.weight, hidden.bias, output.weight, output.bias)


class Residual(Layer):
    """The residual connection around every sublayer: LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4.

    Differs, if norm is "pre": x + Dropout(Sublayer(LayerNorm(x))), with one more norm at the end of each stack, as in
    later versions of tensor2tensor.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.is_post, self.p_drop = config.norm == "post", config.p_drop
        self.norm = LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def sublayer_input(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer: x, or LayerNorm(x) if norm is "pre"."""
        return x if self.is_post else self.norm(x)

    def __call__(self, x: Tensor, y: Tensor, random: RandomStream | None) -> Tensor:
        """Add the sublayer's output y, after dropout, to x; normalise the sum if norm is "post"."""
        if not self.is_post:
            return x + drop(y, self.p_drop, random)
        if not is_exactly(LayerNorm, "add_norm", self.norm):
            return self.norm(x + drop(y, self.p_drop, random))
        stream_id, norm = stream_id_of_mask(self.p_drop, random), self.norm
        return ops.add_norm(x, y, norm.gain, norm.bias, rate=self.p_drop, stream_id=stream_id, eps=norm.eps)
