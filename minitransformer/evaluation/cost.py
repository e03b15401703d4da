"""What training costs, in the two ways of counting that Table 2 of the paper invites to compare."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from autograd.array import Device, namespace_of_device
from minitransformer.config import ModelConfig

Lengths = np.ndarray[Any, Any]  # of sentences, in tokens, each with its end symbol

BACKWARD = 2  # products of a backward pass for each product forward: one for either factor's gradient
P100_FLOPS = 9.5e12  # single-precision FLOP/s that the paper assumed of the GPU it trained on (footnote 5)


def training_flops(config: ModelConfig, source_lengths: Lengths, target_lengths: Lengths) -> int:
    """Multiplications and additions of all matrix products of one update, counted from the sentences' own lengths.

    Forward, a map from i to o numbers costs 2·i·o for every token; attention costs 2·(h·d_k + h·d_v) for every pair of
    a query and a key, of which a sentence of n tokens has n² in self-attention, masked ones too, because they are
    computed.  The backward pass costs twice as much.  Nothing else is counted: sums, norms, softmax and Adam are passes
    over memory, a few percent of this.

    Args:
        source_lengths, target_lengths: (B,) tokens of every sentence of the batch.
    """
    source, target = (np.asarray(lengths, np.int64) for lengths in (source_lengths, target_lengths))
    n_source, n_target = int(source.sum()), int(target.sum())
    width = config.n_heads * (config.d_k + config.d_v)
    queries_and_output = keys_and_values = config.d_model * width
    attention_maps, feed_forward = queries_and_output + keys_and_values, 2 * config.d_model * config.d_ff
    encoder = n_source * (attention_maps + feed_forward) + int(source @ source) * width
    decoder = (
        n_target * (attention_maps + queries_and_output + feed_forward)
        + n_source * keys_and_values
        + int(target @ target + target @ source) * width
    )
    softmax = n_target * config.d_model * config.vocabulary_size
    return (1 + BACKWARD) * 2 * (config.n_layers * (encoder + decoder) + softmax)


def flops_by_time(seconds: float, n_devices: int, flops_per_second: float) -> float:
    """Training time · devices · what a device sustains: how the paper estimated its FLOPs (section 6.1, Table 2)."""
    return seconds * n_devices * flops_per_second


def sustained_flops_per_second(device: Device, size: int = 2048, repeats: int = 5) -> float:
    """What this process reaches in a product of two square float32 matrices, at its best of a few times."""
    xp = namespace_of_device(device)
    a = xp.ones((size, size), np.float32)

    def seconds() -> float:
        start = time.perf_counter()
        float((a @ a)[0, 0])  # waits for a GPU
        return time.perf_counter() - start

    seconds()
    return 2 * size**3 / min(seconds() for _ in range(repeats))
