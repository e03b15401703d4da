"""The whole model: loss, dropout, weights."""

import dataclasses
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer, RandomStream, Tensor, backward
from autograd.ops.linear import pack_weight
from autograd.parameters import zeros
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import ConfigError, RunConfig
from minitransformer.model.layers import Linear, layer_with_packed_weights
from minitransformer.model.transformer import WeightsError, class_of, implementation_of
from minitransformer.training.run import train

W = 12
SMALL = ModelConfig(vocabulary_size=W, n_layers=2, d_model=6, d_ff=8, n_heads=2, d_k=3, d_v=2)
VARIANTS = {
    "the paper": {},
    "pre-norm, nothing shared": {"norm": "pre", "tied": "none"},
    "learned positions, two vocabularies": {
        "positions": "learned", "max_positions": 9, "tied": "target", "source_vocabulary_size": 7,
    },
    "halves, one head, neighbourhood 1": {"positions": "halves", "n_heads": 1, "neighbourhood": 1},
    "all biases, from position 1": {
        "attention_bias": True, "softmax_bias": True, "first_position": 1, "layer_norm_eps": 1e-5,
    },
    "swish, one decoder layer": {"activation": "swish", "n_decoder_layers": 1},
    "gelu, three decoder layers": {"activation": "gelu", "n_decoder_layers": 3},
    "all dropouts": {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_relu": 0.2},
}  # fmt: skip


def model_of(variant: str = "the paper", **changes: Any) -> Transformer:
    return Transformer(dataclasses.replace(SMALL, **VARIANTS[variant] | changes), dtype="float64")


def batch_of(pairs: Any) -> Batch:
    return Batch.from_token_ids([source for source, _ in pairs], [target for _, target in pairs])


def test_the_loss_is_that_of_the_log_probabilities_and_in_float32_close_to_it() -> None:
    model, batch = model_of(), batch_of([([3, 4, 5], [6, 5]), ([3], [4, 4, 4])])
    log_p = model.log_probabilities(batch)
    q = np.full((batch.n_target_tokens, W), 0.1 / (W - 1))
    q[np.arange(len(q)), batch.labels] = 0.9
    assert float(model.loss(batch)) == pytest.approx(-(q * log_p).sum(), rel=1e-12)
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1)
    single = Transformer(SMALL).loss(batch)
    assert single.dtype == np.float32
    assert float(single) == pytest.approx(float(model.loss(batch)), rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_for_search_has_equal_parameters_made_ready(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(variant), batch_of([([3, 4, 5], [6, 5]), ([3], [4, 4, 4])])
    pack = Mock(wraps=pack_weight)
    for module in ("layers", "transformer"):
        monkeypatch.setattr(f"minitransformer.model.{module}.pack_weight", pack)
    searching = model.for_search()
    matrices = [
        p.shape
        for name, p in model.named_parameters()
        if name.startswith(("encoder.", "decoder.")) and p.value.ndim == 2
    ]
    packed = [call.args[0].shape for call in pack.call_args_list]
    assert sorted(packed) == sorted([*matrices, model.projection.weight.shape[::-1]])
    np.testing.assert_allclose(searching.log_probabilities(batch), model.log_probabilities(batch), rtol=1e-12)
    assert searching.parameters is model.parameters
    before = searching.project(Tensor(np.eye(6))).value
    model.projection.weight.value[...] = 0
    np.testing.assert_array_equal(searching.project(Tensor(np.eye(6))).value, before)
    assert not (
        model.project(Tensor(np.eye(6))).value - (0 if model.softmax_bias is None else model.softmax_bias.value)
    ).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_save_and_load(variant: str, tmp_path: Any) -> None:
    config = dataclasses.replace(SMALL, **VARIANTS[variant])
    model, batch = Transformer(config, seed=4), batch_of([([3, 4, 5], [6, 5])])
    model.save(tmp_path / "run")
    loaded = Transformer.load(tmp_path / "run")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.log_probabilities(batch), model.log_probabilities(batch))


def test_weights_that_do_not_fit_are_refused_whole() -> None:
    model, other = Transformer(SMALL), Transformer(dataclasses.replace(SMALL, d_ff=9), seed=2)
    before = model.parameters.values.copy()
    with pytest.raises(WeightsError, match=r"feed_forward.hidden.bias has shape \(9,\), expected \(8,\).* more"):
        model.set_weights(other.weights())
    weights = other.weights()
    del weights["source_embedding.weight"]
    with pytest.raises(WeightsError, match=r"missing source_embedding.weight \(12, 6\)"):
        model.set_weights(weights | {n: w for n, w in model.weights().items() if "hidden" in n or "output" in n})
    np.testing.assert_array_equal(model.parameters.values, before)


@pytest.mark.parametrize("sizes", [{}, {"vocabulary_size": 2}, {"vocabulary_size": 9, "source_vocabulary_size": 2}])
def test_a_model_needs_a_vocabulary(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"more than the 3 reserved ids \(unknown, start and end\); got [02]"):
        Transformer(ModelConfig(**sizes, tied="target" if len(sizes) == 2 else "all"))


@pytest.mark.parametrize("dtype", ["float16", "int32", "nonsense"])
def test_a_model_has_a_type_that_it_can_compute_in(dtype: str) -> None:
    with pytest.raises(ValueError, match=rf"dtype must be one of .*'bfloat16'\), got '{dtype}'"):
        Transformer(SMALL, dtype=dtype)


@pytest.mark.parametrize(
    ("ids", "shown"),
    [([3, -1], "[3, -1]"), ([4.9], "[4.9]"), (np.array([-1, 4]), "array([-1,  4])"), (["a"], "['a']")],
    ids=str,
)
def test_ids_are_whole_numbers_of_at_least_0(ids: Any, shown: str) -> None:
    for pair in ([[3], ids], [[3], [4]]), ([[3], [4]], [[3], ids]):
        with pytest.raises(ValueError, match=rf"at least 0; sequence 1 is .*{re.escape(shown)}"):
            Batch.from_token_ids(*pair)
    with pytest.raises(ValueError, match="as many targets as sources; got 1 and 2"):
        Batch.from_token_ids([[3]], [[3], [4]])


@pytest.mark.parametrize(("pair", "wrong"), [(([W], [3]), W), (([3], [4, W + 5, 3]), W + 5)])
def test_ids_beyond_the_vocabulary_are_named(pair: Any, wrong: int) -> None:
    model, (source, target) = Transformer(SMALL), pair
    with pytest.raises(IndexError, match=rf"id {wrong} is not in the table \(the vocabulary\) of {W} rows; take the"):
        model.loss(Batch.from_token_ids([source], [target]))


def test_a_batch_of_nothing_has_no_loss() -> None:
    model = Transformer(SMALL, dtype="float64")
    loss = model.loss(Batch.from_token_ids([], []), RandomStream(1))
    backward(loss)
    assert float(loss) == 0
    assert not model.parameters.gradients.any()


class Derived(Transformer):
    pass


def test_a_model_of_a_derived_class_keeps_its_name_and_is_made_by_no_other(tmp_path: Path) -> None:
    model = Derived(SMALL, dtype="bfloat16")
    assert model.config.implementation == f"{__name__}:Derived"
    assert class_of(model.config) is type(model.in_float32()) is type(model.for_search()) is Derived
    assert class_of(SMALL) is Transformer
    with pytest.raises(ConfigError, match=f"^Transformer: the model is of the class {__name__}:Derived; make it"):
        Transformer(model.config)
    with pytest.raises(ConfigError, match="^Mine: the model is of the class a:Mine; make it"):
        derived("b", "Mine")(FILE(SMALL).config)  # of one name in two files
    Transformer(SMALL).save(tmp_path)
    with pytest.raises(ConfigError, match=f"class Transformer, not of {__name__}:Derived; load it with Transformer"):
        Derived.load(tmp_path)


def derived(module: str, name: str) -> Any:
    return type(name.rpartition(".")[-1], (Transformer,), {"__module__": module, "__qualname__": name})


SCRIPT, LOCAL, FILE = derived("__main__", "Mine"), derived("a", "f.<locals>.Mine"), derived("a", "Mine")


@pytest.mark.parametrize(("saved", "given"), [(SCRIPT, FILE), (FILE, SCRIPT), (LOCAL, FILE), (SCRIPT, LOCAL)])
def test_a_class_of_a_script_or_a_function_loads_where_it_has_another_path(
    saved: Any, given: Any, tmp_path: Path
) -> None:
    saved(SMALL).save(tmp_path)
    assert given.load(tmp_path).config.implementation == implementation_of(given)
    for module in ("a", "__main__"):
        with pytest.raises(
            ConfigError, match=f":.*Mine, not of {module}:Other; load it with {implementation_of(saved)}$"
        ):
            derived(module, "Other").load(tmp_path)


def test_packing_leaves_what_is_no_layer_in_a_list() -> None:
    layer: Any = Layer()
    layer.mixed = [3, Parameter((2,), zeros), Linear(2, 2, bias=False)]
    ParameterBuffer(layer, seed=1)
    number, gate, linear = layer_with_packed_weights(layer).mixed
    assert (number, gate) == (3, layer.mixed[1])
    assert linear.weight is not layer.mixed[2].weight


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:A", r"'no_such_module:A' cannot be imported \(ModuleNotFoundError"),
        ("Derived", r"'Derived' cannot be imported \(ModuleNotFoundError"),
        (f"{__name__}:SMALL", "must be a class derived from Transformer; got ModelConfig"),
        (f"{__name__}:Any", "must be a class derived from Transformer; got typing.Any"),
    ],
)
def test_what_is_no_class_of_a_model_is_refused(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^model.implementation:? {problem}"):
        class_of(dataclasses.replace(SMALL, implementation=name))


@pytest.mark.parametrize("model", ["rotary:Rotary", Transformer(SMALL), ModelConfig])
def test_a_run_takes_a_class_of_a_model_and_no_name_or_model(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model must be a class derived from Transformer .*; got ['<]"):
        train(RunConfig(run=tmp_path / "run"), model=model, callbacks=[])
    assert not (tmp_path / "run").exists()
