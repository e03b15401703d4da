"""Dropout: how much it keeps, masks that have nothing in common, and the same mask again in the backward pass.

What is counted may be STANDARD_ERRORS off: a true statement fails one time in 1.7 million.  Everything that is counted
here has fixed seeds (Hypothesis' too, by ``derandomize``), so a test that passed once passes always.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autograd import Blocks, KeySpans, ParameterBuffer, RandomStream, Tensor, backward, ops
from autograd.random import Site, random_uint16
from minitransformer.config import ModelConfig
from minitransformer.model.batch import Batch
from minitransformer.model.layers import FeedForward, Residual
from minitransformer.model.transformer import Transformer
from parallel.communicator import shards_of_rank

STANDARD_ERRORS = 5
NUMBERS = 2**16  # what a 16-bit number can be
SITE = Site(seed=5, site=1)
FIELDS = [field.name for field in dataclasses.fields(Site)]
WORDS = st.integers(0, 2**64 - 1) | st.integers(0, 3)
SITES = st.builds(Site, seed=WORDS, site=WORDS, update=WORDS, shard=WORDS)
RATES = st.floats(0, 1, exclude_max=True)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
counted = settings(derandomize=True, max_examples=100)


def mask_of(rate: float, site: Site, *shape: int, dtype: Any = "float64") -> Any:
    """What dropout multiplies with."""
    return ops.dropout(np.ones(shape, dtype), rate=rate, site=site).value


def bits(x: Any) -> tuple[Any, ...]:
    """An array so that == means the same in every bit."""
    return x.shape, x.dtype, x.tobytes()


# The share that is kept


@DTYPES
@pytest.mark.parametrize("rate", [2**-16, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 0.999, 1 - 2**-16])
def test_the_share_of_elements_that_is_kept_is_one_minus_the_rate(rate: float, dtype: str) -> None:
    n, resolution = 2**20, 2**-17
    share = np.count_nonzero(mask_of(rate, SITE, n, dtype=dtype)) / n
    assert abs(share - (1 - rate)) < STANDARD_ERRORS * math.sqrt(rate * (1 - rate) / n) + resolution


@contextmanager
def every_number_once() -> Iterator[None]:
    """Draws give 0 … 65535 in a row, so that shares become probabilities."""
    with pytest.MonkeyPatch.context() as patch:
        module = import_module("autograd.ops.dropout")  # in autograd.ops the name is that of the operation
        patch.setattr(module, "random_uint16", lambda like, *, site, count: np.arange(count, dtype=np.uint16))
        yield


@DTYPES
@given(rate=RATES | RATES.map(lambda rate: rate * 2**-14) | RATES.map(lambda rate: 1 - (1 - rate) * 2**-14))
def test_the_probability_is_the_multiple_of_2_to_the_minus_16_nearest_to_the_rate(dtype: str, rate: float) -> None:
    assume(rate < 1)
    with every_number_once():
        dropped = np.count_nonzero(mask_of(rate, SITE, NUMBERS, dtype=dtype) == 0)
    # Something is always kept: above 1 − 2⁻¹⁷ the nearest multiple would be 1.
    assert abs(dropped / NUMBERS - rate) <= (2**-17 if rate <= 1 - 2**-17 else 2**-16)
    assert dropped < NUMBERS


@DTYPES
@given(rate=RATES | RATES.map(lambda rate: rate * 2**-14))
def test_the_scale_is_the_inverse_of_the_probability_in_force_so_that_the_mean_of_the_mask_is_1(
    dtype: str, rate: float
) -> None:
    with every_number_once():
        mask = mask_of(rate, SITE, NUMBERS, dtype=dtype)
    (scale,) = set(mask[mask != 0].tolist())
    assert abs(scale * np.count_nonzero(mask) / NUMBERS - 1) <= np.finfo(dtype).eps


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e-6, 2**-17])
def test_a_rate_below_half_the_resolution_drops_nothing(rate: float) -> None:
    x = np.random.default_rng(1).standard_normal((50, 2000))
    assert bits(ops.dropout(x, rate=rate, site=SITE).value) == bits(x)


def test_the_smallest_rates_above_it_drop_the_number_0_alone() -> None:
    with every_number_once():
        mask = mask_of(2**-16, SITE, NUMBERS)
    assert np.flatnonzero(mask == 0).tolist() == [0]


@DTYPES
@given(rate=RATES, seed=st.integers(0, 99))
def test_the_result_is_the_argument_times_the_mask(dtype: str, rate: float, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((7, 11)).astype(dtype)
    y = ops.dropout(x, rate=rate, site=SITE).value
    assert bits(y) == bits(x * mask_of(rate, SITE, 7, 11, dtype=dtype))


# Masks have nothing in common


def correlation(x: Any, y: Any) -> float:
    """Of two masks' zeros, in standard errors of what independent ones would show."""
    x, y = (x != 0) * 1.0, (y != 0) * 1.0
    products = (x - x.mean()) * (y - y.mean())
    return float(products.sum() / (x.std() * y.std() * math.sqrt(x.size)))


@st.composite
def two_sites(draw: st.DrawFn) -> tuple[Site, Site]:
    """Any two sites, and often two that differ in little: by 1, by one bit, or by the order of their numbers."""
    one = draw(SITES)
    here = [getattr(one, name) for name in FIELDS]
    near = st.tuples(*(st.sampled_from([n, (n + 1) % 2**64, (n - 1) % 2**64, n ^ 2**63, n ^ 2**32]) for n in here))
    other = draw(SITES | (near | st.permutations(here)).map(lambda words: Site(*words)))
    assume(one != other)
    return one, other


@counted
@given(two_sites(), st.sampled_from([0.1, 0.5, 0.9]))
def test_masks_of_any_two_sites_are_not_correlated(sites: tuple[Site, Site], rate: float) -> None:
    masks = [mask_of(rate, site, 2**16) for site in sites]
    assert abs(correlation(*masks)) < STANDARD_ERRORS


@pytest.mark.parametrize("field", FIELDS)
def test_masks_of_consecutive_seeds_sites_updates_and_shards_are_not_correlated(field: str) -> None:
    masks = [mask_of(0.3, dataclasses.replace(SITE, **{field: number}), 2**14) for number in range(12)]
    assert max(abs(correlation(x, y)) for x, y in itertools.combinations(masks, 2)) < STANDARD_ERRORS


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_elements_of_one_mask_are_not_correlated_with_those_a_few_or_a_row_further(rate: float) -> None:
    mask = mask_of(rate, SITE, 2**20)
    for distance in [*range(1, 33), 64, 512, 2048]:
        assert abs(correlation(mask[:-distance], mask[distance:])) < STANDARD_ERRORS, distance


def neighbours(site: Site) -> set[Site]:
    """All sites whose numbers differ from this one's by at most 1, or in their order: 81 and up to 23."""
    here = [getattr(site, name) for name in FIELDS]
    near = itertools.product(*([(n - 1) % 2**64, n, (n + 1) % 2**64] for n in here))
    return {Site(*words) for words in [*near, *itertools.permutations(here)]}


def windows(site: Site) -> Any:
    """Every run of 64 elements of a mask, as one number of 64 bits."""
    kept = mask_of(0.5, site, 500) != 0
    return np.packbits(np.lib.stride_tricks.sliding_window_view(kept, 64), axis=-1).view(np.uint64)


@settings(counted, max_examples=15)
@given(SITES)
def test_no_stretch_of_a_mask_occurs_in_another_or_a_second_time(site: Site) -> None:
    """Streams that overlapped, at whatever distance within a mask, would share 64 elements in a row."""
    found = np.concatenate([windows(neighbour) for neighbour in neighbours(site)])
    assert len(np.unique(found)) == len(found)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 11])
def test_ranks_draw_at_sites_of_their_own_which_together_are_those_of_a_single_process(size: int) -> None:
    def sites_of(rank: int, size: int) -> list[Site]:
        streams = [RandomStream(7, 3, shard) for shard in shards_of_rank(rank, size, 8)]
        return [stream.next_site() for stream in streams for _ in range(5)]

    of_ranks = [site for rank in range(size) for site in sites_of(rank, size)]
    assert of_ranks == sites_of(0, 1)
    assert len(set(of_ranks)) == 8 * 5


# The bits below the masks


def chi_square(cells: Any, n_cells: int) -> float:
    """How far from equal frequencies, in standard errors; cells that are too equal are far below 0."""
    expected, dof = cells.size / n_cells, n_cells - 1
    statistic = ((np.bincount(cells.ravel(), minlength=n_cells) - expected) ** 2).sum() / expected
    return float((statistic - dof) / math.sqrt(2 * dof))


def numbers_of(site: Site) -> Any:
    return random_uint16(np.empty(0), site=site, count=2**21).astype(np.int64)


SOME_SITES = pytest.mark.parametrize("site", [SITE, Site(0, 0), Site(1, 2, 3, 4), Site(2**64 - 1, 2**63, 10**6, 7)])


@SOME_SITES
def test_all_16_bit_numbers_are_equally_frequent(site: Site) -> None:
    assert abs(chi_square(numbers_of(site), NUMBERS)) < STANDARD_ERRORS


@SOME_SITES
def test_every_bit_is_set_in_half_of_all_words(site: Site) -> None:
    set_bits = numbers_of(site).reshape(-1, 4, 1) >> np.arange(16) & 1
    standard_error = 0.5 / math.sqrt(len(set_bits))
    assert (abs(set_bits.mean(0) - 0.5) < STANDARD_ERRORS * standard_error).all()


@SOME_SITES
@pytest.mark.parametrize("distance", [1, 2, 4, 16], ids=["next", "second", "word", "block"])
def test_a_number_says_nothing_about_one_behind_it(site: Site, distance: int) -> None:
    numbers = numbers_of(site)
    for shift in (0, 8):
        first, second = numbers[:-distance] >> shift & 0xFF, numbers[distance:] >> shift & 0xFF
        assert abs(chi_square(256 * first + second, NUMBERS)) < STANDARD_ERRORS


# The same mask again: in the backward pass, in another precision, in another place


@DTYPES
@given(rate=RATES, site=SITES, shape=st.lists(st.integers(0, 9), max_size=3))
def test_the_gradient_of_the_sum_is_the_forward_mask_bit_for_bit(
    dtype: str, rate: float, site: Site, shape: list[int]
) -> None:
    x = Tensor(np.ones(shape, dtype))
    y = ops.dropout(x, rate=rate, site=site)
    backward(ops.sum(y))
    assert x.grad is not None
    assert bits(x.grad) == bits(y.value)


def test_the_mask_goes_by_row_and_column_not_by_the_place_in_memory() -> None:
    x = Tensor(np.random.default_rng(2).standard_normal((40, 30)).T)
    y, mask = ops.dropout(x, rate=0.5, site=SITE), mask_of(0.5, SITE, 30, 40)
    backward(y, np.ones((40, 30)).T)
    np.testing.assert_array_equal(y.value, x.value * mask)
    np.testing.assert_array_equal(x.grad, mask)


@given(rate=RATES, site=SITES)
def test_float32_and_float64_have_the_same_mask(rate: float, site: Site) -> None:
    in_double = mask_of(rate, site, 300)
    assert bits(mask_of(rate, site, 300, dtype="float32")) == bits(in_double.astype("float32"))


def spans_of(query_lengths: list[int], key_lengths: list[int]) -> KeySpans:
    """Every query sees all keys of its block."""
    queries, keys = Blocks.of_lengths(query_lengths), Blocks.of_lengths(key_lengths)
    start = keys.starts[queries.block_of_token]
    return KeySpans(start, start + keys.lengths[queries.block_of_token], queries, keys)


def attention_masks(spans: KeySpans, n_heads: int, rate: float, dtype: Any = "float64") -> tuple[Any, Any]:
    """The masks of the attention weights (T, H, S), as the forward and as the backward pass have them.

    Queries and keys are 0: a block's n weights are all 1/n, exactly so if n is a power of two.  Value j is the j-th
    unit vector, so the result is the dropped weights.  The gradient of output t is the t-th unit vector, so that of
    the values is the dropped weights again.
    """
    n_queries, n_keys = spans.queries.n_tokens, spans.keys.n_tokens
    width = max(n_queries, n_keys)
    nothing = np.zeros((width, n_heads, 1), dtype)
    units = np.repeat(np.eye(width, dtype=dtype)[:, None], n_heads, axis=1)
    v = Tensor(units[:n_keys])
    y = ops.attention(nothing[:n_queries], nothing[:n_keys], v, spans=spans, rate=rate, site=SITE)
    backward(y, units[:n_queries])
    assert v.grad is not None
    n = spans.keys.lengths[spans.queries.block_of_token].astype(dtype)[:, None, None]
    return y.value[..., :n_keys] * n, v.grad.transpose(2, 1, 0)[:n_queries] * n


ATTENTION = {
    "one sentence": ([3], [8]),
    "equal lengths": ([4, 4], [4, 4]),
    "padded": ([1, 5, 2], [4, 1, 8]),
    "newest tokens": ([1, 1, 1], [2, 2, 2]),
}


@DTYPES
@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_attention_multiplies_with_one_mask_forward_and_backward(name: str, rate: float, dtype: str) -> None:
    forward, back = attention_masks(spans_of(*ATTENTION[name]), 6, rate, dtype)
    scale = np.array(NUMBERS / (NUMBERS - round(rate * NUMBERS)), dtype)
    assert set(np.unique(forward).tolist()) == {0.0, float(scale)}
    assert bits(np.ascontiguousarray(back)) == bits(forward)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=4),
    st.integers(1, 4),
    RATES,
)
def test_attention_has_one_mask_for_blocks_of_all_lengths(
    lengths: list[tuple[int, int]], n_heads: int, rate: float
) -> None:
    query_lengths, key_lengths = zip(*lengths, strict=True)
    forward, back = attention_masks(spans_of(list(query_lengths), list(key_lengths)), n_heads, rate)
    assert bits(np.ascontiguousarray(back)) == bits(forward)


def test_queries_and_keys_get_their_gradients_through_the_mask_too() -> None:
    """With queries 1, keys 0 and a loss that adds the outputs up, dkey j = w (mask_j − mean of the mask)."""
    n_keys, n_heads = 8, 5
    spans = spans_of([1], [n_keys])
    mask, _ = attention_masks(spans, n_heads, 0.4)
    k = Tensor(np.zeros((n_keys, n_heads, 1)))
    q, units = np.ones((1, n_heads, 1)), np.repeat(np.eye(n_keys)[:, None], n_heads, axis=1)
    backward(ops.sum(ops.attention(q, k, units, spans=spans, rate=0.4, site=SITE)))
    expected = (mask - mask.mean(-1, keepdims=True))[0].T[..., None] / n_keys
    np.testing.assert_allclose(k.grad, expected, atol=1e-15)


def test_attention_has_the_same_mask_in_float32_and_float64() -> None:
    spans = spans_of(*ATTENTION["padded"])
    single, double = (attention_masks(spans, 3, 0.3, dtype)[0] for dtype in ("float32", "float64"))
    assert bits(single) == bits(double.astype("float32"))


def test_attention_drops_other_weights_in_every_head_sentence_and_query() -> None:
    n = 64
    mask, _ = attention_masks(spans_of([n, n], [n, n]), 2, 0.3)
    rows = [mask[first : first + n, head, first : first + n] for first in (0, n) for head in (0, 1)]
    assert max(abs(correlation(x, y)) for x, y in itertools.combinations(rows, 2)) < STANDARD_ERRORS
    assert abs(correlation(rows[0][1:], rows[0][:-1])) < STANDARD_ERRORS
    assert abs(correlation(rows[0][:, 1:], rows[0][:, :-1])) < STANDARD_ERRORS


@DTYPES
def test_the_feed_forward_network_drops_behind_the_relu_with_one_mask_forward_and_backward(dtype: str) -> None:
    """Both matrices are the identity, so that ones come out as the mask, and their gradient is the mask."""
    n_tokens, width = 30, 16
    layer = FeedForward(ModelConfig(d_model=width, d_ff=width, p_drop_relu=0.3, p_drop=0.0))
    ParameterBuffer(layer, seed=None, dtype=dtype)
    for matrix in (layer.hidden.weight, layer.output.weight):
        matrix.value[...] = np.eye(width)
    x = Tensor(np.ones((n_tokens, width), dtype))
    y = layer(x, RandomStream(SITE.seed))
    backward(ops.sum(y))
    assert bits(y.value) == bits(mask_of(0.3, SITE, n_tokens, width, dtype=dtype))
    assert x.grad is not None
    assert bits(x.grad) == bits(y.value)


def test_a_residual_frame_drops_its_sublayer_alone_with_one_mask_forward_and_backward() -> None:
    layer = Residual(ModelConfig(d_model=16, norm="pre", p_drop=0.3))
    ParameterBuffer(layer, seed=1, dtype="float64")
    x, of_sublayer = Tensor(np.zeros((30, 16))), Tensor(np.ones((30, 16)))
    y = layer(x, lambda x: of_sublayer, RandomStream(SITE.seed))
    backward(ops.sum(y))
    assert bits(y.value) == bits(mask_of(0.3, SITE, 30, 16))
    assert of_sublayer.grad is not None
    assert bits(of_sublayer.grad) == bits(y.value)
    np.testing.assert_array_equal(x.grad, 1)


# Streams and whole models: a mask depends on its site and on nothing that was computed before

MODEL = ModelConfig(
    vocabulary_size=11, n_layers=2, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=4,
    p_drop=0.3, p_drop_attention=0.2, p_drop_relu=0.25,
)  # fmt: skip
SHARDS = [
    Batch.from_token_ids([[3, 4, 5], [6]], [[7, 8], [9, 10, 3]]),
    Batch.from_token_ids([[8, 9, 3, 4, 4, 5]], [[5, 6, 7]]),
    Batch.from_token_ids([[], [10], [3, 3]], [[4], [], [6, 6, 6, 6]]),
]


class NotedStream(RandomStream):
    """Remembers the sites that it handed out."""

    def __init__(self, seed: int, update: int = 0, shard: int = 0) -> None:
        super().__init__(seed, update, shard)
        self.sites: list[Site] = []

    def next_site(self) -> Site:
        self.sites.append(super().next_site())
        return self.sites[-1]


@given(WORDS, WORDS, WORDS)
def test_streams_of_one_seed_update_and_shard_give_the_same_masks(seed: int, update: int, shard: int) -> None:
    def masks(stream: RandomStream) -> list[Any]:
        return [bits(mask_of(0.5, stream.next_site(), 100)) for _ in range(4)]

    first, other, again = (RandomStream(seed, update, number) for number in (shard, shard ^ 1, shard))
    for _ in range(2):  # in turn: no stream moves another one on
        of_first, of_other, of_again = masks(first), masks(other), masks(again)
        assert of_first == of_again
        assert not set(of_first) & set(of_other)


def test_every_dropout_of_a_model_has_a_site_of_its_own() -> None:
    """Two sums of embeddings and positions, then in each layer the weights and the result of every sublayer."""
    stream = NotedStream(1, 2, 3)
    Transformer(MODEL).loss(SHARDS[0], stream)
    in_encoder_layer, in_decoder_layer = 2 + 2, 2 + 2 + 2
    assert len(set(stream.sites)) == len(stream.sites) == 2 + MODEL.n_layers * (in_encoder_layer + in_decoder_layer)


def shard_result(model: Transformer, shard: int) -> tuple[Any, ...]:
    """Loss and gradients of a shard, which its masks decide."""
    gradients = np.zeros_like(model.parameters.gradients)
    loss = model.loss(SHARDS[shard], RandomStream(1, 2, shard))
    backward(loss, into=gradients)
    return bits(loss.value), bits(gradients)


def test_another_shard_number_gives_the_same_sentences_other_masks() -> None:
    model = Transformer(MODEL)
    losses = {float(model.loss(SHARDS[0], RandomStream(1, 2, shard))) for shard in range(4)}
    assert len(losses) == 4


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_shards_have_the_same_masks_whatever_was_computed_before_them(order: tuple[int, ...]) -> None:
    model = Transformer(MODEL)
    alone = [shard_result(Transformer(MODEL), shard) for shard in range(3)]
    assert [shard_result(model, shard) for shard in order] == [alone[shard] for shard in order]


def test_shards_have_the_same_masks_on_threads_side_by_side() -> None:
    model, order = Transformer(MODEL), [0, 1, 2] * 8
    alone = [shard_result(model, shard) for shard in range(3)]
    with ThreadPoolExecutor(4) as threads:
        results: list[Any] = list(threads.map(lambda shard: shard_result(model, shard), order))
    assert results == [alone[shard] for shard in order]


def test_sentences_behind_it_in_the_batch_leave_a_sentence_its_masks() -> None:
    """True of all dropouts but that of attention weights, whose mask goes by the place in the padded batch."""
    model = Transformer(dataclasses.replace(MODEL, p_drop_attention=0.0), dtype="float64")
    pairs = [([3, 4, 5], [7, 8]), ([6, 9, 9, 3], [9, 10, 3, 4])]

    def logits(n_pairs: int) -> Any:
        sources, targets = zip(*pairs[:n_pairs], strict=True)
        return model.logits(Batch.from_token_ids(sources, targets), RandomStream(1)).value

    alone = logits(1)
    np.testing.assert_allclose(logits(2)[: len(alone)], alone, rtol=0, atol=1e-12)
