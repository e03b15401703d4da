"""The whole model: its loss, what it refuses, ends of sources, saved weights, derived classes."""

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
from minitransformer import Batch, ModelConfig, Transformer, presets
from minitransformer.config import ConfigError, RunConfig
from minitransformer.inference.attention import attention_weights
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import score_pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.model.batch import EmptySourceError
from minitransformer.model.layers import Embedding, LayerNorm, Linear, Residual, layer_with_packed_weights
from minitransformer.model.symbols import END, START
from minitransformer.model.transformer import WeightsError, class_of, implementation_of
from minitransformer.training.run import train
from tests.minitransformer.model.test_packing import SMALL, VARIANTS, batch_of

W = SMALL.vocabulary_size
PAIRS = [([3, 4, 5], [6, 5]), ([3], [4, 4, 4])]


def ready(layer: Any) -> Any:
    ParameterBuffer(layer, seed=1, dtype="float64")
    return layer


def test_post_norm_normalises_the_sum_and_pre_norm_the_input() -> None:
    x, norm = Tensor(np.random.default_rng(0).standard_normal((3, 6))), ready(LayerNorm(6, eps=0.1))
    configs = (dataclasses.replace(SMALL, layer_norm_eps=0.1, norm=kind) for kind in ("post", "pre"))
    post, pre = (ready(Residual(config)) for config in configs)
    np.testing.assert_allclose(post(x, post.sublayer_input(x) * 3.0, None).value, norm(x * 4.0).value)
    np.testing.assert_allclose(pre(x, pre.sublayer_input(x) * 3.0, None).value, (x + norm(x) * 3.0).value)


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    embedding = ready(Embedding(9, 4))
    np.testing.assert_allclose(embedding(np.array([2])).value[0], 2 * embedding.weight.value[2])


def test_the_loss_is_that_of_the_log_probabilities_and_in_float32_close_to_it() -> None:
    model, batch = Transformer(SMALL, dtype="float64"), batch_of(PAIRS)
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
    model, batch = Transformer(dataclasses.replace(SMALL, **VARIANTS[variant]), dtype="float64"), batch_of(PAIRS)
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
    model, batch = Transformer(dataclasses.replace(SMALL, **VARIANTS[variant]), seed=4), batch_of(PAIRS)
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
    with pytest.raises(WeightsError, match=r"missing source_embedding.weight \(8, 6\)"):
        model.set_weights(weights | {n: w for n, w in model.weights().items() if "hidden" in n or "output" in n})
    np.testing.assert_array_equal(model.parameters.values, before)


@pytest.mark.parametrize("sizes", [{}, {"vocabulary_size": 2}, {"vocabulary_size": 9, "source_vocabulary_size": 2}])
def test_a_model_needs_a_vocabulary(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"more than the 3 reserved ids \(unknown, start and end\); got [02]"):
        Transformer(ModelConfig(**sizes, tied="target" if len(sizes) == 2 else "all"))


@pytest.mark.parametrize("dtype", ["int16", "int32", "nonsense"])
def test_a_model_has_a_type_that_it_can_compute_in(dtype: str) -> None:
    with pytest.raises(ValueError, match=rf"dtype must be one of .*'float16'\), got '{dtype}'"):
        Transformer(SMALL, dtype=dtype)


def test_a_model_in_float16_is_not_trained() -> None:
    with pytest.raises(TypeError, match="float16 is for a search only; train in bfloat16 or float32"):
        Transformer(SMALL, dtype="float16").loss(Batch.from_token_ids([[3]], [[4]]))


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


@pytest.mark.parametrize("target", [[START, 6], [6, START], np.array([6, START, 7])])
def test_a_start_symbol_in_a_target_is_refused_with_the_sentence_and_the_remedy(target: Any) -> None:
    """It would be taken for a zero vector or the end symbol there, too."""
    with pytest.raises(ValueError, match=r"target 1 has the start symbol \(id 1\): .*Give targets without"):
        Batch.from_token_ids([[3], [4], [5]], [[START + 5], target, [START]])
    assert len(Batch.from_token_ids([[START, 3]], [[6]])) == 1  # of a source it is a word like any other


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


# Ends of sources

SOURCES, TARGETS = [[3, 4, 5, 6], [7], [5, 3]], [[5, 6], [4, 4, 7], [6]]
WITH_END = [[*source, END] for source in SOURCES]


def models() -> tuple[Transformer, Transformer]:
    """The same weights, with an end symbol after every source, and without."""
    return Transformer(SMALL, seed=4), Transformer(dataclasses.replace(SMALL, source_end=False), seed=4)


def test_no_end_symbol_is_appended_and_an_empty_source_is_refused() -> None:
    batch = Batch.from_token_ids(SOURCES, TARGETS, source_end=False)
    assert batch.source_ids.tolist() == [3, 4, 5, 6, 7, 5, 3]
    assert batch.source.lengths.tolist() == [4, 1, 2]
    assert batch.labels.tolist() == [5, 6, END, 4, 4, 7, END, 6, END]
    with pytest.raises(EmptySourceError, match="source 0 has no token.*remove empty sources"):
        score_pairs(models()[1], [([3], [4]), ([], [5])])


def test_scores_translations_and_attention_are_those_of_sources_with_an_end_of_their_own() -> None:
    with_end, without = models()
    pairs, pairs_with_end = (list(zip(sources, TARGETS, strict=True)) for sources in (SOURCES, WITH_END))
    scores = score_pairs(with_end, pairs)
    assert score_pairs(without, pairs_with_end) == scores != score_pairs(without, pairs)
    expected = attention_weights(with_end, SOURCES[0], TARGETS[0])
    found = attention_weights(without, WITH_END[0], TARGETS[0])
    np.testing.assert_array_equal(found.encoder, expected.encoder)
    np.testing.assert_array_equal(found.encoder_decoder, expected.encoder_decoder)


@pytest.mark.parametrize("beam", [1, 3])
def test_translations_have_as_many_tokens_as_those_of_sources_with_an_end(beam: int) -> None:
    with_end, without = models()
    expected = beam_search(with_end, SOURCES, SearchConfig(beam=beam, max_extra_tokens=5))
    found = beam_search(without, WITH_END, SearchConfig(beam=beam, max_extra_tokens=4))
    assert [h[0].ids for h in found] == [h[0].ids for h in expected]
    longest = beam_search(without, SOURCES, SearchConfig(max_extra_tokens=1))
    assert all(len(h[0].ids) < len(source) + 1 for source, h in zip(SOURCES, longest, strict=True))


def test_training_always_appends_the_end_symbol() -> None:
    model = dataclasses.replace(presets.tiny(), source_end=False)
    with pytest.raises(ConfigError, match="source_end must be true in a training run"):
        RunConfig(model=model)


# Classes derived from Transformer


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
        (f"{__name__}:SMALL", "must be a class derived from minitransformer.model.transformer.Transformer; got ModelC"),
        (f"{__name__}:Any", "must be a class derived from minitransformer.model.transformer.Transformer; got typing"),
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
