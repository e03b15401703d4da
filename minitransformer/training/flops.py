"""The cost of training in FLOPs: counted from the model, and estimated from time as in Table 2 of the paper."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np

from autograd.array import Device, IntArray, namespace_of_device
from autograd.blas import product_threads
from minitransformer.config import ModelConfig

BACKWARD = 2  # products in the backward pass for each forward product: one for each factor's gradient
SQUARE: dict[Device, int] = {"cpu": 1024, "cuda": 4096}  # rows of the matrices whose product measures a device


@dataclass(frozen=True)
class Cost:
    """The cost of a training run: FLOPs counted from the model, and FLOPs estimated as in the paper.

    ``device_seconds`` is training time × number of devices; a device is a GPU, or a process with all its cores.
    """

    flops: int
    device_seconds: float
    device_flops_per_second: float

    @property
    def flops_by_time(self) -> float:
        """The estimate of Table 2 of the paper: time × devices × sustained FLOP/s of a device (section 6.1)."""
        return self.device_seconds * self.device_flops_per_second

    def figures(self) -> dict[str, float]:
        """Return the costs as fields of ``results.json``."""
        return {**asdict(self), "flops_by_time": self.flops_by_time}

    def __str__(self) -> str:
        return (
            f"{self.flops:.3g} FLOPs counted; as the paper estimates them {self.flops_by_time:.3g}:"
            f" {self.device_seconds:,.0f} s of a device at {self.device_flops_per_second:.3g} FLOP/s"
            " (the paper's base model 3.3e+18, big 2.3e+19)"
        )


def flops_of_pairs(config: ModelConfig, lengths: IntArray) -> IntArray:
    """Count the FLOPs of the matrix products in a forward and backward pass, for each pair of a batch.

    In the forward pass, a linear map from i to o features costs 2·i·o for every token; attention costs 2·(h·d_k +
    h·d_v) for each key of each query.  Keys that the decoder masks are counted, padding is not.  The backward pass
    costs twice as much.  Sums, norms, softmax and Adam are not counted: they are passes over memory, a few percent of
    the total.

    Shapes: lengths (B, 2), source and target tokens of every pair, end symbols included; returns (B,).
    """
    source, target = np.asarray(lengths, np.int64).T
    width = config.n_heads * (config.d_k + config.d_v)
    queries_and_output = keys_and_values = config.d_model * width
    attention_maps, feed_forward = queries_and_output + keys_and_values, 2 * config.d_model * config.d_ff
    encoder = source * (attention_maps + feed_forward) + source * source * width
    decoder = (
        target * (attention_maps + queries_and_output + feed_forward)
        + source * keys_and_values
        + target * (target + source) * width
    )
    softmax = target * config.d_model * config.vocabulary_size
    flops: IntArray = (1 + BACKWARD) * 2 * (config.n_layers * encoder + config.decoder_depth * decoder + softmax)
    return flops


def sustained_flops_per_second(device: Device, n_threads: int, repeats: int, size: int | None = None) -> float:
    """Measure the FLOP/s of this process in products of two square float32 matrices; return the best of ``repeats``.

    The matrices are large enough to keep the device busy, and small enough to take a fraction of a second.

    Args:
        n_threads: number of threads with which this process trains; it overrides OPENBLAS_NUM_THREADS.
    """
    xp, size = namespace_of_device(device), size or SQUARE[device]
    a = xp.ones((size, size), np.float32)

    def seconds() -> float:
        start = time.perf_counter()
        float((a @ a)[0, 0])  # waits for a GPU
        return time.perf_counter() - start

    with product_threads(n_threads):
        seconds()
        return 2 * size**3 / min(seconds() for _ in range(repeats))
