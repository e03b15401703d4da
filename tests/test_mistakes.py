"""Mistakes in Python: each gets an error that says what was expected, what came, and the remedy."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitransformer
from autograd import RandomStream, Tensor, backward
from autograd.optim import Adam
from autograd.testing import check_gradients
from minitransformer import Batch, DataConfig, ModelConfig, RunConfig, TrainingConfig, Transformer, presets, train
from minitransformer.config import ConfigError
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import EmptySourceError

TINY = replace(presets.tiny(vocabulary_size=13), n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
VECTOR, MATRIX = np.array([1.0, -2.0, 3.0]), np.arange(9.0).reshape(3, 3)
X = Tensor(VECTOR)
NAN = float("nan")


def model() -> Transformer:
    return Transformer(TINY)


def stepped(**numbers: Any) -> float:
    """The norm of the gradient of an update."""
    one = model()
    backward(one.loss(Batch.from_token_ids([[5, 6]], [[7]])))
    return Adam(one.parameters).step(**{"learning_rate": 1e-3, "step": 1, **numbers})


Call = Callable[[], object]
MODELS: dict[str, tuple[Call, type[Exception], str]] = {
    "a name as a model": (
        lambda: Transformer("tiny"),
        TypeError,
        r"expected a ModelConfig, such as presets\.tiny.*'tiny'",
    ),
    "a function as a model": (lambda: Transformer(presets.tiny), TypeError, "expected a ModelConfig"),
    "the settings of a run as a model": (
        lambda: Transformer(RunConfig()),
        TypeError,
        "expected a ModelConfig.*RunConfig",
    ),
    "a seed that is text": (lambda: Transformer(TINY, seed="1"), TypeError, "a seed must be a whole number; got '1'"),
    "lists as a batch": (lambda: model().loss([[5, 6]]), TypeError, r"expected a batch, such as Batch\.from_token_ids"),
    "a number as a stream": (
        lambda: model().loss(Batch.from_token_ids([[5]], [[7]]), 1),
        TypeError,
        "random must be a RandomStream or None",
    ),
    "a stream of text": (lambda: RandomStream("a"), TypeError, "a seed must be a whole number"),
    "settings as a dict": (lambda: train({"run": "x"}), TypeError, r"expected a RunConfig.*got dict \{"),
    "a model to train": (lambda: train(TINY), TypeError, "expected a RunConfig.*got ModelConfig"),
    "a preset that is none": (lambda: presets.smal, AttributeError, "presets has no 'smal'; did you mean 'small'"),
    "a name that is none": (lambda: minitransformer.Transfomer, AttributeError, "did you mean 'Transformer'"),
}
SETTINGS: dict[str, tuple[Call, type[Exception], str]] = {
    "a name as part": (lambda: RunConfig(model="tiny"), ConfigError, "model must be a ModelConfig; got 'tiny'"),
    "a dict as part": (lambda: RunConfig(training={"seed": 1}), ConfigError, "training must be a TrainingConfig; got"),
    "text as a path": (lambda: RunConfig(run="x"), ConfigError, "run must be a Path; got 'x'"),
    "a file as a list": (
        lambda: DataConfig(train_source="a.en"),
        ConfigError,
        r"train_source must be a tuple, such as \('a\.en',\)",
    ),
    "a list of numbers": (
        lambda: DataConfig(languages=(1, 2)),
        ConfigError,
        r"languages must be a tuple; got \(1, 2\)",
    ),
    "text as a number": (lambda: presets.tiny("13"), ConfigError, "vocabulary_size must be a whole number; got '13'"),
    "a fraction of a layer": (lambda: ModelConfig(13, n_layers=1.5), ConfigError, "n_layers must be a whole number"),
    "true as a number": (lambda: TrainingConfig(max_updates=True), ConfigError, "must be a whole number; got True"),
    "NaN as a rate": (lambda: TrainingConfig(learning_rate_factor=NAN), ConfigError, "learning_rate_factor must be"),
    "text as a beam": (lambda: SearchConfig(beam="4"), ConfigError, r"search\.beam must be a whole number; got '4'"),
}
BATCHES: dict[str, tuple[Call, type[Exception], str]] = {
    "one pair without brackets": (
        lambda: Batch.from_token_ids([5, 6], [7]),
        TypeError,
        r"source 0 must be a seq.* got 5; .*\(\[\[5, 6\]\], \[\[7\]\]\)",
    ),
    "brackets too many": (lambda: Batch.from_token_ids([[5]], [[[7]]]), TypeError, "target 0 must be a sequence of"),
    "text": (lambda: Batch.from_token_ids(["a b"], [[7]]), TypeError, "source 0 is text, 'a b'; make token ids"),
    "an empty source": (
        lambda: Batch.from_token_ids([[5], []], [[7], [7]], source_end=False),
        EmptySourceError,
        "source 1 has no token",
    ),
}
UPDATES: dict[str, tuple[Call, type[Exception], str]] = {
    "a model": (lambda: Adam(model()), TypeError, r"expected the parameters of a model, model\.parameters; got"),
    "a list": (lambda: Adam([X]), TypeError, "expected the parameters of a model"),
    "a rate of averages of 1": (
        lambda: Adam(model().parameters, beta1=1.0),
        ValueError,
        "expected 0 ≤ beta1, beta2 < 1",
    ),
    "step 0": (lambda: stepped(step=0), ValueError, "step is the number of the update, 1, 2, …; got 0"),
    "step −1": (lambda: stepped(step=-1), ValueError, "step is the number"),
    "step 1.5": (lambda: stepped(step=1.5), ValueError, "step is the number"),
    "no token": (lambda: stepped(n_tokens=0), ValueError, "n_tokens divides the gradients .* got 0"),
    "NaN as a rate": (
        lambda: stepped(learning_rate=NAN),
        ValueError,
        "learning_rate must be a finite number .* got nan",
    ),
    "a negative rate": (lambda: stepped(learning_rate=-1.0), ValueError, "learning_rate must be a finite number of at"),
    "no norm": (lambda: stepped(max_norm=0), ValueError, "max_norm must be greater than 0; got 0"),
    "NaN as a norm": (lambda: stepped(max_norm=NAN), ValueError, "max_norm must be greater than 0; got nan"),
    "before backward": (
        lambda: Adam(model().parameters).step(1e-3, 1),
        ValueError,
        r"there are no gradients; call backward\(loss\) before",
    ),
}
TENSORS: dict[str, tuple[Call, type[Exception], str]] = {
    "np.exp": (lambda: np.exp(X), TypeError, r"np\.exp of a Tensor would have no gradient; use autograd\.ops\.exp"),
    "np.sin": (
        lambda: np.sin(X),
        TypeError,
        r"np\.sin .*; compute it with functions of autograd\.ops, or np\.sin of its",
    ),
    "np.add.reduce": (lambda: np.add.reduce(X), TypeError, r"np\.add of a Tensor would have no gradient"),
    "np.sum": (lambda: np.sum(X), TypeError, r"use autograd\.ops\.sum"),
    "np.concatenate": (lambda: np.concatenate([X, X]), TypeError, r"use autograd\.ops\.concatenate"),
    "comparison": (lambda: X > 0, TypeError, r"a Tensor has no >; compare its \.value"),
    "comparison of an array": (lambda: VECTOR < X, TypeError, r"np\.less of a Tensor .*; compare its"),
    "//": (lambda: X // 2, TypeError, "a Tensor has no //"),
    "%": (lambda: 2 % X, TypeError, "a Tensor has no %"),
    "assignment": (lambda: X.__setitem__(0, 1), TypeError, r"change its \.value"),  # type: ignore[attr-defined]
    "x ** y": (lambda: X**X, TypeError, r"ops\.exp\(y \* ops\.log\(x\)\)"),
    "a negative base": (lambda: (-2) ** X, TypeError, "expected a number greater than 0 before"),
    "text": (lambda: Tensor("a"), TypeError, "expected an array of numbers, got 'a'"),
    "nothing": (lambda: Tensor(None), TypeError, "expected an array of numbers, got None"),
    "backward of an array": (lambda: backward(VECTOR), TypeError, "expected a Tensor, such as .*; got ndarray"),
}
CASES = [
    pytest.param(*case, id=f"{part}: {name}")
    for part, cases in (
        ("models", MODELS), ("settings", SETTINGS), ("batches", BATCHES), ("updates", UPDATES), ("tensors", TENSORS),
    )
    for name, case in cases.items()
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_a_mistake_is_answered(call: Call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert len(re.sub(r"got .*", "", str(caught.value))) < 200


def test_numbers_of_numpy_and_lists_are_settings() -> None:
    config = DataConfig(held_out=np.int64(7), max_ratio=np.float32(3), train_source=["a"], train_target=["b"])
    assert (config.held_out, config.max_ratio) == (7, 3)
    assert RunConfig(run=Path("x"), init_from=None).run == Path("x")


PRODUCTS = [
    (VECTOR, VECTOR), (MATRIX, VECTOR), (VECTOR, MATRIX), (np.ones((2, 4, 3)), VECTOR), (VECTOR, np.ones((2, 3, 4))),
]  # fmt: skip


@pytest.mark.parametrize(("x", "y"), PRODUCTS, ids=lambda x: str(x.shape))
def test_products_with_vectors_are_those_of_arrays(x: Any, y: Any) -> None:
    for found in (Tensor(x) @ Tensor(y), Tensor(x) @ y, x @ Tensor(y)):
        assert found.shape == np.shape(x @ y)
        np.testing.assert_allclose(found.value, x @ y)
    check_gradients(lambda x, y: x @ y, x, y)


def test_powers_absolute_values_and_signs() -> None:
    for found, expected in ((abs(X), abs(VECTOR)), (2**X, 2**VECTOR), (0.5**X, 0.5**VECTOR), (+X, VECTOR)):
        np.testing.assert_allclose(found.value, expected)
    check_gradients(lambda x: 2**x, VECTOR)
    check_gradients(abs, VECTOR)


def test_operators_of_arrays_and_tensors_record_the_tape() -> None:
    for found, expected in (
        (VECTOR + X, 2 * VECTOR), (VECTOR - X, 0 * VECTOR), (VECTOR * X, VECTOR**2), (VECTOR / X, VECTOR / VECTOR),
        (np.add(VECTOR, X), 2 * VECTOR), (np.float64(2) * X, 2 * VECTOR),
    ):  # fmt: skip
        assert isinstance(found, Tensor)
        assert found.node is not None
        np.testing.assert_allclose(found.value, expected)
    total = VECTOR.copy()
    total += X
    assert isinstance(total, Tensor)
    assert X.__array_ufunc__ is None  # CuPy reads it from the object, and then calls __radd__
