"""Matrix products, alone and in stacks, by a stand-in for cuBLASLt on the CPU, or by cuBLASLt if there is a GPU."""

from typing import Any

import fake_cuda
import fake_streams
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder
from cuda_kernels import KERNELS, registered
from cuda_on_cpu import near

from autograd import Tensor, backward, ops, to_device, to_host
from autograd.array import namespace
from autograd.kernels.cuda import algorithms
from autograd.kernels.cuda.algorithms import class_of
from autograd.kernels.cuda.cublaslt import Matrix, Problem
from autograd.kernels.cuda.products import mask_shape, multiplied, product, stack_of, weight_gradients
from autograd.op import ShapeError
from autograd.precision import rounded, tf32_products, upcast
from autograd.tensor import gradient_array, wait_for_deferred_gradients

on_device = pytest.mark.usefixtures("device_products")
TYPES = [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32"),
         ("float16", "float16"), ("float16", "float32")]  # of factors, and of a product  # fmt: skip
in_all_types = pytest.mark.parametrize(("dtype", "dtype_out"), TYPES, ids=str)
N = 3  # products of a stack
SHAPES = [(1, 1, 1), (1, 5, 3), (3, 1, 5), (5, 3, 1), (7, 13, 9), (16, 8, 24), (33, 64, 17)]
STACKS = [((), shape) for shape in SHAPES] + [((N,), shape) for shape in SHAPES[::3]]

TOLERANCE = {"float32": 2e-6, "bfloat16": 4e-3, "float16": 5e-4}
MARGIN = 8  # rows and columns around every matrix


def draw(*shape: int, dtype: str = "float32") -> Any:
    """Draw numbers that a dtype can hold, in float64."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (pip install ml_dtypes)")
    numbers = np.random.default_rng(sum(shape)).standard_normal(shape)
    return numbers.astype(np.dtype(dtype)).astype(np.float64)


class Placed:
    """A matrix, or a stack of them in one array, each amid NaN: what is read beside it spoils sums."""

    def __init__(self, values: Any, dtype: str = "float32", *, transposed: bool = False) -> None:
        values = values.swapaxes(-1, -2) if transposed else values
        *stack, rows, columns = values.shape
        surroundings = np.full((*stack, rows + 2 * MARGIN, columns + 2 * MARGIN), np.nan).astype(np.dtype(dtype))
        self.inside = ..., slice(MARGIN, MARGIN + rows), slice(MARGIN, MARGIN + columns)
        surroundings[self.inside] = values
        self.surroundings = to_device(surroundings, "cuda")
        inside = self.surroundings[self.inside]
        self.array = inside.swapaxes(-1, -2) if transposed else inside

    @property
    def matrices(self) -> list[Any]:
        return [self.array[i] for i in range(len(self.array))]

    def values(self) -> Any:
        """Return the matrices in float64; fail if anything beside them has changed."""
        surroundings = to_host(self.surroundings).astype(np.float64)
        values = surroundings[self.inside].copy()
        surroundings[self.inside] = np.nan
        assert np.isnan(surroundings).all(), "a product wrote beside its result"
        return values


def nothing(*shape: int, dtype: str = "float32") -> Placed:
    return Placed(np.full(shape, np.nan), dtype)


def array(placed: Placed) -> Any:
    """Return the matrix, or the stack of matrices."""
    return placed.array if placed.array.ndim == 2 else stack_of(placed.matrices)


@on_device
@in_all_types
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize(("stack", "shape"), STACKS, ids=str)
def test_a_product_is_written_and_added(
    stack: tuple[int, ...], shape: tuple[int, int, int], transposed: tuple[bool, bool], dtype: str, dtype_out: str
) -> None:
    m, k, n = shape
    x, y = draw(*stack, m, k, dtype=dtype), draw(*stack, k, n, dtype=dtype)
    left, right = Placed(x, dtype, transposed=transposed[0]), Placed(y, dtype, transposed=transposed[1])
    out = nothing(*stack, m, n, dtype=dtype_out)
    product(array(left), array(right), array(out))
    near(out.values(), x @ y, TOLERANCE[dtype_out])
    before = out.values()
    product(array(left), array(right), array(out), add=True)
    near(out.values(), before + x @ y, TOLERANCE[dtype_out])
    near(left.values() if not transposed[0] else left.values().swapaxes(-1, -2), x, 0)


@on_device
@in_all_types
@pytest.mark.parametrize("stack", [(), (N,)], ids=str)
def test_a_product_is_written_to_a_transposed_matrix(stack: tuple[int, ...], dtype: str, dtype_out: str) -> None:
    x, y = draw(*stack, 7, 13, dtype=dtype), draw(*stack, 13, 9, dtype=dtype)
    out = nothing(*stack, 9, 7, dtype=dtype_out)
    factors = array(Placed(x, dtype)), array(Placed(y, dtype))
    product(*factors, array(out).swapaxes(-1, -2))
    product(*factors, array(out).swapaxes(-1, -2), add=True)
    near(out.values(), 2 * (x @ y).swapaxes(-1, -2), TOLERANCE[dtype_out])


@on_device
@in_all_types
def test_a_factor_of_a_stack_may_be_shared(dtype: str, dtype_out: str) -> None:
    x, y = draw(1, 7, 13, dtype=dtype), draw(N, 13, 9, dtype=dtype)
    shared, stack, out = Placed(x, dtype).matrices[0], array(Placed(y, dtype)), nothing(N, 7, 9, dtype=dtype_out)
    product(shared, stack, array(out))
    near(out.values(), x @ y, TOLERANCE[dtype_out])
    out = nothing(N, 9, 7, dtype=dtype_out)
    product(stack.swapaxes(1, 2), shared.T, array(out))
    near(out.values(), (x @ y).swapaxes(1, 2), TOLERANCE[dtype_out])


@on_device
@in_all_types
@pytest.mark.parametrize("n", [1, 8, 130])
def test_epilogues_of_the_forward_pass(n: int, dtype: str, dtype_out: str) -> None:
    x, y, b = draw(9, 5, dtype=dtype), draw(5, n, dtype=dtype), draw(n, dtype=dtype_out)
    left, right, bias = Placed(x, dtype), Placed(y, dtype), to_device(b.astype(np.dtype(dtype_out)), "cuda")
    for epilogue, expected in {"bias": x @ y + b, "relu_bias": np.maximum(x @ y + b, 0)}.items():
        out = nothing(9, n, dtype=dtype_out)
        product(left.array, right.array, out.array, epilogue=epilogue, bias=bias)
        near(out.values(), expected, TOLERANCE[dtype_out])


@on_device
@in_all_types
@pytest.mark.parametrize("n", [1, 8, 13])
def test_every_product_of_a_stack_has_its_bias_or_all_the_same(n: int, dtype: str, dtype_out: str) -> None:
    x, y, biases = draw(1, 7, 5, dtype=dtype), draw(N, 5, n, dtype=dtype), draw(N, n, dtype=dtype_out)
    shared, stack = Placed(x, dtype).matrices[0], Placed(y, dtype)
    for b, per_product in ((biases, biases[:, None]), (biases[0], biases[0])):
        out = nothing(N, 7, n, dtype=dtype_out)
        bias = to_device(b.astype(np.dtype(dtype_out)), "cuda")
        product(shared, array(stack), array(out), epilogue="relu_bias", bias=bias)
        near(out.values(), np.maximum(x @ y + per_product, 0), TOLERANCE[dtype_out])


@on_device
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("n", [1, 8, 130])
def test_the_mask_of_the_forward_pass_is_read_by_the_backward_pass(n: int, dtype: str) -> None:
    """Two layers: h = max(0, x W₁ + b₁), and backward dz = dy W₂ᵀ where h > 0, db₁ = Σ dz."""
    x, w, b = draw(9, 5, dtype=dtype), draw(5, n, dtype=dtype), draw(n, dtype=dtype)
    dy, v, stored = draw(9, 6, dtype=dtype), draw(n, 6, dtype=dtype), np.dtype(dtype)
    mask, bias = (to_device(values, "cuda") for values in (np.zeros(mask_shape(9, n), np.uint8), b.astype(stored)))
    h, dz, dbias = nothing(9, n, dtype=dtype), nothing(9, n, dtype=dtype), to_device(np.zeros(n, stored), "cuda")
    product(Placed(x, dtype).array, Placed(w, dtype).array, h.array, epilogue="relu_mask_bias", bias=bias, mask=mask)
    expected = np.where(x @ w + b > 0, dy @ v.T, 0)
    near(h.values(), np.maximum(x @ w + b, 0), TOLERANCE[dtype])
    factors = Placed(dy, dtype).array, Placed(v, dtype).array.T
    for epilogue, more in (("relu_backward", {}), ("relu_bias_backward", {"bias": dbias})):
        product(*factors, dz.array, epilogue=epilogue, mask=mask, **more)  # type: ignore[arg-type]
        near(dz.values(), expected, TOLERANCE[dtype])
    near(to_host(dbias).astype(float), expected.sum(0), 2 * TOLERANCE[dtype])


@on_device
def test_products_of_nothing() -> None:
    left, right = to_device(np.ones((3, 0), np.float32), "cuda"), to_device(np.ones((0, 4), np.float32), "cuda")
    out = nothing(3, 4, dtype="float32")
    product(left, right, out.array)
    assert not out.values().any()
    out.array[...] = 2
    product(left, right, out.array, add=True)
    assert (out.values() == 2).all()
    assert multiplied(left[:0], right).shape == (0, 4)
    x, y, out = Placed(draw(1, 7, 5)), Placed(draw(1, 5, 3)), nothing(1, 7, 3)
    product(x.matrices[0][None], y.matrices[0][None], out.matrices[0][None])
    near(out.values(), draw(1, 7, 5) @ draw(1, 5, 3), TOLERANCE["float32"])
    out = nothing(N, 7, 3)
    product(x.matrices[0][:, :0], y.matrices[0][:0], array(out))
    assert not out.values().any()


def floats(*shape: int, dtype: str = "float32") -> Any:
    return to_device(np.ones(shape, np.dtype(dtype)), "cuda")


@on_device
def test_arguments_that_do_not_fit_are_refused_with_their_shapes() -> None:
    x, y, out, bias = floats(2, 3), floats(3, 4), floats(2, 4), floats(4)
    mask = floats(2, 16, dtype="uint8")
    for arguments in (
        (y, x, out),
        (x, y, floats(3, 4)),
        (x, y, floats(2, 4, dtype="float64")),
        (x, floats(3, 4, dtype="float64"), out),
        (x, y, out, floats(3)),
        (x, y, out, floats(8)[::2]),
        (x, y, out, bias, mask[:1]),
        (x, y, out, bias, mask[:, ::2]),
        # Stacks.
        (floats(2, 4, 5), floats(3, 5, 6), floats(3, 4, 6)),
        (floats(3, 4, 5), floats(2, 5, 6), floats(3, 4, 6)),
        (floats(3, 4, 5), floats(3, 5, 6), floats(4, 6)),
        (floats(1, 3, 4, 5), floats(5, 6), floats(1, 3, 4, 6)),
        (floats(4, 5), floats(5, 6), floats(3, 4, 6), floats(2, 6)),
        (floats(4, 5), floats(5, 6), floats(4, 6), floats(3, 6)),
        (x, y, floats(3, 2, 4), None, mask),
    ):
        names = dict(zip(("bias", "mask"), arguments[3:], strict=False))
        with pytest.raises(ShapeError, match=r"product: expected left \(M, K\).* got left \("):
            product(*arguments[:3], **names)


@on_device
def test_what_is_dense_in_no_direction_or_lies_in_descending_order_is_refused() -> None:
    wide, y = floats(4, 12), floats(3, 4)
    with pytest.raises(ShapeError, match=r"must be dense, .* got shape \(4, 3\), strides \(48, 16\)"):
        product(wide[:, ::4], y, floats(4, 4))
    with pytest.raises(ShapeError, match=r"must be dense, .* got shape \(4, 3\), strides \(0, 4\)"):
        product(namespace(wide).broadcast_to(wide[0, :3], (4, 3)), y, floats(4, 4))
    with pytest.raises(ShapeError, match="out must lie by rows"):
        product(floats(4, 3), y, floats(4, 4).T, epilogue="bias", bias=floats(4))
    with pytest.raises(ShapeError, match=r"in ascending order; got shape \(3, 5, 6\), strides \(-120, 24, 4\)"):
        product(floats(4, 5), floats(3, 5, 6)[::-1], floats(3, 4, 6))


# TF32.


def as_tf32(x: Any) -> Any:
    """Return numbers rounded to 10 bits of fraction, to nearest, ties to even."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(mantissa * 2**11), exponent - 11)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_factors_of_float32_are_rounded_only_within_tf32_products(products_on_cpu: Recorder, dtype: str) -> None:
    x, y, out = draw(7, 13, dtype=dtype), draw(13, 9, dtype=dtype), nothing(7, 9)
    factors, results = (Placed(x, dtype).array, Placed(y, dtype).array), list[Any]()
    for is_rounded in (False, True, False):
        with tf32_products(is_rounded):
            product(*factors, out.array)
        results.append(out.values())
    near(results[0], x @ y, TOLERANCE["float32"])
    near(results[1], as_tf32(x) @ as_tf32(y), TOLERANCE["float32"])
    np.testing.assert_array_equal(results[2], results[0])
    computed_in = [compute for _, compute, _ in products_on_cpu.of("MatmulDescCreate")]
    assert computed_in == ([68, 77] if dtype == "float32" else [68])


def test_a_gpu_without_tensor_cores_for_tf32_rounds_nothing(
    products_on_cpu: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_cuda.Device, "compute_capability", "75")
    with tf32_products(True):
        product(floats(2, 3), floats(3, 4), floats(2, 4))
    assert [compute for _, compute, _ in products_on_cpu.of("MatmulDescCreate")] == [68]


# Stacks.


def test_a_stack_is_one_call_and_another_number_of_products_another_problem(products_on_cpu: Recorder) -> None:
    x, y, out = Placed(draw(N, 7, 5)), Placed(draw(N, 5, 3)), nothing(N, 7, 3)
    for n in (N, N - 1):
        stacks = [stack_of(placed.matrices[:n]) for placed in (x, y, out)]
        product(*stacks)
        products_on_cpu.calls.clear()
        product(*stacks)
        assert products_on_cpu.names() == ["Matmul"]
    near(out.values(), draw(N, 7, 5) @ draw(N, 5, 3), TOLERANCE["float32"])


def test_timing_a_stack_has_room_and_adds_nothing(products_on_cpu: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers: list[Any] = []
    scratch = algorithms._scratch

    def remembered(problem: Problem) -> Any:
        buffers.append(scratch(problem))
        return buffers[-1]

    monkeypatch.setattr(algorithms, "_scratch", remembered)
    x, out = Placed(np.ones((N, 4, 4))), Placed(np.ones((N, 4, 4)))
    product(stack_of(x.matrices), stack_of(x.matrices), stack_of(out.matrices), add=True)
    assert (out.values() == 1 + 4).all()
    (buffer,) = buffers
    width, last = 4 + 2 * MARGIN, (N - 1) * (4 + 2 * MARGIN) ** 2
    assert buffer.size == 4 * (last + 4 * width)


def test_how_far_apart_matrices_lie_makes_no_class() -> None:
    """The distance between results grows with the number of tokens."""

    def problem(step: int, count: int = N) -> Problem:
        x, y = Matrix(100, 8, 8, False, "float32", 256), Matrix(8, 8, 8, False, "float32", 256, 64)
        return Problem(x, y, Matrix(100, 8, 8, False, "float32", 256, step), "none", False, 0, n_products=count)

    assert class_of(problem(800)) == class_of(problem(1_600))
    assert class_of(problem(800)) != class_of(problem(800, count=N + 1))
    assert str(problem(800)).startswith("3 × float32 (100, 8) @ ")


def test_alignment_is_that_of_every_matrix_of_a_stack(products_on_cpu: Recorder) -> None:
    """The stand-in rejects algorithms that need a better alignment than a matrix of the stack has."""
    flat = to_device(np.ones(64, np.float32), "cuda")
    matrices = [flat[i : i + 4].reshape(2, 2) for i in (0, 5, 10)]
    out = to_device(np.zeros((3, 2, 2), np.float32), "cuda")
    product(matrices[0], stack_of(matrices), out)
    assert (to_host(out) == 2).all()


@pytest.mark.usefixtures("products_on_cpu")
def test_what_forms_no_stack() -> None:
    flat, other = (to_device(np.ones(64, np.float32), "cuda") for _ in range(2))

    def matrices(*starts: int) -> list[Any]:
        return [flat[i : i + 4].reshape(2, 2) for i in starts]

    assert stack_of(matrices(0, 8, 16)).strides == (32, 8, 4)
    assert stack_of(matrices(0, 8, 17)) is None
    assert stack_of(matrices(16, 8, 0)) is None
    assert stack_of(matrices(8, 8)) is None
    assert stack_of(matrices(8)) is None
    assert stack_of([]) is None
    assert stack_of([*matrices(0), other[:4].reshape(2, 2)]) is None
    assert stack_of([*matrices(0), flat[8:10].reshape(2, 1)]) is None
    assert stack_of([*matrices(0), matrices(8)[0].T]) is None
    assert stack_of([*matrices(0), flat.view(np.int32)[8:12].reshape(2, 2)]) is None


class Places:
    """Three products of one left factor, and their destinations."""

    def __init__(self) -> None:
        self.x, self.y, self.out = Placed(draw(1, 7, 13)), Placed(draw(N, 13, 9)), Placed(draw(N, 7, 9))
        self.expected = draw(1, 7, 13) @ draw(N, 13, 9)
        self.parts = weight_gradients(self.x.matrices[0], *self.y.matrices)

    def put(self, *places: int, add: bool = False) -> None:
        for i in places:
            self.parts[i].into(self.out.matrices[i], add)

    def values(self) -> Any:
        wait_for_deferred_gradients()
        return self.out.values()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("add", [False, True])
def test_weight_gradients_with_places_are_a_stack(products_on_cpu: Recorder, order: tuple[int, ...], add: bool) -> None:
    places = Places()
    places.put(*order[:2], add=add)
    assert not products_on_cpu.calls
    places.put(order[2], add=add)
    near(places.values(), places.expected + (draw(N, 7, 9) if add else 0), TOLERANCE["float32"])
    products_on_cpu.calls.clear()
    places.put(*order, add=add)
    wait_for_deferred_gradients()
    assert products_on_cpu.names() == ["Matmul"]
    assert products_on_cpu.of("Matmul")[0][-1] != fake_streams.get_current_stream().ptr  # but on the second stream


def test_gradients_of_weights_that_form_no_stack_are_computed_one_by_one(products_on_cpu: Recorder) -> None:
    places = Places()
    places.put(0, 2)
    places.put(1, add=True)
    expected = places.expected.copy()
    expected[1] += draw(N, 7, 9)[1]
    near(places.values(), expected, TOLERANCE["float32"])


def test_gradients_of_weights_do_not_wait_for_those_of_constants(products_on_cpu: Recorder) -> None:
    places, others = Places(), Places()
    near(to_host(gradient_array(places.parts[1])), places.expected[1], TOLERANCE["float32"])
    places.put(0, 2)
    others.put(0, 1, 2)  # starts those before it
    assert products_on_cpu.names().count("Matmul") > 1
    others.put(1)
    for one in (places, others):
        near(one.values()[[0, 2]], one.expected[[0, 2]], TOLERANCE["float32"])


# Sums in bfloat16.


@on_device
def test_a_sum_of_bfloat16_is_rounded_once_and_both_gradients_are_the_given_array() -> None:
    x, y, dz = (rounded(100 * np.random.default_rng(i).standard_normal((300, 7)).astype(np.float32)) for i in range(3))
    with registered():
        leaves = [Tensor(to_device(values, "cuda")) for values in (x, y)]
        z = ops.add(*leaves)
        backward(z, to_device(dz, "cuda"))
    np.testing.assert_array_equal(upcast(to_host(z.value)), upcast(rounded(upcast(x) + upcast(y))))
    for leaf in leaves:
        np.testing.assert_array_equal(upcast(to_host(leaf.grad)), upcast(dz))
    ((run, *_),), dz = KERNELS["add"], to_device(dz, "cuda")
    assert all(gradient is dz for gradient in run(leaves[0].value, leaves[1].value)[1](dz))
