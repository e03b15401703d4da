"""What training costs, in the two ways of counting that Table 2 of the paper invites to compare."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from autograd.array import Device, namespace_of_device
from minitransformer.config import ModelConfig

Lengths = np.ndarray[Any, Any]  # of sentences, in tokens, each with its end symbol

BACKWARD = 2  # products of a backward pass for each product forward: one for either factor's gradient
SQUARE: dict[Device, int] = {"cpu": 1024, "cuda": 4096}  # rows of the matrices by which a device is measured
P100_FLOPS = 9.5e12  # single-precision FLOP/s that the paper assumed of the GPU it trained on (footnote 5)


@dataclass(frozen=True)
class Cost:
    """What a training run has cost: FLOPs as they were counted, and as the paper estimated them.

    ``device_seconds`` is training time times devices: GPUs, or processes with all the cores that they compute on.
    """

    flops: int
    device_seconds: float
    flops_per_second: float

    @property
    def flops_by_time(self) -> float:
        """Time · devices · what a device sustains: the way of Table 2."""
        return flops_by_time(self.device_seconds, 1, self.flops_per_second)

    def __str__(self) -> str:
        return (
            f"{self.flops:.3g} FLOPs counted; as the paper estimates them {self.flops_by_time:.3g}:"
            f" {self.device_seconds:,.0f} s of a device at {self.flops_per_second:.3g} FLOP/s"
            " (the paper's base model 3.3e+18, big 2.3e+19)"
        )


def update_flops(config: ModelConfig, shards: Iterable[Lengths]) -> int:
    """FLOPs of an update, whoever computes its shards.

    Args:
        shards: of every shard (n, 2) source and target tokens of its pairs, end symbols included.
    """
    return sum(training_flops(config, *lengths.T) for lengths in shards)


def training_flops(config: ModelConfig, source_lengths: Lengths, target_lengths: Lengths) -> int:
    """Multiplications and additions of all matrix products by which a batch is differentiated, all sentences at once.

    Forward, a map from i to o numbers costs 2·i·o for every token; attention costs 2·(h·d_k + h·d_v) for every pair of
    a query and a key.  It computes with all sentences side by side, so there are B·n·m such pairs, of the longest
    sentences' n queries and m keys: masked ones and padding are counted, because they are computed.  The backward pass
    costs twice as much.  Nothing else is counted: sums, norms, softmax and Adam are passes over memory, a few percent
    of this.

    Args:
        source_lengths, target_lengths: (B,) tokens of every sentence of the batch.
    """
    source, target = (np.asarray(lengths, np.int64) for lengths in (source_lengths, target_lengths))
    n_source, n_target = int(source.sum()), int(target.sum())
    longest_source, longest_target = int(source.max(initial=0)), int(target.max(initial=0))
    width = config.n_heads * (config.d_k + config.d_v)
    queries_and_output = keys_and_values = config.d_model * width
    attention_maps, feed_forward = queries_and_output + keys_and_values, 2 * config.d_model * config.d_ff
    encoder = n_source * (attention_maps + feed_forward) + len(source) * longest_source**2 * width
    decoder = (
        n_target * (attention_maps + queries_and_output + feed_forward)
        + n_source * keys_and_values
        + len(target) * longest_target * (longest_target + longest_source) * width
    )
    softmax = n_target * config.d_model * config.vocabulary_size
    return (1 + BACKWARD) * 2 * (config.n_layers * (encoder + decoder) + softmax)


def flops_by_time(seconds: float, n_devices: int, flops_per_second: float) -> float:
    """Training time · devices · what a device sustains: how the paper estimated its FLOPs (section 6.1, Table 2)."""
    return seconds * n_devices * flops_per_second


def sustained_flops_per_second(device: Device, n_threads: int, size: int | None = None, repeats: int = 10) -> float:
    """What this process reaches in a product of two square float32 matrices, at its best of a few times.

    The matrices are large enough to keep the device busy, and small enough for a fraction of a second.

    Args:
        n_threads: that this process trains with; OPENBLAS_NUM_THREADS may say less, but is not about training.
    """
    xp, size = namespace_of_device(device), size or SQUARE[device]
    a = xp.ones((size, size), np.float32)

    def seconds() -> float:
        start = time.perf_counter()
        float((a @ a)[0, 0])  # waits for a GPU
        return time.perf_counter() - start

    with threadpool_limits(n_threads, user_api="blas"):
        seconds()
        return 2 * size**3 / min(seconds() for _ in range(repeats))
