"""A sentence, its translation, and the attention between their tokens: what pages and pictures show."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minitransformer.data.rare_words import words_of
from minitransformer.inference.attention import AttentionWeights, FloatArray, attention_weights
from minitransformer.inference.beam import SearchConfig, beam_search
from minitransformer.inference.brackets import BracketConstraint, BracketVocabulary
from minitransformer.inference.parser import PARSING
from minitransformer.inference.translator import Translator
from minitransformer.provenance import code_version
from minitransformer.report.errors import ReportError

Kind = Literal["encoder", "decoder", "encoder-decoder"]
PictureKind = Literal["encoder", "decoder", "encoder-decoder", "alignment"]

START_MARK, END_MARK = "<BOS>", "<EOS>"
MOST_TOKENS = 256  # beyond that there is nothing to see, and a page weighs tens of megabytes


@dataclass(frozen=True, eq=False)
class AttendedPair:
    """Tokens of both sides, as they are shown, and the weights between them.

    The decoder reads ``inputs`` and writes ``outputs``: at step i it reads inputs[i] and writes outputs[i].
    """

    source: list[str]
    """Source tokens and END_MARK."""
    inputs: list[str]
    """START_MARK and the target's tokens."""
    outputs: list[str]
    """The target's tokens and END_MARK."""
    weights: AttentionWeights
    sentence: str
    translation: str
    origin: str
    """Model and code, in a line."""

    def of_kind(self, kind: Kind) -> tuple[list[str], list[str], FloatArray]:
        """What attends, what is attended to, and weights[layer, head, query, key].

        A step of encoder-decoder attention is named after the token that it writes.
        """
        return {
            "encoder": (self.source, self.source, self.weights.encoder),
            "decoder": (self.inputs, self.inputs, self.weights.decoder),
            "encoder-decoder": (self.outputs, self.source, self.weights.encoder_decoder),
        }[kind]


def attended_pair(
    translator: Translator, sentence: str, target: str | None = None, search: SearchConfig | None = None
) -> AttendedPair:
    """``sentence`` and ``target``, or, without one, the translation that the model itself finds, and their attention.

    Of a parser it is the tree that it finds; words of the sentence are what blanks separate.

    Raises: ReportError if there is nothing to show, or too much.
    """
    model, tokenizer, room = translator.model, translator.tokenizer, translator.longest_source
    source_ids = tokenizer.encode_source([sentence])[0]
    _check_length("sentence", source_ids, room)
    source = shown_pieces(tokenizer.source_pieces(sentence))
    if target is None:
        target_ids = _found(translator, source_ids, sentence, search or SearchConfig())
        target = tokenizer.decode_target([target_ids])[0]
        pieces = [tokenizer.target.id_to_piece(i) for i in target_ids]
    else:
        target_ids = tokenizer.encode_target([target])[0]
        pieces = tokenizer.target.encode(target, out_type=str)
    _check_length("target", target_ids, room)
    written, weights = shown_pieces(pieces), attention_weights(model, source_ids, target_ids)
    if not all(np.isfinite(part).all() for part in (weights.encoder, weights.decoder, weights.encoder_decoder)):
        raise ReportError("attention: weights are not finite numbers; the model has diverged: take another checkpoint")
    return AttendedPair(
        source=[*source, END_MARK],
        inputs=[START_MARK, *written],
        outputs=[*written, END_MARK],
        weights=weights,
        sentence=sentence,
        translation=target,
        origin=_origin(translator),
    )


def _found(translator: Translator, source_ids: list[int], sentence: str, search: SearchConfig) -> list[int]:
    """The best target of the model's own: of a parser a tree over the words."""
    symbols, constraint = translator.tokenizer.target_symbols, None
    if BracketVocabulary.makes_trees(symbols):
        search = dataclasses.replace(search, max_extra_tokens=PARSING.max_extra_tokens)
        constraint = BracketConstraint(BracketVocabulary(symbols), [words_of(sentence)])
    return list(beam_search(translator.model, [source_ids], search, constraint)[0][0].ids)


def shown_pieces(pieces: Sequence[str]) -> list[str]:
    """Subwords as they are read: words without sentencepiece's mark "▁", what continues a word with a dot before it."""
    return [(piece.removeprefix("▁") or "▁") if piece.startswith("▁") else f"·{piece}" for piece in pieces]


def _check_length(name: str, ids: Sequence[Any], room: int) -> None:
    limit = min(MOST_TOKENS, room)
    if not 1 <= len(ids) <= limit:
        problem = "is empty" if not ids else f"has {len(ids):,} tokens"
        raise ReportError(f"attention: the {name} {problem}; give one of 1 to {limit} tokens")


def _origin(translator: Translator) -> str:
    config = translator.model.config
    size = f"{config.n_layers} + {config.n_layers} layers, d_model {config.d_model}, {config.n_heads} heads"
    return f"{size}; code {code_version()}"
