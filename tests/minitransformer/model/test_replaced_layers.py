"""A layer or a method that a user's class replaces is called: in training, validation, search and ensembles."""

import inspect
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, RandomStream, Tensor, backward, no_tape, ops
from autograd.parameters import glorot_uniform, ones
from minitransformer import Batch, Transformer, presets
from minitransformer.inference.attention import AttentionError, attention_weights
from minitransformer.inference.beam import beam_search
from minitransformer.inference.scoring import score_pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.model import layers, positions, stacks
from minitransformer.model.layers import FeedForward, Linear, MultiHeadAttention, Residual

CONFIG = replace(presets.tiny(vocabulary_size=23), n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8, p_drop=0.0)
SOURCES, TARGETS = [[5, 6, 7], [9, 8]], [[5, 9], [7, 7, 8]]
BATCH = Batch.from_token_ids(SOURCES, TARGETS)
SEARCH = SearchConfig(beam=3, n_best=3, max_extra_tokens=3)

METHODS = [  # every layer class with each method that the model calls
    ("Linear", "__call__"),
    ("LayerNorm", "__call__"),
    ("Embedding", "__call__"),
    ("Embedding", "with_positions"),
    ("Embedding", "logits"),
    ("MultiHeadAttention", "__call__"),
    ("MultiHeadAttention", "queries"),
    ("MultiHeadAttention", "keys_values"),
    ("MultiHeadAttention", "queries_keys_values"),
    ("MultiHeadAttention", "heads"),
    ("FeedForward", "__call__"),
    ("Residual", "__call__"),
    ("Residual", "sublayer_input"),
    ("EncoderLayer", "__call__"),
    ("DecoderLayer", "__call__"),
    ("Encoder", "__call__"),
    ("Decoder", "__call__"),
    ("Decoder", "memory"),
    ("SinusoidalPositions", "add_to"),
    ("SinusoidalPositions", "table_and_rows"),
    ("LearnedPositions", "add_to"),
    ("LearnedPositions", "table_and_rows"),
]


def changed(result: Any) -> Any:
    """Return a result with other numbers."""
    if isinstance(result, Tensor):
        return result * 1.5 + 0.25 * np.sin(np.arange(result.shape[-1], dtype=result.dtype))
    if isinstance(result, list | tuple):
        return type(result)(changed(each) for each in result)
    return result * 1.5 if result.dtype.kind == "f" else result


def all_layers(thing: Any) -> Iterator[Layer]:
    if isinstance(thing, Layer):
        yield thing
        thing = list(vars(thing).values())
    if isinstance(thing, list):
        for each in thing:
            yield from all_layers(each)


def replaced(name: str, method: str) -> tuple[type[Transformer], dict[int, int]]:
    """Return a model class in which ``method`` of all layers of a class is another one, and each layer's calls."""
    calls = dict[int, int]()

    class Replaced(Transformer):
        def make_layers(self, config: Any) -> None:
            super().make_layers(config)
            for layer in all_layers(self):
                if type(layer).__name__ == name:
                    layer.__class__ = own_class(type(layer))
                    calls[id(layer)] = 0

    def own_class(base: type) -> type:
        def counted(self: Any, *arguments: Any, **named: Any) -> Any:
            calls[id(self)] = calls.get(id(self), 0) + 1
            return changed(getattr(base, method)(self, *arguments, **named))

        return type(f"Own{name}", (base,), {method: counted})

    return Replaced, calls


def loss_without_smoothing(model: Transformer) -> float:
    with no_tape():
        return float(model.loss(BATCH))


def assert_changes_loss_and_search_alike(own: type[Transformer], config: Any) -> None:
    """Compare validation, loss and searches of one model, packed weights, and an ensemble."""
    config = replace(config, label_smoothing=0.0)
    model, plain = own(config), Transformer(config)
    plain.set_weights({name: model.weights()[name] for name in plain.weights()})
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    validation = -sum(score.log_probability for score in score_pairs(model, pairs))
    assert abs(loss_without_smoothing(model) - loss_without_smoothing(plain)) > 1e-3
    assert loss_without_smoothing(model) == pytest.approx(validation, abs=1e-3)
    for models in ([model], [model.for_search()], [model, model], [model.for_search()] * 2):
        for source, found in zip(SOURCES, beam_search(models, SOURCES, SEARCH), strict=True):
            for hypothesis in found:
                (score,) = score_pairs(model, [(source, list(hypothesis.ids))])
                assert hypothesis.log_probability == pytest.approx(score.log_probability, abs=2e-3)


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_a_replaced_layer_changes_loss_and_search_alike(name: str, method: str) -> None:
    own, calls = replaced(name, method)
    config = replace(CONFIG, positions="learned") if name == "LearnedPositions" else CONFIG
    if method == "sublayer_input":  # with "post", it is the identity, which fused operations do not include
        config = replace(config, norm="pre")
    assert_changes_loss_and_search_alike(own, config)
    assert any(calls.values())


@pytest.mark.parametrize("name", sorted({name for name, method in METHODS if method == "__call__"}))
def test_every_replaced_layer_is_called(name: str) -> None:
    own, calls = replaced(name, "__call__")
    own(CONFIG).loss(BATCH)
    assert calls
    assert all(calls.values())


@pytest.mark.parametrize("changes", [{"norm": "pre"}, {"activation": "swish"}, {"p_drop_relu": 0.1}, {"start": "zero"}])
def test_replaced_linear_maps_and_norms_are_called_in_other_models(changes: dict[str, Any]) -> None:
    for name in ("Linear", "LayerNorm", "Embedding"):
        own, _ = replaced(name, "__call__")
        assert_changes_loss_and_search_alike(own, replace(CONFIG, **changes))


def test_the_list_above_has_all_classes_of_layers() -> None:
    found = {
        name
        for module in (layers, positions, stacks)
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Layer) and not inspect.isabstract(kind) and kind is not Layer
    }
    assert found == {name for name, _ in METHODS}


class Capped(Transformer):
    """A model whose logits are at most 2 in size."""

    def project(self, decoded: Tensor) -> Tensor:
        return ops.tanh(super().project(decoded) * 0.5) * 2


def test_an_own_projection_changes_loss_and_search_alike() -> None:
    assert_changes_loss_and_search_alike(Capped, CONFIG)
    assert_changes_loss_and_search_alike(Capped, replace(CONFIG, tied="none", softmax_bias=True))


class RMSNorm(Layer):
    """Zhang & Sennrich 2019, equation 4."""

    def __init__(self, d_model: int) -> None:
        self.scale = Parameter((d_model,), ones)

    def __call__(self, x: Tensor) -> Tensor:
        return x / ((x * x).mean(axis=-1, keepdims=True) + 1e-6) ** 0.5 * self.scale


class LoRA(Linear):
    """Hu et al. 2021, equation 3."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, bias=False)
        self.down, self.up = Parameter((d_in, 2), glorot_uniform), Parameter((2, d_out), glorot_uniform)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x) + x @ self.down @ self.up


class RMSTransformer(Transformer):
    def make_layers(self, config: Any) -> None:
        super().make_layers(config)
        for layer in list(all_layers(self)):
            if isinstance(layer, Residual):
                layer.norm = RMSNorm(config.d_model)  # type: ignore[assignment]


class LoRATransformer(Transformer):
    def make_layers(self, config: Any) -> None:
        super().make_layers(config)
        for layer in list(all_layers(self)):
            if isinstance(layer, MultiHeadAttention):
                layer.query, layer.value = (LoRA(config.d_model, config.n_heads * config.d_k) for _ in range(2))


@pytest.mark.parametrize("own", [RMSTransformer, LoRATransformer])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_parameter_of_own_layers_has_the_gradient_of_the_loss(own: type[Transformer], norm: Any) -> None:
    model = own(replace(CONFIG, norm=norm), dtype="float64")
    backward(model.loss(BATCH))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        index = tuple(int(i) for i in np.unravel_index(np.abs(parameter.grad).argmax(), parameter.shape))
        values, step = parameter.value, 1e-6
        losses = []
        for sign in (1, -1):
            values[index] += sign * step
            losses.append(loss_without_smoothing(model))
            values[index] -= sign * step
        assert parameter.grad[index] == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-4), name
        assert abs(parameter.grad[index]) > 1e-9, name


def test_the_residual_of_an_own_norm_is_the_papers() -> None:
    """LayerNorm(x + y), from the definition."""
    residual, x, y = Residual(CONFIG), np.random.default_rng(1).normal(size=(2, 3, 16)), np.ones((3, 16))
    residual.norm = lambda z: z * 2  # type: ignore[assignment]
    np.testing.assert_allclose(residual(Tensor(x[0]), Tensor(y), None).value, 2 * (x[0] + y))


def test_own_feed_forward_maps_keep_relu_and_dropout() -> None:
    config = replace(CONFIG, p_drop_relu=0.5)
    layer, x = FeedForward(config), np.random.default_rng(1).normal(size=(3, 16))
    layer.hidden, layer.output = (lambda z: z * 1.0), (lambda z: z * 3.0)  # type: ignore[assignment]
    np.testing.assert_allclose(layer(Tensor(x)).value, 3 * np.maximum(x, 0))
    dropped = layer(Tensor(x), RandomStream(seed=1, update=1)).value
    kept = dropped != 0
    np.testing.assert_allclose(dropped[kept], (6 * np.maximum(x, 0))[kept])
    assert 0 < kept.sum() < (x > 0).sum()


def test_the_plain_model_calls_fused_operations_and_an_own_one_logs_once_what_it_gives_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "_logged", set())
    with caplog.at_level(logging.INFO, "minitransformer.model.layers"):
        plain = Transformer(CONFIG)
        plain.loss(BATCH)
        beam_search(plain.for_search(), SOURCES, SEARCH)
        assert caplog.messages == []
        for _ in range(2):
            model = RMSTransformer(CONFIG)
            model.loss(BATCH)
            beam_search(model.for_search(), SOURCES, SEARCH)
    assert caplog.messages == [
        f"{__name__}.RMSNorm is called; the faster operation add_norm would leave it out"
    ]  # fmt: skip


class SharpAttention(MultiHeadAttention):
    """Attention with queries of twice the size."""

    def queries_keys_values(self, x: Tensor) -> Any:
        queries, keys_values = super().queries_keys_values(x)
        return queries * 2.0, keys_values

    def __call__(self, queries: Tensor, *arguments: Any) -> Tensor:
        return super().__call__(queries * 3.0, *arguments)


class SharpTransformer(Transformer):
    def make_layers(self, config: Any) -> None:
        super().make_layers(config)
        self.encoder.layers[0].self_attention = SharpAttention(config)


def test_attention_weights_are_those_of_an_own_attention() -> None:
    model, plain = SharpTransformer(CONFIG), Transformer(CONFIG)
    found, soft = (attention_weights(each, SOURCES[0], TARGETS[0]).encoder for each in (model, plain))
    logits = np.log(soft) * 6
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


class MeanAttention(MultiHeadAttention):
    """A layer without the operation of attention."""

    def __call__(self, queries: Tensor, keys_values: Any, *arguments: Any) -> Tensor:
        return self.output(ops.reshape(queries, shape=(len(queries), -1)))


def test_attention_weights_of_a_layer_without_attention_are_refused_by_name() -> None:
    model = Transformer(CONFIG)
    model.encoder.layers[0].self_attention.__class__ = MeanAttention
    with pytest.raises(AttentionError, match=r"MeanAttention computes 0 operations autograd.ops.attention in a call"):
        attention_weights(model, SOURCES[0], TARGETS[0])
