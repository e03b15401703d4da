"""A reader and a writer of MarianMT models of Hugging Face's transformers: config.json, weights, vocab.json, *.spm.

Source: transformers 5.24, models/marian (https://github.com/huggingface/transformers).  Position encodings of
    transformers have the frequencies of the paper, 10000^(-2i/D), with all sines before all cosines.  Marian itself
    has other frequencies.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autograd.array import IntArray
from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation, PositionLayout
from minitransformer.data.rare_words import is_of_words
from minitransformer.extras.convert.foreign_files import (
    SOURCE_FILE,
    TARGET_FILE,
    WEIGHTS,
    SettingsFile,
    WeightsFile,
    foreign_content,
    read_subwords,
    weights_file,
)
from minitransformer.extras.convert.layers import (
    BFLOAT16_ERROR,
    FAIRSEQ_NAMES,
    layer_sizes,
    modules,
    read_layers,
    sines_first,
    with_features,
)
from minitransformer.extras.convert.parts import (
    IMPOSSIBLE,
    SEARCH_ONLY,
    Array,
    ConversionError,
    Parts,
    Vocabulary,
    expressed,
    warning_of_penalty,
)
from minitransformer.extras.convert.vocabulary import (
    embeddings,
    vocabulary_settings,
    warning_of_words,
    with_tokenizer,
    without_other_words,
    words_of,
)
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import MAX_SOURCE_TOKENS
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import END, START, UNKNOWN
from minitransformer.system.files import read_json, write_arrays, write_text
from minitransformer.system.records import read_object

LOG = logging.getLogger(__name__)
CONFIG, VOCABULARY, TARGET_VOCABULARY = "config.json", "vocab.json", "target_vocab.json"
TOKENIZER_CONFIG, GENERATION_CONFIG = "tokenizer_config.json", "generation_config.json"
PREFIX = "model."  # of the names of all arrays in the layers
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
UNKNOWN_WORD, START_WORD = "<unk>", "<s>"
EMBEDDINGS = (  # tied embeddings are one matrix; older versions of transformers store it under all four names
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
EPSILON = 1e-5  # of layer norm, PyTorch's default

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
_ALLOWED = {  # setting → its value in models that ours can express
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}


def is_marian(path: Path) -> bool:
    """Return whether a directory has the configuration and the weights of a MarianMT model."""
    if not ((path / CONFIG).is_file() and weights_file(path).is_file()):
        return False
    return bool(read_object(path / CONFIG).get("model_type") == "marian")


def read_marian(path: Path) -> Parts:
    """Read a MarianMT directory.

    Raises: ConversionError if a setting or a subword model is missing, or if our Transformer lacks a feature of the
    model; CheckpointError if a JSON file or ``model.safetensors`` is missing or corrupt; WeightsError if weights do not
    fit the settings.
    """
    settings, arrays = SettingsFile.load(path / CONFIG), WeightsFile.load(weights_file(path))
    models = read_subwords(path / SOURCE_FILE), read_subwords(path / TARGET_FILE)
    depths = settings.of("encoder_layers", int), settings.of("decoder_layers", int)
    layers = _configuration(path, settings, depths)
    layout, order, added = _read_positions(arrays, layers["d_model"])
    has_own_padding = added is not None
    source, target, tokenizer = with_tokenizer(*_vocabularies(path, settings, has_own_padding), models)
    tables, bias = _tables(arrays, settings), arrays.take_if_there("final_logits_bias")
    if has_own_padding:
        tables = (tables[0][:-1], tables[1][:-1], tables[2][:-1])
        bias = None if bias is None else bias[..., :-1]
    weights = embeddings(source, target, tables, bias)
    starts_from = weights.get("target_embedding.weight", weights["source_embedding.weight"])[START]
    if added is not None:
        expected = math.sqrt(len(starts_from)) * starts_from
        if (np.abs(added - expected) > BFLOAT16_ERROR * (1 + 2 * np.abs(expected))).any():
            raise _unknown_positions(arrays.path)
    weights |= read_layers(arrays, depths, FAIRSEQ_NAMES, norm="post", prefix=PREFIX)
    arrays.require_none_left()
    config = ModelConfig(
        **layers,
        **vocabulary_settings(source, target, weights),
        positions=layout,
        start="symbol" if starts_from.any() else "zero",
    )
    profile = SettingsFile.load_if_there(path / TOKENIZER_CONFIG).languages("source_lang", "target_lang")
    parts = Parts(config, weights, tokenizer, (source, target), profile=profile).require_fitting()
    return dataclasses.replace(parts, weights=with_features(weights, np.argsort(order)))


def _vocabularies(path: Path, settings: SettingsFile, has_own_padding: bool) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target; they are equal if both languages share one.

    Args:
        has_own_padding: True if the last word is a padding symbol, and the start symbol is another word; False if the
            padding symbol is our start symbol.
    """
    separate = SettingsFile.load_if_there(path / TOKENIZER_CONFIG).of("separate_vocabs", bool, False)
    source_ids = _ids(path / VOCABULARY)
    target_ids = _ids(path / TARGET_VOCABULARY) if separate else source_ids
    words = {number: word for word, number in target_ids.items()}
    start, end = (words.get(settings.of(name, int)) for name in ("decoder_start_token_id", "eos_token_id"))
    if start is None or end is None or start == end:
        raise ConversionError(
            f"{settings.path}: decoder_start_token_id and eos_token_id must be ids of two words of {VOCABULARY}"
        )
    if has_own_padding:
        if separate or target_ids[start] != max(target_ids.values()) or START_WORD not in target_ids:
            raise _unknown_positions(weights_file(path))
        target_ids.pop(start)
        start = START_WORD
    with foreign_content(path / VOCABULARY, "a vocabulary"):
        source = target = Vocabulary.of(source_ids, unknown=UNKNOWN_WORD, start=start, end=end)
    if separate:
        with foreign_content(path / TARGET_VOCABULARY, "a vocabulary"):
            target = Vocabulary.of(target_ids, unknown=UNKNOWN_WORD, start=start, end=end)
    return source, target


def _ids(path: Path) -> dict[str, int]:
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise ConversionError(f"{path}: expected a JSON object with the id of each word; it is of another kind")
    return ids


def _tables(arrays: WeightsFile, settings: SettingsFile) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax.

    Our model multiplies embeddings by √D, transformers only if ``scale_embedding`` is true.  If it is false, divide the
    embeddings by √D; they then differ from the matrix of the softmax.
    Raises: ConversionError if a table is missing, or if tied tables differ: transformers 5 would use both tables,
    versions before 5 only one.
    """
    tied, (_, source_name, target_name, softmax_name) = "tie_word_embeddings", EMBEDDINGS
    is_shared = settings.of("share_encoder_decoder_embeddings", bool, True)
    if not settings.of(tied, bool, True):
        source, target = _untied_embeddings(arrays, is_shared)
        output = arrays.take(softmax_name)
    elif is_shared:
        source = target = output = arrays.take_equal(tied, *EMBEDDINGS)
    else:
        source = arrays.take(source_name)
        target = output = arrays.take_equal(tied, target_name, softmax_name)
    if settings.of("scale_embedding", bool, False):
        return source, target, output
    scale = np.float32(1 / math.sqrt(settings.of("d_model", int)))
    return source * scale, target * scale, output


def _untied_embeddings(arrays: WeightsFile, is_shared: bool) -> tuple[Array, Array]:
    """Return the embeddings of source and target of a model with ``tie_word_embeddings`` false.

    In transformers 5, each language of such a model has its own matrix, even if ``share_encoder_decoder_embeddings`` is
    true; the shared matrix is stored, but not used.  Versions before 5 use the shared matrix for both languages, and
    may store no other matrix.
    """
    shared_name, source_name, target_name, _ = EMBEDDINGS
    shared = arrays.take_if_there(shared_name) if is_shared else None
    if shared is not None and source_name not in arrays and target_name not in arrays:
        return shared, shared
    source, target = arrays.take(source_name), arrays.take(target_name)
    if shared is not None and not (np.array_equal(shared, source) and np.array_equal(shared, target)):
        LOG.warning(
            f"{arrays.path}: {shared_name} differs from {source_name} or {target_name}, and is not read: transformers 5"
            " does not use it, because tie_word_embeddings is false"
        )
    return source, target


def _read_positions(arrays: WeightsFile, d_model: int) -> tuple[PositionLayout, IntArray, Array | None]:
    """Return the layout of the position encodings, the order of their features, and an embedding or None.

    A table in the file replaces the sinusoids of transformers.  So a model can have the sinusoids of Marian, which are
    the layout "halves".
    The first row of the decoder's table belongs to the start symbol.  If the symbol's embedding was added to this row
    (see ``_arrays``), return the embedding × √D; otherwise None.
    Raises: ConversionError if a table has no sinusoids.
    """
    orders: dict[PositionLayout, IntArray] = {"interleaved": sines_first(d_model), "halves": np.arange(d_model)}
    default = sinusoids(3, d_model)[:, orders["interleaved"]]
    tables = [default if table is None else table for table in map(arrays.take_if_there, POSITIONS)]
    for layout, order in orders.items():
        expected = [sinusoids(len(table), d_model, layout)[:, order] for table in tables]
        if all(map(_are_close, tables, expected)):
            return layout, order, None
        if _are_close(tables[0], expected[0]) and len(tables[1]) > 1 and _are_close(tables[1][1:], expected[1][1:]):
            return layout, order, tables[1][0] - expected[1][0]
    raise _unknown_positions(arrays.path)


def _unknown_positions(path: Path) -> ConversionError:
    return ConversionError(f"{path}: {POSITIONS[0]} is no table of sinusoids; trained positions are not supported")


def _are_close(table: Array, expected: Array) -> bool:
    return table.shape == expected.shape and bool(np.abs(table - expected).max() < BFLOAT16_ERROR)


def _configuration(path: Path, settings: SettingsFile, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of the layers and of the search.

    Raises: ConversionError if a setting is missing or not supported; CorruptFileError if generation_config.json is not
    JSON.
    """
    settings.refuse(_ALLOWED)
    d_ff, n_heads = (
        settings.common(int, f"encoder_{name}", f"decoder_{name}") for name in ("ffn_dim", "attention_heads")
    )
    generation = SettingsFile.load(path / GENERATION_CONFIG) if (path / GENERATION_CONFIG).exists() else settings
    return {
        **layer_sizes(settings.path, settings.of("d_model", int), d_ff, n_heads, depths),
        "activation": settings.choice(ACTIVATIONS, "activation_function", default="gelu"),
        "attention_bias": True,
        "layer_norm_eps": EPSILON,
        "p_drop": settings.of("dropout", float, 0.1),
        "label_smoothing_over": "V",
        "normalisation": "length",
        "alpha": generation.of("length_penalty", float, 1.0),
    }


PADDING_WORD, END_WORD = "<pad>", "</s>"
_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "activation": {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())},  # reversed: keep the first name
    "norm": {"post": None},
    "positions": {"interleaved": sines_first, "halves": np.arange},  # return the order of features
    "start": {"symbol": False, "zero": True},  # is the symbol a zero vector?
    "tied": {"all": (True, True), "target": (False, True), "none": (False, False)},  # tied to target: source, softmax
    **SEARCH_ONLY,
}


def write_marian(parts: Parts, directory: Path, storage: str = "float32") -> None:
    """Write a directory that MarianMTModel and MarianTokenizer of transformers load.

    As in Marian, the end symbol has the id 0, and the unknown word the id 1.  transformers starts the decoder with the
    padding symbol.  The padding symbol is our start symbol, or a separate word (see ``_arrays``).  Its id is the last
    one, or 2 if source and target have different vocabularies.
    Raises: ConversionError if MarianMT cannot express the model, or if a weight is not finite or too large for
    ``storage``; CheckpointError if a file cannot be written.
    """
    choices = expressed("MarianMT", parts.config, _CHOICES)
    config = parts.config
    symbols = [UNKNOWN_WORD, PADDING_WORD, END_WORD, *[START_WORD] * _adds_start_to_positions(config)]
    require_expressible("MarianMT", parts, symbols)
    separate = not choices["tied"][0]
    adds_padding = _adds_start_to_positions(config)
    orders = [_order(n, separate, adds_padding) for n in (config.n_source_words, config.vocabulary_size)]
    arrays = {name: array.astype(storage) for name, array in _arrays(parts, orders, choices).items()}
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ConversionError(f"some weights are too large for {storage}, or not finite")
    write_arrays(directory / WEIGHTS[0], arrays, {"format": "pt"})
    padding = len(orders[1]) - 1 if adds_padding else orders[1].index(START)
    _write_json(directory / CONFIG, _settings(config, choices, storage, padding))
    _write_json(directory / GENERATION_CONFIG, _generation(config, padding, orders[1].index(START)))
    _write_tokenizer(parts, directory, orders, separate)
    for warning in _warnings(parts, storage):
        LOG.warning(warning)


def require_expressible(program: str, parts: Parts, symbols: Sequence[str]) -> None:
    """Raise ConversionError if MarianMT, or Marian itself, cannot express the model; its choices are not checked here.

    Args:
        program: the name of the program for the message.
        symbols: the program's own words, which the vocabularies must not have.
    """
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
        problems.append("the tokenizer makes classes of rare words, which the program lacks")
    vocabularies = [words_of(model) for model in parts.tokenizer.models]
    if config.tied == "all" and vocabularies[0] != vocabularies[-1]:
        problems.append('tied is "all", but source and target have different words')
    if any(set(symbols) & set(words[END + 1 :]) for words in vocabularies):
        problems.append(f"a word is named as a symbol ({', '.join(symbols)})")
    if problems:
        raise ConversionError(f"{program} has no such model: {'; '.join(problems)}")


def _warnings(parts: Parts, storage: str) -> list[str]:
    """Return warnings: how MarianMT's results may differ from our model's, and what CTranslate2 cannot read."""
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
    if penalty := warning_of_penalty(config, config.own_alpha, "transformers has no other"):
        warnings.append(penalty)
    if words := warning_of_words(parts.tokenizer.models):
        warnings.append(words)
    if storage != "float32":
        warnings.append(f"weights are rounded to {storage}")
    return warnings


def _order(n_words: int, separate: bool, adds_padding: bool) -> list[int]:
    """Return our ids in the order of MarianMT's ids; ``n_words`` stands for an added padding symbol."""
    words = range(END + 1, n_words)
    if adds_padding:
        return [END, UNKNOWN, *words, START, n_words]
    return [END, UNKNOWN, START, *words] if separate else [END, UNKNOWN, *words, START]


def _adds_start_to_positions(config: ModelConfig) -> bool:
    """Return whether the start symbol's embedding is added to the decoder's table of positions; see ``_arrays``."""
    return config.start == "symbol" and config.tied == "all"


def _has_tables(config: ModelConfig) -> bool:
    """Return whether tables of positions must be stored, because MarianMT computes other tables."""
    return config.positions == "halves" or _adds_start_to_positions(config)


def _arrays(parts: Parts, orders: Sequence[Sequence[int]], choices: dict[str, Any]) -> dict[str, Array]:
    """Return the weights under MarianMT's names.

    If our decoder starts with a zero vector, the padding symbol's embedding is set to 0.  If the softmax has the same
    matrix, the symbol's bias becomes ``IMPOSSIBLE``, so that a row of zeros gets no probability.  Translations do not
    change, because the symbol is never generated.

    If our decoder starts with a start symbol, and source and target share one vocabulary, CTranslate2's converter of
    MarianMT models would read a wrong model: it always starts the decoder with a zero vector, and leaves out the
    padding symbol.  So such a model gets a separate padding symbol, a zero vector without probability.  The embedding
    of the start symbol, times √D, is added to the first row of the decoder's positions.  So the decoder's first input,
    embedding + position, stays the same.
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


def _settings(config: ModelConfig, choices: dict[str, Any], storage: str, padding: int) -> dict[str, Any]:
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
    """Return MarianMT's settings that are ids of symbols."""
    return {"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": padding, "decoder_start_token_id": padding}


def _generation(config: ModelConfig, padding: int, start: int) -> dict[str, Any]:
    """Return the content of generation_config.json: our default search."""
    return _symbols(padding) | {
        "num_beams": SearchConfig.beam,
        "length_penalty": config.own_alpha,
        "max_length": MAX_SOURCE_TOKENS,
        "bad_words_ids": [[i] for i in sorted({padding, start, 1})],  # never generated: symbols and the unknown word
    }


def _write_tokenizer(parts: Parts, directory: Path, orders: Sequence[Sequence[int]], separate: bool) -> None:
    """Write the subword models, the vocabularies, and the settings of MarianTokenizer."""
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
