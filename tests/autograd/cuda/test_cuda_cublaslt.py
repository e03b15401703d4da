"""The calls to cuBLASLt, the choice of an algorithm and its cache; and the library itself if it is installed."""

import ctypes
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_cuda
import fake_streams
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder, forget
from hypothesis import given
from hypothesis import strategies as st

from autograd import to_device, to_host
from autograd.kernels.cuda import algorithms, cublaslt, library
from autograd.kernels.cuda.algorithms import Choices, class_of
from autograd.kernels.cuda.cublaslt import WORKSPACE, Algorithm, Matrix, Problem, Product, ProductError
from autograd.kernels.cuda.products import _prepare, product


def floats(*shape: int) -> Any:
    return to_device(np.ones(shape, np.float32), "cuda")


def test_a_product_runs_on_the_current_stream_with_that_streams_workspace(products_on_cpu: Recorder, cupy: Any) -> None:
    x, out, streams = floats(4, 4), floats(4, 4), []
    for stream in (7, 8, 7):
        cupy.cuda.get_current_stream().ptr = stream
        product(x, x, out)
        streams.append(products_on_cpu.of("Matmul")[-1][-3:])
    assert [(size, stream) for _, size, stream in streams] == [(WORKSPACE, 7), (WORKSPACE, 8), (WORKSPACE, 7)]
    (first, *_), (second, *_), (third, *_) = streams
    assert first == third != second
    assert WORKSPACE == 32 * 2**20


def test_another_layout_type_epilogue_or_alignment_is_another_problem(products_on_cpu: Recorder) -> None:
    x, out, bias, wide = floats(4, 4), floats(4, 4), floats(8), floats(5, 9)
    with_bias, elsewhere = {"epilogue": "bias", "bias": bias[:4]}, {"epilogue": "bias", "bias": bias[1:5]}
    more: dict[str, Any]
    for arguments, more in [
        ((x, x, out), {}), ((x.T, x, out), {}), ((x, x.T, out), {}), ((x[:3], x, out[:3]), {}),
        ((wide[:4, :4], x, out), {}), ((wide[1:, 5:], x, out), {}), ((x, x, out), {"add": True}),
        ((x, x, out), with_bias), ((x, x, out), elsewhere), ((x, x, out), {**with_bias, "epilogue": "relu_bias"}),
    ]:  # fmt: skip
        before = _prepare.cache_info().misses
        product(*arguments, **more)
        assert _prepare.cache_info().misses == before + 1, (arguments, more)


def test_sums_are_never_split_into_parts_of_sixteen_bits(products_on_cpu: Recorder) -> None:
    pytest.importorskip("ml_dtypes")
    x = to_device(np.ones((64, 64), np.dtype("bfloat16")), "cuda")
    masks = []
    for out in (to_device(np.ones((64, 64), np.dtype("bfloat16")), "cuda"), floats(64, 64)):
        product(x, x, out)
        values = [
            ctypes.cast(value, ctypes.POINTER(ctypes.c_uint32))
            for _, attribute, value, _ in products_on_cpu.of("MatmulPreferenceSetAttribute")
            if attribute == cublaslt.REDUCTIONS
        ]
        masks.append(values[-1].contents.value)
    assert masks == [2, 3]  # in the workspace, as float32; also in the output, if that is float32


def test_a_status_that_is_no_success_is_raised_with_call_and_shapes(products_on_cpu: Recorder) -> None:
    products_on_cpu.refuse = lambda name, arguments: name == "MatmulAlgoGetHeuristic"
    words = (
        "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED (15);"
        " float32 (2, 3) @ float32 (3, 4) by columns = float32 (2, 4), epilogue none"
    )
    with pytest.raises(ProductError, match=re.escape(words)):
        product(floats(2, 3), floats(4, 3).T, floats(2, 4))


def test_what_is_described_is_released(products_on_cpu: Recorder) -> None:
    product(floats(4, 4), floats(4, 4), floats(4, 4))
    _prepare.cache_clear()
    gc.collect()
    names = Counter(products_on_cpu.names())
    for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
        assert names[f"{kind}Create"] == names[f"{kind}Destroy"] > 0


def test_what_cupys_own_search_finds_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> SimpleNamespace:
        return SimpleNamespace(abs_path=f"/there/lib{name}.so")

    def nothing(name: str) -> SimpleNamespace:
        raise RuntimeError(f"there is no {name}")

    elsewhere = list(library.paths_of("cublasLt"))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", SimpleNamespace(load_nvidia_dynamic_lib=found))
    assert next(library.paths_of("cublasLt")) == "/there/libcublasLt.so"
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", SimpleNamespace(load_nvidia_dynamic_lib=nothing))
    assert set(library.paths_of("cublasLt")) <= set(elsewhere)


def test_of_several_wheels_the_newest_library_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for directory, number in (("cuda_nvrtc", "9"), ("cu13", "13"), ("cuda", "11.2")):
        (tmp_path / directory / "lib").mkdir(parents=True)
        (tmp_path / directory / "lib" / f"libnvrtc.so.{number}").touch()
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    wheels = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: wheels)
    found = [Path(path).name for path in library.paths_of("nvrtc")][:3]
    assert found == ["libnvrtc.so.13", "libnvrtc.so.11.2", "libnvrtc.so.9"]


def test_what_to_install_is_reported_where_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "paths_of", lambda name: iter(()))
    with pytest.raises(ProductError, match=r'is not installed; pip install "nvidia-cublas"'):
        cublaslt.library.__wrapped__()


# The choice of an algorithm, and its cache.

CORRUPT = [
    b"", b"\xff\xfe", 99_999 * b"[", b"[]", b"3", b"{", b'{"CPU, cuBLASLt 130000": 3}',
    b'{"CPU, cuBLASLt 130000": {"a": 3}}',
    b'{"CPU, cuBLASLt 130000": {"a": [1, 2]}}', b'{"CPU, cuBLASLt 130000": {"a": [1, 2, 3, 4, 5, 6, 7, -1]}}',
    b'{"CPU, cuBLASLt 130000": {"a": ["x", 2, 3, 4, 5, 6, 7, 8]}}', b'{"a": {"a": [1.5, 2, 3, 4, 5, 6, 7, 8]}}',
]  # fmt: skip


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Fix the time of each proposal, in order, for every search."""
    of_proposals = [5.0, 3.0, 1.0, 2.0, 4.0]

    def stopwatch(run: Callable[[int], None], stream: Any, evicted: Any) -> Callable[[], float]:
        run(stream.ptr)
        number = run.args[1].data[0]  # type: ignore[attr-defined]
        return lambda: of_proposals[number - 1]

    monkeypatch.setattr(algorithms, "stopwatch", stopwatch)
    return of_proposals


def chosen(recorder: Recorder, n_rows: int = 4) -> int:
    """Multiply matrices; return the number of the proposal that the product ran, from 1."""
    out = floats(n_rows, 4)
    product(floats(n_rows, 4), floats(4, 4), out)
    assert (to_host(out) == 4).all()
    return int(recorder.of("Matmul")[-1][-4]._obj.data[0])


def test_the_fastest_proposal_is_used_from_then_on(products_on_cpu: Recorder, times: list[float]) -> None:
    """For the same product, in another process, and for a product of the same class."""
    assert [chosen(products_on_cpu, 100) for _ in range(2)] == [3, 3]
    assert len(products_on_cpu.of("Matmul")) == 5 + 2
    forget()
    products_on_cpu.calls.clear()
    assert chosen(products_on_cpu, 100) == 3
    assert [name for name in products_on_cpu.names() if "Algo" in name] == ["MatmulAlgoCheck"]
    assert chosen(products_on_cpu, 104) == 3
    assert "MatmulAlgoGetHeuristic" not in products_on_cpu.names()


def test_a_proposal_that_cannot_be_run_is_passed_over(products_on_cpu: Recorder, times: list[float]) -> None:
    products_on_cpu.refuse = lambda name, arguments: name == "Matmul" and arguments[-4]._obj.data[0] == 3
    assert chosen(products_on_cpu) == 4
    products_on_cpu.refuse = lambda name, arguments: name == "Matmul"
    with pytest.raises(ProductError, match="can run none of its 5 proposals; float32"):
        chosen(products_on_cpu, 5)


def test_a_proposal_that_cannot_be_captured_is_passed_over(products_on_cpu: Recorder, cupy: Any) -> None:
    """And its capture is ended."""
    ptr = cupy.cuda.get_current_stream().ptr
    products_on_cpu.refuse = lambda name, of: name == "Matmul" and of[-1] != ptr and of[-4]._obj.data[0] < 5
    assert chosen(products_on_cpu) == 5
    assert not fake_streams.n_capturing()


def test_an_unfit_algorithm_gives_way_to_the_librarys_guess(products_on_cpu: Recorder, times: list[float]) -> None:
    """And is still remembered."""
    assert chosen(products_on_cpu, 100) == 3
    products_on_cpu.refuse = lambda name, arguments: name == "MatmulAlgoCheck"
    assert chosen(products_on_cpu, 104) == 1
    forget()
    products_on_cpu.refuse = lambda name, arguments: False
    assert chosen(products_on_cpu, 100) == 3


@pytest.mark.parametrize("content", CORRUPT, ids=lambda content: repr(content[:40]))
def test_corrupt_file_is_ignored(content: bytes, products_on_cpu: Recorder, times: list[float], tmp_path: Path) -> None:
    path = tmp_path / "minitransformer" / "products.json"
    path.parent.mkdir()
    path.write_bytes(content)
    assert chosen(products_on_cpu) == 3
    ((card, of_card),) = json.loads(path.read_bytes()).items()
    assert card == "CPU, cuBLASLt 130000"
    ((_, words),) = of_card.items()
    assert words[0] == 3
    assert [file.name for file in path.parent.iterdir()] == ["products.json"]


def test_an_unwritable_file_is_done_without(products_on_cpu: Recorder, times: list[float], tmp_path: Path) -> None:
    """Neither where its directory is a file, nor where a directory has its name: what was written is taken away."""
    folder = tmp_path / "minitransformer"
    folder.write_text("a file", encoding="utf-8")
    assert chosen(products_on_cpu) == 3
    forget()
    folder.unlink()
    (folder / "products.json").mkdir(parents=True)
    assert chosen(products_on_cpu) == 3
    assert [file.name for file in folder.iterdir()] == ["products.json"]


def algorithm(number: int) -> Algorithm:
    return Algorithm((number, 0, 0, 0, 0, 0, 0, 2**64 - 1))


def test_cards_and_processes_leave_each_others_choices_alone(tmp_path: Path) -> None:
    path = tmp_path / "products.json"
    one, other, same = Choices(path, "one"), Choices(path, "another"), Choices(path, "one")
    one.remember("a", algorithm(1))
    other.remember("a", algorithm(2))
    same.remember("b", algorithm(3))
    one.remember("c", algorithm(4))
    again = Choices(path, "one")
    found = {key: again.get(key) for key in "abcd"}
    assert {key: list(words.data) for key, words in found.items() if words} == {
        key: list(algorithm(number).data) for key, number in (("a", 1), ("b", 3), ("c", 4))
    }
    assert Choices(path, "another").get("a").data[0] == 2  # type: ignore[union-attr]


@given(n=st.integers(1, 10**6), more=st.integers(0, 10**5))
def test_extents_of_a_class_lie_within_an_eighth(n: int, more: int) -> None:
    def class_of_rows(rows: int) -> str:
        x = Matrix(rows, 512, 512, False, "float32", 256)
        return class_of(Problem(x, x, x, "none", False, 0))

    if class_of_rows(n) == class_of_rows(n + more):
        assert more <= n / 8
    if n <= 16 and more:
        assert class_of_rows(n) != class_of_rows(n + more)


def test_a_graph_of_a_run_with_a_cold_cache_is_timed(
    products_on_cpu: Recorder, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Python between them; the first run and the first launch are not timed."""
    stream, runs, evicted = cupy.cuda.get_current_stream(), list[int](), cupy.ones(9, "uint8")
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda start, end: 12.0)
    measure = algorithms.stopwatch(runs.append, stream, evicted)
    assert runs[0] == stream.ptr != runs[1]
    evicted[...] = 1
    fake_cuda.CALLS.clear()
    assert measure() == 12
    assert [name for name, *_ in fake_cuda.CALLS] == ["event", "graph", "event", "wait"]
    assert not to_host(evicted).any()


def test_the_median_of_several_samples_counts_and_proposals_take_turns(
    products_on_cpu: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second proposal is the fastest; once it is disturbed, and once another seems fast."""
    n, order, samples = algorithms.SAMPLES, list[int](), dict[int, list[float]]()

    def stopwatch(run: Callable[[int], None], stream: Any, evicted: Any) -> Callable[[], float]:
        run(stream.ptr)
        number = run.args[1].data[0]  # type: ignore[attr-defined]
        samples[number] = [90.0, *[2.0] * (n - 1)] if number == 2 else [*[3.0] * (n - 1), 0.5]
        return lambda: (order.append(number), samples[number].pop(0))[1]

    monkeypatch.setattr(algorithms, "stopwatch", stopwatch)
    assert chosen(products_on_cpu) == 2
    assert order == sorted(samples) * n


def test_without_a_proposal_there_is_no_product(products_on_cpu: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms.Product, "proposals", lambda *arguments: [])
    with pytest.raises(ProductError, match=r"no algorithm for it; float32 \(4, 4\)"):
        chosen(products_on_cpu)


def test_the_file_lies_among_the_users_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert algorithms.default_file() == Path("/home/somebody/.cache/minitransformer/products.json")
    monkeypatch.delenv("HOME")
    assert algorithms.default_file().name == "products.json"


# The library itself.

PATH = next(library.paths_of("cublasLt"), None)
needs_library = pytest.mark.skipif(PATH is None, reason="cuBLASLt is not installed (pip install nvidia-cublas)")
SMALL = Matrix(8, 16, 16, False, "bfloat16", 256), Matrix(16, 8, 16, True, "bfloat16", 256)


@needs_library
@pytest.mark.parametrize("epilogue", cublaslt.EPILOGUES)
def test_without_a_gpu_every_description_is_taken(epilogue: cublaslt.Epilogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "handle", lambda device: ctypes.c_void_p())
    for dtype in cublaslt.TYPES:
        described = Product(Problem(*SMALL, Matrix(8, 8, 8, False, dtype, 256), epilogue, False, 0), 0)
        described._point_to(cublaslt.Operands(0, 0, 0, bias=256, mask=512))
        with pytest.raises(ProductError, match=r"MatmulAlgoGetHeuristic: CUBLAS_STATUS_\w+ .*epilogue " + epilogue):
            described.proposals(cublaslt.Operands(0, 0, 0), 16)
    stacks = [matrix._replace(step=128) for matrix in (*SMALL, Matrix(8, 8, 8, False, "float32", 256))]
    Product(Problem(*stacks, epilogue, False, 0, bias_step=8, n_products=3), 0)
    assert cublaslt.version() >= 120000


def numbers_of_header() -> dict[str, int]:
    """Read the enumerations of cublasLt.h, if it is installed with the library."""
    header = Path(str(PATH)).parent.parent / "include" / "cublasLt.h"
    if not header.exists():
        pytest.skip(f"there is no {header}")
    return {name: int(number) for name, number in re.findall(r"CUBLASLT_(\w+) = (\d+),", header.read_text("utf-8"))}


@needs_library
def test_numbers_are_those_of_the_librarys_header() -> None:
    names = {
        "MATMUL_DESC_TRANSA": cublaslt.TRANSPOSE_A, "MATMUL_DESC_TRANSB": cublaslt.TRANSPOSE_B,
        "MATMUL_DESC_EPILOGUE": cublaslt.EPILOGUE, "MATMUL_DESC_BIAS_POINTER": cublaslt.BIAS,
        "MATMUL_DESC_BIAS_BATCH_STRIDE": cublaslt.BIAS_STEP, "MATMUL_DESC_EPILOGUE_AUX_POINTER": cublaslt.MASK,
        "MATMUL_DESC_EPILOGUE_AUX_LD": cublaslt.MASK_STRIDE, "MATRIX_LAYOUT_BATCH_COUNT": cublaslt.COUNT,
        "MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": cublaslt.STEP, "MATMUL_PREF_MAX_WORKSPACE_BYTES": cublaslt.MOST_WORKSPACE,
        "MATMUL_PREF_REDUCTION_SCHEME_MASK": cublaslt.REDUCTIONS, "REDUCTION_SCHEME_INPLACE": cublaslt.IN_PLACE,
        "REDUCTION_SCHEME_COMPUTE_TYPE": cublaslt.IN_FLOAT32, "EPILOGUE_BIAS": cublaslt.EPILOGUES["bias"],
        "EPILOGUE_RELU": 2,
    } | {
        f"MATMUL_PREF_MIN_ALIGNMENT_{x}_BYTES": number for x, number in zip("ABCD", cublaslt.ALIGNMENTS, strict=True)
    }  # fmt: skip
    numbers = numbers_of_header()
    assert {name: numbers[name] for name in names} == names
