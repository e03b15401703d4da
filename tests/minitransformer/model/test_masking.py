"""Who has influence on whom, and who has none: spans against the textbook's masks, derivatives against its paths."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from padded_reference import distance_mask, look_ahead_mask

from autograd import KeyRanges, Segments, Tensor, backward, no_tape
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.model.masks import cached_mask, causal_mask, encoder_decoder_mask, self_attention_mask

# Spans and masks

LENGTH = st.integers(1, 4) | st.just(11)
LENGTHS = st.lists(LENGTH, min_size=1, max_size=5)
PAIRS_OF_LENGTHS = st.lists(st.tuples(LENGTH, LENGTH), min_size=1, max_size=5)
NEIGHBOURHOODS = st.none() | st.integers(0, 4) | st.just(1000)


def padding_mask(lengths: Any) -> Any:
    """(B, 1, longest), True where a key is padding."""
    return (np.arange(max(lengths)) >= np.array(lengths)[:, None])[:, None]


def assert_is_the_mask(mask: KeyRanges, forbidden: Any, query_lengths: Any, starts: Any, lengths: Any) -> None:
    """``forbidden`` (B, Q, K) is the textbook's; ``starts`` and ``lengths`` say where the keys of each segment lie."""
    allowed = ~np.broadcast_to(forbidden, (len(lengths), max(query_lengths), max(lengths)))
    packed = np.zeros((sum(query_lengths), max(np.add(starts, lengths))), bool)
    side_by_side = np.ones(allowed.shape, bool)  # in rows of padding, of which nothing is used
    for b, (start, n_queries, n_keys) in enumerate(zip(starts, query_lengths, lengths, strict=True)):
        row = sum(query_lengths[:b])
        packed[row : row + n_queries, start : start + n_keys] = allowed[b, :n_queries, :n_keys]
        side_by_side[b, :n_queries] = allowed[b, :n_queries]
    np.testing.assert_array_equal(mask.matrix(), packed)
    got = np.ones(allowed.shape, bool) if mask.padded_mask is None else mask.padded_mask
    np.testing.assert_array_equal(got, side_by_side)


def begins(lengths: Any) -> Any:
    return np.array([sum(lengths[:b]) for b in range(len(lengths))])


@given(LENGTHS, NEIGHBOURHOODS, st.integers(0, 3))
def test_encoder_mask_is_the_padding_mask_the_decoders_its_union_with_the_look_ahead_mask(
    lengths: list[int], r: int | None, gap: int
) -> None:
    """A gap before every segment shifts the keys and changes nothing else."""
    forbidden = padding_mask(lengths) | distance_mask(max(lengths), r)
    starts = begins(lengths) + gap * np.arange(1, len(lengths) + 1)
    segments = Segments(starts, np.array(lengths))
    assert_is_the_mask(self_attention_mask(segments, r), forbidden, lengths, starts, lengths)
    forbidden = forbidden | look_ahead_mask(max(lengths))
    assert_is_the_mask(causal_mask(segments, r), forbidden, lengths, starts, lengths)


@given(PAIRS_OF_LENGTHS)
def test_encoder_decoder_mask_is_the_padding_mask_of_the_source(pairs: Any) -> None:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    mask = encoder_decoder_mask(Segments.of_lengths(targets), Segments.of_lengths(sources))
    assert_is_the_mask(mask, padding_mask(sources), targets, begins(sources), sources)


@given(
    n=st.integers(1, 4),
    k=st.integers(1, 3),
    length=st.integers(1, 6),
    r=NEIGHBOURHOODS,
    gap=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_cached_sets_are_the_last_row_of_the_look_ahead_mask_over_what_ancestors_wrote(
    n: int, k: int, length: int, r: int | None, gap: int, seed: int
) -> None:
    n_live = 1 + seed % k
    writers = np.random.default_rng(seed).integers(0, k, (n, n_live, length))
    mask = cached_mask(writers, length, k, length + gap, r)
    newest = ~(look_ahead_mask(length) | distance_mask(length, r))[-1]
    np.testing.assert_array_equal(mask.keys.starts, (length + gap) * k * np.arange(n))
    for sentence, hypothesis, step, writer in np.ndindex(n, n_live, length, k):
        sees = newest[step] and writers[sentence, hypothesis, step] == writer
        assert mask.padded_mask[sentence, hypothesis, step * k + writer] == sees
    later = np.concatenate([writers, np.zeros((n, n_live, 2), int)], axis=2)  # steps that are not computed yet
    on_device = cached_mask(later, np.array([length]), k, length + gap, r)
    np.testing.assert_array_equal(on_device.padded_mask[:, :, : length * k], mask.padded_mask)
    assert not on_device.padded_mask[:, :, length * k :].any()
    np.testing.assert_array_equal(on_device.keys.starts, mask.keys.starts)
    np.testing.assert_array_equal(on_device.queries.lengths, mask.queries.lengths)


# Derivatives and paths

SMALL = ModelConfig(vocabulary_size=5, d_model=4, d_ff=6, n_heads=2, d_k=3, d_v=2, tied="none")
CONFIGS = st.builds(
    dataclasses.replace,
    st.just(SMALL),
    n_layers=st.integers(1, 2),
    norm=st.sampled_from(["post", "pre"]),
    neighbourhood=st.none() | st.integers(0, 3),
)
SHORT = st.integers(1, 3) | st.just(6)  # tokens with END, or with START: 1 is an empty sentence
LENGTHS_OF_PAIRS = st.lists(st.tuples(SHORT, SHORT), min_size=1, max_size=3)
SEEDS = st.integers(0, 1000)
kinds = pytest.mark.parametrize("kind", ["encoder", "model"])


class Given:
    """Stands in the place of an embedding and gives these rows, whatever the ids."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def with_positions(self, ids: Any, encoding: Any, positions: Any, rate: float, random: None, orders: Any) -> Tensor:
        return encoding.add_to(self.rows, positions)


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of packed rows; for each input, which input sentence its rows belong to and which paths there are.

    Shapes: paths[k] (rows of the output, rows of input k), True where the textbook knows a path.
    """

    function: Callable[..., Tensor]
    inputs: list[Any]
    sentences: list[Any]
    paths: list[Any]


def case_of(kind: str, config: ModelConfig, pairs: Any, seed: int) -> Case:
    """Encoder, or the whole model behind its embeddings; weights and inputs are random."""
    model, random = Transformer(config, seed=seed, dtype="float64"), np.random.default_rng(seed)
    for name, parameter in model.named_parameters():
        if name.endswith(("gain", "bias")):
            parameter.value += 0.2 * random.standard_normal(parameter.shape)
        if name.endswith("hidden.bias"):  # no hidden unit near the kink, where differences are no derivatives
            parameter.value += np.resize([9, -9], parameter.shape)
    source, target = (Segments.of_lengths(side) for side in zip(*pairs, strict=True))
    x, memory = (random.standard_normal((segments.n_tokens, config.d_model)) for segments in (target, source))
    for rows in (x, memory):  # nor a row of nearly equal numbers, where the norm bends
        rows += [2, -2, 2, -2]
    r = config.neighbourhood
    reach = math.inf if r is None else config.n_layers * r
    own_source, own_target = (np.repeat(np.arange(len(pairs)), side) for side in zip(*pairs, strict=True))
    if kind == "encoder":
        path = np.equal.outer(own_source, own_source) & (np.abs(behind(source, source)) <= reach)
        return Case(lambda x: model.encoder(x, self_attention_mask(source, r)), [memory], [own_source], [path])
    behind_it = behind(target, target)
    path = np.equal.outer(own_target, own_target) & (behind_it >= 0) & (behind_it <= reach)
    batch = Batch.from_token_ids(*([[3] * (n - 1) for n in segments.lengths] for segments in (source, target)))

    def logits(x: Tensor, memory: Tensor) -> Tensor:
        model.source_embedding, model.target_embedding = Given(memory), Given(x)
        return model.logits(batch)

    paths = [path, np.equal.outer(own_target, own_source)]
    return Case(logits, [x, memory], [own_target, own_source], paths)


def behind(queries: Segments, keys: Segments) -> Any:
    """Return the position of query i minus that of key j, each counted in its sentence."""
    i, j = (np.concatenate([np.arange(length) for length in segments.lengths]) for segments in (queries, keys))
    return i[:, None] - j


def derivatives_by_backward(case: Case) -> list[Any]:
    """For each input (output rows, input rows, D of the output, D of the input)."""
    with no_tape():
        n, d = case.function(*map(Tensor, case.inputs)).shape
    jacobians = [np.zeros((n, len(x), d, x.shape[1])) for x in case.inputs]
    for i, c in np.ndindex(n, d):
        leaves, seed = [Tensor(x) for x in case.inputs], np.zeros((n, d))
        seed[i, c] = 1
        backward(case.function(*leaves), seed)
        for jacobian, leaf in zip(jacobians, leaves, strict=True):
            jacobian[i, :, c] = leaf.grad
    return jacobians


def derivatives_by_differences(case: Case, step: float = 1e-5) -> list[Any]:
    """The same, by central differences."""
    jacobians = []
    for k, x in enumerate(case.inputs):
        columns = []
        for j, c in np.ndindex(*x.shape):
            change = np.zeros(x.shape)
            change[j, c] = step
            above, below = (value_of(case, {k: x + sign * change}) for sign in (1, -1))
            columns.append((above - below) / (2 * step))
        jacobians.append(np.stack(columns, -1).reshape(len(above), -1, *x.shape).transpose(0, 2, 1, 3))
    return jacobians


def value_of(case: Case, changed: dict[int, Any]) -> Any:
    with no_tape(), np.errstate(all="ignore"):
        return case.function(*(Tensor(changed.get(k, x)) for k, x in enumerate(case.inputs))).value


@kinds
@given(config=CONFIGS, pairs=LENGTHS_OF_PAIRS, seed=SEEDS)
@settings(max_examples=6)
@example(config=dataclasses.replace(SMALL, n_layers=2, neighbourhood=1), pairs=[(7, 7)], seed=1)
@example(config=dataclasses.replace(SMALL, n_layers=3, neighbourhood=1, norm="pre"), pairs=[(5, 5), (1, 1)], seed=2)
@example(config=dataclasses.replace(SMALL, n_layers=2), pairs=[(1, 6), (6, 1), (3, 3)], seed=3)
def test_derivatives_are_zero_exactly_where_there_is_no_path(kind: str, config: Any, pairs: Any, seed: int) -> None:
    case = case_of(kind, config, pairs, seed)
    for ours, differences, path in zip(
        derivatives_by_backward(case), derivatives_by_differences(case), case.paths, strict=True
    ):
        np.testing.assert_allclose(ours, differences, rtol=1e-6, atol=1e-7 * max(1, np.abs(ours).max()))
        assert not ours[~path].any()
        assert not differences[~path].any()
        assert ours.any((2, 3))[path].all()


@kinds
@given(config=CONFIGS, pairs=LENGTHS_OF_PAIRS, seed=SEEDS, exponent=st.integers(-3, 100), data=st.data())
@settings(max_examples=30)
def test_no_change_without_a_path(kind: str, config: Any, pairs: Any, seed: int, exponent: int, data: Any) -> None:
    """Up to 10¹⁰⁰: of larger numbers the squares, which scores and norms are made of, are no numbers."""
    case = case_of(kind, config, pairs, seed)
    k = data.draw(st.integers(0, len(case.inputs) - 1))
    j = data.draw(st.integers(0, len(case.inputs[k]) - 1))
    changed = case.inputs[k].copy()
    changed[j] = 10.0**exponent * np.random.default_rng(seed + 1).standard_normal(changed.shape[1])
    before, after = value_of(case, {}), value_of(case, {k: changed})
    unseen = ~case.paths[k][:, j]
    np.testing.assert_array_equal(before[unseen], after[unseen])


@kinds
@given(
    config=CONFIGS, pairs=LENGTHS_OF_PAIRS, seed=SEEDS, data=st.data(), poison=st.sampled_from([np.nan, np.inf, 1e300])
)
@settings(max_examples=20)
def test_a_nan_sentence_spoils_none(kind: str, config: Any, pairs: Any, seed: int, data: Any, poison: float) -> None:
    """Its own tokens it may spoil, earlier ones too: a mask adds −∞, and −∞ + NaN is NaN."""
    case = case_of(kind, config, pairs, seed)
    k = data.draw(st.integers(0, len(case.inputs) - 1))
    sentence = data.draw(st.integers(0, len(pairs) - 1))
    changed = np.where((case.sentences[k] == sentence)[:, None], poison, case.inputs[k])
    before, after = value_of(case, {}), value_of(case, {k: changed})
    others = case.sentences[0] != sentence
    np.testing.assert_array_equal(before[others], after[others])
    assert not np.array_equal(before[~others], after[~others])


@pytest.mark.parametrize("positions", ["interleaved", "learned"])
def test_where_every_token_sees_itself_alone_queries_and_keys_have_no_gradient_at_all(positions: Any) -> None:
    """Adam would follow one of rounding at the full rate."""
    sizes = {"vocabulary_size": 40, "n_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 4, "d_k": 8, "d_v": 8}
    config = ModelConfig(**sizes, neighbourhood=0, positions=positions)
    model, random = Transformer(config, seed=1, dtype="float32"), np.random.default_rng(1)
    sides = [[random.integers(3, 40, n).tolist() for n in lengths] for lengths in ([9, 4, 1, 7], [5, 8, 1, 6])]
    backward(model.loss(Batch.from_token_ids(*sides)))
    score_gradients = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if "self_attention.query" in name or "self_attention.key" in name
    }
    assert len(score_gradients) == 2 * 2 * config.n_layers
    assert not any(gradient.any() for gradient in score_gradients.values())
