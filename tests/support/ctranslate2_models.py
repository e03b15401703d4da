"""Small models with random weights, to be converted, and directories of CTranslate2 models to be changed."""

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from minitransformer import ModelConfig, Transformer
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.ctranslate2 import ModelFile, read_model_file
from minitransformer.extras.convert.ctranslate2_writer import write_ctranslate2, write_model_file
from minitransformer.extras.convert.formats import output_directory
from minitransformer.extras.convert.parts import Parts
from minitransformer.extras.convert.vocabulary import word_model
from minitransformer.inference.scoring import score_pairs
from minitransformer.model.storage import Storage

WORDS = ["<unk>", "<s>", "</s>", *"abcdefghij"]
SHAPE = {
    "vocabulary_size": len(WORDS), "n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 2, "d_k": 6, "d_v": 6,
    "max_positions": 40,
}  # fmt: skip


SHAPES: dict[str, dict[str, Any]] = {  # all that CTranslate2 can compute
    "the paper's": {},
    "pre-norm, swish": {"norm": "pre", "activation": "swish"},
    "gelu, untied, biases": {"activation": "gelu", "tied": "none", "attention_bias": True, "softmax_bias": True},
    "gelu_tanh, positions of CTranslate2": {"activation": "gelu_tanh", "positions": "halves", "first_position": 1},
    "learned positions": {"positions": "learned", "first_position": 2, "tied": "target"},
    "one layer in the decoder, from zeros": {"n_decoder_layers": 1, "start": "zero"},
    "three layers in the decoder": {"n_decoder_layers": 3, "positions": "halves", "first_position": 2},
    "from the end symbol": {"start": "end", "layer_norm_eps": 1e-2},
    "sources without an end": {"source_end": False, "norm": "pre", "attention_bias": True},
    "small heads": {"d_k": 4, "d_v": 4, "attention_bias": True},
    "large heads": {"d_k": 10, "d_v": 10},
}


def write_parts(parts: Parts, directory: Path, name: str, storage: Storage = "float32") -> None:
    with output_directory(parts, directory, name, storage):
        pass


def word_tokenizer(*, joint: bool = True) -> Tokenizer:
    model = word_model(WORDS)
    return Tokenizer(model) if joint else Tokenizer(model, word_model([*WORDS[:3], *WORDS[:2:-1]]))


def random_parts(changes: Mapping[str, Any], *, joint: bool = True) -> Parts:
    """Gains away from 1 and biases away from 0, so that every one of them counts."""
    model, random = Transformer(ModelConfig(**{**SHAPE, **changes}), seed=3), np.random.default_rng(4)
    for _, parameter in model.named_parameters():
        parameter.value += 0.3 * random.standard_normal(parameter.shape).astype(np.float32)
    return Parts(model.config, model.weights(), word_tokenizer(joint=joint))


def subword_parts(changes: Mapping[str, Any], *, joint: bool = True) -> Parts:
    """A model whose words are pieces of sentencepiece."""
    tokenizer = Tokenizer.train([("a bad cab", "cad bed")] * 9, vocabulary_size=16, joint=joint)
    return dataclasses.replace(random_parts({"vocabulary_size": 16, **changes}), tokenizer=tokenizer)


def ctranslate2_directory(directory: Path, parts: Parts, storage: Storage = "float32") -> Path:
    directory.mkdir(exist_ok=True)
    write_ctranslate2(parts, directory, storage)
    return directory


def argos_package(path: Path, parts: Parts) -> Path:
    """Write a package of Argos Translate, whose name ends with .argosmodel."""
    with TemporaryDirectory() as temporary, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        model = ctranslate2_directory(Path(temporary), parts)
        (model / "README.md").write_text("no part of the model")
        for file in model.iterdir():
            name = "sentencepiece.model" if file.name == "tokenizer.model" else f"model/{file.name}"
            archive.write(file, f"translate-en_de/{name}")
        archive.writestr("translate-en_de/metadata.json", '{"from_code": "en", "to_code": "de"}')
    return path


def change_variables(directory: Path, changes: Mapping[str, Any]) -> None:
    """Replace variables of ``model.bin``, or remove those that are None."""
    file = read_model_file(directory / "model.bin")
    variables = {name: array for name, array in {**file.variables, **changes}.items() if array is not None}
    write_model_file(directory / "model.bin", ModelFile(file.model, file.revision, variables), {})


def change_json(path: Path, **changes: Any) -> None:
    """Give fields of an object other values."""
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


def model_of(parts: Parts, dtype: str = "float32") -> Transformer:
    model = Transformer(parts.config, seed=None, dtype=dtype)
    model.set_weights(parts.weights)
    return model


def scores_of(parts: Parts, sources: Any, targets: Any, dtype: str = "float32") -> list[float]:
    """log p of each target."""
    pairs = list(zip(sources, targets, strict=True))
    return [score.log_probability for score in score_pairs(model_of(parts, dtype), pairs)]
