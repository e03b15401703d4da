"""CUDA kernels without a GPU: attention, whose matrix instruction is emulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import from_bf16, near, to_bf16
from kernel_models import attention as model

from autograd import KeyRanges, Segments
from autograd.kernels.cuda import attention
from autograd.ops.attention import attention as operation
from autograd.random import StreamId
from autograd.tiles import tiles_of
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask

pytestmark = pytest.mark.usefixtures("launch")

SENTENCES = Segments.of_lengths([1, 16, 37, 2])
MASKS = {
    "self": self_attention_mask(SENTENCES),
    "causal": causal_mask(SENTENCES),
    "neighbourhood": causal_mask(SENTENCES, 3),
    "source": encoder_decoder_mask(SENTENCES, Segments.of_lengths([20, 1, 15, 33])),
    "a full block": causal_mask(Segments.of_lengths([64])),
    "long": causal_mask(Segments.of_lengths([70, 3, 130])),
    "long on one side": encoder_decoder_mask(Segments.of_lengths([5, 80, 7]), Segments.of_lengths([90, 20, 3])),
    "keys of no segment between": encoder_decoder_mask(
        Segments.of_lengths([3, 17]), Segments(np.array([2, 25]), np.array([18, 4]))
    ),
}


def draw(mask: KeyRanges, n_heads: int, width: int) -> list[Any]:
    """Draw q, k, v and dy in 16 bits, with rows after the last segment of keys."""
    random, n_keys = np.random.default_rng(1), mask.keys.end + 3
    sizes = mask.queries.n_tokens, n_keys, n_keys, mask.queries.n_tokens
    return [to_bf16(random.standard_normal((n, n_heads, width))) for n in sizes]


@pytest.mark.parametrize("width", attention.WIDTHS)
@pytest.mark.parametrize("name", MASKS)
def test_attention(name: str, width: int) -> None:
    *qkv, dy = draw(MASKS[name], 3, width)
    y, backward = attention.attention_in_tiles(*qkv, mask=MASKS[name])
    exact, exact_backward = operation.reference(*(from_bf16(x).astype(float) for x in qkv), mask=MASKS[name])
    near(from_bf16(y), exact, 6e-3)
    for got, expected in zip(backward(dy), exact_backward(from_bf16(dy).astype(float)), strict=True):
        near(from_bf16(got), expected, 1e-2)
        assert not from_bf16(got)[~expected.any((1, 2))].any()


@pytest.mark.parametrize("name", MASKS)
def test_what_kernels_leave_for_one_another_is_the_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of denominators and ⟨dy, y⟩ are float32: nearer to the model's than any result in 16 bits could be."""
    monkeypatch.setattr(attention, "WIDEST_IN_ONE_PASS", 0)
    run, launches, tiles = attention.launch, [], tiles_of(MASKS[name], np.empty(0))
    monkeypatch.setattr(attention, "launch", lambda *launched: (launches.append(launched), run(*launched)))
    *qkv, dy = draw(MASKS[name], 2, 32)
    y, backward = attention.attention_in_tiles(*qkv, mask=MASKS[name])
    backward(dy)
    log_normalisers = launches[0][10]
    of_queries = [launched for launched in launches if launched[1] == "attention_backward_of_queries_32"]
    for head in range(2):
        q, k, v, y_of_head, dy_of_head = (from_bf16(x[:, head]) for x in (*qkv, y, dy))
        _, expected = model.attention_forward(model.Arguments(q, k, v, tiles, 32**-0.5))
        near(log_normalisers[:, head], expected, 1e-6)
        for blocks, along in ((launched[9], launched[13]) for launched in of_queries):
            rows = [model.slots_of(of_queries) for of_queries, _ in model.not_empty(blocks)]
            rows = np.concatenate([slots.rows[slots.exist] for slots in rows])
            near(along[rows, head], (y_of_head * dy_of_head).sum(1)[rows], 1e-6)


@pytest.mark.parametrize("width", attention.WIDTHS)
@pytest.mark.parametrize("name", MASKS)
def test_dropout_of_weights_is_the_references(name: str, width: int) -> None:
    """The update is read from memory, as in a graph.  One weight of another mask would be an error of 1 in its row."""
    stream_id = StreamId(2**64 - 1, 5, np.array(2**33, np.uint64), 3)
    *qkv, dy = draw(MASKS[name], 3, width)
    dropout = {"rate": 0.3, "stream_id": stream_id}
    y, backward = attention.attention_in_tiles(*qkv, mask=MASKS[name], **dropout)
    exact, exact_backward = operation.reference(*(from_bf16(x).astype(float) for x in qkv), mask=MASKS[name], **dropout)
    near(from_bf16(y), exact, 6e-3)
    for got, expected in zip(backward(dy), exact_backward(from_bf16(dy).astype(float)), strict=True):
        near(from_bf16(got), expected, 1e-2)


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


def test_short_segments_share_blocks_and_long_ones_have_blocks_of_64_rows() -> None:
    tiles = tiles_of(MASKS["self"], np.empty(0))
    first, second = [0, 1, 0, 0, 1, 17, 0, 0], [17, 33, 49, 54, 54, 54, 54, 56]
    np.testing.assert_array_equal(tiles.short, [first * 2, second * 2])
    assert not len(tiles.long_queries)
    assert not len(tiles.long_keys)
    assert tiles_of(MASKS["self"], np.empty(0)) is tiles
    tiles = tiles_of(MASKS["long"], np.empty(0))
    np.testing.assert_array_equal(tiles.short, [[70, 0, 0, 0, 73, 0, 0, 0] * 2])
    moving = np.arange(0, 64, 16)
    rows = [*moving, 70, 70, 70, 70], [64, 0, 0, 0, 70, 0, 0, 0]
    np.testing.assert_array_equal(
        tiles.long_queries[:2], [[*rows[0], *moving, *[64] * 4], [*rows[1], *moving, *[70] * 4]]
    )
    np.testing.assert_array_equal(
        tiles.long_keys[:2], [[*moving, *[70] * 4, *rows[0]], [*(64 + moving), *[70] * 4, *rows[1]]]
    )


def test_attention_of_nothing() -> None:
    nothing = np.empty((0, 2, 32), np.uint16)
    y, backward = attention.attention_in_tiles(
        nothing, nothing, nothing, mask=self_attention_mask(Segments.of_lengths([]))
    )
    assert [x.shape for x in (y, *backward(nothing))] == [(0, 2, 32)] * 4
