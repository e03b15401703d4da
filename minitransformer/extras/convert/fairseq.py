"""fairseq's Transformers (``transformer_wmt_en_de``, ``transformer_iwslt_de_en``), read from a checkpoint.

Source: fairseq 0.12, ``fairseq/models/transformer`` and ``fairseq/data/dictionary.py``
    (https://github.com/facebookresearch/fairseq), and the names of its first versions.
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
SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3; a dictionary's file leaves them out
FIRST_POSITION = 2  # positions up to that of the padding symbol, 1, are left out
EPSILON = 1e-5  # of layer norm, PyTorch's default
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "swish": "swish", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
_ALLOWED = {  # settings that the weights do not show, and the values with which our model computes the same
    "no_token_positional_embeddings": False,
    "no_scale_embedding": False,
    "cross_self_attention": False,
    "lang_tok_replacing_bos_eos": False,
}
_IGNORED = r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights))"  # no trained values
_OUTPUT = "decoder.output_projection.weight"
_STACKS = (("source", "encoder"), ("target", "decoder"))
_OLD_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)")
_OLD_NORMS = {  # stack and number of a norm in the first versions, and its name since then
    ("encoder", "0"): "self_attn_layer_norm", ("encoder", "1"): "final_layer_norm",
    ("decoder", "0"): "self_attn_layer_norm", ("decoder", "1"): "encoder_attn_layer_norm",
    ("decoder", "2"): "final_layer_norm",
}  # fmt: skip


def is_fairseq(path: Path) -> bool:
    """Return whether a directory has a state dict and the arguments of fairseq."""
    if not (has_arguments := (path / ARGS).is_file()) and not any(path.glob("dict*.txt")):
        return False
    weights = weights_file(path, *CHECKPOINTS)
    return weights.is_file() and (has_arguments or weights.suffix == ".pt")


def read_fairseq(directory: Path, source_spm: Path | None = None, target_spm: Path | None = None) -> Parts:
    """Read a checkpoint and the dictionaries; for subwords see ``sentencepiece_models``.

    ``args.json`` has the arguments of a model in ``model.safetensors``.  A checkpoint (.pt) has arguments itself, and
    those in ``args.json`` replace or complete them.  Our start symbol is fairseq's padding symbol, because neither is
    generated; fairseq's decoder starts with the end symbol.
    Raises: ConversionError if a setting is missing, or if the model has a feature that ours lacks; CorruptFileError if
    a file is missing or corrupt.
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
    return Parts(model_config, weights, tokenizer, (source, target))


def _settings_and_weights(directory: Path) -> tuple[SettingsFile, WeightsFile]:
    path = weights_file(directory, *CHECKPOINTS)
    if path.suffix != ".pt":
        return SettingsFile.load(directory / ARGS), WeightsFile.load(path)
    content, arrays = read_state_dict(path, "model")
    arguments = content.get("args") or as_object(content.get("cfg")).get("model")
    return SettingsFile(path, as_object(arguments) | read_object(directory / ARGS)), WeightsFile(path, arrays)


def _use_newest_names(arrays: WeightsFile) -> None:
    """Rename arrays of the first versions, and separate their joint projections of queries, keys and values."""
    for name in arrays:
        if joint := re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name):
            arrays.split(name, [f"{joint[1]}.{part}_proj.{joint[2]}" for part in "qkv"])
        elif (norm := _OLD_NORM.fullmatch(name)) and (norm[2], norm[3]) in _OLD_NORMS:
            arrays.rename(name, f"{norm[1]}.{_OLD_NORMS[norm[2], norm[3]]}.{norm[4]}")
        elif name == "decoder.embed_out":
            arrays.rename(name, _OUTPUT)


def _dictionaries(directory: Path, settings: SettingsFile) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target: dict.LANGUAGE.txt of both languages, or dict.txt."""
    languages = [settings.of(f"{side}_lang", str, "") for side in ("source", "target")]
    if wrong := [language for language in languages if not re.fullmatch(r"[\w-]*", language)]:
        raise ConversionError(f"{settings.path}: source_lang and target_lang: expected languages, got {wrong[0]!r:.80}")
    is_one = not all(languages) or (directory / "dict.txt").exists()
    names = ["dict.txt"] * 2 if is_one else [f"dict.{language}.txt" for language in languages]
    source, target = (_dictionary(directory / name) for name in names)
    return source, target


def _dictionary(path: Path) -> Vocabulary:
    """Read a dictionary, whose lines are a word, a blank and a count."""
    words = [*SYMBOLS, *(line.rpartition(" ")[0] for line in read_lines(path))]
    ids = {word: i for i, word in enumerate(words)}
    if len(ids) < len(words) or "" in ids:
        raise ConversionError(f"{path}: expected lines of a word and a count, each word once; it is of another kind")
    with foreign_content(path, "a dictionary"):
        return Vocabulary.of(ids, unknown="<unk>", start="<pad>", end="</s>")


def _tables(arrays: WeightsFile, settings: SettingsFile) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax.

    If no setting says whether the softmax is tied, it is tied when the file has no matrix for it.
    Raises: ConversionError if matrices that are tied by a setting differ.
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
    """Return the configuration of the layers.  Raises: ConversionError."""
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
    """Return the layout of positions, and add learned tables to the weights."""
    tables = {f"{side}_positions.weight": f"{stack}.embed_positions.weight" for side, stack in _STACKS}
    if not all(name in arrays for name in tables.values()):  # a single table is not taken, and so refused
        return {"positions": "halves"}
    weights |= {ours: arrays.take(theirs) for ours, theirs in tables.items()}
    n_rows = {len(weights[name]) for name in tables}
    if len(n_rows) > 1:
        raise ConversionError(f"{arrays.path}: the tables of positions have {n_rows} rows; ours must be equally long")
    return {"positions": "learned", "max_positions": n_rows.pop()}
