"""Storage in bfloat16 and computation in float32: operations, gradients, parameters."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import AXES, Draw
from op_cases import CASES, OpCase, is_float
from saved_arrays import saved_arrays

from autograd import DeviceError, Layer, Parameter, ParameterBuffer, Tensor, backward, ops
from autograd.op import Dispatch, Operation, operations
from autograd.optim import Adam, adam_update
from autograd.parameters import ALIGNMENT, glorot_uniform, ones, scaled_normal
from autograd.precision import as_gradient_of, dtype_named, in_float32, is_16_bit, rounded, upcast
from autograd.tensor import PendingGradient, gradient_array, put

BF16 = dtype_named("bfloat16")
RANDOM = np.random.default_rng(1)


def draw(*shape: int) -> Any:
    return rounded(RANDOM.standard_normal(shape).astype(np.float32))


# The type.


def test_only_numbers_of_sixteen_bits_are_widened() -> None:
    for x in (np.ones(2), np.ones(2, np.float32), np.ones(2, np.uint16), np.zeros(2, "V2"), None, 3.0, [1.0]):
        assert not is_16_bit(x)
        assert upcast(x) is x
    for x in (draw(2), np.ones(2, np.float16)):
        assert is_16_bit(x)
        assert upcast(x).dtype == np.float32


def test_without_ml_dtypes_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DeviceError, match=r'precision "bfloat16" needs ml_dtypes, .*pip install ml_dtypes, or use'):
        ParameterBuffer(Weights(), seed=1, dtype="bfloat16")


def test_nobody_imports_ml_dtypes_who_does_not_ask_for_bfloat16() -> None:
    code = """if True:
        import sys, autograd, minitransformer
        from minitransformer import Batch, ModelConfig, Transformer
        config = ModelConfig(vocabulary_size=9, n_layers=1, d_model=4, d_ff=4, n_heads=2, d_k=2, d_v=2)
        autograd.backward(Transformer(config).loss(Batch.from_token_ids([[3]], [[4]])))
        print('ml_dtypes' in sys.modules)
    """
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# Operations.


@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float16)], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_operation_gives_what_it_gives_in_float32_rounded(case: OpCase, dtype: Any) -> None:
    drawn = Draw(np.random.default_rng(2), dict.fromkeys(AXES, 3))
    arrays, static = case.arguments(drawn), case.static(drawn)
    arguments, wide_arguments = (
        [Tensor(convert(x.astype(dtype))) if is_float(x) else x for x in arrays] for convert in (np.asarray, upcast)
    )
    result, wide_result = (operations[case.op](*these, **static) for these in (arguments, wide_arguments))
    dy = np.asarray(np.random.default_rng(3).standard_normal(result.shape)).astype(dtype)
    stored = dtype if result.shape else np.float32
    backward(result, dy.astype(stored))
    backward(wide_result, dy.astype(np.float32))
    assert result.dtype == stored
    np.testing.assert_array_equal(upcast(result.value), wide_result.value.astype(stored).astype(np.float32))
    for x, wide in zip(arguments, wide_arguments, strict=True):
        if isinstance(x, Tensor):
            assert x.grad.dtype == dtype
            np.testing.assert_array_equal(upcast(x.grad), upcast(rounded(wide.grad, dtype)))


def test_gradients_that_meet_are_added_as_they_are_stored() -> None:
    x = Tensor(draw(3, 4))
    twice = x * 2.0
    backward(ops.sum(twice * twice + twice))
    assert is_16_bit(x.grad)
    np.testing.assert_allclose(upcast(x.grad), 8 * upcast(x.value) + 2, rtol=2**-6)


def test_what_only_moves_keeps_nothing_and_rounds_nothing() -> None:
    x = Tensor(draw(2, 6))
    moved = ops.transpose(ops.reshape(x, shape=(3, 4)))
    assert np.shares_memory(moved.value, x.value)
    assert saved_arrays(moved) == {}


@pytest.mark.parametrize("takes", [True, False])
def test_a_kernel_gets_bfloat16_if_it_says_that_it_takes_it(takes: bool) -> None:
    def of_dtype(name: str) -> Any:
        return lambda x: (np.zeros(2, np.float32), lambda dy: (name, x.dtype))

    operation = Operation(of_dtype("reference"))
    operation.kernel("cpu", supports=lambda x: len(x) == 2, takes_16_bits=takes)(of_dtype("kernel"))
    assert operation.of_arrays(draw(2).astype(np.float32))[1](None) == ("kernel", np.float32)
    if takes:
        assert operation.of_arrays(draw(2))[1](None) == ("kernel", BF16)
    else:
        chosen: Any = operation.choose((draw(2),), {})
        assert chosen.func is in_float32
    assert Dispatch.choose(operation, (draw(2),), {}) is operation.kernels[0].run


def test_a_gradient_of_bfloat16_is_rounded_only_where_its_destination_is() -> None:
    like, out, outs = draw(3, 4), np.full((3, 4), 7, np.float32), list[Any]()

    def into(out: Any, add: bool) -> None:
        outs.append(out)
        put(np.float32(1.00390625), out, add)

    pending = PendingGradient((3, 4), np.empty(0, np.float32), into, is_deferred=True)
    gradient = as_gradient_of(like, pending)
    assert gradient.is_deferred
    assert as_gradient_of(out, pending) is pending
    gradient.into(out, False)
    gradient.into(out, True)
    assert all(place is out for place in outs)
    assert (out == 2 * 1.00390625).all()
    array = gradient_array(gradient)
    assert is_16_bit(array)
    assert (upcast(array) == 1).all()
    gradient.into(array, True)
    assert (upcast(array) == 2).all()
    as_gradient_of(like, np.full((3, 4), 1.00390625, np.float32)).into(out, True)
    assert (out == 3 * 1.00390625).all()


# Parameters.


class Weights(Layer):
    def __init__(self) -> None:
        self.table = Parameter((7, 30), scaled_normal)
        self.matrix = Parameter((30, 20), glorot_uniform)
        self.gain = Parameter((20,), ones)


def in_step(buffer: ParameterBuffer) -> bool:
    assert buffer.values.dtype == np.float32
    assert is_16_bit(buffer.low_precision)
    return bool((upcast(buffer.low_precision) == upcast(rounded(buffer.values))).all())


def test_parameters_are_float32_with_copies_that_operations_read() -> None:
    buffer, single = ParameterBuffer(Weights(), seed=1, dtype="bfloat16"), ParameterBuffer(Weights(), seed=1)
    np.testing.assert_array_equal(buffer.values, single.values)
    assert in_step(buffer)
    assert single.low_precision is None
    buffer.values += 1
    assert not in_step(buffer)
    buffer.refresh_low_precision()
    assert in_step(buffer)


def test_gradients_of_parameters_are_not_rounded() -> None:
    buffer = ParameterBuffer(weights := Weights(), seed=1, dtype="bfloat16")
    x, dy = draw(9, 30), draw(9, 20)
    backward(ops.linear(Tensor(x), weights.matrix, weights.gain), dy)
    assert buffer.gradients.dtype == np.float32
    np.testing.assert_array_equal(weights.matrix.grad, upcast(x).T @ upcast(dy))
    np.testing.assert_allclose(weights.gain.grad, upcast(dy).sum(0), rtol=1e-6)
    backward(ops.embedding(weights.table, np.array([2, 2, 0])), dy := draw(3, 30))
    np.testing.assert_array_equal(weights.table.grad[2], upcast(dy)[:2].sum(0))


@pytest.mark.parametrize("implementation", ["reference", "kernel"])
def test_adam_keeps_copies_in_step_whole_or_in_parts(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if implementation == "reference":
        monkeypatch.setattr(adam_update, "kernels", [])
    buffer, single = ParameterBuffer(Weights(), seed=1, dtype="bfloat16"), ParameterBuffer(Weights(), seed=1)
    for these in (buffer, single):
        adam = Adam(these)
        for step in (1, 2):
            these.gradients[...] = np.random.default_rng(step).standard_normal(these.values.size)
            for within in (slice(0, ALIGNMENT), slice(ALIGNMENT, None)):
                adam.update(adam.scalars(0.01, step), np.float64(1), within)
    np.testing.assert_array_equal(buffer.values, single.values)
    assert in_step(buffer)
