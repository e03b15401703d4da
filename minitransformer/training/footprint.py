"""Prediction of the memory of training: measured on small micro-batches, and scaled to the largest of an epoch.

Between two operations the peak memory of a micro-batch is a weighted sum of a few numbers (``_terms``): its tokens, its
padded tokens, the scores and the saved weights of its attention, its logits.  The factors are measured (``_factors``):
an observer of the operations of some small micro-batches reads the peak that NumPy has allocated in each interval.
Least squares give the factors.
"""

from __future__ import annotations

import dataclasses
import functools
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd import RandomStream, backward
from autograd.array import Array, IntArray
from autograd.blas import product_threads
from autograd.op import Operation, Run, observed
from autograd.tensor import Backward, Gradient
from minitransformer.config import ModelConfig, TrainingConfig
from minitransformer.data.batching import cut_into_micro_batches, plan_epoch
from minitransformer.model.batch import Batch
from minitransformer.model.symbols import END
from minitransformer.model.transformer import Transformer

_FEW_WORDS, _MANY_WORDS = END + 2, 1_000
_LONGEST = 50
_LANES = 32  # attention kernels for the CPU save weights in rows of a multiple of so many elements
# Lengths of sources and targets.  Sentences of one length are padded without a copy, so they need samples of their own;
# attention treats shorter sentences than these differently.  The last sample has many words.
_SAMPLES = (
    ((14, 12), (12, 14)), ((20, 12), (12, 13)), ((12, 13), (20, 12)), ((20, 18), (14, 12)), ((12, 14), (20, 18)),
    ((_LONGEST, 12), (12, 13)), ((12, 13), (_LONGEST, 12)), ((_LONGEST, 13), (_LONGEST, 12)),
    ((13, 12, 14), (12, 14, 13)), ((20, 20), (14, 12)), ((12, 14), (20, 20)), ((16, 16), (20, 20)),
    ((_LONGEST, _LONGEST), (_LONGEST, _LONGEST)), ((36, 12), (36, 12)), ((12, 36, 37), (12, 13, 14)),
    ((36, 36), (12, 14)), ((12, 14, 15), (36, 37, 12)), ((_LONGEST,), (12,)), ((12,), (_LONGEST,)),
    ((12, 13, 14), (_LONGEST, 28, 29)),
)  # fmt: skip


@dataclass(frozen=True)
class Footprint:
    """The bytes that a process needs for training, in addition to the interpreter, its libraries and the data.

    ``activations`` are those of all micro-batches that are computed at once (``n_at_once``), logits and temporary
    arrays included.
    """

    parameters: int
    gradients: int
    adam: int
    activations: int
    n_at_once: int

    @property
    def total(self) -> int:
        """The sum of all these bytes."""
        return self.parameters + self.gradients + self.adam + self.activations

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.total)}: parameters {format_bytes(self.parameters)},"
            f" gradients {format_bytes(self.gradients)},"
            f" Adam {format_bytes(self.adam)}, activations of {self.n_at_once} of the largest micro-batches"
            f" {format_bytes(self.activations)}"
        )


def format_bytes(n_bytes: float) -> str:
    """Format a number of bytes in GB or MB."""
    return f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"


def predict(
    model: Transformer,
    training: TrainingConfig,
    lengths: IntArray,
    *,
    n_threads: int,
    micro_batches: range | None = None,
    moments: int | None = None,
    epoch: int = 0,
) -> tuple[Footprint, IntArray]:
    """Return the memory that the largest batch of an epoch needs on a CPU, and that batch.

    ``micro_batches`` are the indices of this process's micro-batches (None: all).  If these have no pairs in any batch,
    the returned batch is empty.  ``moments`` are the bytes of Adam's moments in this process (None: those of all
    parameters).  If the model was made without a seed, nothing of the size of the model or of a batch is allocated.  In
    bfloat16, activations are counted as in float32, which overestimates them.
    Shapes: lengths (n, 2), source and target tokens of every pair, without end symbols.
    """
    micro_batches = range(training.n_micro_batches) if micro_batches is None else micro_batches
    size = model.parameters.values.nbytes
    runs = runs_of_threads(len(micro_batches), n_threads)
    largest, largest_batch = 0, np.empty(0, np.int64)
    for batch in plan_epoch(lengths, training.batch_tokens, seed=training.seed, epoch=epoch):
        cut = cut_into_micro_batches(batch, lengths, training.n_micro_batches)
        needed = activations(
            model.config,
            [lengths[cut[micro_batch]] for micro_batch in micro_batches],
            model.parameters.values.dtype.name,
        )
        at_once = sum(int(needed[run].max()) for run in runs)
        if at_once > largest:
            largest, largest_batch = at_once, batch
    gradients = size * (1 + n_borrowed(len(micro_batches), n_threads))
    low_precision = 0 if model.parameters.low_precision is None else model.parameters.low_precision.nbytes
    return Footprint(
        size + low_precision, gradients, 2 * size if moments is None else moments, largest, n_at_once=len(runs)
    ), largest_batch


def runs_of_threads(n_micro_batches: int, n_threads: int) -> list[range]:
    """Return the micro-batches that each thread of a process computes, divided as in ``GradientAccumulator``."""
    if not n_micro_batches:
        return []
    if n_micro_batches == 1 or n_threads <= 1:
        return [range(n_micro_batches)]
    half = n_micro_batches // 2
    right = runs_of_threads(n_micro_batches - half, n_threads // 2)
    return runs_of_threads(half, n_threads - n_threads // 2) + [range(r.start + half, r.stop + half) for r in right]


def n_borrowed(n_micro_batches: int, n_threads: int) -> int:
    """Return the number of model-sized buffers that ``GradientAccumulator`` needs besides the gradients."""
    if n_micro_batches <= 1:
        return 0
    half, rest = n_micro_batches // 2, n_micro_batches - n_micro_batches // 2
    if n_threads > 1:
        return 1 + n_borrowed(half, n_threads - n_threads // 2) + n_borrowed(rest, n_threads // 2)
    return 1 + max(n_borrowed(half, 1), n_borrowed(rest, 1))


def activations(config: ModelConfig, micro_batches: Sequence[IntArray], dtype: str = "float32") -> Array:
    """Return the peak bytes of each micro-batch's forward and backward pass, without the gradients of parameters.

    Each further layer of a stack adds the same number of bytes, so deep models are extrapolated from stacks of one and
    two layers.
    Shapes: micro-batches (n, 2) lengths without end symbols; returns (number of micro-batches,).
    """
    terms = np.array([_terms(lengths, config.vocabulary_size) for lengths in micro_batches])
    n_encoder, n_decoder = config.n_layers, config.decoder_depth

    def peaks(n_encoder: int, n_decoder: int) -> Array:
        shallow = dataclasses.replace(config, n_layers=n_encoder, n_decoder_layers=n_decoder)
        return (terms @ _factors(shallow, dtype)).max(1)

    if max(n_encoder, n_decoder) <= 2:
        return peaks(n_encoder, n_decoder)
    least = peaks(1, 1)
    return least + (n_encoder - 1) * (peaks(2, 1) - least) + (n_decoder - 1) * (peaks(1, 2) - least)


def _terms(lengths: IntArray, n_words: int) -> list[int]:
    """Return the terms of a micro-batch's memory, each to be multiplied by a factor; all 0 without sentences."""
    n = len(lengths)
    if not n:
        return [0] * 14
    tokens = lengths + 1
    (s, t), (longest_s, longest_t) = tokens.sum(axis=0).tolist(), tokens.max(axis=0).tolist()
    padded_s, padded_t = n * longest_s, n * longest_t
    scores = padded_s * longest_s, padded_t * longest_s, padded_t * longest_t
    of_source, of_target = (-(-tokens // _LANES) * _LANES).T  # elements in a row of saved attention weights
    weights = [int(n @ row) for n, row in zip(tokens.T[[0, 1, 1]], (of_source, of_source, of_target), strict=True)]
    return [1, s, t, padded_s, padded_t, s * (s == padded_s), t * (t == padded_t), *scores, *weights, t * n_words]


@functools.cache
def _factors(config: ModelConfig, dtype: str) -> Array:
    """Measure the factors of ``_terms``, for each interval between two operations.  Shapes: (terms, intervals).

    The weights are zeros that are never written, so they take no memory.
    """
    terms, peaks = [], []
    with _tracing(), product_threads(1):
        few, many = (_model(config, n_words, dtype) for n_words in (_FEW_WORDS, _MANY_WORDS))
        _measure(few, ((_LONGEST,), (_LONGEST,)))  # fills caches, such as that of positions
        for model, sample in zip([few] * (len(_SAMPLES) - 1) + [many], _SAMPLES, strict=True):
            terms.append(_terms(np.array(sample).T, model.config.vocabulary_size))
            peaks.append(_measure(model, sample))
    factors: Array = np.linalg.lstsq(np.array(terms, float), np.array(peaks, float))[0]
    return factors


def _model(config: ModelConfig, n_words: int, dtype: str) -> Transformer:
    """Return the model with this number of words, and as many learned positions as the samples need."""
    n_positions = config.first_position + _LONGEST + 1
    return Transformer(
        dataclasses.replace(config, vocabulary_size=n_words, source_vocabulary_size=None, max_positions=n_positions),
        seed=None, dtype=dtype,
    )  # fmt: skip


@contextmanager
def _tracing() -> Iterator[None]:
    """Trace memory with tracemalloc, to which NumPy reports its arrays; at the end restore the former state."""
    if tracemalloc.is_tracing():
        yield
        return
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def _measure(model: Transformer, sample: tuple[Sequence[int], Sequence[int]]) -> list[int]:
    """Return the peak bytes in each interval between two operations of a forward and backward pass."""
    batch = Batch.from_token_ids(*([np.full(length, END) for length in side] for side in sample))
    peaks, before = list[int](), tracemalloc.get_traced_memory()[0]

    def note() -> None:
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.reset_peak()

    def measured(operation: Operation, run: Run, *arguments: Any, **static: Any) -> tuple[Array, Backward]:
        note()
        value, of_value = run(*arguments, **static)
        is_parameter = [
            isinstance(x, np.ndarray) and np.may_share_memory(x, model.parameters.values) for x in arguments
        ]

        def backward_without_parameters(dy: Array) -> list[Gradient | None]:
            note()
            return [None if drop else dx for drop, dx in zip(is_parameter, of_value(dy), strict=True)]

        return value, backward_without_parameters

    tracemalloc.reset_peak()
    with observed(measured):
        backward(model.loss(batch, RandomStream(0)))
    note()
    return peaks
