"""Arguments on which the CUDA kernels are checked: odd sizes, and sizes that need more than one wave of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from autograd.kernels.cuda import attention, layer_norm
from autograd.masks import KeyRanges, Segments
from autograd.ops.embedding import order_of
from autograd.precision import rounded
from autograd.random import StreamId

DROPOUT = {"rate": 0.3, "stream_id": StreamId(2**64 - 1, 5, 2**33, 3)}


class CaseSizes(NamedTuple):
    """Odd numbers of rows, which are also lengths of sentences; vocabularies; more threads than a GPU runs at once."""

    lengths: tuple[int, ...] = (1, 63, 64, 65, 250)
    vocabularies: tuple[int, ...] = (5_003, 37_000)
    wave: int = 160 * 2_048


FULL = CaseSizes()


class Draw:
    """Random arrays on the host: normal numbers in ``dtype``, or as a method says."""

    def __init__(self, dtype: str) -> None:
        self.random, self.stored = np.random.default_rng(1), rounded if dtype == "bfloat16" else np.asarray

    def __call__(self, *shape: int, scale: float = 1.0) -> Any:
        return self.stored(self.float32(*shape) * np.float32(scale))

    def float32(self, *shape: int) -> Any:
        return self.random.standard_normal(shape).astype(np.float32)

    def whole(self, *shape: int, plus: float = 0.0) -> Any:
        """Return whole numbers, whose products and sums are exact; with a bias of ½ no rounding changes their sign."""
        return self.stored(self.ids(5, *shape).astype(np.float32) - 2 + np.float32(plus))

    def ids(self, below: int, *shape: int) -> Any:
        return self.random.integers(0, below, shape)


Case: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]  # positional and keyword arguments of a kernel, on the host
Cases: TypeAlias = Callable[[Draw, CaseSizes], Iterator[Case]]


def _rows(make: Callable[..., Case], threads: float, *widths: tuple[int, ...], last: tuple[int, ...] = ()) -> Cases:
    """Make cases of all lengths and widths, and one of more rows than a GPU has ``threads`` each for at once."""

    def cases(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
        yield from (make(draw, n, *width) for n in sizes.lengths for width in widths)
        yield make(draw, int(sizes.wave / threads) + 1, *(last or widths[0]))

    return cases


def _embedding(draw: Draw, n: int, width: int) -> Case:
    ids = draw.ids(37, n)
    return (draw(37, width), ids), {"order": order_of(ids)}


def _positions(draw: Draw, n: int, width: int) -> Case:
    (table, ids), orders = _embedding(draw, n, width)
    positions = draw.ids(41, n)
    static = {"scale": 8.0, **DROPOUT, **orders, "order_of_positions": order_of(positions)}
    return (table, ids, draw(41, width), positions), static


def _adam(draw: Draw, n: int) -> Case:
    buffers = draw(n), draw(n), draw(n), np.square(draw(n)), rounded(draw(n))
    return (*buffers, np.array([0.01, 1e-3, 0.5]), np.array(0.3)), {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}


def _cross_entropy(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for n, words in itertools.product((1, sizes.wave // 512 + 1), sizes.vocabularies):  # a block of 512 threads per row
        yield (draw(n, 64), draw(words, 64, scale=1 / 8), None, draw.ids(words, n)), {"smoothing": 0.1}


def _top(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    for width, dtype in itertools.product((33, *sizes.vocabularies), (np.float32, np.float64)):
        yield (draw.whole(sizes.lengths[-1], width).astype(dtype),), {"n": 8}  # many equal numbers


def _attention(draw: Draw, sizes: CaseSizes) -> Iterator[Case]:
    here, there = Segments.of_lengths(sizes.lengths), Segments.of_lengths([n + 1 for n in sizes.lengths[::-1]])
    many = Segments.of_lengths([17] * (sizes.wave // 512 + 1))  # each has two tiles; a warp computes a tile of a head
    kinds = itertools.product([(here, there)], attention.WIDTHS, ({}, DROPOUT))
    for (queries, keys), width, static in [*kinds, ((many, many), attention.WIDTHS[0], {})]:
        first, start = keys.starts[queries.segment_of_token], queries.starts[queries.segment_of_token]
        for mask in (
            KeyRanges(first, first + keys.lengths[queries.segment_of_token], queries, keys),  # all keys
            KeyRanges(start, queries.tokens + 1, queries, queries),  # causal
        ):
            heads = [draw(side.n_tokens, 3, width) for side in (mask.queries, mask.keys, mask.keys)]
            yield tuple(heads), {"mask": mask, **static}


NORMS, BUFFER = [(width,) for width in layer_norm.WIDTHS], [()]
SHAPES, MANY = [(64, 128), (33, 65)], (64, 2_048)  # of matrices; MANY: many blocks, each of 256 rows of 128 columns
BOTH, FLOAT32, BFLOAT16 = ("float32", "bfloat16"), ("float32",), ("bfloat16",)
CASES: dict[str, tuple[tuple[str, ...], Cases]] = {  # the dtypes in which a kernel is checked, and its cases
    "adam_update": (FLOAT32, _rows(_adam, 0.25, *BUFFER)),
    "add": (BFLOAT16, _rows(lambda draw, n, d: ((draw(n, d), draw(n, d)), {}), 32, (63,))),
    "add_norm": (BOTH, _rows(
        lambda draw, n, d: ((draw(n, d), draw(n, d), draw.float32(d), draw.float32(d)), DROPOUT), 32, *NORMS)),
    "attention": (BFLOAT16, _attention),
    "clip": (FLOAT32, _rows(
        lambda draw, n: ((np.square(draw(n).astype(float)), np.array(7.0), np.array([0.01, 1e-3, 0.5])),
                         {"max_norm": 0.01}), 0.25, *BUFFER)),
    "dropout": (BOTH, _rows(lambda draw, n, d: ((draw(n, d),), DROPOUT), 63 / 16, (63,))),
    "embedding": (BOTH, _rows(_embedding, 32, (64,), (65,))),
    "embedding_with_positions": (BOTH, _rows(_positions, 64 / 16, (64,), (65,))),
    "feed_forward": (BFLOAT16, _rows(
        lambda draw, n, d, f: ((draw.whole(n, d), draw.whole(d, f), draw.whole(f, plus=0.5).astype(np.float32),
                                draw(f, d), draw.float32(d)), {}), 64, (64, 128), last=MANY)),
    "layer_norm": (BOTH, _rows(
        lambda draw, n, d: ((draw(n, d), draw.float32(d), draw.float32(d)), {}), 32, *NORMS)),
    "linear": (BOTH, _rows(
        lambda draw, n, i, o: ((draw(n, i), draw(i, o), draw.float32(o)), {}), 64, *SHAPES, last=MANY)),
    "linear_cross_entropy": (BOTH, _cross_entropy),
    "linear_maps": (BOTH, _rows(
        lambda draw, n, i, o: ((draw(n, i), draw(3, i, o), draw.float32(3, o)), {}), 512, (64, 128))),
    "linear_relu": (BOTH, _rows(
        lambda draw, n, i, o: ((draw.whole(n, i), draw.whole(i, o), draw.whole(o, plus=0.5).astype(np.float32)), {}),
        64, *SHAPES, last=MANY)),
    "linear_transposed": (BOTH, _rows(lambda draw, n, i, o: ((draw(n, i), draw(o, i)), {}), 64, *SHAPES, last=MANY)),
    "random_words": (FLOAT32, _rows(
        lambda draw, n: ((draw(0),), {"stream_id": DROPOUT["stream_id"], "count": n}), 0.25, *BUFFER)),
    "sum_squares": (FLOAT32, _rows(lambda draw, n: ((draw(n),), {}), 0.25, *BUFFER)),
    "top": (FLOAT32, _top),
}  # fmt: skip
