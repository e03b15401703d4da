"""Training pairs whose text gets noise, drawn anew in every epoch; only the changed lines are encoded again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TypeAlias

import numpy as np
import sentencepiece

from autograd.array import BoolArray, IntArray
from autograd.random import StreamId, named_stream_id, uniform
from minitransformer.config import ConfigError, NoiseKind
from minitransformer.data.languages import without_region
from minitransformer.data.store import SIDES, Pairs, Shard, TokenStore
from minitransformer.data.survey import Pair
from minitransformer.data.token_dropout import BpeDropout
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.batch import IdPair, Ids
from minitransformer.model.symbols import UNKNOWN
from minitransformer.text.noise import add_noise

_LINES_AT_ONCE = 10_000
_SAMPLE = 1_000  # pairs of a shard on which each kind of noise is tried at the start

Kinds: TypeAlias = Mapping[NoiseKind, BoolArray]
"""For each kind of noise: whether each pair of some shards gets it."""


class NoisyPairs:
    """The pairs of a token store, some of them with noise: a pure function of seed, epoch and pair.

    A pair keeps its tokens if
    - its text, decoded from the tokens and encoded again, has other tokens;
    - its noisy text has more than ``longest`` tokens on a side;
    - its noisy text has more unknown tokens, because the vocabulary lacks letters, such as rare capitals.

    Args:
        shares: the probability with which a pair gets each kind of noise.
        languages: codes of source and target.
        longest: the most tokens of a side.  Capitals can have several times as many as the same words in small letters.
        dropout: the dropout of byte pairs, if it is on; noisy text gets it, too.

    Raises: ConfigError if tokens are whole words, or if a kind of noise changes no pair of a sample.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        shares: Mapping[NoiseKind, float],
        languages: Sequence[str | None],
        longest: int,
        seed: int,
        dropout: BpeDropout | None = None,
    ) -> None:
        if tokenizer.spells_no_words:
            raise ConfigError("training.noise needs a tokenizer of subwords; this one has whole words: leave it out")
        self._store, self._tokenizer, self._dropout = store, tokenizer, dropout
        self._models = (tokenizer.source, tokenizer.target)
        self._shares, self._longest, self._seed = shares, longest, seed
        self._languages = list(map(_language_of_capitals, languages, self._models))
        self.shard_sizes = dropout.shard_sizes if dropout else store.shard_sizes
        self._check_effect()

    def __len__(self) -> int:
        return len(self._store)

    def read(self, shards: Sequence[int], epoch: int) -> Pairs:
        """Return the pairs of the shards with these numbers, with the noise that is drawn for this epoch."""
        plain, first = self._read_plain(shards), shards[0]
        streams = {kind: named_stream_id(self._seed, f"noise: {kind}").stream for kind in self._shares}
        kinds = {
            kind: uniform(StreamId(self._seed, streams[kind], epoch, first), (len(plain),)) < share
            for kind, share in self._shares.items()
        }
        pairs = self._dropout.read(shards, epoch) if self._dropout else plain
        return pairs.replaced(*self._change(plain, kinds, f"{self._seed} {epoch} {first}"))

    def _read_plain(self, shards: Sequence[int]) -> Pairs:
        return self._store.read(None if self._dropout else shards)

    def _check_effect(self) -> None:
        """Raise ConfigError if a kind of noise changes no pair of a sample of every shard."""
        for kind in self._shares:
            if not any(self._has_effect(kind, shard) for shard in range(len(self.shard_sizes))):
                n_tried = sum(min(_SAMPLE, n_pairs) for n_pairs in self.shard_sizes)
                raise ConfigError(
                    f"training.noise: {kind} changes none of {n_tried:,} training pairs.  The text lacks what it"
                    " would change (letters with capitals, marks, blanks), or the tokenizer removes the difference or"
                    f" has no pieces for it: leave {kind} out"
                )

    def _has_effect(self, kind: NoiseKind, shard: int) -> bool:
        plain = self._read_plain([shard])
        sample = np.zeros(len(plain), bool)
        sample[np.linspace(0, len(plain) - 1, min(_SAMPLE, len(plain))).astype(int)] = True
        changed, _ = self._change(plain, {kind: sample}, "")
        return len(changed) > 0

    def _change(self, plain: Pairs, kinds: Kinds, seed: str) -> tuple[IntArray, Shard]:
        """Return the indices of the pairs that change, and a shard of these pairs with noise."""
        drawn = np.flatnonzero(np.any(list(kinds.values()), axis=0)).tolist()
        changed, lengths, tokens = array("q"), array("i"), [array("i") for _ in SIDES]
        for start in range(0, len(drawn), _LINES_AT_ONCE):
            some = {i: Random(f"{seed} {i}") for i in drawn[start : start + _LINES_AT_ONCE]}
            for i, pair in self._add_noise(plain, kinds, some):
                changed.append(i)
                for side, noisy in enumerate(pair):
                    ids = self._apply_dropout(side, noisy, some[i])
                    tokens[side].extend(ids)
                    lengths.append(len(ids))
        flat = [np.asarray(side) for side in tokens]
        return np.asarray(changed), (np.asarray(lengths).reshape(-1, 2), *flat)

    def _add_noise(self, plain: Pairs, kinds: Kinds, randoms: Mapping[int, Random]) -> Iterator[tuple[int, IdPair]]:
        """Yield the index and the noisy ids of each usable pair among those with a random generator."""
        before = [tuple(ids.tolist() for ids in plain.pair(i)) for i in randoms]
        sides = (model.decode([pair[side] for pair in before]) for side, model in enumerate(self._models))
        texts = list(zip(*sides, strict=True))
        noisy = [
            add_noise(text, [kind for kind, has in kinds.items() if has[i]], self._languages, random)
            for text, (i, random) in zip(texts, randoms.items(), strict=True)
        ]
        for i, old, again, new in zip(randoms, before, self._encode(texts), self._encode(noisy), strict=True):
            if old == again != new and self._is_usable(old, new):
                yield i, new

    def _encode(self, pairs: Sequence[Pair]) -> Iterator[IdPair]:
        sources, targets = ([pair[side] for pair in pairs] for side in range(len(SIDES)))
        return zip(self._tokenizer.encode_source(sources), self._tokenizer.encode_target(targets), strict=True)

    def _is_usable(self, old: IdPair, new: IdPair) -> bool:
        return all(
            0 < len(ids) <= self._longest and list(ids).count(UNKNOWN) <= list(before).count(UNKNOWN)
            for before, ids in zip(old, new, strict=True)
        )

    def _apply_dropout(self, side: int, ids: Ids, random: Random) -> Ids:
        segmented = self._dropout.segmented(side, ids, random) if self._dropout else ids
        return segmented if len(segmented) <= self._longest else ids


def _language_of_capitals(language: str | None, model: sentencepiece.SentencePieceProcessor) -> str | None:
    """Return the language whose rules capitals follow: None for German without a piece for ẞ; then ß becomes SS."""
    is_german = without_region(language or "") == "de"
    return None if is_german and UNKNOWN in model.encode("ẞ") else language
