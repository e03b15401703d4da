"""The flat buffer of parameters and gradients."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autograd import Layer, Parameter, ParameterBuffer, RandomStream, Tensor, backward, named_parameters, ops
from autograd.parameters import ALIGNMENT, Buckets, backward_in_buckets, glorot_uniform, ones, scaled_normal, zeros


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
    names = "embedding layers.0.weight layers.0.bias layers.1.weight layers.1.bias gain"
    assert [name for name, _ in named_parameters(Tree())] == names.split()


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
    layer = Layer()
    layer.matrix, layer.table = Parameter((200, 400), glorot_uniform), Parameter((1000, 64), scaled_normal)
    named, limit = ParameterBuffer(layer, seed=3, dtype="float64").named, np.sqrt(6 / 600)
    assert np.abs(named["matrix"].value).max() <= limit
    assert abs(named["matrix"].value.std() - limit / np.sqrt(3)) < 0.001
    assert abs(named["table"].value.std() - 1 / 8) < 0.002


@pytest.mark.parametrize("also", [False, True])
def test_a_pending_gradient_replaces_what_another_buffer_held_and_adds_to_what_it_got(also: bool) -> None:
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1, dtype="float64")
    elsewhere = np.full_like(buffer.gradients, 5)
    loss = ops.sum(ops.embedding(tree.embedding, np.array([0, 69, 69])))
    backward(loss + ops.sum(tree.embedding) if also else loss, into=elsewhere)
    expected = np.full((70, 3), float(also))
    expected[[0, 69]] += [[1], [2]]
    np.testing.assert_array_equal(tree.embedding.view_of(elsewhere), expected)
    assert not buffer.gradients.any()
    for unused in (tree.gain, tree.layers[1].weight):
        assert not unused.view_of(elsewhere).any()


def test_a_parameter_that_the_result_does_not_use_has_gradient_0() -> None:
    """Also after an earlier call, so Adam does not go on with an old gradient."""
    tree = Tree()
    buffer = ParameterBuffer(tree, seed=1, dtype="float64")
    backward(ops.sum(tree.gain * 2.0) + ops.sum(tree.embedding))
    backward(ops.sum(tree.embedding))
    np.testing.assert_array_equal(tree.gain.grad, np.zeros(4))
    assert buffer.gradients.sum() == tree.embedding.size


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_parameters_of_a_copy_are_views_of_its_own_buffer(copied: Callable[[Tree], Tree], dtype: str) -> None:
    tree = Tree()
    tree.buffer = ParameterBuffer(tree, seed=1, dtype=dtype)
    backward(ops.sum(tree.gain * 2.0))
    other = copied(tree)
    other.buffer.values[...] = 3
    other.buffer.refresh_low_precision()
    backward(ops.sum(other.gain * 5.0))
    for leaf, value, gradient in ((tree.gain, 1, 2), (other.gain, 3, 5)):
        assert (leaf.value.tolist(), leaf.grad.tolist()) == ([value] * 4, [gradient] * 4)
    assert (other.buffer.gradients.sum(), other.buffer.named["gain"]) == (20, other.gain)
    assert (other.embedding.value == 3).all()


def test_a_parameter_has_a_gradient_in_a_buffer_and_lies_in_one_alone() -> None:
    with pytest.raises(ValueError, match="after a ParameterBuffer was made"):
        backward(ops.sum(Parameter((2,), ones) * 1.0))
    tree = Tree()
    ParameterBuffer(tree, seed=1)
    with pytest.raises(ValueError, match="ParameterBuffer: embedding lies in another buffer already"):
        ParameterBuffer(tree, seed=2)


class Chain(Layer):
    """Maps of which the first is also the last, and a parameter that the result does not depend on."""

    def __init__(self) -> None:
        self.shared, self.unused = Parameter((64, 64), glorot_uniform), Parameter((3,), ones)
        self.maps = [Parameter((64, 64), glorot_uniform) for _ in range(4)]

    def __call__(self, x: Any) -> Tensor:
        for weight in (self.shared, *self.maps, self.shared):
            x = x @ weight
        return ops.sum(x)


def test_a_bucket_is_final_while_the_backward_pass_goes_on() -> None:
    """Buckets come in the order of the buffer, each with the gradients that it has in the end."""
    chain, x = Chain(), np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)
    buffer = ParameterBuffer(chain, seed=1)
    buffer.gradients[...] = np.nan
    size, calls = len(buffer.values), list[tuple[slice, Any, int]]()
    buckets = [slice(start, min(size, start + 3000)) for start in range(0, size, 3000)]

    def final(bucket: slice, wait: Any) -> None:
        n_maps = sum(bool(np.isfinite(weight.grad).all()) for weight in chain.maps)
        calls.append((bucket, buffer.gradients[bucket].copy(), n_maps))

    backward_in_buckets(chain(x), buffer, buffer.gradients, Buckets(buckets, final))
    assert [bucket for bucket, *_ in calls] == buckets
    assert [n_maps for *_, n_maps in calls] == [1, 2, 3, 3, 4, 4, 4]
    for bucket, gradients, _ in calls:
        np.testing.assert_array_equal(gradients, buffer.gradients[bucket])


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_are_read_and_differentiated_in_the_memory_that_the_caller_allocates(dtype: str) -> None:
    """In bfloat16 the copies of matrices are read."""
    asked: list[Any] = []

    def allocate(n: int, dtype: Any) -> tuple[Any, Any]:
        asked.append((n, dtype))
        return values[:n], gradients[:n]

    values, gradients = np.zeros((2, 10_000), np.float32)
    buffer = ParameterBuffer(Tree(), seed=1, dtype=dtype, allocate=allocate)
    usual = ParameterBuffer(Tree(), seed=1, dtype=dtype)
    assert asked == [(len(usual.values), np.float32)]
    np.testing.assert_array_equal(buffer.values, usual.values)
    for name, parameter in buffer.named.items():
        np.testing.assert_array_equal(parameter.value, usual.named[name].value, strict=True)
        has_copy = dtype == "bfloat16" and parameter.value.ndim > 1
        assert np.shares_memory(parameter.value, buffer.low_precision if has_copy else values)
        backward(ops.sum(parameter))
        assert np.shares_memory(parameter.grad, gradients)
        assert (parameter.grad == 1).all()
    assert np.shares_memory(buffer.gradients, gradients)
