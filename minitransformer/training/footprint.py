"""How much memory training will need: from the shapes of shards and from what the operations say that they save."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autograd.array import IntArray
from minitransformer.config import ModelConfig, TrainingConfig
from minitransformer.data.batching import cut_into_shards, plan_epoch
from minitransformer.model.transformer import Transformer

_INDEX = 8  # bytes of an int64


@dataclass(frozen=True)
class ShardShape:
    """What decides how much a shard takes: sentences, tokens with their end symbols, and the longest of each side."""

    n_sentences: int
    n_source: int
    n_target: int
    longest_source: int
    longest_target: int

    @classmethod
    def of(cls, lengths: IntArray) -> ShardShape:
        """Return the shape of pairs with these lengths (n, 2), without end symbols."""
        if not len(lengths):
            return cls(0, 0, 0, 0, 0)
        (n_source, n_target), longest = lengths.sum(axis=0) + len(lengths), lengths.max(axis=0) + 1
        return cls(len(lengths), int(n_source), int(n_target), int(longest[0]), int(longest[1]))


@dataclass(frozen=True)
class Footprint:
    """Bytes that a process needs for training, beside what the interpreter, its libraries and the data take.

    ``activations`` are those of all shards that are computed at once, with what is in passing beside them; ``logits``,
    which become their own gradient, are counted apart.  ``n_at_once``: how many shards that are.
    """

    parameters: int
    gradients: int
    adam: int
    activations: int
    logits: int
    n_at_once: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.parameters + self.gradients + self.adam + self.activations + self.logits

    def __str__(self) -> str:
        return (
            f"{in_words(self.total)}: parameters {in_words(self.parameters)}, gradients {in_words(self.gradients)},"
            f" Adam {in_words(self.adam)}, activations of {self.n_at_once} of the largest shards"
            f" {in_words(self.activations)}, their logits {in_words(self.logits)}"
        )


def in_words(n_bytes: float) -> str:
    """Return a number of bytes in GB or MB, for people."""
    return f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"


def predict(
    model: Transformer,
    training: TrainingConfig,
    lengths: IntArray,
    *,
    n_threads: int,
    shards: range | None = None,
    moments: int | None = None,
    epoch: int = 0,
) -> tuple[Footprint, IntArray]:
    """Return the memory that the largest batch of an epoch needs on a CPU, and that batch.

    ``shards`` are those of this process (all, if not given), which keeps so many bytes of Adam's ``moments`` (those of
    all parameters, if not given).  Nothing of the size of the model or of a batch is allocated: a model made without a
    seed is only room that nobody has entered.  In bfloat16 activations are counted as in float32, which they
    pass through: more than is kept.
    Shapes: lengths (n, 2), source and target tokens of every pair, without end symbols.
    """
    shards = range(training.n_shards) if shards is None else shards
    item, size = model.parameters.values.itemsize, model.parameters.values.nbytes
    runs = runs_of_threads(len(shards), n_threads)
    largest, largest_batch = (0, 0), np.empty(0, np.int64)
    for batch in plan_epoch(lengths, training.batch_tokens, seed=training.seed, epoch=epoch):
        cut = cut_into_shards(batch, lengths, training.n_shards)
        shapes = [ShardShape.of(lengths[cut[shard]]) for shard in shards]
        needed = [max((activations(model.config, shapes[i], item) for i in run), key=sum) for run in runs]
        at_once = sum(a for a, _ in needed), sum(b for _, b in needed)
        if sum(at_once) > sum(largest):
            largest, largest_batch = at_once, batch
    gradients = size * (1 + n_borrowed(len(shards), n_threads))
    copies = 0 if model.parameters.copies is None else model.parameters.copies.nbytes
    return Footprint(
        size + copies, gradients, 2 * size if moments is None else moments, *largest, n_at_once=len(runs)
    ), largest_batch


def runs_of_threads(n_shards: int, n_threads: int) -> list[range]:
    """Which of a process's shards one thread computes, one after the other: the halving of ``ShardedGradient``."""
    if not n_shards:
        return []
    if n_shards == 1 or n_threads <= 1:
        return [range(n_shards)]
    half = n_shards // 2
    right = runs_of_threads(n_shards - half, n_threads // 2)
    return runs_of_threads(half, n_threads - n_threads // 2) + [range(r.start + half, r.stop + half) for r in right]


def n_borrowed(n_shards: int, n_threads: int) -> int:
    """Buffers of the size of the model that ``ShardedGradient`` needs beside the gradients' own."""
    if n_shards <= 1:
        return 0
    half, rest = n_shards // 2, n_shards - n_shards // 2
    if n_threads > 1:
        return 1 + n_borrowed(half, n_threads - n_threads // 2) + n_borrowed(rest, n_threads // 2)
    return 1 + max(n_borrowed(half, 1), n_borrowed(rest, 1))


def activations(config: ModelConfig, shard: ShardShape, item: int = 4) -> tuple[int, int]:
    """Bytes at the peak of a shard's forward and backward pass: of everything but the logits, and of the logits.

    The peak lies at the loss, or soon behind it: while the last layer of the decoder goes backwards, the logits are
    gone, but its own gradients are as large as what it saved.
    """
    width, target = max(config.d_k, config.d_v) * config.n_heads, shard.n_target
    kept = saved(config, shard, item)
    logits = item * target * config.vocabulary_size
    at_loss = item * 3 * target * config.d_model
    in_feed_forward = item * target * (3 * config.d_model + 2 * config.d_ff) + target * config.d_ff
    longest = shard.longest_target * max(shard.longest_target, shard.longest_source)
    scores = item * shard.n_sentences * config.n_heads * longest
    scores *= 5 if config.p_drop_attention else 1  # the reference: weights and gradients, masked and not, and the mask
    in_attention = scores + item * 6 * shard.n_sentences * shard.longest_target * width
    in_attention -= item * target * (config.d_model + config.d_ff)  # what the feed-forward network has released
    peak = kept + max(logits + at_loss, in_feed_forward, in_attention)
    return peak - logits, logits


def saved(config: ModelConfig, shard: ShardShape, item: int = 4) -> int:
    """Bytes that a tape keeps for the backward pass, but for the logits: what the operations' "Saves:" lines name."""
    n, d, (s, t) = config.n_layers, config.d_model, (shard.n_source, shard.n_target)
    source, target = (s, shard.longest_source), (t, shard.longest_target)
    to_self = _attention(config, shard, source, source, item), _attention(config, shard, target, target, item)
    encoder_layer = to_self[0] + _feed_forward(config, s, item) + 2 * _residual(config, s, item)
    across = _attention(config, shard, target, source, item)
    decoder_layer = to_self[1] + across + _feed_forward(config, t, item) + 3 * _residual(config, t, item)
    last_norms = item * (s + t) * (d + 1) if config.norm == "pre" else 0
    embedded = (s + t) * d * (config.p_drop > 0)
    encoded_and_decoded = item * (s + t) * d  # what the keys of all layers are made of, and the logits
    return (
        n * (encoder_layer + decoder_layer)
        + last_norms
        + embedded
        + encoded_and_decoded
        + _indices(config, shard, item)
    )


def _attention(
    config: ModelConfig, shard: ShardShape, queries: tuple[int, int], keys: tuple[int, int], item: int
) -> int:
    """Count the projections' input, padded q, k and v, a weight for each query and key, 1/t, and y.

    ``queries`` and ``keys``: tokens, and the longest sentence.
    """
    n_queries, padded_queries, padded_keys = queries[0], shard.n_sentences * queries[1], shard.n_sentences * keys[1]
    of_keys, of_values = config.n_heads * config.d_k, config.n_heads * config.d_v
    rows = padded_queries * of_keys + padded_keys * (of_keys + of_values)
    weights = padded_queries * keys[1] * config.n_heads
    return item * (n_queries * (config.d_model + config.n_heads + of_values) + rows + weights)


def _feed_forward(config: ModelConfig, n_tokens: int, item: int) -> int:
    """Count the input and the ReLU's output; with dropout, also the mask and the dropped output."""
    dropped = (item + 1) * config.d_ff * (config.p_drop_relu > 0)
    return n_tokens * (item * (config.d_model + config.d_ff) + dropped)


def _residual(config: ModelConfig, n_tokens: int, item: int) -> int:
    """x̂ and 1/σ of the norm; which elements dropout kept, a byte each."""
    return n_tokens * (item * (config.d_model + 1) + config.d_model * (config.p_drop > 0))


def _indices(config: ModelConfig, shard: ShardShape, item: int) -> int:
    """Ids, where tokens stand side by side, for every head, and masks of who may attend to whom as numbers."""
    sides = (shard.n_source, shard.longest_source), (shard.n_target, shard.longest_target)
    places = sum(8 * n + config.n_heads * (n + 2 * shard.n_sentences * longest - n) for n, longest in sides)
    pairs = [(a, b) for a in sides for b in sides if (a, b) != (sides[0], sides[1])]
    return _INDEX * places + (item + 1) * shard.n_sentences * sum(a[1] * b[1] for a, b in pairs)
