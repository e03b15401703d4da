"""MarianMT directories with random weights, made by transformers, and the numbers that transformers computes."""

from __future__ import annotations

import io
import json
import random
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from against_torch import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries that transformers imports
    transformers = pytest.importorskip("transformers")

LINES = ["the small dog sees three red houses", "a house", "two dogs see the red dog of the house", "it is small"]
TARGETS = ["der kleine Hund sieht drei rote Häuser", "ein Haus", "zwei Hunde sehen den roten Hund des Hauses", "klein"]
SMALL: dict[str, Any] = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 80, "scale_embedding": True,
    "activation_function": "swish",
}  # fmt: skip
ENDINGS = ["", "s", "en", "er"]


@cache
def subwords(language: str, kind: str = "unigram") -> bytes:
    """A sentencepiece model of a language that has the words of the lines, with and without endings."""
    draw, model = random.Random(1), io.BytesIO()
    words = " ".join(LINES if language == "source" else TARGETS).split()
    text = [" ".join(draw.choice(words) + draw.choice(ENDINGS) for _ in range(6)) for _ in range(200)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        model_type=kind,
        vocab_size=60,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    return model.getvalue()


def ids_of(*models: bytes, codes: tuple[str, ...] = ()) -> dict[str, int]:
    """A vocabulary as transformers makes it from Marian's: the padding symbol last."""
    pieces = dict.fromkeys(["</s>", "<unk>", *codes])
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces |= dict.fromkeys(processor.id_to_piece(i) for i in range(3, len(processor)))
    return {piece: number for number, piece in enumerate([*pieces, "<pad>"])}


def write_directory(
    path: Path,
    *,
    kind: str = "unigram",
    separate: bool = False,
    codes: tuple[str, ...] = (),
    zero_start: bool = True,
    lacking: int = 0,
    **settings: Any,
) -> Any:
    """Write a MarianMT directory with random weights and return its model.

    ``lacking`` pieces of the subword models are left out of the vocabulary.
    """
    models = [subwords(language, kind) for language in ("source", "target")]
    vocabularies = [ids_of(model) for model in models] if separate else [ids_of(*models, codes=codes)]
    for ids in vocabularies:
        for word in list(ids)[10 : 10 + lacking]:
            del ids[word]
        ids.update({word: number for number, word in enumerate(ids)})
    start = vocabularies[-1]["<pad>"] if not separate else 2
    if separate:  # one id of the padding symbol for vocabularies of different sizes
        for ids in vocabularies:
            other = next(word for word, number in ids.items() if number == 2)
            ids["<pad>"], ids[other] = 2, ids["<pad>"]
    config = transformers.MarianConfig(
        **SMALL | settings,
        vocab_size=len(vocabularies[0]),
        decoder_vocab_size=len(vocabularies[-1]),
        pad_token_id=start,
        decoder_start_token_id=start,
        eos_token_id=0,
        forced_eos_token_id=0,
        share_encoder_decoder_embeddings=not separate,
    )
    torch.manual_seed(1)
    model = with_random_weights(transformers.MarianMTModel(config), start if zero_start else None)
    model.save_pretrained(path)
    for name, model_bytes in zip(("source.spm", "target.spm"), models, strict=True):
        (path / name).write_bytes(model_bytes)
    for name, ids in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (path / name).write_text(json.dumps(ids), encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": separate, "source_lang": "en"}))
    return model


def with_random_weights(model: Any, start: int | None) -> Any:
    """Gains away from 1, and biases away from 0, so that every one counts; the start's embedding is zero if given."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), ("final_logits_bias", model.final_logits_bias)]:
            if "embed_positions" not in name:
                noise = torch.randn(weight.shape, generator=generator)
                weight.add_(0.3 * noise if weight.ndim == 1 or "bias" in name else noise / weight.shape[-1] ** 0.5)
        model.final_logits_bias[0, 0] += 3  # so that some translations end before the greatest length
        if start is not None:
            for embedding in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head):
                embedding.weight[start] = 0
    return model.eval()


def log_probabilities(model: Any, source: list[int], target: list[int]) -> np.ndarray[Any, Any]:
    """log p of every word after each word of the target, by transformers.  Shapes: returns (len(target) + 1, words)."""
    ids = [model.config.decoder_start_token_id, *target]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*source, 0]]), decoder_input_ids=torch.tensor([ids])).logits[0]
    values: np.ndarray[Any, Any] = torch.log_softmax(logits, dim=-1).numpy()
    return values


def converted_by_ctranslate2(directory: Path, output: Path, quantization: str | None = None) -> Path:
    ctranslate2 = pytest.importorskip("ctranslate2")
    converter = ctranslate2.converters.TransformersConverter(str(directory), copy_files=["source.spm", "target.spm"])
    return Path(converter.convert(str(output), quantization=quantization))
