"""Pairs of sentences with a tokenizer that is trained once a process, and models of sentencepiece."""

import io
from functools import cache
from typing import Any

import sentencepiece

from minitransformer.config import TextNormalisation
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import END, START, UNKNOWN

PAIRS = [(f"a dog sees {i} red houses", f"ein Hund sieht {i} rote Häuser") for i in range(60)]
LINES = [source for source, _ in PAIRS]


@cache
def small_tokenizer(
    vocabulary_size: int = 70, n_pairs: int = 60, normalisation: TextNormalisation = "keep"
) -> Tokenizer:
    return Tokenizer.train(PAIRS[:n_pairs], vocabulary_size=vocabulary_size, normalisation=normalisation)


def sentencepiece_model(lines: list[str], **options: Any) -> bytes:
    """Train a model of sentencepiece with options that ``Tokenizer.train`` does not set for small vocabularies."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        minloglevel=2,
        hard_vocab_limit=False,
        **{"unk_id": UNKNOWN, "bos_id": START, "eos_id": END, "pad_id": -1} | options,
    )
    return model.getvalue()
