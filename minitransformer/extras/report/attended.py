"""The data of attention pages: a sentence, its translation, and the attention between their tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from autograd.array import FloatArray
from minitransformer.data.lexicon import makes_trees
from minitransformer.data.rare_words import words_of
from minitransformer.extras.parsing.brackets import BracketConstraint, BracketVocabulary
from minitransformer.extras.parsing.parser import PARSING
from minitransformer.extras.report.errors import ReportError
from minitransformer.inference.attention import AttentionWeights, attention_weights, word_starts
from minitransformer.inference.beam import beam_search
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.model.symbols import BLANK
from minitransformer.system.provenance import code_version

Kind = Literal["encoder", "decoder", "encoder-decoder"]

START_MARK, END_MARK = "<BOS>", "<EOS>"
MOST_TOKENS = 256  # with more tokens, words are too small to read, and a page takes tens of megabytes


@dataclass(frozen=True, eq=False)
class AttendedPair:
    """The displayed tokens of both sides, and the weights between them.

    The decoder reads ``inputs`` and writes ``outputs``: at step i it reads inputs[i] and writes outputs[i].
    """

    source: list[str]
    """Source tokens and END_MARK."""
    inputs: list[str]
    """START_MARK and the target's tokens."""
    outputs: list[str]
    """The target's tokens and END_MARK."""
    source_starts: list[int]
    """The index in ``source`` of every word's first token; END_MARK is a word."""
    target_starts: list[int]
    """The index of every word's first token among the target's tokens, without marks."""
    weights: AttentionWeights
    sentence: str
    translation: str
    origin: str
    """A line that describes the model and the version of the code."""

    def of_kind(self, kind: Kind) -> tuple[list[str], list[str], FloatArray]:
        """Return the tokens of the queries, the tokens of the keys, and weights[layer, head, query, key].

        A query of encoder-decoder attention is labelled with the token that the decoder writes at its step.
        """
        return {
            "encoder": (self.source, self.source, self.weights.encoder),
            "decoder": (self.inputs, self.inputs, self.weights.decoder),
            "encoder-decoder": (self.outputs, self.source, self.weights.encoder_decoder),
        }[kind]


@dataclass(frozen=True)
class TokenPair:
    """A sentence and its translation as ids and pieces, without marks."""

    source_ids: list[int]
    target_ids: list[int]
    source_pieces: list[str]
    target_pieces: list[str]
    sentence: str
    translation: str


def token_pair(
    translator: Translator, sentence: str, target: str | None = None, search: SearchConfig | None = None
) -> TokenPair:
    """Return the tokens of ``sentence`` and ``target``.

    Without a target, search for the model's own translation.  A parser's translation is a tree over the words of
    ``sentence``, which blanks separate.

    Raises: ReportError if a side is empty or too long, or if the model appends no end symbol to sources, which pages
        need.
    """
    if not translator.model.config.source_end:
        raise ReportError("report: the model appends no end symbol to sources (source_end), which the display needs")
    translator.profile.require_tags([sentence])
    tokenizer, longest = translator.tokenizer, translator.longest_source
    source_ids = tokenizer.encode_source([sentence])[0]
    _check_length("sentence", source_ids, longest)
    if target is None:
        target_ids = _best_ids(translator, source_ids, sentence, search or SearchConfig())
        target = tokenizer.decode_target([target_ids])[0]
        pieces = [tokenizer.target.id_to_piece(i) for i in target_ids]
    else:
        target_ids, pieces = tokenizer.encode_target([target])[0], tokenizer.target_pieces(target)
    _check_length("target", target_ids, longest)
    return TokenPair(source_ids, target_ids, tokenizer.source_pieces(sentence), pieces, sentence, target)


def attended_pair(
    translator: Translator, sentence: str, target: str | None = None, search: SearchConfig | None = None
) -> AttendedPair:
    """Compute the attention between the tokens of a ``token_pair``.

    Raises: ReportError for the reasons of ``token_pair``, and if weights are not finite.
    """
    tokens = token_pair(translator, sentence, target, search)
    weights = attention_weights(translator.model, tokens.source_ids, tokens.target_ids)
    if not all(np.isfinite(part).all() for part in (weights.encoder, weights.decoder, weights.encoder_decoder)):
        raise ReportError("attention: weights are not finite numbers; the model has diverged: take another checkpoint")
    source, written = shown_pieces(tokens.source_pieces), shown_pieces(tokens.target_pieces)
    return AttendedPair(
        source=[*source, END_MARK],
        inputs=[START_MARK, *written],
        outputs=[*written, END_MARK],
        source_starts=[*word_starts(tokens.source_pieces), len(source)],
        target_starts=word_starts(tokens.target_pieces),
        weights=weights,
        sentence=tokens.sentence,
        translation=tokens.translation,
        origin=origin_of(translator),
    )


def _best_ids(translator: Translator, source_ids: list[int], sentence: str, search: SearchConfig) -> list[int]:
    """Return the ids of the model's best translation; if the model is a parser, return the ids of its tree."""
    symbols, constraint = translator.tokenizer.target_symbols, None
    if makes_trees(symbols):
        search = dataclasses.replace(search, max_extra_tokens=PARSING.max_extra_tokens, max_length_factor=None)
        vocabulary = BracketVocabulary(symbols, translator.tokenizer.lexicon)
        constraint = BracketConstraint(vocabulary, [words_of(sentence)], [source_ids])
    return list(beam_search(translator.model, [source_ids], search, constraint)[0][0].ids)


def shown_pieces(pieces: Sequence[str]) -> list[str]:
    """Format subwords for display: drop sentencepiece's mark "▁"; put a dot before a piece that continues a word."""
    starts = word_starts(pieces)
    shown = [piece if piece == BLANK else piece.removeprefix(BLANK) for piece in pieces]
    return [
        text if i in starts or piece.startswith(BLANK) else f"·{text}"
        for i, (piece, text) in enumerate(zip(pieces, shown, strict=True))
    ]


def _check_length(name: str, ids: Sequence[Any], longest: int) -> None:
    limit = min(MOST_TOKENS, longest)
    if not 1 <= len(ids) <= limit:
        problem = "is empty" if not ids else f"has {len(ids):,} tokens"
        raise ReportError(f"report: the {name} {problem}; give one of 1 to {limit} tokens")


def origin_of(translator: Translator) -> str:
    """Return a line that describes the model and the version of the code."""
    config = translator.model.config
    size = f"{config.n_layers} + {config.decoder_depth} layers, d_model {config.d_model}, {config.n_heads} heads"
    return f"{size}; code {code_version()}"
