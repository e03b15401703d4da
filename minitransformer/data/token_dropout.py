"""Training pairs with other tokens in every epoch, drawn at random: BPE-dropout, and word dropout."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random

import numpy as np
import sentencepiece

from autograd.array import IntArray
from autograd.random import StreamId, named_stream_id, random_words, uniform
from minitransformer.data.rare_words import WordEncoder
from minitransformer.data.store import SIDES, Pairs, TokenStore
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.batch import Ids
from minitransformer.model.symbols import BLANK, LANGUAGE_CODE

DRAWS = 32  # most segmentations that are drawn of a word; each occurrence of the word in an epoch gets one of these
_LONGEST_WORD = 100  # characters: segmentation takes time with the square of the length
_STREAMS = (0x6270652D736F, 0x6270652D7461)  # random stream ids of the choices in source and target; no model uses them


class _TokenDropout:
    """Training pairs whose tokens are a pure function of seed, epoch and pair.

    The tokens of all shards are in memory, as one shard.
    """

    def __init__(self, store: TokenStore, seed: int) -> None:
        self._pairs, self._seed = store.read(), seed
        self.shard_sizes: Sequence[int] = [len(self._pairs)]

    def __len__(self) -> int:
        return len(self._pairs)


def segment(word: str, ranks: Mapping[str, float], rate: float, random: Random) -> list[str]:
    """Merge the characters of a word into pieces.

    In each step, leave out every possible merge with probability ``rate``.  Of the remaining merges, do the merge with
    the lowest rank; if several have this rank, do the leftmost.  If no merge remains, return the pieces.
    """
    pieces = list(word)
    while True:
        possible = [
            (rank, i)
            for i, (left, right) in enumerate(pairwise(pieces))
            if (rank := ranks.get(left + right)) is not None and random.random() >= rate
        ]
        if not possible:
            return pieces
        _, i = min(possible)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


class BpeDropout(_TokenDropout):
    """The pairs of a token store, segmented anew in every epoch; some merges of byte pairs are left out.

    Source: Provilkov, Emelianenko & Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization", algorithm
    1.  sentencepiece has BPE-dropout, too, but seeds its random numbers anew in every process.

    A sentence keeps its segmentation in the store if the new segmentation would be longer than the longest sentence of
    the store.  So memory and learned positions that are enough for the store are enough for every epoch.

    Args:
        rate: probability that a merge is left out in a step.
    """

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, rate: float, seed: int) -> None:
        super().__init__(store, seed)
        pairs, models = self._pairs, (tokenizer.source, tokenizer.target)
        self._text = [
            _WordsOfSide(pairs.tokens(side), pairs.lengths[:, side], models[side], rate, StreamId(seed, _STREAMS[side]))
            for side in range(len(SIDES))
        ]

    def read(self, shards: Sequence[int], epoch: int) -> Pairs:
        """Return all pairs, with the segmentations that are drawn for this epoch; there is only one shard."""
        (source, source_lengths), (target, target_lengths) = (side.segmented(epoch) for side in self._text)
        return Pairs([(np.stack([source_lengths, target_lengths], axis=1), source, target)])

    def segmented(self, side: int, ids: Ids, random: Random) -> list[int]:
        """Return the ids of another sentence of a side (0: source), segmented anew."""
        return self._text[side].segmented_sentence(ids, random)


class _WordsOfSide:
    """One side of a token store as words, and the segmentations of each word that were drawn so far.

    A word begins at a piece with sentencepiece's mark "▁", or at the beginning of a sentence.  Segmentation 0 of a word
    is the segmentation in the store.  Segmentation n is drawn from a random stream of (seed, word, n).
    """

    def __init__(
        self,
        tokens: IntArray,
        lengths: IntArray,
        model: sentencepiece.SentencePieceProcessor,
        rate: float,
        id_: StreamId,
    ) -> None:
        n_pieces = int(model.get_piece_size())
        self._pieces = [str(model.id_to_piece(i)) for i in range(n_pieces)]
        self._special = {i for i in range(n_pieces) if _is_special(model, i)}
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i not in self._special}
        self._ranks = {piece: -float(model.get_score(i)) for piece, i in self._ids.items()}
        self._rate, self._id, self._longest = rate, id_, int(lengths.max(initial=0))
        self._begins = np.array([piece.startswith(BLANK) for piece in self._pieces])
        begins = self._begins[tokens]
        sentence_starts = np.cumsum(lengths) - lengths
        begins[sentence_starts[lengths > 0]] = True
        starts = np.flatnonzero(begins)
        self._sentence_of_word = np.searchsorted(np.cumsum(lengths), starts, side="right")
        self._n_sentences = len(lengths)
        self._words, self._word_of_occurrence = _number_words(tokens, starts)
        self._starts, self._lengths, self._tokens = array("q"), array("q"), array("i")
        self._place = np.full((len(self._words), 1 + DRAWS), -1)  # index in _starts of a word's segmentation
        for number, ids in enumerate(self._words):
            self._append(number, 0, ids)

    def segmented(self, epoch: int) -> tuple[np.ndarray, IntArray]:
        """Return the tokens of all sentences in an epoch, and the length of each sentence."""
        id_, words = self._id, self._word_of_occurrence
        chosen = random_words(np.empty(0), stream_id=StreamId(id_.seed, id_.stream, epoch), count=len(words))
        draws = 1 + (chosen % np.uint64(DRAWS)).astype(np.int64)
        self._draw(words, draws)
        word_lengths = np.asarray(self._lengths)
        lengths = self._sum_of_sentences(word_lengths[self._place[words, draws]])
        draws[(lengths > self._longest)[self._sentence_of_word]] = 0
        places = self._place[words, draws]
        n_tokens = word_lengths[places]
        ends = np.cumsum(n_tokens)
        from_ = np.repeat(np.asarray(self._starts)[places] - (ends - n_tokens), n_tokens) + np.arange(n_tokens.sum())
        return np.asarray(self._tokens)[from_], self._sum_of_sentences(n_tokens)

    def segmented_sentence(self, ids: Ids, random: Random) -> list[int]:
        """Return the ids of a sentence that need not be in the store, with the words segmented anew."""
        starts = np.flatnonzero(self._begins[np.asarray(ids, int)]).tolist()
        bounds = pairwise(dict.fromkeys([0, *starts, len(ids)]))
        words = [tuple(ids[a:b]) for a, b in bounds]
        return [piece for word in words for piece in self._segment(word, random)]

    def _sum_of_sentences(self, word_lengths: IntArray) -> IntArray:
        sums = np.bincount(self._sentence_of_word, weights=word_lengths, minlength=self._n_sentences)
        return sums.astype(np.int64)

    def _draw(self, words: IntArray, draws: IntArray) -> None:
        """Draw segmentation ``draws[i]`` of each word ``words[i]``, unless it has been drawn before."""
        is_new = self._place[words, draws] < 0
        for word, draw in np.unique(np.stack([words, draws], axis=1)[is_new], axis=0).tolist():
            ids = self._words[word]
            ids_drawn = self._segment(ids, Random(f"{self._id.seed} {self._text_of(ids)} {draw}"))
            if ids_drawn is ids:
                self._place[word, draw] = self._place[word, 0]
            else:
                self._append(word, draw, ids_drawn)

    def _segment(self, ids: tuple[int, ...], random: Random) -> tuple[int, ...]:
        """Return a drawn segmentation of a word; ``ids`` if it is too long, or has a character that is no piece.

        The result is ``ids``, too, if the word has a special piece, such as a byte or the code of a language.
        """
        text, is_special = self._text_of(ids), not self._special.isdisjoint(ids)
        if is_special or len(text) > _LONGEST_WORD or not all(character in self._ids for character in text):
            return ids
        return tuple(self._ids[piece] for piece in segment(text, self._ranks, self._rate, random))

    def _text_of(self, ids: tuple[int, ...]) -> str:
        return "".join(self._pieces[i] for i in ids)

    def _append(self, word: int, draw: int, ids: tuple[int, ...]) -> None:
        self._place[word, draw] = len(self._starts)
        self._starts.append(len(self._tokens))
        self._lengths.append(len(ids))
        self._tokens.extend(ids)


def _is_special(model: sentencepiece.SentencePieceProcessor, i: int) -> bool:
    """Return whether a piece is not made of characters by merges: a symbol, a byte, or the code of a language."""
    is_code = LANGUAGE_CODE.fullmatch(str(model.id_to_piece(i)).removeprefix(BLANK))
    return bool(model.is_unknown(i) or model.is_control(i) or model.is_byte(i) or is_code)


def _number_words(tokens: IntArray, starts: IntArray) -> tuple[list[tuple[int, ...]], IntArray]:
    """Return the different words in the order of their first occurrences, and for each occurrence its word's index."""
    numbers: dict[tuple[int, ...], int] = {}
    flat = tokens.tolist()
    bounds = pairwise([*starts.tolist(), len(flat)])
    occurrences = [numbers.setdefault(tuple(flat[a:b]), len(numbers)) for a, b in bounds]
    return list(numbers), np.asarray(occurrences, np.int64)


class WordDropout(_TokenDropout):
    """The pairs of a token store; in every epoch, other source words are replaced by their classes, at random.

    Each occurrence of a word that occurs n times in the sources is replaced with probability α / (α + n).  So the model
    learns the use of a class from words in its vocabulary.

    Source: Kiperwasser & Goldberg 2016, "Simple and Accurate Dependency Parsing Using Bidirectional LSTM Feature
    Representations", section 5, after Iyyer et al. 2015.  **Differs**: a word becomes its class, not one unknown word.

    Args:
        strength: α.
    """

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, strength: float, seed: int) -> None:
        super().__init__(store, seed)
        self._sources = self._pairs.tokens(0)
        self._class_of = np.asarray(WordEncoder(tokenizer.source).classes(), self._sources.dtype)
        counts = np.bincount(self._sources, minlength=len(self._class_of))
        self._probability = strength / (strength + counts)

    def read(self, shards: Sequence[int], epoch: int) -> Pairs:
        """Return all pairs, with the classes that are drawn for this epoch; there is only one shard."""
        words = self._sources
        stream = named_stream_id(self._seed, "word dropout").stream
        drawn = uniform(StreamId(self._seed, stream, epoch), (len(words),))
        dropped = np.where(drawn < self._probability[words], self._class_of[words], words)
        return Pairs([(self._pairs.lengths, dropped, self._pairs.tokens(1))])
