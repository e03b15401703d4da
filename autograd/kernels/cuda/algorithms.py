"""Which of cuBLASLt's algorithms computes a product fastest: timed on the card once, and remembered in a file.

The library's own guess is the first of its proposals; how much is lost by it depends on shapes and card.  A batch has
some other number of tokens each time, so what is remembered is remembered for a class of problems: extents that are the
same when they are rounded up to four binary digits, and so within an eighth of each other, are of one class.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autograd.array import namespace_of_device
from autograd.kernels.cuda.cublaslt import Algorithm, Operands, Problem, Product, ProductError, version

CANDIDATES = 16  # proposals that are timed
REPEATS = 3  # runs that are timed, after one that is not
ITEM_SIZE = {"float32": 4, "bfloat16": 2}
DIGITS = 4  # of extents that make a class
N_WORDS = 8  # of 64 bits: an algorithm


def choose(product: Product, operands: Operands, workspace: int, stream: Any) -> Algorithm:
    """The algorithm for a product: the remembered one, or the fastest of the library's proposals.

    Timing waits for the card, and leaves its results where the product will write its own; those of a product that
    adds to what is there go to an array that is thrown away.

    Raises: ProductError while ``stream`` is being captured, where neither searching nor timing is possible, and if the
        library has no algorithm.
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
    if remembered is not None:  # of the same class, but does not fit this size
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
    """Milliseconds of every proposal, by its place among them; of those that can be run."""
    scratch = _scratch(product.problem) if product.problem.adds else None
    out = operands.out if scratch is None else scratch.data.ptr
    times = {}
    for place, algorithm in enumerate(proposals):
        run = functools.partial(product.run, operands, algorithm, workspace, stream.ptr, out=out)
        with contextlib.suppress(ProductError):
            times[place] = milliseconds(run, stream)
    return times


def _scratch(problem: Problem) -> Any:
    out = problem.out
    n_elements = (problem.n_products - 1) * out.step + out.rows * out.stride
    return namespace_of_device("cuda").empty(n_elements * ITEM_SIZE[out.dtype], "uint8")


def milliseconds(run: Callable[[], None], stream: Any) -> float:
    """Of one run, on the card, the mean of a few after a first one.  Raises: what ``run`` raises."""
    cuda = namespace_of_device("cuda").cuda
    run()
    start, end = cuda.Event(), cuda.Event()
    start.record(stream)
    for _ in range(REPEATS):
        run()
    end.record(stream)
    end.synchronize()
    return float(cuda.get_elapsed_time(start, end)) / REPEATS


def class_of(problem: Problem) -> str:
    """What problems that share an algorithm have in common; not how far apart the matrices of a stack lie."""
    left, right, out = (
        matrix._replace(rows=_rounded(matrix.rows), columns=_rounded(matrix.columns), step=0)
        for matrix in (problem.left, problem.right, problem.out)
    )
    return json.dumps(problem._replace(left=left, right=right, out=out))


def _rounded(extent: int) -> int:
    """Up to a number of ``DIGITS`` binary digits and zeros."""
    step = 1 << max(0, extent.bit_length() - DIGITS)
    return -(-extent // step) * step


@functools.cache
def choices_of(device: int) -> Choices:
    """What is remembered for a card."""
    properties = namespace_of_device("cuda").cuda.runtime.getDeviceProperties(device)
    return Choices(default_file(), f"{properties['name'].decode()}, cuBLASLt {version()}")


def default_file() -> Path:
    """In the user's directory of caches."""
    home = Path(os.environ.get("HOME") or tempfile.gettempdir())
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "minitransformer" / "products.json"


class Choices:
    """Algorithms by class of problem, for one kind of card and one version of the library, kept in a file.

    The file holds no more than a later run would find out again: if it is damaged, or cannot be read or written, it is
    done without.
    """

    def __init__(self, path: Path, card: str) -> None:
        self.path, self.card = path, card
        self._algorithms = _read(path).get(card, {})

    def get(self, key: str) -> Algorithm | None:
        """The algorithm of a class, if there is one."""
        words = self._algorithms.get(key)
        return Algorithm(tuple(words)) if words else None

    def remember(self, key: str, algorithm: Algorithm) -> None:
        """Set the algorithm of a class, also for processes to come."""
        everything = _read(self.path)  # again: other processes may have written
        self._algorithms = {**everything.get(self.card, {}), **self._algorithms, key: list(algorithm.data)}
        with contextlib.suppress(OSError):
            _write(self.path, {**everything, self.card: self._algorithms})


def _read(path: Path) -> dict[str, dict[str, list[int]]]:
    """Card → class of problem → the words of its algorithm; nothing if anything is wrong with the file."""
    try:
        everything = json.loads(path.read_bytes())
        algorithms = [words for of_card in everything.values() for words in of_card.values()]
        is_whole = all(len(words) == N_WORDS and all(map(_is_word, words)) for words in algorithms)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return everything if is_whole else {}


def _is_word(x: object) -> bool:
    return isinstance(x, int) and 0 <= x < 2**64


def _write(path: Path, everything: dict[str, dict[str, list[int]]]) -> None:
    """Whole or not at all, whoever else writes at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
