"""Table 1: the layers that are compared, and the instruments that compare them."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from autograd import ParameterBuffer, Segments, Tensor, named_parameters, ops
from autograd.testing import check_gradients
from minitransformer.extras.paper.complexity import layers, measures
from minitransformer.extras.paper.complexity.layout import HEADINGS, as_json, cells, markdown
from minitransformer.extras.paper.complexity.table import LAYER_TYPES, Growth, Row, Sizes, measure_row, sweeps
from minitransformer.model.masks import self_attention_mask


def made(layer: Any) -> Any:
    buffer = ParameterBuffer(layer, seed=1, dtype="float64")
    buffer.values[...] = np.random.default_rng(2).standard_normal(buffer.values.shape)
    return layer


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_the_recurrent_layer_is_an_lstm_step_by_step() -> None:
    layer, x = made(layers.Recurrent(3)), numbers(2, 5, 3)
    h = c = np.zeros((2, 3))
    for t in range(5):
        gates = x[:, t] @ layer.input.value + h @ layer.recurrent.value + layer.bias.value
        i, f, g, o = np.split(gates, 4, axis=1)
        c = logistic(f) * c + logistic(i) * np.tanh(g)
        h = logistic(o) * np.tanh(c)
    np.testing.assert_allclose(layer.forward(x).value, h, rtol=1e-12)


def test_after_as_many_steps_as_positions_the_recurrence_is_complete() -> None:
    layer, x = made(layers.Recurrent(3)), numbers(1, 6, 3)
    after = layer.after(6, Tensor(x[0])).value
    for n in range(1, 7):
        np.testing.assert_allclose(after[n - 1], layer.forward(x[:, :n]).value[0], rtol=1e-12)
    assert not np.allclose(layer.after(5, Tensor(x[0])).value[-1], after[-1])


@pytest.mark.parametrize("dilation", [1, 3])
def test_convolution_sums_over_its_kernel_within_each_sentence(dilation: int) -> None:
    layer, x = made(layers.Convolutional(3, 2, growth=dilation)), numbers(3, 7, 3)
    kernel = layer.weight.value.reshape(2, 3, 3)

    def convolved(x: Any, dilation: int) -> Any:
        before = np.concatenate([np.zeros((dilation, 3)), x[:-dilation]])
        return x @ kernel[0] + before @ kernel[1]

    once = np.concatenate([convolved(sentence, 1) for sentence in x])
    np.testing.assert_allclose(layer.forward(x).value, once, rtol=1e-12)
    twice = convolved(convolved(x[0], 1), dilation)
    np.testing.assert_allclose(layer.after(2, Tensor(x[0])).value, twice, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 11])
def test_attention_in_windows_is_masked_attention(n: int) -> None:
    x, sentences = numbers(2, n, 3), Segments.of_lengths([n, n])
    heads = x.reshape(2 * n, 1, 3)
    masked = ops.attention(heads, heads, heads, mask=self_attention_mask(sentences, 4)).value
    np.testing.assert_allclose(layers.RestrictedSelfAttention(4).forward(x).value, masked.reshape(-1, 3), rtol=1e-12)
    whole = ops.attention(heads, heads, heads, mask=self_attention_mask(sentences)).value
    np.testing.assert_allclose(layers.SelfAttention().forward(x).value, whole.reshape(-1, 3), rtol=1e-12)


LAYERS = {
    "recurrent": lambda: made(layers.Recurrent(2)), "convolutional": lambda: made(layers.Convolutional(2, 3)),
    "dilated": lambda: made(layers.Convolutional(2, 2, growth=2)),
    "restricted": lambda: layers.RestrictedSelfAttention(2),
    "self-attention": layers.SelfAttention,
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_every_layer(name: str) -> None:
    layer = LAYERS[name]()
    parameters = dict(named_parameters(layer))
    check_gradients(lambda x: layer.after(2, x), numbers(5, 2), leaves=parameters, name=name)
    if parameters:
        x = numbers(2, 4, 2)
        check_gradients(lambda: layer.forward(x), leaves=parameters, name=f"{name}, forward")


def test_multiply_adds_are_those_of_the_formulas() -> None:
    b, n, d = 3, 12, 8
    for layer, per_position in (
        (layers.SelfAttention(), n * 2 * d), (layers.RestrictedSelfAttention(4), 3 * 4 * 2 * d),  # blocks as the widest
        (made(layers.Recurrent(d)), 8 * d * d), (made(layers.Convolutional(d, 5)), 5 * d * d),
    ):  # fmt: skip
        assert measures.multiply_adds(layer, numbers(b, n, d)) == b * n * per_position


def test_chains_grow_with_the_length_in_a_recurrence_only() -> None:
    for name, build in LAYERS.items():
        short, long = (measures.longest_chain(build().forward(numbers(1, n, 2))) for n in (4, 8))
        assert (short, long) == (44, 88) if name == "recurrent" else short == long, name


@pytest.mark.parametrize("n", [2, 9, 33])
def test_paths_are_as_long_as_theory_says(n: int) -> None:
    by_fours = -(-(n - 1) // 4)
    assert [measures.reaches(made(layers.Recurrent(2)), steps, n, 2) for steps in (1, n - 1, n)] == [False, False, True]
    for layer, length in (
        (layers.SelfAttention(), 1), (layers.RestrictedSelfAttention(4), by_fours), (made(layers.Recurrent(2)), n),
        (made(layers.Convolutional(2, 5)), by_fours),
        (made(layers.Convolutional(2, 2, growth=2)), int(np.ceil(np.log2(n)))),
    ):  # fmt: skip
        assert measures.path_length(layer, n, 2) == length


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    convolutional = sweeps(1, (16, 8, 3), n=(16, 32), d=(8, 16), k=(3, 6))
    small = (
        sweeps(1, (16, 8, 0), n=(16, 32), d=(64, 128)), sweeps(1, (8, 8, 0), n=(8, 16), d=(8, 16)), convolutional,
        convolutional, sweeps(1, (64, 64, 4), n=(64, 128), r=(4, 8), d=(64, 128)),
    )  # fmt: skip
    return [
        measure_row(dataclasses.replace(layer_type, sweeps=sizes), 1, (16, 64))
        for layer_type, sizes in zip(LAYER_TYPES, small, strict=True)
    ]


def test_counted_powers_are_the_claimed_ones_which_sweeps_vary(rows: list[Row]) -> None:
    assert measures.exponent([8, 16, 64], [3 * 8**1.5, 3 * 16**1.5, 3 * 64**1.5]) == pytest.approx(1.5)
    for layer_type in LAYER_TYPES:
        assert {sweep.variable for sweep in layer_type.sweeps} == set(layer_type.powers)
        assert all(len(sweep.sizes) >= 3 for sweep in layer_type.sweeps)
    assert [row.type.complexity for row in rows] == ["n² · d", "n · d²", "k · n · d²", "k · n · d²", "r · n · d"]
    for row in rows:
        counted = {growth.variable: growth.count_exponent for growth in row.growths}
        assert counted == pytest.approx(row.type.powers, abs=0.02)
        assert all(seconds > 0 for growth in row.growths for seconds in growth.seconds)


def test_cells_stand_in_the_papers_order() -> None:
    growths = tuple(
        Growth(variable, (8, 16), Sizes(1, 8, 8, 0), (1.0, 2.0**time), (1, 2**count))
        for variable, time, count in (("d", 1.1, 1), ("n", 1.9, 2))
    )
    row = Row(LAYER_TYPES[0], growths, {16: 179, 64: 707}, {16: 1, 64: 1})
    assert dict(zip(HEADINGS, cells(row), strict=True)) == {
        "Layer type": "Self-Attention",
        "Complexity per layer": "O(n² · d)",
        "multiply-adds": "n^2.00 · d^1.00",
        "time": "n^1.90 · d^1.10",
        "Sequential operations": "O(1)",
        "longest chain": "11 n + 3",
        "Maximum path length": "O(1)",
        "paths": "1, 1",
    }


def test_the_table_is_markdown_and_json(rows: list[Row]) -> None:
    lines = markdown(rows).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 2 + len(LAYER_TYPES)
    parsed = json.loads(json.dumps(as_json(rows, code="abc")))
    assert parsed["code"] == "abc"
    assert [row["layer_type"] for row in parsed["rows"]] == [row.type.name for row in rows]
    assert parsed["rows"][1]["longest_chain"] == {"16": 176, "64": 704}
