"""Small models of every format that is read, with random weights: of words, and of sentencepiece's pieces."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from ctranslate2_models import argos_package, ctranslate2_directory, random_parts
from marian_models import LINES, ids_of, subwords, write_directory
from marian_npz_files import SETTINGS, TARGET, parameters, vocabulary_in_yaml, write_marian, write_npz
from number_words import sentences, trained_parts
from state_dict_files import WORDS, write_fairseq, write_joeynmt

SIDES = ("source", "target")


def pieces() -> list[str]:
    """The pieces of both languages' sentencepiece models, without symbols."""
    return [piece for piece in ids_of(*map(subwords, SIDES)) if piece not in ("</s>", "<unk>", "<pad>")]


def with_subwords(write: Callable[..., object], directory: Path) -> None:
    write(directory, pieces())
    for side in SIDES:
        (directory / f"{side}.spm").write_bytes(subwords(side))


def marian_npz(directory: Path, words: list[str]) -> None:
    vocabulary = ["</s>", "<unk>", *words]
    write_npz(directory / "model.npz", SETTINGS, parameters(SETTINGS, len(vocabulary), len(vocabulary)))
    (directory / "vocab.yml").write_text(vocabulary_in_yaml(vocabulary), encoding="utf-8")


def ours(directory: Path) -> None:
    trained_parts().save(directory)


def argos(directory: Path) -> None:
    """Write the directory that Argos Translate makes of a package."""
    package = argos_package(directory.with_suffix(".argosmodel"), trained_parts())
    with zipfile.ZipFile(package) as archive:
        archive.extractall(directory)
    for path in (directory / "translate-en_de").iterdir():
        path.rename(directory / path.name)


# The writer of each model, its format, and lines of its words.
MODELS: dict[str, tuple[Callable[[Path], object], str, list[str]]] = {
    "ours": (ours, "minitransformer", sentences(6, seed=5)),
    "ours, words": (lambda path: random_parts({}).save(path), "minitransformer", ["a b c j", "c"]),
    "marian": (write_directory, "marian", LINES),
    "marian-npz": (lambda path: with_subwords(marian_npz, path), "marian-npz", LINES),
    "marian-npz, words": (write_marian, "marian-npz", [" ".join(TARGET[2:5]), TARGET[3]]),
    "ctranslate2": (lambda path: ctranslate2_directory(path, trained_parts()), "ctranslate2", sentences(6, seed=5)),
    "ctranslate2, words": (lambda path: ctranslate2_directory(path, random_parts({})), "ctranslate2", ["a b c j", "c"]),
    "argos": (argos, "argos", sentences(6, seed=5)),
    "fairseq": (lambda path: with_subwords(write_fairseq, path), "fairseq", LINES),
    "fairseq, words": (write_fairseq, "fairseq", [" ".join(WORDS), WORDS[1]]),
    "joeynmt": (lambda path: with_subwords(write_joeynmt, path), "joeynmt", LINES),
    "joeynmt, words": (write_joeynmt, "joeynmt", [" ".join(WORDS), WORDS[1]]),
}


def write_model(name: str, directory: Path) -> tuple[str, list[str]]:
    """Write a model; return its format and lines of its words."""
    write, format_name, lines = MODELS[name]
    directory.mkdir()
    write(directory)
    return format_name, lines
