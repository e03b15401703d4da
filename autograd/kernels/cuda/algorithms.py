"""Choice of the fastest cuBLASLt algorithm for a product: timed on the GPU once, and cached in a file.

The library's default choice is the first of its proposals.  Depending on shapes and GPU, another proposal is faster.
Batches differ in their number of tokens, so a choice is cached for a class of problems.  Two problems are in one class
if their extents are equal after rounding up to four binary digits; such extents differ by at most an eighth.
"""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from platformdirs import user_cache_path

from autograd.array import namespace_of_device
from autograd.graphs import capture_graph
from autograd.kernels.compiler import write_atomically
from autograd.kernels.cuda.cublaslt import Algorithm, Operands, Problem, Product, ProductError, version

CANDIDATES = 16  # number of proposals to time
SAMPLES = 7  # timed runs of each proposal, whose median counts
ITEM_SIZE = {"float32": 4, "float16": 2, "bfloat16": 2}
DIGITS = 4  # binary digits of extents in a class
N_WORDS = 8  # 64-bit words of an algorithm


def choose(product: Product, operands: Operands, workspace: int, stream: Any) -> Algorithm:
    """Return the algorithm for a product: the cached one, or the fastest of the library's proposals.

    Timing waits for the GPU.  It writes to the product's output, or to a scratch array if the product adds to its
    output.

    Raises: ProductError if the library has no algorithm that runs, or while ``stream`` is being captured: algorithms
        cannot be searched or timed during a capture.
    """
    if stream.is_capturing():
        raise ProductError(f"a graph is being captured: run the same once before, uncaptured; {product.problem}")
    choices, key = choices_of(product.device), class_of(product.problem)
    remembered = choices.get(key)
    if remembered is not None and product.accepts(remembered, operands):
        return remembered
    proposals = product.proposals(operands, CANDIDATES)
    if not proposals:
        raise ProductError(f"cuBLASLt has no algorithm for it; {product.problem}")
    if remembered is not None:  # cached for the class, but not usable for this size
        return proposals[0]
    times = timed(proposals, product, operands, workspace, stream)
    if not times:
        raise ProductError(f"cuBLASLt can run none of its {len(proposals)} proposals; {product.problem}")
    fastest = proposals[min(times, key=times.__getitem__)]
    choices.remember(key, fastest)
    return fastest


def timed(
    proposals: list[Algorithm], product: Product, operands: Operands, workspace: int, stream: Any
) -> dict[int, float]:
    """Return the milliseconds of every proposal that can be run; the keys are the indices of the proposals.

    The proposals take turns, so that other work on the GPU slows down all of them.
    """
    scratch = _scratch(product.problem) if product.problem.adds else None
    out = operands.out if scratch is None else scratch.data.ptr
    evicted = namespace_of_device("cuda").empty(2 * _properties(product.device)["l2CacheSize"], "uint8")
    measures = {}
    for i, algorithm in enumerate(proposals):
        run = functools.partial(product.run, operands, algorithm, workspace, out=out)
        with contextlib.suppress(ProductError):
            measures[i] = stopwatch(run, stream, evicted)
    times: dict[int, list[float]] = {i: [] for i in measures}
    for _ in range(SAMPLES):
        for i, measure in measures.items():
            times[i].append(measure())
    return {i: median(samples) for i, samples in times.items()}


def _scratch(problem: Problem) -> Any:
    out = problem.out
    n_elements = (problem.n_products - 1) * out.step + out.rows * out.stride
    return namespace_of_device("cuda").empty(n_elements * ITEM_SIZE[out.dtype], "uint8")


def stopwatch(run: Callable[[int], None], stream: Any, evicted: Any) -> Callable[[], float]:
    """Return a function that measures the milliseconds of one run on the GPU.  Raises: what ``run`` raises.

    A run begins with a cold cache, as in an update, where other arrays were read since its factors were written.  The
    time includes that of filling the cache, which is the same for each ``run``.  Both are one CUDA graph: many products
    take less time than Python takes to launch them.

    Args:
        run: a function that enqueues the product on a stream, given the address of the stream.
        evicted: an array that is larger than the cache, to be written before the run.
    """
    cuda = namespace_of_device("cuda").cuda
    run(stream.ptr)
    graph_stream = cuda.Stream(non_blocking=True)  # CuPy's default stream cannot be captured

    def run_cold() -> None:
        evicted[...] = 0
        run(graph_stream.ptr)

    with graph_stream:
        graph, _ = capture_graph(run_cold, graph_stream)
    graph.launch(stream)  # the first launch also copies the graph to the GPU

    def milliseconds() -> float:
        start, end = cuda.Event(), cuda.Event()
        start.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return float(cuda.get_elapsed_time(start, end))

    return milliseconds


def class_of(problem: Problem) -> str:
    """Return the key of a problem's class: problems with the same key use the same algorithm.

    The key omits the distance between the matrices of a stack.
    """
    left, right, out = (
        matrix._replace(rows=_round_up(matrix.rows), columns=_round_up(matrix.columns), step=0)
        for matrix in (problem.left, problem.right, problem.out)
    )
    return json.dumps([*problem._replace(left=left, right=right, out=out), problem.may_be_split])


def _round_up(extent: int) -> int:
    """Round up to a number of ``DIGITS`` binary digits followed by zeros."""
    step = 1 << max(0, extent.bit_length() - DIGITS)
    return -(-extent // step) * step


@functools.cache
def choices_of(device: int) -> Choices:
    """Return the cached choices for a GPU."""
    return Choices(default_file(), f"{_properties(device)['name'].decode()}, cuBLASLt {version()}")


def _properties(device: int) -> dict[str, Any]:
    properties: dict[str, Any] = namespace_of_device("cuda").cuda.runtime.getDeviceProperties(device)
    return properties


def default_file() -> Path:
    """Return the path of the cache file in the user's cache directory."""
    try:
        return user_cache_path("minitransformer") / "products.json"
    except RuntimeError:  # there is no home directory
        return Path(tempfile.gettempdir()) / "products.json"


class Choices:
    """Algorithms by class of problem, for one GPU model and one version of the library, cached in a file.

    A file that is corrupt, or cannot be read or written, is ignored: products are then timed again.
    """

    def __init__(self, path: Path, card: str) -> None:
        self.path, self.card = path, card
        self._algorithms = _read(path).get(card, {})

    def get(self, key: str) -> Algorithm | None:
        """Return the algorithm of a class of problems; None if none is cached."""
        words = self._algorithms.get(key)
        return Algorithm(tuple(words)) if words else None

    def remember(self, key: str, algorithm: Algorithm) -> None:
        """Set the algorithm of a class of problems, and write it to the cache file for later processes."""
        everything = _read(self.path)  # again: other processes may have written
        self._algorithms = {**everything.get(self.card, {}), **self._algorithms, key: list(algorithm.data)}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps({**everything, self.card: self._algorithms}, indent=1)
            write_atomically(self.path, content.encode())


def _read(path: Path) -> dict[str, dict[str, list[int]]]:
    """Return GPU → class of problems → the words of its algorithm; empty if the file is missing or corrupt."""
    try:
        everything = json.loads(path.read_bytes())
        algorithms = [words for card_algorithms in everything.values() for words in card_algorithms.values()]
        is_valid = all(len(words) == N_WORDS and all(map(_is_word, words)) for words in algorithms)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return everything if is_valid else {}


def _is_word(x: object) -> bool:
    return isinstance(x, int) and 0 <= x < 2**64
