"""The flat buffer, Adam on it, and the gradient's norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer, RandomStream, Tensor, backward, named_parameters, ops
from autograd.optim import Adam, adam_update, clip_gradients, gradient_norm
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
        adam.update(rate, step, slice(0, 100))
        adam.update(rate, step, slice(100, None))
    np.testing.assert_allclose(buffer.values, textbook_adam(gradients, rates, start), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", [1, 7, 65_536, 140_001])
def test_adam_kernel_equals_its_reference(size: int) -> None:
    random = np.random.default_rng(size)
    arrays = [np.abs(random.standard_normal(size)).astype(np.float32) for _ in range(4)]
    fast, slow = [x.copy() for x in arrays], [x.copy() for x in arrays]
    static = {"step_size": 0.01, "beta1": 0.9, "beta2": 0.98, "variance_correction": 0.3, "eps": 0.1}
    adam_update(*fast, **static)
    adam_update.reference(*slow, **static)
    assert adam_update.choose(tuple(fast), static) is not adam_update.reference
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_norm_and_clipping() -> None:
    gradients = np.array([3.0, 4.0])
    assert gradient_norm(gradients) == 5
    assert clip_gradients(gradients, 10) == 5
    np.testing.assert_array_equal(gradients, [3, 4])
    assert clip_gradients(gradients, 1) == 5
    np.testing.assert_allclose(gradients, [0.6, 0.8])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_norm_that_is_not_finite_scales_nothing(value: float) -> None:
    gradients = np.array([3.0, value, 4.0])
    np.testing.assert_array_equal(clip_gradients(gradients, 1), value)
    np.testing.assert_array_equal(gradients, [3, value, 4])


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
def test_a_part_is_clipped_by_the_norm_of_the_whole_whose_bits_do_not_depend_on_the_division(cut: int) -> None:
    gradients = np.random.default_rng(3).standard_normal(100 * ALIGNMENT + 5, np.float32)
    norm = gradient_norm(gradients)
    assert norm == pytest.approx(np.linalg.norm(gradients.astype(np.float64)), rel=1e-6)
    parts, said = np.split(gradients.copy(), [cut * ALIGNMENT]), []

    def all_of(squares: Any) -> list[Any]:
        said.append(squares)
        return said

    for part in parts:
        gradient_norm(part, all_of)
    assert [clip_gradients(part, 1.0, lambda squares: said) for part in parts] == [norm, norm]
    np.testing.assert_array_equal(np.concatenate(parts), gradients * (1 / norm))
