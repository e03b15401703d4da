"""The flat buffer, Adam on it, and the gradient's norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer, RandomStream, Tensor, backward, named_parameters, ops
from autograd.optim import Adam, adam_update, clip, gradient_norm, sum_squares
from autograd.parameters import ALIGNMENT, glorot_uniform, ones, scaled_normal, zeros


class Leafy(Layer):
    def __init__(self) -> None:
        self.weight = Parameter((3, 4), glorot_uniform)
        self.bias = Parameter((4,), zeros)


class Tree(Layer):
    def __init__(self) -> None:
        self.embedding = Parameter((70, 3), scaled_normal)
        self.layers = [Leafy(), Leafy()]
        self.shared = self.embedding
        self.gain = Parameter((4,), ones)


def test_names_are_paths_and_shared_parameters_appear_once() -> None:
    assert [name for name, _ in named_parameters(Tree())] == [
        "embedding", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "gain",
    ]  # fmt: skip


def test_parameters_are_aligned_views_in_reverse_order() -> None:
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1)
    offsets = [parameter.offset for parameter in buffer.named.values()]
    assert offsets == sorted(offsets, reverse=True)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert all(np.shares_memory(p.value, buffer.values) for p in buffer.named.values())
    buffer.values[:] = 7
    assert (tree.embedding.value == 7).all()
    assert buffer.n_parameters == 70 * 3 + 2 * 16 + 4


def test_initial_values_depend_on_seed_and_name_alone() -> None:
    first, again, other = (ParameterBuffer(Tree(), seed=seed, dtype="float64") for seed in (1, 1, 2))
    single = ParameterBuffer(Tree(), seed=1, dtype="float32")
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.values.astype(np.float32), single.values)
    assert (first.named["embedding"].value != other.named["embedding"].value).all()
    assert (first.named["layers.0.weight"].value != first.named["layers.1.weight"].value).all()
    assert not ParameterBuffer(Tree(), seed=None).values.any()


def test_initial_distributions() -> None:
    class Wide(Layer):
        def __init__(self) -> None:
            self.matrix = Parameter((200, 400), glorot_uniform)
            self.table = Parameter((1000, 64), scaled_normal)

    named = ParameterBuffer(Wide(), seed=3, dtype="float64").named
    limit = np.sqrt(6 / 600)
    assert np.abs(named["matrix"].value).max() <= limit
    assert abs(named["matrix"].value.std() - limit / np.sqrt(3)) < 0.001
    assert abs(named["table"].value.std() - 1 / 8) < 0.002


def test_backward_fills_the_buffer_or_another_one() -> None:
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1, dtype="float64")
    elsewhere = np.full_like(buffer.gradients, 5)

    def loss() -> Tensor:
        return ops.sum(tree.gain * 2.0 + tree.gain * tree.gain)

    backward(loss(), into=elsewhere)
    assert not buffer.gradients.any()
    np.testing.assert_array_equal(tree.gain.view_of(elsewhere), np.full(4, 4.0))
    backward(loss())
    np.testing.assert_array_equal(tree.gain.grad, np.full(4, 4.0))


@pytest.mark.parametrize("also", [False, True])
def test_a_pending_gradient_replaces_what_a_buffer_held_and_adds_to_what_it_got(also: bool) -> None:
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1, dtype="float64")
    elsewhere = np.full_like(buffer.gradients, 5)
    loss = ops.sum(ops.embedding(tree.embedding, np.array([0, 69, 69])))
    backward(loss + ops.sum(tree.embedding) if also else loss, into=elsewhere)
    expected = np.full((70, 3), float(also))
    expected[[0, 69]] += [[1], [2]]
    np.testing.assert_array_equal(tree.embedding.view_of(elsewhere), expected)


def test_a_parameter_outside_a_buffer_cannot_receive_a_gradient() -> None:
    parameter = Parameter((2,), ones)
    with pytest.raises(ValueError, match="after a ParameterBuffer was made"):
        backward(ops.sum(parameter * 1.0))


def test_a_parameter_lies_in_one_buffer_alone() -> None:
    tree = Tree()
    ParameterBuffer(tree, seed=1)
    with pytest.raises(ValueError, match="ParameterBuffer: embedding lies in another buffer already"):
        ParameterBuffer(tree, seed=2)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_have_64_bits(seed: int) -> None:
    with pytest.raises(ValueError, match=r"a seed must be in \[0, 2⁶⁴\); got"):
        ParameterBuffer(Tree(), seed=seed)
    with pytest.raises(ValueError, match=r"a seed must be in \[0, 2⁶⁴\); got"):
        RandomStream(seed)


def test_gradients_take_no_memory_before_somebody_asks_for_them() -> None:
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1)
    assert all(parameter.grad is None for parameter in buffer.named.values())
    backward(ops.sum(next(iter(buffer.named.values())) * 2.0))
    assert buffer.gradients.sum() == 2 * next(iter(buffer.named.values())).size
    assert all(np.shares_memory(parameter.grad, buffer.gradients) for parameter in buffer.named.values())


def textbook_adam(gradients: list[Any], rates: list[float], theta: Any) -> Any:
    m = v = 0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        theta = theta - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
    return theta


def test_adam_is_the_textbooks_whole_or_in_parts() -> None:
    random = np.random.default_rng(0)
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1, dtype="float64")
    start, adam = buffer.values.copy(), Adam(buffer)
    gradients = [random.standard_normal(buffer.values.shape) for _ in range(5)]
    rates = [0.1, 0.2, 0.05, 0.3, 0.1]
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        buffer.gradients[:] = gradient
        for within in (slice(0, 100), slice(100, None)):
            adam.update(adam.scalars(rate, step), np.float64(1), within)
    np.testing.assert_allclose(buffer.values, textbook_adam(gradients, rates, start), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", [1, 7, 65_536, 140_001])
def test_adam_kernel_equals_its_reference(size: int) -> None:
    random = np.random.default_rng(size)
    arrays = [np.abs(random.standard_normal(size)).astype(np.float32) for _ in range(4)]
    fast, slow = [x.copy() for x in arrays], [x.copy() for x in arrays]
    static, scalars = {"beta1": 0.9, "beta2": 0.98, "eps": 0.1}, np.array([1, 0.01, 0.3])
    for scale in map(np.float64, (0.37, 1)):
        adam_update(*fast, None, scalars, scale, **static)
        adam_update.reference(*slow, None, scalars, scale, **static)
    assert adam_update.choose((*fast, None, scalars, scale), static) is not adam_update.reference
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("run", [adam_update, adam_update.reference])
def test_adam_changes_nothing_with_a_scale_of_zero(run: Any) -> None:
    arrays = list(np.random.default_rng(1).random((4, 300)))
    arrays[1][7] = np.nan
    before = [x.tobytes() for x in arrays]
    run(*arrays, None, np.ones(3), np.float64(0), beta1=0.9, beta2=0.98, eps=1e-9)
    assert [x.tobytes() for x in arrays] == before


@pytest.mark.parametrize(("max_norm", "scale"), [(np.inf, 0.25), (10, 0.25), (1.25, 0.25), (0.5, 0.1)])
def test_a_gradient_is_divided_by_its_tokens_and_clipped(max_norm: float, scale: float) -> None:
    squares, scalars = sum_squares(np.array([3.0, 4.0])), np.array([1 / 4, 0, 0])
    assert gradient_norm(np.array([3.0, 4.0])) == 5
    np.testing.assert_allclose(clip(squares, np.float64(7), scalars, max_norm=max_norm), [7, 1.25, scale])


@pytest.mark.parametrize("loss", [1.0, np.nan, np.inf])
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
@pytest.mark.parametrize("max_norm", [0.5, np.inf])
def test_numbers_that_are_not_finite_have_a_scale_of_zero(value: float, loss: float, max_norm: float) -> None:
    squares = sum_squares(np.array([3.0, value, 4.0]))
    found_loss, norm, scale = clip(squares, np.float64(loss), np.ones(3), max_norm=max_norm)
    assert (scale > 0) == (value == loss == 1)
    assert np.isfinite(norm) == (value == 1)
    np.testing.assert_array_equal(found_loss, loss)


def test_parameters_are_read_and_differentiated_in_the_memory_that_the_caller_allocates() -> None:
    asked: list[Any] = []

    def allocate(n: int, dtype: Any) -> tuple[Any, Any]:
        asked.append((n, dtype))
        return values[:n], gradients[:n]

    values, gradients = np.zeros((2, 10_000), np.float32)
    buffer = ParameterBuffer(Tree(), seed=1, allocate=allocate)
    usual = ParameterBuffer(Tree(), seed=1)
    assert asked == [(len(usual.values), np.float32)]
    np.testing.assert_array_equal(buffer.values, usual.values)
    for parameter in buffer.named.values():
        assert np.shares_memory(parameter.value, values)
        backward(ops.sum(parameter))
        assert np.shares_memory(parameter.grad, gradients)
        assert (parameter.grad == 1).all()
    assert np.shares_memory(buffer.gradients, gradients)


@pytest.mark.parametrize("cut", [0, 1, 7, 99, 100, 101])
def test_the_norm_has_the_same_bits_however_the_gradient_is_divided(cut: int) -> None:
    gradients = np.random.default_rng(3).standard_normal(100 * ALIGNMENT + 5, np.float32)
    assert gradient_norm(gradients) == pytest.approx(np.linalg.norm(gradients.astype(np.float64)), rel=1e-6)
    of_shards = [sum_squares(shard) for shard in np.split(gradients, [cut * ALIGNMENT])]
    np.testing.assert_array_equal(np.concatenate(of_shards), sum_squares(gradients))
