"""MarianMT models of Hugging Face's transformers, written: what ``marian_directory`` reads."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.convert.foreign_files import SOURCE_FILE, TARGET_FILE
from minitransformer.convert.layers import FAIRSEQ_NAMES, modules
from minitransformer.convert.marian_directory import (
    ACTIVATIONS,
    CONFIG,
    EPSILON,
    GENERATION_CONFIG,
    POSITIONS,
    PREFIX,
    START_WORD,
    TARGET_VOCABULARY,
    TOKENIZER_CONFIG,
    UNKNOWN_WORD,
    VOCABULARY,
    WEIGHTS,
)
from minitransformer.convert.parts import IMPOSSIBLE, SEARCH_ONLY, Array, ConversionError, Parts, expressed
from minitransformer.convert.pieces import warning_of_words, without_other_words, words_of
from minitransformer.convert.positions import sines_first, with_features
from minitransformer.data.rare_words import is_of_words
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.translator import MAX_SOURCE_TOKENS
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.files import write_arrays, write_text

LOG = logging.getLogger(__name__)
PADDING_WORD, END_WORD = "<pad>", "</s>"
_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "activation": {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())},  # the first name of each
    "norm": {"post": None},
    "positions": {"interleaved": sines_first, "halves": np.arange},  # features with all sines before all cosines
    "start": {"symbol": False, "zero": True},  # whether it is a zero vector
    "tied": {"all": (True, True), "target": (False, True), "none": (False, False)},  # source and softmax to the target
    **SEARCH_ONLY,
}


def write_marian(parts: Parts, directory: Path, storage: str = "float32") -> None:
    """Write a directory that MarianMTModel and MarianTokenizer of transformers load.

    Ids are those of Marian: the end is 0, the unknown word 1.  The padding symbol, with which transformers starts the
    decoder, is the last word; it is word 2 if source and target have their own vocabularies.  It is our start
    symbol, or a symbol of its own after it (see ``_arrays``).
    Raises: ConversionError if MarianMT has no such model.
    """
    choices = expressed("MarianMT", parts.config, _CHOICES)
    require_expressible(parts)
    config = parts.config
    separate = not choices["tied"][0]
    adds_padding = _adds_start_to_positions(config)
    orders = [_order(n, separate, adds_padding) for n in (config.n_source_words, config.vocabulary_size)]
    arrays = {name: array.astype(storage) for name, array in _arrays(parts, orders, choices).items()}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ConversionError(f"some weights are too large for {storage}, or not finite")
    write_arrays(directory / WEIGHTS, arrays, {"format": "pt"})
    padding = len(orders[1]) - 1 if adds_padding else orders[1].index(START)
    _write_json(directory / CONFIG, _configuration(config, choices, storage, padding))
    _write_json(directory / GENERATION_CONFIG, _generation(config, padding, orders[1].index(START)))
    _write_tokenizer(parts, directory, orders, separate)
    for warning in _warnings(parts, storage):
        LOG.warning(warning)


def require_expressible(parts: Parts) -> None:
    """Raise ConversionError if MarianMT has no such model; the message names each setting that is no choice."""
    config = parts.config
    expected = {
        "source_end": (config.source_end, True),
        "first_position": (config.first_position, 0),
        "neighbourhood": (config.neighbourhood, None),
        "n_heads · d_k": (config.n_heads * config.d_k, config.d_model),
        "n_heads · d_v": (config.n_heads * config.d_v, config.d_model),
        "layer_norm_eps": (max(config.layer_norm_eps, EPSILON), EPSILON),
    }
    problems = [f"{name} is {value}, must be {only}" for name, (value, only) in expected.items() if value != only]
    if is_of_words(parts.tokenizer.source):
        problems.append("the tokenizer makes classes of rare words, which transformers lacks")
    vocabularies = [words_of(model) for model in parts.tokenizer.models]
    if config.tied == "all" and vocabularies[0] != vocabularies[-1]:
        problems.append('tied is "all", but source and target have different words')
    symbols = [UNKNOWN_WORD, PADDING_WORD, END_WORD, *[START_WORD] * _adds_start_to_positions(config)]
    if any(set(symbols) & set(words[END + 1 :]) for words in vocabularies):
        problems.append(f"a word is named as a symbol ({', '.join(symbols)})")
    if problems:
        raise ConversionError(f"MarianMT has no such model: {'; '.join(problems)}")


def _warnings(parts: Parts, storage: str) -> list[str]:
    """Return what is not the same in all programs that read the directory."""
    config, warnings = parts.config, list[str]()
    if config.layer_norm_eps != EPSILON:
        warnings.append(
            f"MarianMT's layer norm adds {EPSILON} to the variance, this model {config.layer_norm_eps}: probabilities"
            " change slightly"
        )
    if _has_tables(config):
        warnings.append(
            "the tables of position encodings are stored, because MarianMT computes other ones; they are lost when"
            " transformers saves the model again"
        )
    if config.tied != "all":
        warnings.append(
            "CTranslate2's converter of MarianMT cannot read separate vocabularies of source and target: convert this"
            " model to ctranslate2 directly"
        )
    if config.normalisation == "gnmt" and config.alpha:
        warnings.append(
            f"the length penalty ((5 + length) / 6)^{config.alpha:g} becomes length^{config.alpha:g}, because"
            " transformers has no other: beam search may choose other translations"
        )
    if words := warning_of_words(parts.tokenizer.models):
        warnings.append(words)
    if storage != "float32":
        warnings.append(f"weights are rounded to {storage}")
    return warnings


def _order(n_words: int, separate: bool, adds_padding: bool) -> list[int]:
    """Return our id of each word of MarianMT; an added padding symbol has the id after ours."""
    words = range(END + 1, n_words)
    if adds_padding:
        return [END, UNKNOWN, *words, START, n_words]
    return [END, UNKNOWN, START, *words] if separate else [END, UNKNOWN, *words, START]


def _adds_start_to_positions(config: ModelConfig) -> bool:
    """Return whether the start symbol's embedding is added to the decoder's table of positions; see ``_arrays``."""
    return config.start == "symbol" and config.tied == "all"


def _has_tables(config: ModelConfig) -> bool:
    """Return whether tables of positions are stored, because they are not those that MarianMT computes."""
    return config.positions == "halves" or _adds_start_to_positions(config)


def _arrays(parts: Parts, orders: Sequence[Sequence[int]], choices: dict[str, Any]) -> dict[str, Array]:
    """Return the weights under MarianMT's names.

    A decoder that starts with a zero vector has it as the embedding of the padding symbol.  If this is also a row of
    the softmax, the symbol gets no probability.  It was never generated, so the others share what it had.

    CTranslate2's converter always starts the decoder with a zero vector, and leaves the padding symbol out.  So a model
    of one vocabulary, which is all that it can read, gets a padding symbol of its own, which is a zero vector without
    probability.  The embedding of the start symbol is added to the decoder's first row of positions: the sum that
    enters the decoder is the same.
    """
    config, (is_source_tied, is_softmax_tied) = parts.config, choices["tied"]
    order = choices["positions"](config.d_model)
    weights = with_features(parts.weights, order)
    source = weights["source_embedding.weight"]
    target = source if is_source_tied else weights["target_embedding.weight"]
    bias = weights.get("softmax_bias", np.zeros(len(target), np.float32)).copy()
    start = target[START]
    if choices["start"] and start.any():
        target = target.copy()
        target[START] = 0
        bias[START] = IMPOSSIBLE if is_softmax_tied else bias[START]
    if _adds_start_to_positions(config):
        target, bias = np.vstack([target, np.zeros_like(start)]), np.append(bias, np.float32(IMPOSSIBLE))
    if is_source_tied:
        arrays = {"model.shared.weight": target[orders[1]]}
    else:
        arrays = {"model.encoder.embed_tokens.weight": source[orders[0]]}
        arrays["model.decoder.embed_tokens.weight"] = target[orders[1]]
    if not is_softmax_tied:
        arrays["lm_head.weight"] = weights["projection.weight"][orders[1]]
    arrays["final_logits_bias"] = bias[None, orders[1]]
    if _has_tables(config):
        table = sinusoids(MAX_SOURCE_TOKENS, config.d_model, config.positions)[:, order]
        arrays[POSITIONS[0]] = table.astype(np.float32)
        if _adds_start_to_positions(config):
            table[0] += math.sqrt(config.d_model) * start
        arrays[POSITIONS[1]] = table.astype(np.float32)
    for ours, theirs in modules((config.n_layers, config.decoder_depth), FAIRSEQ_NAMES):
        weight = weights[f"{ours}.gain" if ours.endswith(".norm") else f"{ours}.weight"].T
        arrays[f"{PREFIX}{theirs}.weight"] = weight
        arrays[f"{PREFIX}{theirs}.bias"] = weights.get(f"{ours}.bias", np.zeros(len(weight), np.float32))
    return arrays


def _configuration(config: ModelConfig, choices: dict[str, Any], storage: str, padding: int) -> dict[str, Any]:
    """Return the content of config.json."""
    stacks = {
        f"{stack}_{name}": value
        for stack, n_layers in (("encoder", config.n_layers), ("decoder", config.decoder_depth))
        for name, value in {"layers": n_layers, "ffn_dim": config.d_ff, "attention_heads": config.n_heads}.items()
    }
    return (
        stacks
        | {
            "architectures": ["MarianMTModel"],
            "model_type": "marian",
            "is_encoder_decoder": True,
            "d_model": config.d_model,
            "activation_function": choices["activation"],
            "dropout": config.p_drop,
            "attention_dropout": config.p_drop_attention,
            "activation_dropout": config.p_drop_relu,
            "scale_embedding": True,
            "static_position_embeddings": True,
            "max_position_embeddings": MAX_SOURCE_TOKENS,
            "share_encoder_decoder_embeddings": choices["tied"][0],
            "tie_word_embeddings": choices["tied"][1],
            "vocab_size": config.n_source_words + _adds_start_to_positions(config),
            "decoder_vocab_size": config.vocabulary_size + _adds_start_to_positions(config),
            "dtype": storage,
            "torch_dtype": storage,  # the name in versions of transformers before 5
        }
        | _symbols(padding)
    )


def _symbols(padding: int) -> dict[str, int]:
    """Return the ids of the symbols in MarianMT."""
    return {
        "eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": padding, "decoder_start_token_id": padding,
    }  # fmt: skip


def _generation(config: ModelConfig, padding: int, start: int) -> dict[str, Any]:
    """Return the content of generation_config.json: our default search."""
    return _symbols(padding) | {
        "num_beams": SearchConfig.beam,
        "length_penalty": config.alpha,
        "max_length": MAX_SOURCE_TOKENS,
        "bad_words_ids": [[i] for i in sorted({padding, start, 1})],  # never generated: symbols and the unknown word
    }


def _write_tokenizer(parts: Parts, directory: Path, orders: Sequence[Sequence[int]], separate: bool) -> None:
    """Write subword models, vocabularies, and the settings of MarianTokenizer."""
    models = parts.tokenizer.models[0], parts.tokenizer.models[-1]
    names = (SOURCE_FILE, VOCABULARY), (TARGET_FILE, TARGET_VOCABULARY)
    for model, order, (model_name, vocabulary_name) in zip(models, orders, names, strict=True):
        words = words_of(model)[END + 1 :]
        with_symbols = [UNKNOWN_WORD, PADDING_WORD, END_WORD, *words]
        if _adds_start_to_positions(parts.config):
            with_symbols = [UNKNOWN_WORD, START_WORD, END_WORD, *words, PADDING_WORD]
        (directory / model_name).write_bytes(without_other_words(model))
        if separate or vocabulary_name == VOCABULARY:
            _write_json(directory / vocabulary_name, {with_symbols[ours]: i for i, ours in enumerate(order)})
    settings = {
        "tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, "model_max_length": MAX_SOURCE_TOKENS,
        "unk_token": UNKNOWN_WORD, "eos_token": END_WORD, "pad_token": PADDING_WORD,
    }  # fmt: skip
    _write_json(directory / TOKENIZER_CONFIG, settings)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
