"""Arguments on which the CUDA kernels are checked: odd sizes, and sizes that need more than one wave of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from autograd.kernels.cuda import attention as of_attention
from autograd.kernels.cuda import layer_norm as of_norm
from autograd.masks import KeyRanges, Segments
from autograd.ops.embedding import order_of
from autograd.precision import rounded
from autograd.random import StreamId

STREAM_ID = StreamId(2**64 - 1, 5, 2**33, 3)


class CaseSizes(NamedTuple):
    """The sizes of the arguments."""

    lengths: tuple[int, ...]
    """Numbers of rows, and the lengths of sentences."""
    vocabularies: tuple[int, ...]
    wave: int
    """A number of threads that no GPU runs at once."""


FULL = CaseSizes(lengths=(1, 63, 64, 65, 250), vocabularies=(5_003, 37_000), wave=160 * 2_048)


class Draw:
    """Random arrays on the host, of one dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.random = np.random.default_rng(1)

    def __call__(self, *shape: int, scale: float = 1.0) -> Any:
        """Return normal random numbers times ``scale``."""
        return self._stored(self.float32(*shape) * np.float32(scale))

    def float32(self, *shape: int) -> Any:
        """Return normal random numbers in float32, as gains and biases have them."""
        return self.random.standard_normal(shape).astype(np.float32)

    def whole(self, *shape: int) -> Any:
        """Return random whole numbers from −2 to 2, whose products and sums are exact."""
        return self._stored(self.random.integers(-2, 3, shape).astype(np.float32))

    def _stored(self, values: Any) -> Any:
        return rounded(values) if self.dtype == "bfloat16" else values

    def integers(self, below: int, n: int) -> Any:
        """Return n random integers from 0 to ``below`` − 1."""
        return self.random.integers(0, below, n)


class Case(NamedTuple):
    """Positional and keyword arguments of an operation, on the host."""

    name: str
    arguments: tuple[Any, ...]
    static: dict[str, Any]


Cases: TypeAlias = Callable[[Draw, CaseSizes], Iterator[Case]]


def _add(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    if draw.dtype != "bfloat16":
        return
    for n in sizes.lengths:
        yield Case(f"{n} × 63", (draw(n, 63), draw(n, 63)), {})


def _layer_norm(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n, width in _rows_and_widths(sizes):
        yield Case(f"{n} × {width}", (draw(n, width), draw.float32(width), draw.float32(width)), {})


def _add_norm(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n, width in _rows_and_widths(sizes):
        arguments = draw(n, width), draw(n, width), draw.float32(width), draw.float32(width)
        yield Case(f"{n} × {width}", arguments, {"rate": 0.1, "stream_id": STREAM_ID})


def _rows_and_widths(sizes: CaseSizes) -> Iterator[tuple[int, int]]:
    yield from ((n, width) for n in sizes.lengths for width in of_norm.WIDTHS)
    yield sizes.wave // 32 + 1, of_norm.WIDTHS[0]  # a warp computes a row


def _dropout(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n in (*sizes.lengths, 16 * sizes.wave // 63 + 1):  # a thread computes 16 elements
        yield Case(f"{n} × 63", (draw(n, 63),), {"rate": 0.3, "stream_id": STREAM_ID})


def _embedding(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n in (*sizes.lengths, sizes.wave // 32 + 1):  # a warp adds a row, or several of equal ids
        for width in (64, 65):
            ids = draw.integers(37, n)
            yield Case(f"{n} of 37 × {width}", (draw(37, width), ids), {"order": order_of(ids)})


def _embedding_with_positions(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n in (*sizes.lengths, 16 * sizes.wave // 64 + 1):  # a thread computes 16 elements
        for width in (64, 65):
            ids, positions = draw.integers(37, n), draw.integers(41, n)
            static = {"scale": 8.0, "rate": 0.1, "stream_id": STREAM_ID}
            orders = {"order": order_of(ids), "order_of_positions": order_of(positions)}
            arguments = draw(37, width), ids, draw(41, width), positions
            yield Case(f"{n} of 37 × {width}", arguments, static | orders)


def _linear(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n, d_in, d_out in _shapes_of_products(sizes):
        yield Case(f"{n} × {d_in} × {d_out}", (draw(n, d_in), draw(d_in, d_out), draw.float32(d_out)), {})


def _linear_relu(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    """Yield cases in which ReLU is applied to n + ½: rounding does not change a sign."""
    for n, d_in, d_out in _shapes_of_products(sizes):
        bias = draw.whole(d_out).astype(np.float32) + np.float32(0.5)
        yield Case(f"{n} × {d_in} × {d_out}", (draw.whole(n, d_in), draw.whole(d_in, d_out), bias), {})


def _linear_transposed(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n, d_in, d_out in _shapes_of_products(sizes):
        yield Case(f"{n} × {d_in} × {d_out}", (draw(n, d_in), draw(d_out, d_in)), {})


def _shapes_of_products(sizes: CaseSizes) -> Iterator[tuple[int, int, int]]:
    yield from ((n, *widths) for n in sizes.lengths for widths in ((64, 128), (33, 65)))
    yield sizes.wave // 64 + 1, 64, 2_048  # many blocks, each of 256 rows of 128 columns


def _linear_cross_entropy(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n_words in sizes.vocabularies:
        for n in (1, sizes.wave // 512 + 1):  # a block of 512 threads computes a row
            arguments = draw(n, 64), draw(n_words, 64, scale=1 / 8), None, draw.integers(n_words, n)
            yield Case(f"{n} × {n_words}", arguments, {"smoothing": 0.1})


def _attention(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    if draw.dtype != "bfloat16":
        return
    here, there = Segments.of_lengths(sizes.lengths), Segments.of_lengths([n + 1 for n in sizes.lengths[::-1]])
    for width in of_attention.WIDTHS:
        for name, mask in {"all keys": _to_all(here, there), "causal": _causal(here)}.items():
            for kind, rate in {"": {}, " with dropout": {"rate": 0.3, "stream_id": STREAM_ID}}.items():
                heads = _heads(draw, mask, 3, width)
                yield Case(f"{name}{kind}, 3 heads of {width}", heads, {"mask": mask, **rate})
    many = Segments.of_lengths([17] * (sizes.wave // 512 + 1))  # each has two tiles; a warp computes a tile of a head
    for name, mask in {"all keys": _to_all(many, many), "causal": _causal(many)}.items():
        yield Case(f"{name}, {len(many)} sentences", _heads(draw, mask, 8, 16), {"mask": mask})


def _heads(draw: Draw, mask: KeyRanges, n_heads: int, width: int) -> tuple[Any, ...]:
    sizes = mask.queries.n_tokens, mask.keys.n_tokens, mask.keys.n_tokens
    return tuple(draw(n, n_heads, width) for n in sizes)


def _to_all(queries: Segments, keys: Segments) -> KeyRanges:
    """Return the mask of queries that attend to all keys of their segment."""
    first = keys.starts[queries.segment_of_token]
    return KeyRanges(first, first + keys.lengths[queries.segment_of_token], queries, keys)


def _causal(segments: Segments) -> KeyRanges:
    """Return the mask of queries that attend to themselves and to the keys before them."""
    return KeyRanges(segments.starts[segments.segment_of_token], segments.tokens + 1, segments, segments)


CASES: dict[str, Cases] = {
    "add": _add,
    "add_norm": _add_norm,
    "attention": _attention,
    "dropout": _dropout,
    "embedding": _embedding,
    "embedding_with_positions": _embedding_with_positions,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "linear_cross_entropy": _linear_cross_entropy,
    "linear_relu": _linear_relu,
    "linear_transposed": _linear_transposed,
}
