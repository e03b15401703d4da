"""The memory that training needs, predicted before it is taken."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograd import RandomStream, backward
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.training.footprint import Footprint, activations, n_borrowed, predict, runs_of_threads
from minitransformer.training.gradient import GradientAccumulator

ROOT = Path(__file__).parents[3]
CONFIG = ModelConfig(vocabulary_size=300, n_layers=2, d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16)
EIGHT = TrainingConfig(n_micro_batches=8)
LENGTHS = {
    "equal": np.full((20, 2), 12),
    "mixed": np.random.default_rng(0).integers(4, 20, (20, 2)),
    "long": np.full((5, 2), 100),
    "one": np.array([[150, 100]]),
}


def batch_of(lengths: Any, n_words: int = 300) -> Batch:
    ids = np.random.default_rng(1)
    sides = [[ids.integers(3, n_words, n).tolist() for n in side] for side in np.asarray(lengths).T]
    return Batch.from_token_ids(*sides)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(
    "changes",
    [
        {}, {"norm": "pre"}, {"p_drop": 0.0}, {"p_drop_relu": 0.1}, {"p_drop_attention": 0.1}, {"n_layers": 5},
        {"d_ff": 512}, {"d_k": 32, "d_v": 8}, {"d_k": 8, "d_v": 32}, {"vocabulary_size": 3_000}, {"tied": "none"},
        {"positions": "learned"}, {"attention_bias": True}, {"neighbourhood": 3}, {"d_model": 128},
        {"activation": "swish"}, {"activation": "gelu", "p_drop_relu": 0.1}, {"activation": "gelu_tanh"},
        {"n_decoder_layers": 1}, {"n_layers": 4, "n_decoder_layers": 1}, {"n_layers": 1, "n_decoder_layers": 4},
    ],
    ids=str,
)  # fmt: skip
def test_the_peak_of_a_micro_batch_is_the_predicted_one(changes: dict[str, Any], lengths: Any) -> None:
    """Within 8 % of the most that NumPy has allocated at any moment."""
    config = dataclasses.replace(CONFIG, **changes)
    assert activations(config, [lengths]) == pytest.approx(peak(Transformer(config), lengths), rel=0.08)


def peak(model: Transformer, lengths: Any) -> int:
    """Return the most bytes of arrays that a forward and backward pass holds at once."""
    batch = batch_of(lengths)
    assert not model.parameters.gradients.any()  # they are there before
    tracemalloc.start()
    try:
        backward(model.loss(batch, RandomStream(1)))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_micro_batches_without_sentences_take_nothing() -> None:
    assert activations(CONFIG, [np.empty((0, 2), np.int64)]).tolist() == [0]


def test_tracing_of_memory_goes_on_if_it_was_on() -> None:
    config = dataclasses.replace(CONFIG, d_model=66)  # of which nothing was measured yet
    tracemalloc.start()
    try:
        activations(config, [LENGTHS["equal"]])
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    activations(dataclasses.replace(config, d_ff=67), [LENGTHS["equal"]])
    assert not tracemalloc.is_tracing()


@given(n_micro_batches=st.sampled_from([1, 2, 4, 8, 16]), n_threads=st.integers(1, 9))
def test_every_micro_batch_is_computed_by_one_thread_and_threads_are_no_more_than_there_are(
    n_micro_batches: int, n_threads: int
) -> None:
    runs = runs_of_threads(n_micro_batches, n_threads)
    assert [micro_batch for run in runs for micro_batch in run] == list(range(n_micro_batches))
    assert len(runs) <= min(n_threads, n_micro_batches)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("n_micro_batches", [1, 2, 4, 8])
def test_buffers_for_gradients_are_as_many_as_are_made(n_micro_batches: int, n_threads: int) -> None:
    model = Transformer(dataclasses.replace(CONFIG, n_layers=1))
    gradient = GradientAccumulator(model, n_threads=n_threads)
    gradient.compute([None] * n_micro_batches, [RandomStream(1)] * n_micro_batches)
    assert len(gradient._free) <= n_borrowed(n_micro_batches, n_threads)
    if n_threads == 1:
        assert len(gradient._free) == n_borrowed(n_micro_batches, n_threads)


def test_the_largest_batch_is_the_one_whose_micro_batches_take_most() -> None:
    lengths = np.concatenate([np.full((200, 2), 5), np.full((1, 2), 90), np.full((200, 2), 5)])
    training = TrainingConfig(batch_tokens=100, n_micro_batches=2)
    model = Transformer(CONFIG)
    found, batch = predict(model, training, lengths, n_threads=1)
    assert batch.tolist() == [200]
    assert found.activations == pytest.approx(peak(model, lengths[[200]]), rel=0.08)


def test_more_micro_batches_and_fewer_threads_take_less() -> None:
    lengths = np.full((400, 2), 9)

    def total(n_micro_batches: int, n_threads: int) -> int:
        training = TrainingConfig(batch_tokens=2_000, n_micro_batches=n_micro_batches)
        return predict(Transformer(CONFIG), training, lengths, n_threads=n_threads)[0].total

    assert total(8, 1) < total(4, 1) < total(2, 1)
    assert total(4, 1) < total(4, 2) < total(4, 4)


def test_moments_that_other_processes_keep_do_not_count() -> None:
    def footprint_with(moments: int | None) -> Footprint:
        return predict(Transformer(CONFIG), EIGHT, np.full((9, 2), 9), n_threads=1, moments=moments)[0]

    whole, half = footprint_with(None), footprint_with(Transformer(CONFIG).parameters.values.nbytes)
    assert whole.adam == 2 * half.adam
    assert whole.total - half.total == half.adam


def test_parameters_in_bfloat16_are_kept_in_float32_too() -> None:
    parameters, in_bfloat16 = (
        predict(Transformer(CONFIG, dtype=dtype), EIGHT, np.full((10, 2), 9), n_threads=1)[0].parameters
        for dtype in ("float32", "bfloat16")
    )
    assert in_bfloat16 == 1.5 * parameters


def test_nothing_of_the_models_size_is_entered_for_a_prediction() -> None:
    """So that the largest models can be asked about on the smallest machines."""
    config = dataclasses.replace(CONFIG, vocabulary_size=20_000_000)
    found, _ = predict(Transformer(config, seed=None), EIGHT, np.full((10, 2), 9), n_threads=1)
    assert found.parameters > 5e9
    assert found.total > 4 * found.parameters


PROGRAM = """
import json, sys
import numpy as np
from autograd import RandomStream, backward
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import cut_into_micro_batches
from minitransformer.system.memory import keep_freed_memory
from minitransformer.training.footprint import predict
from minitransformer.training.gradient import GradientAccumulator
from autograd.optim import Adam
from threadpoolctl import threadpool_limits

def peak(what):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(what)).split()[1])

def update(config, training, lengths, n_threads):
    model, ids = Transformer(config), np.random.default_rng(1)
    found, batch = predict(model, training, lengths, n_threads=n_threads)
    adam = Adam(model.parameters)
    gradient = GradientAccumulator(model, n_threads=n_threads)
    micro_batches = []
    for indices in cut_into_micro_batches(batch, lengths, training.n_micro_batches):
        sides = [[ids.integers(3, 300, n).tolist() for n in side] for side in lengths[indices].T]
        micro_batches.append(Batch.from_token_ids(*sides))
    with threadpool_limits(1, user_api="blas"):
        gradient.compute(micro_batches, [RandomStream(1, 1, i) for i in range(training.n_micro_batches)])
    adam.step(1e-3, 1)
    return found

keep_freed_memory()
options = json.loads(sys.argv[1])
training = TrainingConfig(batch_tokens=options["batch_tokens"], n_micro_batches=options["n_micro_batches"])
small = ModelConfig(vocabulary_size=300, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
update(small, TrainingConfig(batch_tokens=500, n_micro_batches=2), np.full((200, 2), 9), options["n_threads"])
before = peak("VmRSS")
lengths = np.random.default_rng(2).integers(options["shortest"], options["longest"], (300, 2))
found = update(ModelConfig(**options["model"]), training, lengths, options["n_threads"])
print(found.total, peak("VmHWM") - before)
"""
BIG = {"vocabulary_size": 4_000, "n_layers": 2, "d_model": 256, "d_ff": 1_024, "n_heads": 4, "d_k": 64, "d_v": 64}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from Linux")
@pytest.mark.parametrize(
    ("n_threads", "n_micro_batches", "batch_tokens", "lengths", "changes"),
    [
        (2, 2, 2_000, (5, 40), {"norm": "pre"}),
        (1, 4, 3_000, (5, 40), {"d_ff": 4_000, "vocabulary_size": 400}),
        (2, 2, 1_500, (100, 250), {"n_heads": 8}),
    ],
    ids=["two at once", "four in turn, wide", "long"],
)
def test_the_peak_of_an_update_is_the_predicted_one(
    n_threads: int, n_micro_batches: int, batch_tokens: int, lengths: tuple[int, int], changes: dict[str, Any]
) -> None:
    """Within 15 % of the memory that a process really takes: the C library's heap has gaps."""
    options = {
        "n_threads": n_threads, "n_micro_batches": n_micro_batches, "batch_tokens": batch_tokens,
        "shortest": lengths[0], "longest": lengths[1], "model": BIG | changes,
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(options)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    predicted, measured = map(int, run.stdout.split())
    assert measured == pytest.approx(predicted, rel=0.15)
