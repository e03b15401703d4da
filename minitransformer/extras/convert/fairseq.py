"""A reader of fairseq's Transformers (``transformer_wmt_en_de``, ``transformer_iwslt_de_en``).

Source: fairseq 0.12, ``fairseq/models/transformer`` and ``fairseq/data/dictionary.py``
    (https://github.com/facebookresearch/fairseq), and the names of arrays in fairseq's first versions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation
from minitransformer.extras.convert.foreign_files import (
    SettingsFile,
    WeightsFile,
    foreign_content,
    read_lines,
    read_state_dict,
    sentencepiece_models,
    weights_file,
)
from minitransformer.extras.convert.layers import FAIRSEQ_NAMES, count_layers, layer_sizes, read_layers
from minitransformer.extras.convert.parts import Array, ConversionError, Parts, Vocabulary
from minitransformer.extras.convert.vocabulary import embeddings, vocabulary_settings, with_tokenizer
from minitransformer.system.records import as_object, read_object

ARGS, CHECKPOINTS = "args.json", ("checkpoint_best.pt", "*.pt")
SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3; the file of a dictionary lacks them
FIRST_POSITION = 2  # fairseq counts positions from 1 + the id of the padding symbol
EPSILON = 1e-5  # of layer norm, PyTorch's default
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "swish": "swish", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
_ALLOWED = {  # setting → its value in models that ours can express; the weights do not show these settings
    "no_token_positional_embeddings": False,
    "no_scale_embedding": False,
    "cross_self_attention": False,
    "lang_tok_replacing_bos_eos": False,
}
_IGNORED = r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights))"  # arrays that are not trained
_OUTPUT = "decoder.output_projection.weight"
_STACKS = (("source", "encoder"), ("target", "decoder"))
_OLD_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)")
_OLD_NORMS = {  # (stack, number of a norm in the first versions) → its name in later versions
    ("encoder", "0"): "self_attn_layer_norm", ("encoder", "1"): "final_layer_norm",
    ("decoder", "0"): "self_attn_layer_norm", ("decoder", "1"): "encoder_attn_layer_norm",
    ("decoder", "2"): "final_layer_norm",
}  # fmt: skip


def is_fairseq(path: Path) -> bool:
    """Return whether a directory has weights and ``args.json``, or a .pt checkpoint and a dictionary (dict*.txt).

    Raises: ConversionError if it has several .pt checkpoints, and none of the names in ``CHECKPOINTS`` or ``WEIGHTS``.
    """
    if not (has_arguments := (path / ARGS).is_file()) and not any(path.glob("dict*.txt")):
        return False
    weights = weights_file(path, *CHECKPOINTS)
    return weights.is_file() and (has_arguments or weights.suffix == ".pt")


def read_fairseq(directory: Path, source_spm: Path | None = None, target_spm: Path | None = None) -> Parts:
    """Read a checkpoint and the dictionaries; for subwords see ``sentencepiece_models``.

    A .pt checkpoint has the model's arguments; arguments in ``args.json`` replace them.  A model in
    ``model.safetensors`` needs ``args.json``.
    The decoder of fairseq starts with the end symbol.  So our vocabulary has fairseq's padding symbol as its start
    symbol: neither is ever generated.
    Raises: ConversionError if a dictionary or a setting is missing, if a .pt checkpoint is corrupt, or if our
    Transformer lacks a feature of the model; CheckpointError if ``args.json`` or ``model.safetensors`` is missing or
    corrupt.
    """
    models = sentencepiece_models(directory, source_spm, target_spm)
    settings, arrays = _settings_and_weights(directory)
    settings.refuse(_ALLOWED)
    _use_newest_names(arrays)
    source, target, tokenizer = with_tokenizer(*_dictionaries(directory, settings), models)
    depths = count_layers(arrays)
    config = _configuration(settings, arrays, depths)
    weights = embeddings(source, target, _tables(arrays, settings))
    weights |= read_layers(arrays, depths, FAIRSEQ_NAMES, norm=config["norm"])
    config |= _read_positions(arrays, weights)
    arrays.require_none_left(_IGNORED)
    model_config = ModelConfig(**config, **vocabulary_settings(source, target, weights))
    profile = settings.languages("source_lang", "target_lang")
    return Parts(model_config, weights, tokenizer, (source, target), profile=profile)


def _settings_and_weights(directory: Path) -> tuple[SettingsFile, WeightsFile]:
    path = weights_file(directory, *CHECKPOINTS)
    if path.suffix != ".pt":
        return SettingsFile.load(directory / ARGS), WeightsFile.load(path)
    content, arrays = read_state_dict(path, "model")
    arguments = content.get("args") or as_object(content.get("cfg")).get("model")
    return SettingsFile(path, as_object(arguments) | read_object(directory / ARGS)), WeightsFile(path, arrays)


def _use_newest_names(arrays: WeightsFile) -> None:
    """Rename the arrays of fairseq's first versions, and split their joint projections of queries, keys and values."""
    for name in arrays:
        if joint := re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name):
            arrays.split(name, [f"{joint[1]}.{part}_proj.{joint[2]}" for part in "qkv"])
        elif (norm := _OLD_NORM.fullmatch(name)) and (norm[2], norm[3]) in _OLD_NORMS:
            arrays.rename(name, f"{norm[1]}.{_OLD_NORMS[norm[2], norm[3]]}.{norm[4]}")
        elif name == "decoder.embed_out":
            arrays.rename(name, _OUTPUT)


def _dictionaries(directory: Path, settings: SettingsFile) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target.

    Both are in ``dict.txt`` if this file exists, or if the setting ``source_lang`` or ``target_lang`` is missing;
    otherwise each vocabulary is in ``dict.LANGUAGE.txt``.
    Raises: ConversionError if a file is missing or no dictionary, or if a setting is no name of a language.
    """
    languages = [settings.of(f"{side}_lang", str, "") for side in ("source", "target")]
    if wrong := [language for language in languages if not re.fullmatch(r"[\w-]*", language)]:
        raise ConversionError(f"{settings.path}: source_lang and target_lang: expected languages, got {wrong[0]!r:.80}")
    is_one = not all(languages) or (directory / "dict.txt").exists()
    names = ["dict.txt"] * 2 if is_one else [f"dict.{language}.txt" for language in languages]
    source, target = (_dictionary(directory / name) for name in names)
    return source, target


def _dictionary(path: Path) -> Vocabulary:
    """Read a dictionary: each line has a word, a blank and a count."""
    words = [*SYMBOLS, *(line.rpartition(" ")[0] for line in read_lines(path))]
    ids = {word: i for i, word in enumerate(words)}
    if len(ids) < len(words) or "" in ids:
        raise ConversionError(f"{path}: expected lines of a word and a count, each word once; it is of another kind")
    with foreign_content(path, "a dictionary"):
        return Vocabulary.of(ids, unknown="<unk>", start="<pad>", end="</s>")


def _tables(arrays: WeightsFile, settings: SettingsFile) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax.

    Without the setting ``share_decoder_input_output_embed``, the softmax is tied if the file has no matrix for it.
    Raises: ConversionError if a matrix is missing, or if matrices differ although a setting ties them.
    """
    source, target, output = *(f"{stack}.embed_tokens.weight" for _, stack in _STACKS), _OUTPUT
    ties_all, ties_output = "share_all_embeddings", "share_decoder_input_output_embed"
    if settings.of(ties_all, bool, False):
        table = arrays.take_equal(ties_all, source, target, output)
        return table, table, table
    if settings.of(ties_output, bool, output not in arrays):
        table = arrays.take_equal(ties_output, target, output)
        return arrays.take(source), table, table
    return arrays.take(source), arrays.take(target), arrays.take(output)


def _configuration(settings: SettingsFile, arrays: WeightsFile, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of the layers and of the search.

    Raises: ConversionError if a setting is missing or not supported.
    """
    n_heads = settings.common(int, "encoder_attention_heads", "decoder_attention_heads")
    is_pre = settings.common(bool, "encoder_normalize_before", "decoder_normalize_before")
    d_ff, d_model = arrays.shape("encoder.layers.0.fc1.weight")
    return {
        **layer_sizes(settings.path, d_model, d_ff, n_heads, depths),
        "activation": settings.choice(ACTIVATIONS, "activation_fn", default="relu"),  # without the setting
        "norm": "pre" if is_pre else "post",
        "layer_norm_eps": EPSILON,
        "attention_bias": True,
        "first_position": FIRST_POSITION,
        "start": "end",
        "normalisation": "length",
        "alpha": 1.0,
    }


def _read_positions(arrays: WeightsFile, weights: dict[str, Array]) -> dict[str, Any]:
    """Return the settings of positions; if the file has learned tables, add them to the weights.

    Raises: ConversionError if the two tables have different numbers of rows.
    """
    tables = {f"{side}_positions.weight": f"{stack}.embed_positions.weight" for side, stack in _STACKS}
    if not all(name in arrays for name in tables.values()):  # a single table is left, and refused later
        return {"positions": "halves"}
    weights |= {ours: arrays.take(theirs) for ours, theirs in tables.items()}
    n_rows = {len(weights[name]) for name in tables}
    if len(n_rows) > 1:
        raise ConversionError(f"{arrays.path}: the tables of positions have {n_rows} rows; ours must be equally long")
    return {"positions": "learned", "max_positions": n_rows.pop()}
