"""Marian's own models, read: a .npz of parameters, its vocabulary (.yml, .json or .spm), its subword models.

Source: marian-dev 0888d122, src/models/transformer.h, for names and meaning of parameters; a directory as OPUS-MT
publishes it (https://github.com/Helsinki-NLP/OPUS-MT-train) has decoder.yml, which names model and vocabularies.
"""

from __future__ import annotations

import json
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation, Tying
from minitransformer.convert.flat_yaml import read_settings, read_vocabulary
from minitransformer.convert.foreign_files import Arrays, Fields, read_bytes
from minitransformer.convert.parts import ConversionError, Parts
from minitransformer.convert.pieces import words_of
from minitransformer.convert.vocabulary import Array, Vocabulary, with_tokenizer

SETTINGS_ARRAY = "special:model.yml"
DECODER_FILE = "decoder.yml"
SUBWORD_FILES = ("source.spm", "target.spm")
UNKNOWN_WORD, END_WORD = "<unk>", "</s>"
_SIGMOID_SLOPE = 1.702  # of Marian's gelu, x σ(1.702 x)

_REQUIRED: dict[str, tuple[Any, ...]] = {  # settings, and the values with which Marian computes what we do
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-activation": ("relu", "swish", "gelu"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-postprocess-emb": ("", "d"),
    "transformer-no-projection": (False,),
    "transformer-train-positions": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-tied-layers": ([],),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
}
_NORMS = {  # preprocess, postprocess and postprocess-top of the transformer, without dropout
    ("", "an", ""): "post",
    ("n", "a", "n"): "pre",
}
_ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}


def is_marian_npz(path: Path) -> bool:
    """Return whether a path is a .npz file, or a directory with one."""
    return path.suffix == ".npz" if path.is_file() else any(path.glob("*.npz"))


def read_marian_npz(path: Path) -> Parts:
    """Read a .npz file, or a directory with one, and the vocabulary and subword models beside it.

    Raises: ConversionError if a file or setting is missing, or if the model has what ours cannot express.
    """
    folder = path if path.is_dir() else path.parent
    decoder = _settings_of(folder / DECODER_FILE) if (folder / DECODER_FILE).exists() else Fields(folder, {})
    arrays, fields = _load(_model_file(path, decoder))
    source, target, tokenizer = with_tokenizer(*_vocabularies(folder, decoder))
    tied = _tying(fields)
    weights = _embeddings(arrays, source, target, fields)
    omits = fields.of("output-omit-bias", bool, False)
    bias = target.bias(None if omits else arrays.find("decoder_ff_logit_out_b").ravel())
    weights |= {} if bias is None else {"softmax_bias": bias}
    config = _configuration(fields, decoder)
    weights |= dict(_layers(arrays, config, fields.of("transformer-ffn-activation", str) == "gelu"))
    if unread := arrays.unread():
        raise ConversionError(f"{arrays.path}: parameters that our models lack: {', '.join(unread[:5])}")
    config |= {
        "tied": tied, "vocabulary_size": len(target.words), "softmax_bias": bias is not None,
        "source_vocabulary_size": None if len(source.words) == len(target.words) else len(source.words),
    }  # fmt: skip
    return Parts(ModelConfig(**config), weights, tokenizer)


def _model_file(path: Path, decoder: Fields) -> Path:
    """Return the .npz: the path itself, the one that decoder.yml names, or the only one of the directory."""
    if path.is_file():
        return path
    named = [path / str(name) for name in decoder.of("models", list, [])]
    found = named or sorted(path.glob("*.npz"))
    if len(found) != 1:
        raise ConversionError(f"{path}: {len(found)} .npz files ({', '.join(f.name for f in found)}); give one of them")
    return found[0]


def _load(path: Path) -> tuple[Arrays, Fields]:
    """Return the parameters and the settings of a .npz file."""
    try:
        with warnings.catch_warnings(), path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            warnings.simplefilter("ignore")  # of NumPy, about odd headers
            arrays = {name: file[name] for name in file.files}
        text = arrays.pop(SETTINGS_ARRAY).astype(np.uint8).tobytes().rstrip(b"\0").decode()
        return Arrays(path, arrays), Fields(path, read_settings(text))
    except KeyError as error:
        raise ConversionError(f"{path}: it has no {error.args[0]}; is it a model of Marian?") from error
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ConversionError(f"{path}: cannot be read ({error}); it is corrupt or no model of Marian") from error


def _settings_of(path: Path) -> Fields:
    try:
        return Fields(path, read_settings(read_bytes(path).decode()))
    except ValueError as error:
        raise ConversionError(f"{path}: cannot be read ({error}); it is corrupt or of another kind") from error


def _vocabularies(folder: Path, decoder: Fields) -> tuple[Vocabulary, Vocabulary, tuple[bytes | None, bytes | None]]:
    """Return the vocabularies of source and target, and the sentencepiece models of each, if there are any."""
    named = [folder / str(name) for name in decoder.of("vocabs", list, [])]
    files = named or sorted({*folder.glob("*vocab*.yml"), *folder.glob("*vocab*.json"), *folder.glob("*vocab*.spm")})
    if len(files) not in (1, 2):
        raise ConversionError(
            f"{folder}: {len(files)} vocabularies; name those of source and target in {DECODER_FILE}, as"
            " vocabs: [source.vocab.yml, target.vocab.yml]"
        )
    files = sorted(files, key=lambda path: "trg" in path.name or "target" in path.name) if not named else files
    source, target = _vocabulary(files[0]), _vocabulary(files[-1])
    models = [
        read_bytes(model) if (model := path if path.suffix == ".spm" else folder / subwords).exists() else None
        for path, subwords in zip((files[0], files[-1]), SUBWORD_FILES, strict=True)
    ]
    return source, target, (models[0], models[1])


def _vocabulary(path: Path) -> Vocabulary:
    data = read_bytes(path)
    try:
        if path.suffix == ".spm":
            ids = {word: number for number, word in enumerate(words_of(data))}
        else:
            ids = json.loads(data) if path.suffix == ".json" else read_vocabulary(data.decode())
        start = next(name for name in ("<s>", "<start>", "<pad>") if name not in ids)  # Marian has no start symbol
        return Vocabulary.of(ids, unknown=UNKNOWN_WORD, start=start, end=END_WORD)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConversionError(f"{path}: cannot be read ({error}); expected the id of each word") from error


def _tying(fields: Fields) -> Tying:
    """Return which embeddings are one matrix."""
    all_, source, output = (
        fields.of(name, bool, False) for name in ("tied-embeddings-all", "tied-embeddings-src", "tied-embeddings")
    )
    return "all" if all_ or (source and output) else "target" if output else "none"


def _embeddings(arrays: Arrays, source: Vocabulary, target: Vocabulary, fields: Fields) -> dict[str, Array]:
    """Return embeddings and the matrix of the softmax."""
    tied = _tying(fields)
    shared = tied == "all" or fields.of("tied-embeddings-src", bool, False)
    weights = {"source_embedding.weight": source.matrix(arrays.find("Wemb" if shared else "encoder_Wemb"))}
    if tied != "all":
        weights["target_embedding.weight"] = target.matrix(arrays.find("Wemb" if shared else "decoder_Wemb"))
    if tied == "none":
        name = "decoder_ff_logit_out_W"
        output = arrays.find(f"{name}t") if arrays.has(f"{name}t") else arrays.find(name).T
        weights["projection.weight"] = target.matrix(output)
    return weights


def _configuration(fields: Fields, decoder: Fields) -> dict[str, Any]:
    """Return the settings of the layers, and the length penalty of decoder.yml or Marian's default, none."""
    for name, possible in _REQUIRED.items():
        value = fields.of(name, object, possible[0])
        if value not in possible:
            raise ConversionError(f"{fields.path}: {name} = {value!r} is not supported; only {possible}")
    steps = tuple(
        str(fields.of(f"transformer-{name}", object, "") or "").replace("d", "")
        for name in ("preprocess", "postprocess", "postprocess-top")
    )
    if steps not in _NORMS:
        raise ConversionError(
            f"{fields.path}: layer norm after the steps {steps} is not supported; only {list(_NORMS)}"
        )
    activation: Activation = "relu" if fields.of("transformer-ffn-activation", str) == "relu" else "swish"
    d_model, n_heads = fields.of("dim-emb", int), max(1, fields.of("transformer-heads", int))
    return {
        "d_model": d_model, "d_ff": fields.of("transformer-dim-ffn", int), "n_heads": n_heads,
        "d_k": d_model // n_heads, "d_v": d_model // n_heads, "n_layers": fields.of("enc-depth", int),
        "n_decoder_layers": fields.of("dec-depth", int), "activation": activation, "norm": _NORMS[steps],
        "positions": "halves", "start": "zero", "attention_bias": True, "label_smoothing_over": "V",
        "normalisation": "length", "alpha": decoder.of("normalize", float, 0.0),
    }  # fmt: skip


def _layers(arrays: Arrays, config: dict[str, Any], is_gelu: bool) -> Iterator[tuple[str, Array]]:
    """Yield the parameters of all layers under our names.

    Marian's gelu(x) = x σ(1.702 x) is swish(1.702 x) / 1.702: the maps before and after it are multiplied.
    """
    suffix, slope = ("_pre" if config["norm"] == "pre" else ""), np.float32(_SIGMOID_SLOPE if is_gelu else 1)
    for stack, n_layers in (("encoder", config["n_layers"]), ("decoder", config["n_decoder_layers"])):
        for i in range(n_layers):
            ours, theirs = f"{stack}.layers.{i}", f"{stack}_l{i + 1}"
            for kind, name in (("self", "self_attention"), ("context", "source_attention"))[: 1 + (stack == "decoder")]:
                for part, letter in _ATTENTION.items():
                    yield f"{ours}.{name}.{part}.weight", arrays.find(f"{theirs}_{kind}_W{letter}")
                    yield f"{ours}.{name}.{part}.bias", arrays.find(f"{theirs}_{kind}_b{letter}").ravel()
                yield from _norm(arrays, f"{ours}.{name}_residual.norm", f"{theirs}_{kind}_Wo", suffix)
            for part, number, factor in (("hidden", 1, slope), ("output", 2, 1 / slope)):
                yield f"{ours}.feed_forward.{part}.weight", arrays.find(f"{theirs}_ffn_W{number}") * factor
                bias = arrays.find(f"{theirs}_ffn_b{number}").ravel()
                yield f"{ours}.feed_forward.{part}.bias", bias * slope if part == "hidden" else bias
            yield from _norm(arrays, f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn", suffix)
        if suffix:
            yield from _norm(arrays, f"{stack}.norm", f"{stack}_top", "")


def _norm(arrays: Arrays, ours: str, theirs: str, suffix: str) -> Iterator[tuple[str, Array]]:
    """Yield gain and bias of a layer norm."""
    yield f"{ours}.gain", arrays.find(f"{theirs}_ln_scale{suffix}").ravel()
    yield f"{ours}.bias", arrays.find(f"{theirs}_ln_bias{suffix}").ravel()
