"""Single operations, a whole encoder layer and the optimizer against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from autograd import Blocks, KeySpans, Layer, Parameter, ParameterBuffer, Tensor, backward, ops
from autograd.optim import Adam, adam_update
from autograd.parameters import scaled_normal
from minitransformer import ModelConfig
from minitransformer.model.spans import causal_spans, self_attention_spans
from minitransformer.model.stacks import EncoderLayer

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "minitransformer[oracles]"')
functional = torch.nn.functional

RELATIVE = 1e-12


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """These arrays are too small to share out."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def random_arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(11)
    return [random.standard_normal(shape) for shape in shapes]


def assert_near(got: Any, expected: Any) -> None:
    expected = expected.detach().numpy()
    assert got.shape == expected.shape
    assert np.linalg.norm(got - expected) <= RELATIVE * np.linalg.norm(expected)


def compare(ours: Callable[..., Tensor], theirs: Callable[..., Any], arrays: list[Any]) -> None:
    """Values and, along a random direction of the result, the gradients of all arguments."""
    leaves, twins = [Tensor(x) for x in arrays], [torch.tensor(x, requires_grad=True) for x in arrays]
    result, expected = ours(*leaves), theirs(*twins)
    assert_near(result.value, expected)
    (direction,) = random_arrays(result.shape)
    backward(result, direction)
    expected.backward(torch.tensor(direction))
    for leaf, twin in zip(leaves, twins, strict=True):
        assert_near(leaf.grad, twin.grad)


def test_layer_norm_equals_torch() -> None:
    compare(
        lambda x, gain, bias: ops.layer_norm(x, gain, bias, eps=1e-6),
        lambda x, gain, bias: functional.layer_norm(x, (6,), gain, bias, eps=1e-6),
        random_arrays((5, 6), (6,), (6,)),
    )


def torch_attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Ours is (T, H, K), PyTorch's is (H, T, K)."""
    heads_first = (x.transpose(0, 1) for x in (q, k, v))
    return functional.scaled_dot_product_attention(*heads_first, **options).transpose(0, 1)


def test_attention_of_one_sentence_to_another_equals_torch() -> None:
    n_queries, n_keys = 4, 7
    everything = np.zeros(n_queries, int), np.full(n_queries, n_keys)
    spans = KeySpans(*everything, Blocks.of_lengths([n_queries]), Blocks.of_lengths([n_keys]))
    arrays = random_arrays((n_queries, 3, 5), (n_keys, 3, 5), (n_keys, 3, 2))
    compare(lambda q, k, v: ops.attention(q, k, v, spans=spans), torch_attention, arrays)


def test_causal_attention_equals_torch() -> None:
    spans = causal_spans(Blocks.of_lengths([6]))
    compare(
        lambda q, k, v: ops.attention(q, k, v, spans=spans),
        lambda q, k, v: torch_attention(q, k, v, is_causal=True),
        random_arrays((6, 2, 4), (6, 2, 4), (6, 2, 3)),
    )


def test_cross_entropy_without_smoothing_equals_torch() -> None:
    targets = np.array([3, 0, 6, 6, 1])
    compare(
        lambda logits: ops.cross_entropy(logits, targets, smoothing=0.0),
        lambda logits: functional.cross_entropy(logits, torch.tensor(targets), reduction="sum"),
        random_arrays((5, 7)),
    )


def test_cross_entropy_with_smoothing_equals_torch_whose_smoothing_includes_the_target() -> None:
    smoothing, n_classes, targets = 0.1, 7, np.array([3, 0, 6, 6, 1])
    torch_smoothing = smoothing * n_classes / (n_classes - 1)  # of which 1/W falls back on the target
    compare(
        lambda logits: ops.cross_entropy(logits, targets, smoothing=smoothing),
        lambda logits: functional.cross_entropy(
            logits, torch.tensor(targets), reduction="sum", label_smoothing=torch_smoothing
        ),
        random_arrays((5, n_classes)),
    )


class OneMatrix(Layer):
    """40,400 elements: more than the CPU kernel of Adam takes at once, and no multiple of that."""

    def __init__(self) -> None:
        self.weight = Parameter((400, 101), scaled_normal)


@pytest.mark.parametrize("implementation", ["reference", "fastest"])
def test_twenty_updates_of_adam_equal_torch(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if implementation == "reference":
        monkeypatch.setattr(adam_update, "kernels", [])
    layer, random = OneMatrix(), np.random.default_rng(12)
    buffer = ParameterBuffer(layer, seed=1, dtype="float64")
    ours, theirs = Adam(buffer), torch.nn.Parameter(torch.tensor(layer.weight.value))
    torch_adam = torch.optim.Adam([theirs], betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 21):
        gradient = random.standard_normal(layer.weight.shape) * 10.0 ** random.integers(-6, 2)
        learning_rate = 1e-3 * step / (1 + step % 7)
        layer.weight.grad[...], theirs.grad = gradient, torch.tensor(gradient)
        torch_adam.param_groups[0]["lr"] = learning_rate
        ours.update(learning_rate, step)
        torch_adam.step()
        assert_near(layer.weight.value, theirs)


def torch_encoder_layer(layer: EncoderLayer, config: ModelConfig) -> Any:
    """PyTorch's encoder layer with our weights; its attention biases, which the paper has none of, stay zero."""
    twin = torch.nn.TransformerEncoderLayer(
        config.d_model, config.n_heads, config.d_ff, dropout=0.0, activation="relu", layer_norm_eps=1e-6,
        batch_first=True, norm_first=config.norm == "pre", bias=True, dtype=torch.float64,
    )  # fmt: skip
    attention, feed_forward = layer.self_attention, layer.feed_forward
    in_projections = [attention.query.weight, attention.key.weight, attention.value.weight]
    norms = layer.self_attention_residual.norm, layer.feed_forward_residual.norm
    twin.load_state_dict({
        name: torch.tensor(np.ascontiguousarray(value))
        for name, value in {
            "self_attn.in_proj_weight": np.concatenate([weight.value.T for weight in in_projections]),
            "self_attn.in_proj_bias": np.zeros(3 * config.d_model),
            "self_attn.out_proj.weight": attention.output.weight.value.T,
            "self_attn.out_proj.bias": np.zeros(config.d_model),
            "linear1.weight": feed_forward.hidden.weight.value.T,
            "linear1.bias": feed_forward.hidden.bias.value,
            "linear2.weight": feed_forward.output.weight.value.T,
            "linear2.bias": feed_forward.output.bias.value,
            "norm1.weight": norms[0].gain.value,
            "norm1.bias": norms[0].bias.value,
            "norm2.weight": norms[1].gain.value,
            "norm2.bias": norms[1].bias.value,
        }.items()
    })  # fmt: skip
    return twin


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_encoder_layer_equals_torch(norm: str) -> None:
    config = ModelConfig(vocabulary_size=1, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, norm=norm)
    layer = EncoderLayer(config)
    buffer = ParameterBuffer(layer, seed=6, dtype="float64")
    buffer.values += 0.2 * np.random.default_rng(7).standard_normal(buffer.values.shape)
    twin, blocks = torch_encoder_layer(layer, config), Blocks.of_lengths([5, 5])

    def packed_through_torch(x: Any) -> Any:
        return twin(x.reshape(2, 5, 12)).reshape(10, 12)

    compare(lambda x: layer(x, self_attention_spans(blocks)), packed_through_torch, random_arrays((10, 12)))
    attention = layer.self_attention
    in_projections = [attention.query.weight, attention.key.weight, attention.value.weight]
    assert_near(np.concatenate([weight.grad.T for weight in in_projections]), twin.self_attn.in_proj_weight.grad)
    assert_near(attention.output.weight.grad.T, twin.self_attn.out_proj.weight.grad)
    assert_near(layer.feed_forward.hidden.weight.grad.T, twin.linear1.weight.grad)
    assert_near(layer.feed_forward.output.bias.grad, twin.linear2.bias.grad)
    assert_near(layer.self_attention_residual.norm.gain.grad, twin.norm1.weight.grad)
    assert_near(layer.feed_forward_residual.norm.bias.grad, twin.norm2.bias.grad)
