"""Weights in fewer bytes: how far they and the loss may be from float32, and what cannot be stored or read."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from autograd import backward
from autograd.ops.linear import pack_weight
from minitransformer import Batch, Transformer, presets
from minitransformer.model.storage import Storage, StorageError, restored, stored
from minitransformer.system.files import CorruptFileError

CONFIG = dataclasses.replace(presets.tiny(50), positions="learned", max_positions=20, softmax_bias=True, tied="none")
HERE = Path("model.safetensors")
LINEAR, TABLE = "encoder.layers.0.feed_forward.hidden.weight", "source_embedding.weight"

MATRICES = arrays_of.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(-60_000, 60_000, width=32)
)


def steps(name: str, weight: Any, storage: Storage) -> Any:
    """The largest error of each weight, by hand: half a step of int8; half a unit in the last place of float16."""
    if weight.ndim == 1:
        return np.zeros_like(weight)
    if storage == "float16":
        return np.maximum(np.abs(weight) * 2.0**-11, 2.0**-25)
    axis = 0 if name.startswith(("encoder", "decoder")) else 1
    return np.broadcast_to(np.abs(weight).max(axis, keepdims=True) / 254, weight.shape)


@pytest.mark.parametrize("name", [LINEAR, TABLE])
@pytest.mark.parametrize("storage", ["float16", "int8"])
@given(weight=MATRICES)
def test_an_error_is_at_most_half_a_step(name: str, storage: Storage, weight: Any) -> None:
    got = restored(stored({name: weight}, storage), HERE)
    assert got.keys() == {name}
    assert got[name].dtype == np.float32
    rounding = 1e-5 * np.abs(weight) + 1e-37  # of the scale and the product, in float32
    assert (np.abs(got[name].astype(float) - weight) <= steps(name, weight.astype(float), storage) + rounding).all()


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_the_loss_is_as_near_as_the_errors_of_the_weights_let_it_be(storage: Storage) -> None:
    """Errors e are spread evenly over ± their largest: ΔL ≈ Σ ∂L/∂w e has the variance Σ (∂L/∂w · largest)² / 3."""
    model = Transformer(CONFIG, seed=3, dtype="float64")
    batch = Batch.from_token_ids([[5, 7, 9, 11], [4]], [[6, 8], [12, 40, 3, 3]])
    loss = model.loss(batch)
    backward(loss)
    before = float(loss)
    variance = sum(
        float(((parameter.grad * steps(name, parameter.value, storage)) ** 2).sum()) / 3
        for name, parameter in model.named_parameters()
    )
    model.set_weights(restored(stored(model.weights(), storage), HERE))
    after = float(model.loss(batch))
    assert 0.01 * variance**0.5 < abs(after - before) < 5 * variance**0.5 < 0.02 * before


@pytest.mark.parametrize(("storage", "low", "high"), [("float16", 0.5, 0.52), ("int8", 0.25, 0.3)])
def test_bytes_are_a_half_or_a_quarter_and_biases_and_norms_stay(storage: Storage, low: float, high: float) -> None:
    weights = Transformer(CONFIG, seed=1).weights()
    arrays = stored(weights, storage)
    in_float32 = sum(array.nbytes for array in weights.values())
    assert low * in_float32 < sum(array.nbytes for array in arrays.values()) < high * in_float32
    for name, weight in weights.items():
        if weight.ndim == 1:
            np.testing.assert_array_equal(arrays[name], weight)
            assert arrays[name].dtype == np.float32


def test_weights_packed_as_int8_are_the_same_from_int8_files() -> None:
    """A search with int8 weights rounds them in the same columns, so a second rounding changes nothing."""
    weights = Transformer(CONFIG, seed=2).weights()
    again = restored(stored(weights, "int8"), HERE)
    for name, by_columns in ((LINEAR, lambda w: w), ("projection.weight", np.transpose)):
        first, second = (pack_weight.reference(by_columns(of[name]), dtype="int8") for of in (weights, again))
        np.testing.assert_allclose(second, first, rtol=1e-6)


@pytest.mark.parametrize(
    ("storage", "value"), [("float16", 7e4), ("float16", np.nan), ("int8", np.inf), ("int8", np.nan)]
)
def test_weights_that_cannot_be_stored_are_named(storage: Storage, value: float) -> None:
    with pytest.raises(StorageError, match=f"^{TABLE}: has a weight that is not finite in {storage}; store .* float32"):
        stored({TABLE: np.array([[1, value]], np.float32)}, storage)


@pytest.mark.parametrize(
    ("scales", "found"),
    [
        (None, "nothing"),
        (np.ones((1, 2), np.float64), "float64 (1, 2)"),
        (np.ones((2, 2), np.float32), "float32 (2, 2)"),
        (np.ones(2, np.float32), "float32 (2,)"),
    ],
)
def test_integers_without_their_scales_are_refused(scales: Any, found: str) -> None:
    arrays = {"w": np.ones((3, 2), np.int8)} | ({} if scales is None else {"w.scales": scales})
    with pytest.raises(CorruptFileError, match=rf"model.safetensors: w is of type I8.* found {re.escape(found)}$"):
        restored(arrays, HERE)
