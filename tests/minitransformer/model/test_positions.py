"""Positional encodings against the formulas of section 3.5 and of tensor2tensor, worked out to 50 digits."""

import dataclasses
import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from autograd import ParameterBuffer, Tensor
from minitransformer import ModelConfig
from minitransformer.model import positions
from minitransformer.model.positions import PositionError, positions_of, sinusoids

CONFIG = ModelConfig(vocabulary_size=9, d_model=4, d_ff=5, n_heads=2, d_k=3, d_v=2)
LAYOUTS = ["interleaved", "halves"]
D_MODEL, LAST = 512, 10_000
SAMPLE = [0, 1, 2, 3, 31, 256, 511, 512, 1_023, 4_096, 7_919, LAST - 1, LAST]

PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923")
HALF_ULP = 2.0**-53


def sine_and_cosine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Their Taylor series, within 10⁻⁴⁵ for angles up to 10,000."""
    angle = angle.remainder_near(2 * PI)
    sums, term = [Decimal(1), Decimal(0)], Decimal(1)
    for n in range(1, 64):
        term = term * angle / n
        sums[n % 2] += -term if n % 4 >= 2 else term
    return sums[1], sums[0]


def exponent(i: int, layout: str, d_model: int) -> tuple[int, int]:
    """Pair i of a sine and a cosine has the wavelength 2π · 10000^exponent: numerator and denominator."""
    return (2 * i, d_model) if layout == "interleaved" else (i, d_model // 2 - 1)


def columns(i: int, layout: str, d_model: int) -> tuple[int, int]:
    """Where the sine and the cosine of pair i stand."""
    return (2 * i, 2 * i + 1) if layout == "interleaved" else (i, d_model // 2 + i)


def exact(layout: str) -> tuple[Any, Any]:
    """Encodings of the sample, correctly rounded to float64, and the error that float64 arithmetic may make in each.

    An angle is a product of its position and 10000^−e: rounding e moves it by ln(10000) · e half units in the last
    place, the power and the product by one each (a good power is right to one unit); its sine moves no more than it.
    """
    table, allowed = np.zeros((2, len(SAMPLE), D_MODEL))
    with localcontext(prec=50):
        for i in range(D_MODEL // 2):
            numerator, denominator = exponent(i, layout, D_MODEL)
            frequency = Decimal(10_000) ** (-Decimal(numerator) / denominator)
            pair = columns(i, layout, D_MODEL)
            for row, position in enumerate(SAMPLE):
                angle = position * frequency
                table[row, pair] = [float(x) for x in sine_and_cosine(angle)]
                moved = math.log(10_000) * numerator / denominator + 3
                allowed[row, pair] = (float(angle) * moved + 4) * HALF_ULP
    return table, allowed


def test_the_series_knows_the_sine_of_30_degrees() -> None:
    with localcontext(prec=50):
        for turns in (0, 1, 1_500):
            sine, cosine = sine_and_cosine(PI / 6 + 2 * PI * turns)
            assert abs(sine - Decimal("0.5")) < Decimal("1e-45")
            assert abs(cosine - Decimal(3).sqrt() / 2) < Decimal("1e-45")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sinusoids_are_those_of_the_formula_up_to_position_10000(layout: Any) -> None:
    """In float64, and rounded to the float32 of a model."""
    expected, allowed = exact(layout)
    got = sinusoids(LAST + 1, D_MODEL, layout)[SAMPLE]
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= allowed).all()
    encoding = positions_of(dataclasses.replace(CONFIG, d_model=D_MODEL, positions=layout))
    nothing = Tensor(np.zeros((len(SAMPLE), D_MODEL), np.float32))
    got = encoding.add_to(nothing, np.array(SAMPLE)).value
    assert got.dtype == np.float32
    rounding = np.spacing(np.abs(expected).astype(np.float32)) / 2
    assert (np.abs(got - expected) <= rounding + allowed).all()
    positions._table.cache_clear()  # large tables are not kept


def shift_by(offset: int, layout: str, d_model: int) -> Any:
    """M_k of section 3.5: a rotation in the plane of every sine and its cosine, by k times their frequency."""
    matrix = np.zeros((d_model, d_model))
    for i in range(d_model // 2):
        numerator, denominator = exponent(i, layout, d_model)
        angle = offset / 10_000 ** (numerator / denominator)
        pair = columns(i, layout, d_model)
        matrix[np.ix_(pair, pair)] = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    return matrix


@pytest.mark.parametrize("offset", [1, 2, 17, 4_999])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_matrix_shifts_every_position_by_an_offset(layout: str, offset: int) -> None:
    """ "For any fixed offset k, PE_{pos+k} can be represented as a linear function of PE_pos." """
    table = sinusoids(1_000 + offset, D_MODEL, layout)
    shifted = table[:1_000:10] @ shift_by(offset, layout, D_MODEL).T
    np.testing.assert_allclose(shifted, table[offset::10], rtol=0, atol=1e-11)


def ready(**fields: Any) -> Any:
    encoding = positions_of(dataclasses.replace(CONFIG, **fields))
    ParameterBuffer(encoding, seed=1, dtype="float64")
    return encoding


@pytest.mark.parametrize("first_position", [0, 1, 2])
def test_the_first_position_is_as_configured_and_a_learned_table_has_an_end(first_position: int) -> None:
    x, last = np.random.default_rng(1).standard_normal((3, 4)), 3 - first_position
    for layout in LAYOUTS:
        encoding = ready(positions=layout, first_position=first_position)
        rows = sinusoids(9, 4, layout)[[first_position, 5 + first_position, 1 + first_position]]
        np.testing.assert_array_equal(encoding.add_to(Tensor(x), np.array([0, 5, 1])).value, x + rows)
    learned = ready(positions="learned", max_positions=4, first_position=first_position)
    rows = learned.weight.value[[first_position, 3, first_position]]
    np.testing.assert_array_equal(learned.add_to(Tensor(x), np.array([0, last, 0])).value, x + rows)
    message = rf"sentence of {last + 2} tokens is longer .* holds {last + 1} \(max_positions\)"
    with pytest.raises(PositionError, match=message):
        learned.add_to(Tensor(x), np.array([0, last + 1, 0]))
