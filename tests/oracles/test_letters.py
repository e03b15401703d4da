"""Letters and signs of our tokenizers in other programs: they read the exports as we do, and write the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import sentencepiece
from ctranslate2_models import write_parts
from marian_models import transformers
from scripts import SCRIPTS, tokenizer_of

from minitransformer import ModelConfig, Transformer
from minitransformer.config import TextNormalisation
from minitransformer.extras.convert.parts import Parts
from minitransformer.extras.convert.vocabulary import words_of

RULES = pytest.mark.parametrize("rule", get_args(TextNormalisation))


def lines_of(rule: TextNormalisation) -> list[str]:
    """Lines that the tokenizer knows; sentencepiece's own rule keeps soft hyphens, which are unknown to it."""
    return [*SCRIPTS.values(), *([] if rule == "nmt_nfkc" else ["the\vfox\u2028jum", "th\u00ade \ufefffox"])]


def written(path: Path, rule: TextNormalisation, to: Any) -> Parts:
    tokenizer = tokenizer_of(rule)
    config = ModelConfig(tokenizer.n_target_words, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
    parts = Parts(config, Transformer(config).weights(), tokenizer)
    write_parts(parts, path, to)
    return parts


@RULES
def test_transformers_reads_and_writes_letters_as_we_do(rule: TextNormalisation, tmp_path: Path) -> None:
    parts = written(tmp_path / "model", rule, "marian")
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "model")
    words = words_of(parts.tokenizer.models[0])
    lines = lines_of(rule)
    for line, ids in zip(lines, parts.tokenizer.encode_target(lines), strict=True):
        assert theirs.tokenize(line) == [words[i] for i in ids]
        found = theirs(text_target=line)["input_ids"]
        # transformers strips translations, also of the wide blank at the beginning of a Japanese paragraph
        assert theirs.decode(found, skip_special_tokens=True) == parts.tokenizer.decode_target([ids])[0].strip()


@RULES
def test_the_model_beside_ctranslate2s_has_letters_as_ours(rule: TextNormalisation, tmp_path: Path) -> None:
    ours = written(tmp_path / "model", rule, "ctranslate2").tokenizer
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model" / "tokenizer.model"))
    lines = lines_of(rule)
    pieces = theirs.encode(lines, out_type=str)
    assert pieces == [ours.target_pieces(line) for line in lines]
    assert theirs.decode(pieces) == ours.decode_target(ours.encode_target(lines))
