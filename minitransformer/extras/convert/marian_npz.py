"""A reader of Marian's own models: a .npz file of parameters, vocabularies (.yml, .json or .spm), and subword models.

A directory that OPUS-MT publishes also has decoder.yml, which names the .npz file and the vocabularies.  Marian's YAML
files have one level of keys, each with a scalar or a list of scalars.

Source: marian-dev 0888d122, src/models/transformer.h, for names and meaning of parameters; OPUS-MT
(https://github.com/Helsinki-NLP/OPUS-MT-train); https://yaml.org/spec/1.2.2/, sections 5.7 (escape sequences), 7.3
(scalars) and 8.2 (lists and mappings).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import Activation
from minitransformer.extras.convert.foreign_files import (
    SOURCE_FILE,
    TARGET_FILE,
    SettingsFile,
    WeightsFile,
    foreign_content,
    read_bytes,
    read_npz,
    read_subwords,
)
from minitransformer.extras.convert.layers import STACKS, layer_sizes
from minitransformer.extras.convert.parts import Array, ConversionError, Parts, Vocabulary, looked_up
from minitransformer.extras.convert.vocabulary import (
    SubwordModels,
    embeddings,
    vocabulary_settings,
    with_tokenizer,
    words_of,
)

Scalar = str | int | float | bool

_NAMED = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "N": "\x85",
    "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")


def read_vocabulary(text: str) -> dict[str, int]:
    """Return the id of each word in a .yml vocabulary.

    Lines are "word: id"; a long word has two lines, "? word" and ": id".  Raises: ValueError for a line without an id.
    """
    ids, word = dict[str, int](), None
    for line in text.split("\n"):
        if line.startswith("? "):
            word = line[2:]
        elif line.strip():
            before, _, number = line.rstrip("\r").rpartition(":")
            ids[_unquote(before if word is None else word)] = int(number)
            word = None
    return ids


def read_settings(text: str) -> dict[str, Scalar | list[Scalar]]:
    """Return the settings in a YAML text; a list is written as lines "- item" or as [a, b].

    Raises: ValueError for a line that is no setting, item or comment.
    """
    settings: dict[str, Scalar | list[Scalar]] = {}
    items: list[Scalar] = []
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if line.lstrip().startswith("- "):
            items.append(_scalar(line.lstrip()[2:].strip()))
        elif colon and line[0] not in " #":
            value = value.strip()
            is_list = value.startswith("[") and value.endswith("]")
            items = [_scalar(item.strip()) for item in value[1:-1].split(",") if item.strip()] if is_list else []
            settings[_unquote(key)] = _scalar(value) if value and not is_list else items
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"not a setting: {line!r}")
    return settings


def _scalar(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return _unquote(text)


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _ESCAPE.sub(_unescape, text[1:-1])
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _NAMED.get(match[4], match[4])


SETTINGS_ARRAY = "special:model.yml"
DECODER_FILE = "decoder.yml"
UNKNOWN_WORD, END_WORD = "<unk>", "</s>"
_SIGMOID_SLOPE = 1.702  # of Marian's gelu, x σ(1.702 x)

REQUIRED: dict[str, tuple[Any, ...]] = {  # setting → the values that our model can express; the default is the first
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
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
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "swish": "swish", "gelu": "swish"}  # see ``_layers`` for gelu
# transformer-preprocess, -postprocess and -postprocess-top, without "d" for dropout → our setting ``norm``.  Before
# self-attention, Marian's pre-norm normalises the queries, but not the keys and values.  Our model has no such layer.
NORMS = {("", "an", ""): "post"}
_ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}


def is_marian_npz(path: Path) -> bool:
    """Return whether a path is a .npz file, or a directory with one."""
    return path.suffix == ".npz" if path.is_file() else any(path.glob("*.npz"))


def read_marian_npz(path: Path) -> Parts:
    """Read a .npz file, or a directory with one, and the vocabulary and subword models beside it.

    Raises: ConversionError if a file or setting is missing, if a file is corrupt, or if our Transformer lacks a feature
    of the model.
    """
    folder = path if path.is_dir() else path.parent
    decoder = _settings_of(folder / DECODER_FILE) if (folder / DECODER_FILE).exists() else SettingsFile(folder, {})
    arrays, settings = _load(_model_file(path, decoder))
    source, target, models = _vocabularies(folder, decoder)
    source, target, tokenizer = with_tokenizer(source, target, models)
    bias = None if settings.of("output-omit-bias", bool, False) else arrays.take("decoder_ff_logit_out_b")
    weights = embeddings(source, target, _tables(arrays, settings), bias)
    depths = settings.of("enc-depth", int), settings.of("dec-depth", int)
    config = _configuration(settings, decoder, depths)
    weights |= dict(_layers(arrays, depths, settings.of("transformer-ffn-activation", str) == "gelu"))
    arrays.require_none_left()
    model_config = ModelConfig(**config, **vocabulary_settings(source, target, weights))
    return Parts(model_config, weights, tokenizer, (source, target))


def _model_file(path: Path, decoder: SettingsFile) -> Path:
    """Return the path of the .npz file: ``path``, or the file that decoder.yml names, or the only .npz of a directory.

    Raises: ConversionError if there is no such file, or if there are several.
    """
    if path.is_file():
        return path
    named = [path / str(name) for name in decoder.of("models", list, [])]
    found = named or sorted(path.glob("*.npz"))
    if len(found) != 1:
        raise ConversionError(f"{path}: {len(found)} .npz files ({', '.join(f.name for f in found)}); give one of them")
    return found[0]


def _load(path: Path) -> tuple[WeightsFile, SettingsFile]:
    """Return the parameters and the settings of a .npz file."""
    with foreign_content(path, "a model of Marian"):
        arrays = read_npz(path)
        if SETTINGS_ARRAY not in arrays:
            raise ConversionError(f"{path}: it has no {SETTINGS_ARRAY}; is it a model of Marian?")
        text = arrays.pop(SETTINGS_ARRAY).astype(np.uint8).tobytes().rstrip(b"\0").decode()
        return WeightsFile(path, arrays), SettingsFile(path, read_settings(text))


def _settings_of(path: Path) -> SettingsFile:
    with foreign_content(path, "settings of Marian"):
        return SettingsFile(path, read_settings(read_bytes(path).decode()))


def _vocabularies(folder: Path, decoder: SettingsFile) -> tuple[Vocabulary, Vocabulary, SubwordModels]:
    """Return the vocabularies and the sentencepiece models of source and target; a model may be None."""
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
        read_subwords(model) if (model := path if path.suffix == ".spm" else folder / subwords).exists() else None
        for path, subwords in zip((files[0], files[-1]), (SOURCE_FILE, TARGET_FILE), strict=True)
    ]
    return source, target, (models[0], models[1])


def _vocabulary(path: Path) -> Vocabulary:
    data = read_bytes(path)
    with foreign_content(path, "a vocabulary, the id of each word"):
        if path.suffix == ".spm":
            ids = {word: number for number, word in enumerate(words_of(data))}
        else:
            ids = json.loads(data) if path.suffix == ".json" else read_vocabulary(data.decode())
        start = next(name for name in ("<s>", "<start>", "<pad>") if name not in ids)  # a new word
        return Vocabulary.of(ids, unknown=UNKNOWN_WORD, start=start, end=END_WORD)


def _tables(arrays: WeightsFile, settings: SettingsFile) -> tuple[Array, Array, Array]:
    """Return the embeddings of source and target, and the matrix of the softmax."""
    ties_all, ties_source, ties_output = (
        settings.of(name, bool, False) for name in ("tied-embeddings-all", "tied-embeddings-src", "tied-embeddings")
    )
    if ties_all or ties_source:
        source = target = arrays.take("Wemb")
    else:
        source, target = arrays.take("encoder_Wemb"), arrays.take("decoder_Wemb")
    if ties_all or ties_output:
        return source, target, target
    transposed = arrays.take_if_there("decoder_ff_logit_out_Wt")
    return source, target, arrays.take("decoder_ff_logit_out_W").T if transposed is None else transposed


def _configuration(settings: SettingsFile, decoder: SettingsFile, depths: tuple[int, int]) -> dict[str, Any]:
    """Return the settings of the layers, and the length penalty in decoder.yml (α = 0 if it has none)."""
    for name, possible in REQUIRED.items():
        value = settings.of(name, object, possible[0])
        if value not in possible:
            raise ConversionError(f"{settings.path}: {name} = {value!r} is not supported; only {possible}")
    steps = tuple(
        str(settings.of(f"transformer-{name}", object, "") or "").replace("d", "")
        for name in ("preprocess", "postprocess", "postprocess-top")
    )
    norm = looked_up(str(settings.path), "transformer-(preprocess, postprocess, postprocess-top)", steps, NORMS)
    name = "transformer-ffn-activation"
    activation = looked_up(str(settings.path), name, settings.of(name, str), ACTIVATIONS)
    d_model, d_ff, n_heads = (
        settings.of(name, int) for name in ("dim-emb", "transformer-dim-ffn", "transformer-heads")
    )
    return {
        **layer_sizes(settings.path, d_model, d_ff, n_heads, depths),
        "activation": activation,
        "norm": norm,
        "positions": "halves",
        "start": "zero",
        "attention_bias": True,
        "label_smoothing_over": "V",
        "normalisation": "length",
        "alpha": decoder.of("normalize", float, 0.0),
    }


def parameter_names(depths: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Yield two names of each parameter of the layers: our name, and Marian's name.

    Args:
        depths: the numbers of layers of encoder and decoder.
    """
    for stack, n_layers in zip(STACKS, depths, strict=True):
        for i in range(n_layers):
            ours, theirs = f"{stack}.layers.{i}", f"{stack}_l{i + 1}"
            for kind, name in (("self", "self_attention"), ("context", "source_attention"))[: 1 + (stack == "decoder")]:
                for part, letter in _ATTENTION.items():
                    yield f"{ours}.{name}.{part}.weight", f"{theirs}_{kind}_W{letter}"
                    yield f"{ours}.{name}.{part}.bias", f"{theirs}_{kind}_b{letter}"
                yield from _norm_names(f"{ours}.{name}_residual.norm", f"{theirs}_{kind}_Wo")
            for part, number in (("hidden", 1), ("output", 2)):
                yield f"{ours}.feed_forward.{part}.weight", f"{theirs}_ffn_W{number}"
                yield f"{ours}.feed_forward.{part}.bias", f"{theirs}_ffn_b{number}"
            yield from _norm_names(f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn")


def _norm_names(ours: str, theirs: str) -> Iterator[tuple[str, str]]:
    yield f"{ours}.gain", f"{theirs}_ln_scale"
    yield f"{ours}.bias", f"{theirs}_ln_bias"


def _layers(arrays: WeightsFile, depths: tuple[int, int], is_gelu: bool) -> Iterator[tuple[str, Array]]:
    """Yield the parameters of all layers under our names.

    Marian's gelu(x) = x σ(1.702 x) is swish(1.702 x) / 1.702.  So the matrix and the bias before swish are multiplied
    by 1.702, and the matrix after swish is divided by 1.702.
    """
    slope = np.float32(_SIGMOID_SLOPE if is_gelu else 1)
    for ours, theirs in parameter_names(depths):
        array = arrays.take(theirs)
        if ".feed_forward.hidden." in ours:
            array = array * slope
        elif ours.endswith(".feed_forward.output.weight"):
            array = array / slope
        yield ours, array if ours.endswith(".weight") else array.ravel()
