"""The choice between a CUDA kernel and the reference, and launches on a driver that records its calls."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cuda_kernels
import numpy as np
import pytest

from autograd import Segments
from autograd.kernels.cuda import driver
from autograd.precision import dtype_named
from autograd.random import StreamId
from minitransformer.model.masks import cached_mask, causal_mask

pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes")
SEGMENTS = Segments.of_lengths([3, 4])
MASK = {"mask": causal_mask(SEGMENTS)}
BUFFER = object()


def array(*shape: int, dtype: str = "float32", contiguous: bool = True, base: object = None, at: int = 0) -> Any:
    """Return an array with the attributes that kernels check; if not contiguous, it is dense along no axis."""
    of = dtype_named(dtype)
    steps = [of.itemsize * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return SimpleNamespace(
        shape=shape,
        ndim=len(shape),
        dtype=of,
        flags=SimpleNamespace(c_contiguous=contiguous),
        size=int(np.prod(shape)),
        itemsize=of.itemsize,
        strides=tuple(step if contiguous else 2 * step for step in steps),
        base=base,
        data=SimpleNamespace(ptr=at),
    )


def bf16(*shape: int, **more: Any) -> Any:
    return array(*shape, dtype="bfloat16", **more)


def maps(*indices: int, shape: tuple[int, int] = (8, 9), bias: Any = None, **more: Any) -> list[Any]:
    """Return weights and biases of linear maps, the weights in one buffer."""
    more = {"base": BUFFER, **more}
    return [argument for at in indices for argument in (array(*shape, at=at, **more), bias)]


def beams(n: int, k: int, n_finished: int) -> list[Any]:
    """Return the arguments of ``extend_beams``."""
    histories = array(n, k, 9), array(n, k, 9), array(n, n_finished), array(n, n_finished), array(n, n_finished, 9)
    return [array(n, k), array(n, k), *histories, *[array(n)] * 4, *[array(n * k, 2 * k)] * 2, array(9)]


HEADS = [bf16(7, 2, 64)] * 3
CACHED = {"mask": cached_mask(np.zeros((2, 3, 5), np.int64), np.array([4]), 3, 4)}
ADAM = [array(9)] * 4
SCALE = [array(3, dtype="float64"), array(dtype="float64")]
IDS = array(5, dtype="int64")
STEPS = array(3, dtype="int64")
STREAM_ID = StreamId(1, 1)
CASES: list[tuple[str, list[Any], dict[str, Any], bool]] = [
    ("add_norm", [bf16(5, 512)] * 2 + [array(512)] * 2, {"rate": 0.1, "stream_id": STREAM_ID, "eps": 1e-5}, True),
    ("add_norm", [array(5, 512)] * 2 + [array(512)] * 2, {}, True),
    ("add_norm", [array(5, 500)] * 2 + [array(500)] * 2, {}, False),
    ("add_norm", [array(5, 512), bf16(5, 512)] + [array(512)] * 2, {}, False),
    ("add_norm", [bf16(5, 512), bf16(1, 512)] + [array(512)] * 2, {}, False),
    ("add_norm", [bf16(5, 512), bf16(5, 512, contiguous=False)] + [array(512)] * 2, {}, False),
    ("add_norm", [bf16(5, 512)] * 3 + [array(512)], {}, False),
    ("adam_update", [*ADAM, None, *SCALE], {}, True),
    ("adam_update", [*ADAM[1:], array(9, dtype="float64"), None, *SCALE], {}, False),
    ("adam_update", [*ADAM, bf16(9), *SCALE], {}, True),
    ("adam_update", [*ADAM, array(9), *SCALE], {}, False),
    ("attention", HEADS, MASK, True),
    ("attention", HEADS, {**MASK, "rate": 0.1, "stream_id": None}, True),
    ("attention", HEADS, {**MASK, "rate": 0.1, "stream_id": STREAM_ID}, True),
    ("attention", [array(7, 2, 64)] * 3, MASK, False),
    ("attention", [bf16(7, 2, 48)] * 3, MASK, False),
    ("attention", [*HEADS[:2], bf16(7, 2, 32)], MASK, False),
    ("attention", [*HEADS[:2], bf16(7, 2, 64, contiguous=False)], MASK, False),
    ("attention", HEADS, {"mask": cached_mask(np.zeros((2, 1, 3), np.int64), 3, 1, 4)}, False),
    ("attention", [array(7, 2, 64, dtype="float16")] * 3, MASK, False),
    ("attention", [array(6, 2, 48), *[array(24, 2, 128)] * 2], CACHED, True),
    ("attention", [array(6, 2, 48), array(24, 2, 48), array(24, 2, 129)], CACHED, False),
    ("attention", [array(6, 2, 48), *[array(25, 2, 48)] * 2], CACHED, False),
    ("attention", [bf16(6, 2, 48), *[bf16(24, 2, 48)] * 2], CACHED, True),
    ("attention", [array(6, 2, 48), *[bf16(24, 2, 48)] * 2], CACHED, False),
    ("attention", [array(6, 2, 48), *[array(24, 2, 48)] * 2], {**CACHED, "rate": 0.1, "stream_id": STREAM_ID}, False),
    ("dropout", [bf16(3)], {"rate": 0.1, "stream_id": STREAM_ID}, True),
    ("dropout", [array(3, dtype="float64")], {"rate": 0.1, "stream_id": STREAM_ID}, False),
    ("embedding", [array(4, 3), IDS], {}, True),
    ("embedding", [bf16(4, 3), IDS], {}, True),
    ("embedding", [array(4, 3), array(5, dtype="int32")], {}, False),
    ("embedding", [array(4, 3, dtype="float64"), IDS], {}, False),
    ("feed_forward", [bf16(5, 8), bf16(8, 16), array(16), bf16(16, 8), array(8)], {}, True),
    ("feed_forward", [bf16(5, 8), bf16(8, 16), array(16), bf16(16, 24), None], {}, True),
    ("feed_forward", [bf16(5, 8), bf16(8, 16), None, bf16(16, 8), array(8)], {}, False),
    ("feed_forward", [bf16(0, 8), bf16(8, 16), array(16), bf16(16, 8), array(8)], {}, False),
    ("feed_forward", [bf16(5, 8), bf16(8, 20), array(20), bf16(20, 8), array(8)], {}, False),
    ("feed_forward", [bf16(5, 8), bf16(8, 16), array(16), bf16(16, 9), array(9)], {}, False),
    ("feed_forward", [bf16(5, 8), bf16(8, 16), array(16), array(16, 8), array(8)], {}, False),
    ("feed_forward", [array(5, 8), array(8, 16), array(16), array(16, 8), array(8)], {}, False),
    ("feed_forward", [bf16(5, 8, contiguous=False), bf16(8, 16), array(16), bf16(16, 8), array(8)], {}, False),
    ("layer_norm", [bf16(5, 512), array(512), array(512)], {}, True),
    ("layer_norm", [array(5, 500), array(500), array(500)], {}, False),
    ("layer_norm", [array(5, 512, contiguous=False), array(512), array(512)], {}, False),
    ("layer_norm", [array(5, 512, dtype="float64")] * 3, {}, False),
    ("layer_norm", [bf16(5, 512), array(1), array(512)], {}, False),
    ("layer_norm", [bf16(5, 512), array(512), array(512, contiguous=False)], {}, False),
    ("linear", [array(5, 8), array(8, 9), None], {}, True),
    ("linear", [bf16(5, 8), bf16(8, 9), array(9)], {}, True),
    ("linear", [array(5, 8), bf16(8, 9), None], {}, False),
    ("linear", [array(5, 8, dtype="float64"), array(8, 9, dtype="float64"), None], {}, False),
    ("linear", [array(5, 8, contiguous=False), array(8, 9), None], {}, False),
    ("linear", [array(5, 8), array(8, 9, contiguous=False), None], {}, False),
    ("linear", [array(5, 0), array(0, 9), array(9)], {}, False),
    ("linear", [array(0, 8), array(8, 9), array(9)], {}, True),
    ("linear", [array(2, 5, 8), array(8, 9), None], {}, False),
    ("linear_logits", [bf16(5, 8), bf16(8, 9), array(9)], {}, True),
    ("linear_logits", [array(5, 8), array(8, 9), None], {}, False),
    ("linear_maps", [array(5, 8), *maps(0, 512, 1024)], {}, True),
    ("linear_maps", [array(5, 8), *maps(1024, 512, 0, bias=array(9))], {}, True),
    ("linear_maps", [bf16(5, 8), *maps(512, 0, dtype="bfloat16")], {}, True),
    ("linear_maps", [array(0, 8), *maps(0, 512)], {}, True),
    ("linear_maps", [array(5, 8), *maps(0)], {}, False),
    ("linear_maps", [array(5, 8), *maps(0, 512, 1025)], {}, False),
    ("linear_maps", [array(5, 8), *maps(512, 512)], {}, False),
    ("linear_maps", [array(5, 8), *maps(0, 512, base=None)], {}, False),
    ("linear_maps", [array(5, 8), *maps(0), *maps(512, base=object())], {}, False),
    ("linear_maps", [array(5, 8), *maps(0), *maps(512, shape=(8, 7))], {}, False),
    ("linear_maps", [array(5, 8), *maps(0), *maps(512, bias=array(9))], {}, False),
    ("linear_maps", [array(5, 8), *maps(0, 512, dtype="bfloat16")], {}, False),
    ("linear_maps", [array(5, 8, dtype="float64"), *maps(0, 1024, dtype="float64")], {}, False),
    ("linear_maps", [array(5, 8), *maps(0, 1024, contiguous=False)], {}, False),
    ("linear_maps", [array(5, 0), *maps(0, 512, shape=(0, 9))], {}, False),
    ("linear_relu", [bf16(5, 8), bf16(8, 9), array(9)], {}, True),
    ("linear_relu", [array(5, 8), bf16(8, 9), array(9)], {}, False),
    ("linear_transposed", [bf16(5, 8), bf16(9, 8)], {}, True),
    ("linear_transposed", [array(5, 8), bf16(9, 8)], {}, False),
    ("linear_cross_entropy", [array(5, 8), array(9, 8), None, IDS], {"smoothing": 0.1}, True),
    ("linear_cross_entropy", [bf16(5, 8), bf16(9, 8), array(9), IDS], {}, True),
    ("linear_cross_entropy", [array(5, 8, contiguous=False), array(9, 8), None, IDS], {}, False),
    ("linear_cross_entropy", [array(5, 8), array(9, 8, contiguous=False), None, IDS], {}, False),
    ("linear_cross_entropy", [array(5, 0), array(9, 0), None, IDS], {}, False),
    ("linear_cross_entropy", [array(5, 8), bf16(9, 8), None, IDS], {}, False),
    ("linear_cross_entropy", [array(5, 8), array(9, 8), None, array(5, dtype="int32")], {}, False),
    ("append_to_cache", [*[array(3, 5, 4, 2, 8)] * 2, *[array(12, 2, 8)] * 2, STEPS], {}, True),
    ("append_to_cache", [*[array(3, 5, 4, 2, 8)] * 2, *[array(12, 2, 8)] * 2, 4], {}, False),
    ("append_to_cache", [*[bf16(3, 5, 4, 2, 8)] * 2, *[bf16(12, 2, 8)] * 2, STEPS], {}, True),
    ("append_to_cache", [*[bf16(3, 5, 4, 2, 8)] * 2, *[array(12, 2, 8)] * 2, STEPS], {}, False),
    ("extend_beams", beams(3, 4, 4), {"beam": 4, "n_ranked": 8, "end": 2}, True),
    ("extend_beams", beams(3, 1, 4), {"beam": 4, "n_ranked": 8, "end": 2}, False),
    ("extend_beams", beams(3, 17, 4), {"beam": 17, "n_ranked": 34, "end": 2}, False),
    ("extend_beams", beams(3, 4, 17), {"beam": 4, "n_ranked": 8, "end": 2}, False),
    ("log_softmax_top", [array(6, 9), array(2, 9, dtype="bool"), array(3, dtype="bool")], {"n": 3}, True),
    ("log_softmax_top", [array(6, 9, dtype="float64"), array(1, 9, dtype="bool"), None], {"n": 3}, False),
    ("top", [array(5, 9)], {"n": 3}, True),
    ("top", [array(5, 9, dtype="float64")], {"n": 3}, True),
    ("top", [array(5, 9, contiguous=False)], {"n": 3}, False),
    ("top", [array(5, 0)], {"n": 3}, False),
    ("top", [bf16(5, 9)], {"n": 3}, False),
    ("add", [bf16(5, 8), bf16(5, 8)], {}, True),
    ("add", [bf16(5, 8), bf16(8)], {}, False),
    ("add", [bf16(5, 8), array(5, 8)], {}, False),
    ("add", [bf16(5, 8), array(5, 8, dtype="float16")], {}, False),
    ("add", [array(5, 8), array(5, 8)], {}, False),
    ("add", [bf16(5, 8), 2.0], {}, False),
    ("random_words", [array(0)], {"stream_id": STREAM_ID, "count": 3}, True),
]


@pytest.mark.parametrize(("name", "arguments", "static", "expected"), CASES)
def test_a_kernel_takes_what_it_can(name: str, arguments: list[Any], static: dict[str, Any], expected: bool) -> None:
    assert any(kernel.supports(*arguments, **static) for kernel in cuda_kernels.KERNELS[name]) is expected


def test_kernels_say_that_they_take_bfloat16() -> None:
    kernels = cuda_kernels.KERNELS.items()
    assert {name for name, of_name in kernels if any(kernel.takes_16_bits for kernel in of_name)} == {
        "add", "add_norm", "attention", "dropout", "embedding", "embedding_with_positions", "feed_forward",
        "layer_norm", "linear", "linear_cross_entropy", "linear_maps", "linear_relu", "linear_transposed",
    }  # fmt: skip


class RecordingDriver:
    """The part of CuPy that a launch uses, with three GPUs; it records its calls."""

    def __init__(self) -> None:
        self.current = 0
        self.compiled: list[tuple[str, str]] = []
        self.loaded: list[str] = []
        self.launches: list[tuple[Any, ...]] = []
        self.cuda = SimpleNamespace(Device=self.device, function=SimpleNamespace(Module=self.module))

    def device(self, number: int | None = None) -> Any:
        number = self.current if number is None else number
        return SimpleNamespace(id=number, compute_capability=("90", "80", "90")[number])

    def compile(self, source: str, architecture: str) -> str:
        self.compiled.append((source, architecture))
        return f"{source} for {architecture}"

    def module(self) -> Any:
        def load(code: str) -> None:
            self.loaded.append(code)
            module.get_function = lambda name: lambda *launch: self.launches.append((code, name, *launch))

        module = SimpleNamespace(load=load)
        return module


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    recorder = RecordingDriver()
    monkeypatch.setattr(driver, "namespace_of_device", {"cuda": recorder}.__getitem__)
    monkeypatch.setattr(driver, "machine_code", recorder.compile)
    yield recorder
    for function in (driver._function, driver._module):
        function.cache_clear()


def test_a_launch_is_a_grid_a_block_and_the_arguments(recorder: RecordingDriver) -> None:
    x, n = np.zeros(3), np.int64(3)
    driver.launch("a.cu", "kernel", 7, 256, x, None, n)
    ((code, name, grid, block, (array, null, scalar)),) = recorder.launches
    assert (code, name, grid, block) == ("a.cu for sm_90", "kernel", (7,), (256,))
    assert array is x
    assert scalar is n
    assert null == 0
    assert null.dtype == np.uintp


def test_a_source_is_compiled_and_loaded_once_on_every_device(recorder: RecordingDriver) -> None:
    for device, kernel in ((0, "f"), (0, "g"), (0, "f"), (1, "f"), (2, "f"), (2, "f")):
        recorder.current = device
        driver.launch("a.cu", kernel, 1, 32)
    codes = "a.cu for sm_90", "a.cu for sm_80"
    assert recorder.compiled == [("a.cu", "sm_90"), ("a.cu", "sm_80"), ("a.cu", "sm_90")]
    assert recorder.loaded == [codes[0], codes[1], codes[0]]
    assert [(codes.index(code), name) for code, name, *_ in recorder.launches] == [
        (0, "f"), (0, "g"), (0, "f"), (1, "f"), (0, "f"), (0, "f"),
    ]  # fmt: skip
