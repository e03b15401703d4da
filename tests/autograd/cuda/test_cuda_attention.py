"""CUDA kernels without a GPU: attention, whose matrix instruction is emulated, and its work lists."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import double, from_bf16, near, to_bf16
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograd import CachedKeys, KeyRanges, Segments
from autograd.kernels.cuda import attention
from autograd.kernels.cuda.driver import STORAGE
from autograd.ops.attention import attention as operation
from autograd.ops.softmax import log_normaliser
from autograd.precision import dtype_named, upcast
from autograd.random import StreamId
from autograd.tensor import gradient_array
from autograd.tiles import BLOCK_ROWS, ROWS, SLOTS, Tiles, count_blocks, tiles_of, tiles_on_host
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask

pytestmark = pytest.mark.usefixtures("launch")

SENTENCES = Segments.of_lengths([1, 16, 37, 2])
MASKS = {
    "self": self_attention_mask(SENTENCES),
    "causal": causal_mask(SENTENCES),
    "neighbourhood": causal_mask(SENTENCES, 3),
    "source": encoder_decoder_mask(SENTENCES, Segments.of_lengths([20, 1, 15, 33])),
    "nothing": causal_mask(Segments.of_lengths([])),
    "a full block": causal_mask(Segments.of_lengths([64])),
    "long": causal_mask(Segments.of_lengths([70, 3, 130])),
    "long on one side": encoder_decoder_mask(Segments.of_lengths([5, 80, 7]), Segments.of_lengths([90, 20, 3])),
    "keys of no segment between": encoder_decoder_mask(
        Segments.of_lengths([3, 17]), Segments(np.array([2, 25]), np.array([18, 4]))
    ),
}


def draw(mask: KeyRanges, n_heads: int, width: int) -> list[Any]:
    """Draw q, k, v and dy in 16 bits, with rows after the last segment of keys, if there is one."""
    random, n_keys = np.random.default_rng(1), mask.keys.end and mask.keys.end + 3
    sizes = mask.queries.n_tokens, n_keys, n_keys, mask.queries.n_tokens
    return [to_bf16(random.standard_normal((n, n_heads, width))) for n in sizes]


def compare(arrays: list[Any], mask: KeyRanges, tolerances: tuple[float, float], **dropout: Any) -> list[Any]:
    """Compare value and gradients with the reference in float64; return the gradients."""
    *qkv, dy = arrays
    y, backward = attention.attention_in_tiles(*qkv, mask=mask, **dropout)
    exact, exact_backward = operation.reference(*(from_bf16(x).astype(float) for x in qkv), mask=mask, **dropout)
    near(from_bf16(y), exact, tolerances[0])
    gradients = [from_bf16(gradient) for gradient in backward(dy)]
    for got, expected in zip(gradients, exact_backward(from_bf16(dy).astype(float)), strict=True):
        near(got, expected, tolerances[1])
        assert dropout or not got[~expected.any((1, 2))].any()
    return gradients


# The update is read from memory, as in a graph.  One weight of another mask would be an error of 1 in its row.
DROPOUT = {"rate": 0.3, "stream_id": StreamId(2**64 - 1, 5, np.array(2**33, np.uint64), 3)}
SOME = ("causal", "keys of no segment between", "long on one side")


@pytest.mark.parametrize("dropout", [{}, DROPOUT], ids=["", "dropout"])
@pytest.mark.parametrize(
    ("name", "width"), [*((name, 16) for name in MASKS), *itertools.product(SOME, attention.WIDTHS[1:])]
)
def test_attention(name: str, width: int, dropout: dict[str, Any]) -> None:
    compare(draw(MASKS[name], 2, width), MASKS[name], (6e-3, 1e-2), **dropout)


@st.composite
def masks(draw: Any) -> KeyRanges:
    """Draw one to three sentences over segments of keys with gaps; key ranges grow, move, jump, or have one key."""
    lengths = st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 130])
    drawn = draw(st.lists(st.tuples(lengths, lengths, st.integers(0, 3)), min_size=1, max_size=3))
    n_queries, n_keys, gap = np.array(drawn).T
    queries, keys = Segments.of_lengths(n_queries), Segments(np.cumsum(n_keys + gap) - n_keys, n_keys)
    n = np.repeat(n_keys, n_queries)
    here = queries.position_in_segment % n
    first, last = draw(
        st.sampled_from([
            (0 * n, n - 1), (0 * n, here), (np.maximum(0, here - 20), np.minimum(n - 1, here + 3)), (here, here),
            tuple(np.sort(np.random.default_rng(len(n)).integers(0, n, (2, len(n))), axis=0)),
        ])
    )  # fmt: skip
    start = keys.starts[queries.segment_of_token]
    return KeyRanges(start + first, start + last + 1, queries, keys)


@given(mask=masks(), greatest_score=st.sampled_from([1e-3, 3.0]))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_that_nobody_sees_and_scores_of_lone_keys_have_no_gradient(mask: KeyRanges, greatest_score: float) -> None:
    q, k, v, dy = draw(mask, 1, 16)
    q = to_bf16(from_bf16(q) * greatest_score / 4)
    dq, dk, dv = compare([q, k, v, dy], mask, (6e-3, 1.5e-2))
    is_lone, allowed = mask.last - mask.first == 1, mask.matrix()
    unseen, only_lone = np.ones((2, len(dk)), bool)
    unseen[: mask.keys.end], only_lone[: mask.keys.end] = ~allowed.any(0), ~allowed[~is_lone].any(0)
    assert not dq[is_lone].any()
    assert not dk[only_lone].any()
    assert not dv[unseen].any()


@pytest.mark.parametrize("name", ["causal", "long", "keys of no segment between"])
def test_what_the_passes_leave_for_one_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of denominators and ⟨dy, y⟩ are float32: nearer to the exact than any result in 16 bits could be."""
    monkeypatch.setattr(attention, "WIDEST_IN_ONE_PASS", 0)
    run, launches, mask = attention.launch, [], MASKS[name]
    monkeypatch.setattr(attention, "launch", lambda *launched: (launches.append(launched), run(*launched)))
    *qkv, dy = draw(mask, 2, 32)
    y, backward = attention.attention_in_tiles(*qkv, mask=mask)
    backward(dy)
    log_normalisers = launches[0][10]
    for head in range(2):
        q, k, y_of_head, dy_of_head = (from_bf16(x[:, head]).astype(float) for x in (*qkv[:2], y, dy))
        scores = np.where(mask.matrix(), q @ k[: mask.keys.end].T * 32**-0.5, -np.inf)
        near(log_normalisers[:, head] * math.log(2), np.add(*log_normaliser.reference(scores))[:, 0], 1e-6)
        for launched in launches:
            if launched[1] == "attention_backward_of_queries_32":
                rows = np.concatenate([fixed_rows(block[: 2 * SLOTS])[0] for block in launched[9]])
                near(launched[13][rows, head], (y_of_head * dy_of_head).sum(1)[rows], 1e-6)


def test_large_scores_neither_overflow_nor_vanish() -> None:
    """Some are above 100, where exp would overflow; the gradient of scores is nearly 0 there."""
    q, *kv, dy = draw(MASKS["self"], 1, 32)
    q = to_bf16(40 * from_bf16(q))
    y, backward = attention.attention_in_tiles(q, *kv, mask=MASKS["self"])
    exact, exact_backward = operation.reference(*(from_bf16(x).astype(float) for x in (q, *kv)), mask=MASKS["self"])
    near(from_bf16(y), exact, 6e-3)
    dq, dk, dv = map(from_bf16, backward(dy))
    near(dv, exact_backward(from_bf16(dy).astype(float))[2], 6e-3)
    assert np.isfinite(dq).all()
    assert np.isfinite(dk).all()


def fixed_rows(numbers: Any, offset: int = 0) -> list[Any]:
    """Return the rows that four slots of a block have."""
    first, end = numbers.reshape(2, SLOTS, 1)
    rows = first + offset + np.arange(ROWS)
    return [rows[rows < end]]


def moving_rows(numbers: Any) -> list[Any]:
    """Return the rows of four slots, and of these slots moved by 64 rows, until all are behind their ends."""
    first, end = numbers.reshape(2, SLOTS)
    return [fixed_rows(numbers, offset)[0] for offset in range(0, int((end - first).max()), BLOCK_ROWS)]


@given(masks())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_work_lists_have_every_pair_once_from_either_side(mask: KeyRanges) -> None:
    tiles, matrix = tiles_on_host(mask), mask.matrix()
    for blocks, rows_of_queries, rows_of_keys in (
        (tiles.long_queries, fixed_rows, moving_rows),
        (tiles.long_keys, moving_rows, fixed_rows),
    ):
        n_met = np.zeros(matrix.shape, int)
        for block in (*tiles.short, *blocks):
            sides = rows_of_queries(block[: 2 * SLOTS]), rows_of_keys(block[2 * SLOTS :])
            for queries, keys in itertools.product(*sides):
                n_met[np.ix_(queries, keys)] += 1
        assert (n_met[matrix] == 1).all()
        assert (n_met <= 1).all()
    n_short, n_long = count_blocks(mask.queries.lengths, mask.keys.lengths)
    assert (n_short, n_long) == (len(tiles.short), max(len(tiles.long_queries), len(tiles.long_keys)))
    assert tiles.short.any(1).all()
    ends = [segments.starts + segments.lengths for segments in (mask.queries, mask.keys)]
    first, end = tiles.short.reshape(-1, 2, 2, SLOTS).transpose(2, 0, 1, 3)  # of the slots of queries and of keys
    assert ((first < end) == (end > 0)).all()
    assert all(set(end[:, side].ravel()) <= {0, *ends[side]} for side in (0, 1))
    assert n_short <= (np.maximum(mask.queries.lengths, mask.keys.lengths) <= BLOCK_ROWS).sum()


def test_empty_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They fill up an update of fixed capacity."""
    arrays, mask = draw(MASKS["long"], 1, 16), MASKS["long"]
    y, backward = attention.attention_in_tiles(*arrays[:3], mask=mask)
    tiles, empty = tiles_on_host(mask), np.zeros((2, 16), np.int32)
    filled = Tiles(*(np.concatenate([empty, blocks, empty]) for blocks in tiles[:3]), *tiles[3:])
    monkeypatch.setattr(attention, "tiles_of", lambda mask, like: filled)
    again, backward_again = attention.attention_in_tiles(*arrays[:3], mask=mask)
    for got, expected in zip((again, *backward_again(arrays[3])), (y, *backward(arrays[3])), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("name", "n_blocks"), [("self", [2, 0, 0]), ("long", [1, 5, 5])])
def test_short_segments_share_blocks_and_long_ones_have_blocks_of_64_rows(name: str, n_blocks: list[int]) -> None:
    tiles = tiles_of(MASKS[name], np.empty(0))
    assert [len(blocks) for blocks in tiles[:3]] == n_blocks
    assert tiles_of(MASKS[name], np.empty(0)) is tiles


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("neighbourhood", [None, 3])
@pytest.mark.parametrize(
    ("n_sentences", "k", "n_slots", "capacity", "n_steps", "widths"),
    [(2, 3, 3, 7, [5], (33, 20)), (3, 1, 1, 20, [20, 1, 17], (64, 64)), (2, 2, 4, 70, [66], (128, 128)),
     (1, 2, 2, 40, [1], (1, 1)), (2, 0, 3, 7, [5], (8, 8))],
)  # fmt: skip
def test_attention_to_cached_keys(
    n_sentences: int,
    k: int,
    n_slots: int,
    capacity: int,
    n_steps: list[int],
    widths: tuple[int, int],
    neighbourhood: int | None,
    dtype: str,
) -> None:
    """Keys that no query attends to, and slots of later steps, are not read: they are NaN and far outside."""
    random, n_keys = np.random.default_rng(1), n_sentences * capacity * n_slots
    q, keys, values = (
        random.standard_normal((n, 2, width)).astype(dtype_named(dtype))
        for n, width in ((n_sentences * k, widths[0]), (n_keys, widths[0]), (n_keys, widths[1]))
    )
    slots = random.integers(0, n_slots, (n_sentences, k, capacity + 1)) if n_slots > 1 else None
    segments = Segments(np.arange(n_sentences) * capacity * n_slots, np.full(n_sentences, capacity * n_slots))
    mask = CachedKeys(
        np.array(n_steps), Segments.of_lengths([k] * n_sentences), segments, slots, n_slots, neighbourhood
    )
    tolerance = {"float32": 1e-6, "bfloat16": 4e-3, "float16": 5e-4}[dtype]
    exact, exact_backward = operation.reference(*double(*map(upcast, (q, keys, values))), mask=mask)
    unseen = ~(mask.padded_mask.any(1).reshape(-1))
    for x in (keys, values):
        x[unseen] = np.nan
    if slots is not None:
        slots[:, :, max(n_steps) :] = 10**9
    y, backward = attention.attention_to_cached_keys(q, keys, values, mask=mask)
    assert y.dtype == dtype
    near(upcast(y), exact, tolerance)
    for x in (keys, values):
        x[unseen] = 0
    dy = random.standard_normal(y.shape).astype(y.dtype)
    for got, expected in zip(backward(dy), exact_backward(dy.astype(float)), strict=True):
        near(upcast(gradient_array(got)), expected, 10 * tolerance)


def test_large_scores_of_cached_keys_neither_overflow_nor_vanish() -> None:
    random = np.random.default_rng(1)
    q, keys, values = (random.standard_normal((n, 1, 32)).astype(np.float32) for n in (1, 50, 50))
    mask = CachedKeys(np.array([50]), Segments.of_lengths([1]), Segments.of_lengths([50]))
    for scale in (1e3, -1e3):
        exact, _ = operation.reference(*double(scale * q, keys, values), mask=mask)
        near(attention.attention_to_cached_keys(np.float32(scale) * q, keys, values, mask=mask)[0], exact, 1e-5)
