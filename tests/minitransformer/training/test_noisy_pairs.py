"""Training pairs with noise: each epoch has other noisy lines, a pure function of seed, epoch and pair."""

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from small_sentences import sentencepiece_model

from minitransformer.config import ConfigError, NoiseKind, RunConfig
from minitransformer.data import store as store_module
from minitransformer.data.store import TokenStore, TrainingPairs, write_shard, write_store
from minitransformer.data.token_dropout import BpeDropout
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import END, UNKNOWN
from minitransformer.training.noisy_pairs import NoisyPairs
from tests.support.training import StoppingMonitor, changed, finished, job_of, run_of, weights

DRAW = np.random.default_rng(1)
ENGLISH, GERMAN = ["old", "dog", "sees", "three", "houses"], ["alter", "Hund", "sieht", "drei", "Häuser"]
ALL: dict[NoiseKind, float] = dict.fromkeys(("no_end_mark", "typos", "blanks", "title", "capitals"), 0.05)  # type: ignore[arg-type]


def line(words: list[str]) -> str:
    return f"{' '.join(DRAW.choice(words, DRAW.integers(2, 7)))}."


PAIRS = [(line(ENGLISH), line(GERMAN)) for _ in range(3_000)]
CAPITALS = [(source.upper(), target.upper()) for source, target in PAIRS[:300]]
TOKENIZER = Tokenizer.train([*PAIRS, *CAPITALS], vocabulary_size=90)
PAIRS_PER_SHARD = 700


def store_of(folder: Path, tokenizer: Tokenizer = TOKENIZER, pairs: Sequence[tuple[str, str]] = PAIRS) -> TokenStore:
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    ids = zip(tokenizer.encode_source(sources), tokenizer.encode_target(targets), strict=True)
    with mock.patch.object(store_module, "PAIRS_PER_SHARD", PAIRS_PER_SHARD):
        write_store(folder, "train", ids, 1_000)
    return TokenStore(folder, "train")


def noisy_pairs(
    store: TokenStore,
    shares: dict[NoiseKind, float] = ALL,
    tokenizer: Tokenizer = TOKENIZER,
    longest: int = 256,
    seed: int = 1,
    dropout: BpeDropout | None = None,
) -> NoisyPairs:
    return NoisyPairs(store, tokenizer, shares, ["en", "de"], longest, seed, dropout)


def ids_in(pairs: TrainingPairs, epoch: int, shards: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    read = pairs.read(shards, epoch)
    found = [read.pair(i) for i in range(len(read))]
    assert read.lengths.tolist() == [[len(source), len(target)] for source, target in found]
    for side in (0, 1):
        packed, _ = read.packed(np.arange(len(read)), side)
        assert packed.tolist() == [i for pair in found for i in [*pair[side].tolist(), END]]
    return [(source.tolist(), target.tolist()) for source, target in found]


def text_in(pairs: TrainingPairs, epoch: int = 0, tokenizer: Tokenizer = TOKENIZER) -> list[tuple[str, str]]:
    found = ids_in(pairs, epoch, range(len(pairs.shard_sizes)))
    sources, targets = zip(*found, strict=True)
    return list(zip(tokenizer.source.decode(list(sources)), tokenizer.target.decode(list(targets)), strict=True))


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    store = store_of(tmp_path)
    assert len(store.shard_sizes) == 5
    return store


@pytest.mark.parametrize("kind", ALL)
def test_the_share_of_pairs_has_noise_and_the_others_keep_their_tokens(kind: NoiseKind, store: TokenStore) -> None:
    share = 0.2
    found = text_in(noisy_pairs(store, {kind: share}))
    changes = [(old, new) for old, new in zip(PAIRS, found, strict=True) if old != new]
    spread = (share * (1 - share) / len(PAIRS)) ** 0.5
    assert abs(len(changes) / len(PAIRS) - share) < 4 * spread
    for (source, target), (noisy_source, noisy_target) in changes:
        expected = {
            "capitals": (source.upper(), target.upper()),
            "title": (source.title(), target.title()),
            "no_end_mark": (source.removesuffix("."), target.removesuffix(".")),
        }.get(kind, (noisy_source, target))
        assert (noisy_source, noisy_target) == expected
        assert noisy_source != source


def test_an_epoch_is_a_pure_function_of_seed_epoch_and_pair(store: TokenStore) -> None:
    """Neither epochs nor shards that were read before change anything, nor the shares of other kinds."""
    one, other, third = noisy_pairs(store), noisy_pairs(store), noisy_pairs(store, seed=2)
    epochs = [ids_in(one, epoch, [2]) for epoch in range(4)]
    assert all(a != b for i, a in enumerate(epochs) for b in epochs[:i])
    assert ids_in(other, 3, [2]) == epochs[3]
    assert ids_in(other, 3, [1]) != ids_in(other, 3, [2])
    assert ids_in(third, 3, [2]) != epochs[3]
    titles = text_in(noisy_pairs(store, {"title": 0.1}))
    both = text_in(noisy_pairs(store, {"title": 0.1, "typos": 0.1}))
    n_titles, n_both = (sum(target.istitle() for _, target in found) for found in (titles, both))
    assert n_both >= n_titles * 0.99


def test_the_store_itself_stays_as_it_is(store: TokenStore) -> None:
    before = ids_in(store, 0, range(len(store.shard_sizes)))
    noisy_pairs(store).read(range(5), 0)
    assert ids_in(store, 0, range(len(store.shard_sizes))) == before


def test_noisy_text_gets_bpe_dropout_too(store: TokenStore) -> None:
    """The words are those without dropout, in other pieces; pairs without noise are those of BPE-dropout alone."""
    dropout = BpeDropout(store, TOKENIZER, 0.3, seed=1)
    noisy = noisy_pairs(store, dropout=dropout)
    alone, both = ids_in(dropout, 1, [0]), ids_in(noisy, 1, [0])
    texts = [tuple(map(TOKENIZER.source.decode, pair)) for pair in both]
    is_noisy = [text != pair for text, pair in zip(texts, PAIRS, strict=True)]
    assert 0.1 < sum(is_noisy) / len(PAIRS) < 0.3
    assert all(a == b for a, b, changed in zip(alone, both, is_noisy, strict=True) if not changed)
    pieces = [list(map(TOKENIZER.source.encode, text)) for text in texts]
    n_other = sum(list(pair) != usual for pair, usual, noise in zip(both, pieces, is_noisy, strict=True) if noise)
    assert n_other > 0.5 * sum(is_noisy)
    assert ids_in(noisy_pairs(store, dropout=BpeDropout(store, TOKENIZER, 0.3, seed=1)), 1, [0]) == both


def test_noise_that_makes_a_pair_too_long_is_left_out(store: TokenStore) -> None:
    found = ids_in(noisy_pairs(store, {"capitals": 1.0}, longest=20), 0, range(5))
    plain = ids_in(store, 0, range(5))
    n_tokens = [max(map(len, map(TOKENIZER.source.encode, map(str.upper, pair)))) for pair in PAIRS]
    assert 300 < sum(n <= 20 for n in n_tokens) < 2_700
    for new, old, n in zip(found, plain, n_tokens, strict=True):
        assert (new != old) == (n <= 20)


def test_noise_with_unknown_letters_is_left_out(tmp_path: Path) -> None:
    """The vocabulary has no capital L."""
    known = [(source.upper(), target.upper()) for source, target in PAIRS if "l" not in source + target]
    tokenizer = Tokenizer.train([*PAIRS, *known], vocabulary_size=90)
    store = store_of(tmp_path, tokenizer)
    found = text_in(noisy_pairs(store, {"capitals": 1.0}, tokenizer), tokenizer=tokenizer)
    for (source, target), noisy in zip(PAIRS, found, strict=True):
        assert noisy == ((source, target) if "l" in source + target else (source.upper(), target.upper()))


def test_a_text_that_has_other_tokens_when_it_is_encoded_again_stays(tmp_path: Path) -> None:
    """Those of the first pair are single letters, and an unknown character is no obstacle."""
    pairs = [*PAIRS, ("old Ω dog.", "alter Hund.")]
    ids = [list(map(TOKENIZER.source.encode, pair)) for pair in pairs]
    ids[0][0] = list(map(TOKENIZER.source.piece_to_id, PAIRS[0][0].replace(" ", "▁")))
    write_store(tmp_path, "train", ((source, target) for source, target in ids), 1_000)
    store = TokenStore(tmp_path, "train")
    found = ids_in(noisy_pairs(store, {"capitals": 1.0}), 0, [0])
    assert found[0] == tuple(ids[0])
    assert all(new != tuple(old) for new, old in zip(found[1:], ids[1:], strict=True))
    assert found[-1][0].count(UNKNOWN) == 1


def test_sharp_s_becomes_two_letters_if_the_vocabulary_lacks_the_capital(tmp_path: Path) -> None:
    for known, expected in (("", "GROSS SEHEN."), ("ẞ", "GROẞ SEHEN.")):
        pairs = [("tall.", "groß sehen."), ("TALL.", f"GROSS SEHEN.{known}")] * 30
        tokenizer = Tokenizer.train(pairs, vocabulary_size=40)
        store = store_of(tmp_path / f"with {known}", tokenizer, pairs[:1])
        assert text_in(noisy_pairs(store, {"capitals": 1.0}, tokenizer), tokenizer=tokenizer) == [("TALL.", expected)]


@pytest.mark.parametrize(("pairs", "kind"), [
    ([("犬が 寝る。", "the dog sleeps.")] * 40, "capitals"), ([("犬が寝る。", "a dog.")] * 40, "blanks"),
    ([("one two", "eins zwei")] * 40, "no_end_mark"), ([("1 2 3.", "1 2 3.")] * 40, "typos"),
])  # fmt: skip
def test_a_kind_that_changes_nothing_is_refused(pairs: list[tuple[str, str]], kind: NoiseKind, tmp_path: Path) -> None:
    tokenizer = Tokenizer(sentencepiece_model([side for pair in pairs for side in pair], vocab_size=40))
    with pytest.raises(ConfigError, match=rf"training\.noise: {kind} changes none of 40 training pairs.*leave {kind}"):
        noisy_pairs(store_of(tmp_path, tokenizer, pairs), {kind: 0.05}, tokenizer)


def test_a_kind_that_changes_pairs_of_one_shard_is_accepted(tmp_path: Path) -> None:
    """No pair of the first shard is left, and those of the second have no mark at the end."""
    unmarked = [(source.rstrip("."), target.rstrip(".")) for source, target in PAIRS[:PAIRS_PER_SHARD]]
    store_of(tmp_path, pairs=[*PAIRS[:PAIRS_PER_SHARD], *unmarked, *PAIRS[:10]])
    write_shard(tmp_path, "train", 0, (), 1_000)
    noisy = noisy_pairs(TokenStore(tmp_path, "train"), {"no_end_mark": 1.0})
    assert noisy.shard_sizes == [0, PAIRS_PER_SHARD, 10]
    assert not any(side.endswith(".") for pair in text_in(noisy)[-10:] for side in pair)


def test_a_tokenizer_that_lowers_capitals_or_has_whole_words_is_refused(tmp_path: Path) -> None:
    lines = [side for pair in PAIRS for side in pair]
    lowering = Tokenizer(sentencepiece_model(lines, vocab_size=90, normalization_rule_name="nmt_nfkc_cf"))
    store = store_of(tmp_path, lowering)
    assert len(noisy_pairs(store, {"typos": 0.05}, lowering)) == len(PAIRS)
    with pytest.raises(ConfigError, match=r"training\.noise: title changes none of 3,000"):
        noisy_pairs(store, {"title": 0.05}, lowering)
    trees = [(source, "( XX )") for source, _ in PAIRS]
    words = Tokenizer.train(trees, vocabulary_size=18, kind="word", joint=False, symbols=True)
    with pytest.raises(ConfigError, match=r"training\.noise needs a tokenizer of subwords"):
        noisy_pairs(store_of(tmp_path / "words", words), {"typos": 0.05}, words)


NOISE = ("typos=0.3", "blanks=0.3")


def test_a_run_with_noise_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """In the middle of the second epoch; without noise it has other bits, but the same held-out text."""
    configs = [
        changed(run_of(tmp_path / str(i)), "training", noise=noise) for i, noise in enumerate([NOISE, NOISE, ()])
    ]
    finished(configs[0])
    assert not job_of(configs[1]).trainer.train(StoppingMonitor(13))
    assert job_of(configs[1]).trainer.state.epoch > 0
    finished(configs[1])
    finished(configs[2])
    one, other, plain = (weights(config) for config in configs)
    assert np.array_equal(one, other)
    assert not np.array_equal(one, plain)
    noisy, usual = (job_of(config).trainer.validation for config in configs[1:])
    assert noisy is not None
    assert usual is not None
    for one, other in zip(noisy.pairs, usual.pairs, strict=True):
        assert all(map(np.array_equal, one, other))


def test_a_run_keeps_its_noise(tmp_path: Path) -> None:
    config = changed(run_of(tmp_path), "training", noise=NOISE)
    job_of(config).trainer.train(StoppingMonitor(2))
    with pytest.raises(ConfigError, match=r"training\.noise is \['typos=0\.3', 'blanks=0\.3'\] there, \[\] here"):
        job_of(run_of(tmp_path))


def config_with(**settings: object) -> RunConfig:
    return changed(RunConfig(), "training", **settings)


@pytest.mark.parametrize(("noise", "message"), [
    (("capital=0.1",), "unknown kind 'capital'; did you mean 'capitals'"), (("typos",), "typos must be typos=SHARE"),
    (("typos=many",), "typos must be typos=SHARE"), (("typos=0",), "above 0 and at most 1; got 'typos=0'"),
    (("typos=1.5",), "at most 1"), (("typos=nan",), "at most 1"), (("title=0.1", "title=0.2"), "each kind once"),
])  # fmt: skip
def test_wrong_settings_are_refused(noise: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"training\.noise: .*{message}"):
        config_with(noise=noise)
