"""The choice of an algorithm for a product, and its cache."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_cuda
import fake_streams
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder, forget
from hypothesis import given
from hypothesis import strategies as st

from autograd import to_device, to_host
from autograd.kernels.cuda import algorithms
from autograd.kernels.cuda.algorithms import Choices, class_of
from autograd.kernels.cuda.cublaslt import Algorithm, Matrix, Problem, ProductError
from autograd.kernels.cuda.products import product

CORRUPT = [
    b"", b"\xff\xfe", 99_999 * b"[", b"[]", b"3", b"{", b'{"CPU, cuBLASLt 130000": 3}',
    b'{"CPU, cuBLASLt 130000": {"a": 3}}',
    b'{"CPU, cuBLASLt 130000": {"a": [1, 2]}}', b'{"CPU, cuBLASLt 130000": {"a": [1, 2, 3, 4, 5, 6, 7, -1]}}',
    b'{"CPU, cuBLASLt 130000": {"a": ["x", 2, 3, 4, 5, 6, 7, 8]}}', b'{"a": {"a": [1.5, 2, 3, 4, 5, 6, 7, 8]}}',
]  # fmt: skip


def floats(*shape: int) -> Any:
    return to_device(np.ones(shape, np.float32), "cuda")


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Fix the time of each proposal, in order, for every search."""
    of_proposals = [5.0, 3.0, 1.0, 2.0, 4.0]

    def milliseconds(run: Callable[[int], None], stream: Any) -> float:
        run(stream.ptr)
        number = run.args[1].data[0]  # type: ignore[attr-defined]
        return of_proposals[number - 1]

    monkeypatch.setattr(algorithms, "milliseconds", milliseconds)
    return of_proposals


def used(recorder: Recorder) -> int:
    """Return the number of the proposal that the last product ran, from 1."""
    return int(recorder.of("Matmul")[-1][-4]._obj.data[0])


def test_the_fastest_proposal_is_used_from_then_on(products_on_cpu: Recorder, times: list[float]) -> None:
    """For the same product, in another process, and for a product of the same class."""
    x, out = floats(100, 4), floats(100, 4)
    for _ in range(2):
        product(x, floats(4, 4), out)
        assert used(products_on_cpu) == 3
    assert len(products_on_cpu.of("Matmul")) == 5 + 2
    forget()
    products_on_cpu.calls.clear()
    product(x, floats(4, 4), out)
    assert used(products_on_cpu) == 3
    assert [name for name in products_on_cpu.names() if "Algo" in name] == ["MatmulAlgoCheck"]
    product(floats(104, 4), floats(4, 4), floats(104, 4))
    assert used(products_on_cpu) == 3
    assert "MatmulAlgoGetHeuristic" not in products_on_cpu.names()


def test_a_proposal_that_cannot_be_run_is_passed_over(products_on_cpu: Recorder, times: list[float]) -> None:
    x, out = floats(4, 4), floats(4, 4)
    products_on_cpu.refuse = lambda name, arguments: name == "Matmul" and arguments[-4]._obj.data[0] == 3
    product(x, x, out)
    assert used(products_on_cpu) == 4
    products_on_cpu.refuse = lambda name, arguments: name == "Matmul"
    with pytest.raises(ProductError, match="can run none of its 5 proposals; float32"):
        product(x, x.T, out)


def test_timing_adds_nothing_to_a_sum(products_on_cpu: Recorder, times: list[float]) -> None:
    x, out = floats(4, 4), floats(4, 4)
    product(x, x, out, add=True)
    assert (to_host(out) == 1 + 4).all()


def test_an_unfit_algorithm_gives_way_to_the_librarys_guess(products_on_cpu: Recorder, times: list[float]) -> None:
    product(floats(100, 4), floats(4, 4), floats(100, 4))
    products_on_cpu.refuse = lambda name, arguments: name == "MatmulAlgoCheck"
    product(floats(104, 4), floats(4, 4), floats(104, 4))
    assert used(products_on_cpu) == 1
    forget()
    products_on_cpu.refuse = lambda name, arguments: False
    product(floats(100, 4), floats(4, 4), floats(100, 4))
    assert used(products_on_cpu) == 3  # is still remembered


@pytest.mark.parametrize("content", CORRUPT, ids=lambda content: repr(content[:40]))
def test_corrupt_file_is_ignored(content: bytes, products_on_cpu: Recorder, times: list[float], tmp_path: Path) -> None:
    path = tmp_path / "minitransformer" / "products.json"
    path.parent.mkdir()
    path.write_bytes(content)
    product(floats(4, 4), floats(4, 4), floats(4, 4))
    assert used(products_on_cpu) == 3
    ((card, of_card),) = json.loads(path.read_bytes()).items()
    assert card == "CPU, cuBLASLt 130000"
    ((_, words),) = of_card.items()
    assert words[0] == 3
    assert [file.name for file in path.parent.iterdir()] == ["products.json"]


def test_an_unwritable_file_is_done_without(products_on_cpu: Recorder, times: list[float], tmp_path: Path) -> None:
    """Neither where its directory is a file, nor where a directory has its name: what was written is taken away."""
    folder = tmp_path / "minitransformer"
    folder.write_text("a file", encoding="utf-8")
    product(floats(4, 4), floats(4, 4), floats(4, 4))
    assert used(products_on_cpu) == 3
    forget()
    folder.unlink()
    (folder / "products.json").mkdir(parents=True)
    product(floats(4, 4), floats(4, 4), floats(4, 4))
    assert used(products_on_cpu) == 3
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
    assert {key: list(words.data)[::7] for key, words in found.items() if words} == {
        "a": [1, 2**64 - 1],
        "b": [3, 2**64 - 1],
        "c": [4, 2**64 - 1],
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


def test_a_graph_of_many_runs_is_timed(products_on_cpu: Recorder, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Python between them; the first run and the first launch are not timed."""
    stream, runs = cupy.cuda.get_current_stream(), list[int]()
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda start, end: 12.0)
    fake_cuda.CALLS.clear()
    assert algorithms.milliseconds(runs.append, stream) == 12 / algorithms.REPEATS
    assert runs[0] == stream.ptr != runs[1]
    assert runs[1:] == algorithms.REPEATS * runs[1:2]
    assert [name for name, *_ in fake_cuda.CALLS] == ["graph", "event", "graph", "event", "wait"]


def test_a_proposal_that_cannot_be_captured_is_passed_over(products_on_cpu: Recorder, cupy: Any) -> None:
    """And its capture is ended."""
    x, out, ptr = floats(4, 4), floats(4, 4), cupy.cuda.get_current_stream().ptr
    products_on_cpu.refuse = lambda name, of: name == "Matmul" and of[-1] != ptr and of[-4]._obj.data[0] < 5
    product(x, x, out)
    assert used(products_on_cpu) == 5
    assert (to_host(out) == 4).all()
    assert not fake_streams.n_capturing()


def test_without_a_proposal_there_is_no_product(products_on_cpu: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms.Product, "proposals", lambda *arguments: [])
    with pytest.raises(ProductError, match=r"no algorithm for it; float32 \(4, 4\)"):
        product(floats(4, 4), floats(4, 4), floats(4, 4))


def test_the_file_lies_among_the_users_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert algorithms.default_file() == Path("/home/somebody/.cache/minitransformer/products.json")
    monkeypatch.delenv("HOME")
    assert algorithms.default_file().name == "products.json"
