"""A model of ours in memory: the type that every reader returns and every writer receives.

A bundle is a directory with all that translation needs, its provenance, and the SHA-256 of every file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import CHOICES
from minitransformer.config.run import RESULTS_FILE, RUN_FILE
from minitransformer.data.prepare import CHECKSUMS, MANIFEST
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.files import BUNDLE_FILE, load_model_files, save_model_files, write_model_files
from minitransformer.model.storage import Storage, stored
from minitransformer.model.symbols import UNKNOWN
from minitransformer.model.transformer import Transformer
from minitransformer.system.checksums import checksums_of, write_list
from minitransformer.system.errors import UserError
from minitransformer.system.files import atomic_write
from minitransformer.system.memory import free_memory
from minitransformer.system.provenance import code_version
from minitransformer.system.records import as_object, read_object

IMPOSSIBLE = -1e4  # logit of a word that the foreign model lacks: its probability rounds to 0; float16 can store it

Array = np.ndarray[Any, Any]
T = TypeVar("T")
_MOST_INFLATED, _SMALL = 20, 64 << 20  # times the file's size, plus bytes; even weights that are mostly 0 need less


class ConversionError(UserError):
    """An error: a model cannot be expressed in the other format, or a file violates its format."""


class ContentError(ConversionError):
    """An error of a file's content, whose message does not name the file: ``foreign_content`` does."""


_TRAINING_ONLY = ("label_smoothing_over",)  # choices that change no output of a trained model
OUR_CHOICES = {  # model.json has the word of each choice
    "positions": ("interleaved", "halves", "learned"),
    "norm": ("post", "pre"),
    "tied": ("all", "target", "none"),
    "start": ("symbol", "zero", "end"),
    "normalisation": ("gnmt", "length"),
    "activation": ("relu", "swish", "gelu", "gelu_tanh"),
}
SEARCH_ONLY: dict[str, Mapping[Any, Any]] = {
    "normalisation": dict.fromkeys(OUR_CHOICES["normalisation"])
}  # a format needs no word for these choices


def looked_up(place: str, setting: str, value: Any, table: Mapping[Any, T]) -> T:
    """Return the entry of a table for the value of a setting.

    Raises: ConversionError if it has none; the message names ``place``, a file or a format.
    """
    if value not in table:
        raise ConversionError(f"{place}: {setting} = {value!r} is not supported; only {', '.join(map(repr, table))}")
    return table[value]


def expressed(place: str, config: ModelConfig, tables: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    """Return a format's word for each choice of a configuration, from one table for each setting.

    Raises: ConversionError if a setting has no table, or if its table lacks the value.
    """
    looked_up(place, "model.implementation", config.implementation, {None: None})
    settings = [name for name in CHOICES if name not in _TRAINING_ONLY]
    return {name: looked_up(place, f"model.{name}", getattr(config, name), tables.get(name, {})) for name in settings}


def warning_of_penalty(config: ModelConfig, exponent: float, reason: str) -> str | None:
    """Return a warning if a model's length penalty is not length^exponent, which another program takes; else None."""
    alpha = config.own_alpha
    if alpha == exponent and (config.normalisation == "length" or not alpha):
        return None
    ours = "length" if config.normalisation == "length" else "((5 + length) / 6)"
    return (
        f"the length penalty {ours}^{alpha:g} becomes length^{exponent:g}, because {reason}: beam search may choose"
        " other translations"
    )


def require_empty(directory: Path) -> None:
    """Raise ConversionError unless a directory is absent, or is empty and can be replaced."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConversionError(f"{directory}: exists and is not an empty directory; choose another, or remove it")
    if directory.exists() and (directory.samefile(Path.cwd()) or directory.is_mount()):
        raise ConversionError(
            f"{directory}: is the current directory or a mount point, and cannot be replaced; choose a directory in it"
        )


def require_finite(path: Path, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of weights.  Raises: ConversionError naming file and array if a number is infinite or NaN."""
    if n_bad := array.size - np.count_nonzero(np.isfinite(array)):
        raise ConversionError(
            f"{path}: {name} has values that are not finite (NaN or infinite: {n_bad:,} of {array.size:,}); the model"
            " has diverged: take another checkpoint"
        )
    return array


def require_inflatable(path: Path, n_bytes: int) -> None:
    """Raise ConversionError if a file's arrays need much more memory than the file has bytes, or more than is free."""
    size = path.stat().st_size
    most = min(free_memory(1), _MOST_INFLATED * size + _SMALL)
    if n_bytes > most:
        raise ConversionError(
            f"{path}: {size:,} bytes inflate to {n_bytes:,}; expected at most {most:,.0f}, {_MOST_INFLATED} times the"
            " file or the free memory: it is no file of weights, or needs a machine with more memory"
        )


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary in our order: unknown word, start, end, then all other words in the foreign order.

    ``rows`` has the foreign id of each word, or None if the foreign model lacks the word.  Such a word gets the row of
    the unknown word, because the foreign model would read it as unknown.
    """

    words: tuple[str, ...]
    rows: tuple[int | None, ...]

    @classmethod
    def of(cls, ids: Mapping[str, int], *, unknown: str, start: str, end: str) -> Vocabulary:
        """Return a vocabulary from the foreign id of each word; the start symbol may be missing.

        Raises: ContentError if the ids are not 0, 1, 2 …, or if the unknown word or the end is missing.
        """
        for symbol in (unknown, end):
            if symbol not in ids:
                raise ContentError(f"vocabulary: it has no {symbol}; restore the file")
        if lacking := sorted(set(range(len(ids))).difference(ids.values())):
            raise ContentError(
                f"vocabulary: expected the ids 0 to {len(ids) - 1}, one for each of {len(ids)} words; no word has id"
                f" {lacking[0]}"
            )
        return cls.in_our_order(ids, (unknown, start, end))

    @classmethod
    def in_our_order(cls, ids: Mapping[str, int], symbols: tuple[str, str, str]) -> Vocabulary:
        """Return a vocabulary from the foreign id of each word; the symbols come first, and may be missing."""
        words = (*symbols, *(word for word in sorted(ids, key=ids.__getitem__) if word not in symbols))
        return cls(words, tuple(map(ids.get, words)))

    @cached_property
    def foreign_ids(self) -> list[int]:
        """The foreign id of each of our ids; the unknown word's, if the foreign model lacks the word."""
        return [int(self.rows[UNKNOWN] or 0) if row is None else row for row in self.rows]

    @cached_property
    def foreign_words(self) -> list[str]:
        """The foreign word of each of our ids; the unknown word, if the foreign model lacks the word."""
        return [self.words[UNKNOWN if row is None else i] for i, row in enumerate(self.rows)]

    @cached_property
    def ids_of_foreign(self) -> dict[int, int]:
        """Our id of each foreign id."""
        return {row: i for i, row in enumerate(self.rows) if row is not None}

    @property
    def n_foreign(self) -> int:
        """The number of words that the foreign model has."""
        return len(self.rows) - self.rows.count(None)

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """Return this vocabulary with more words, which the foreign model lacks."""
        more = tuple(words)
        return Vocabulary(self.words + more, self.rows + (None,) * len(more))

    def matrix(self, foreign: Array) -> Array:
        """Return the rows of an embedding in our order.  Shapes: (foreign words, D) → (words, D).

        Raises: ContentError if it has another number of rows than the vocabulary has words.
        """
        if foreign.shape[:1] != (self.n_foreign,):
            n_rows = len(foreign) if foreign.ndim else "no"
            raise ContentError(f"vocabulary: it has {self.n_foreign} words, but the model {n_rows}; restore its file")
        rows: Array = foreign[np.array(self.foreign_ids)]
        return rows

    def bias(self, foreign: Array | None) -> Array | None:
        """Return the bias of each word's logit, or None if it is 0 for all.  Shapes: (foreign words,) → (words,)."""
        values = np.zeros(len(self.rows), np.float32) if foreign is None else self.matrix(foreign)
        values[[row is None for row in self.rows]] = IMPOSSIBLE
        return values if values.any() else None


@dataclass(frozen=True)
class Parts:
    """A model of ours: all that a directory from which ``Translator.load`` reads contains.

    Shapes: weights, float32, under the names of ``Transformer.named_parameters``.
    ``vocabularies`` map our ids of source and target words to those of the model that was read; None if it was ours.
    ``run`` is the directory from which a model of ours was read, and ``licence`` the licence of the model, if stated; a
    bundle records both.
    """

    config: ModelConfig
    weights: Mapping[str, np.ndarray[Any, Any]]
    tokenizer: Tokenizer
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None
    run: Path | None = None
    licence: str | None = None

    @classmethod
    def load(cls, directory: Path) -> Parts:
        """Read a run, a bundle, or any other directory of a trained model.  Raises: CheckpointError."""
        config, weights = load_model_files(directory)
        licence = read_object(directory / BUNDLE_FILE).get("licence")
        return cls(config, weights, Tokenizer.load(directory), run=directory, licence=licence)

    def save(self, directory: Path) -> None:
        """Write a directory that ``Translator.load`` reads.  Raises: CheckpointError, ConversionError."""
        self.require_known_choices()
        save_model_files(directory, self.config, self.weights)
        self.tokenizer.save(directory)

    def require_known_choices(self) -> None:
        """Raise ConversionError if our format lacks a choice of the configuration."""
        expressed("our format", self.config, {name: dict.fromkeys(words) for name, words in OUR_CHOICES.items()})

    def require_fitting(self) -> Parts:
        """Return these parts.  Raises: WeightsError if names or shapes of the weights do not fit the configuration."""
        Transformer(self.config, seed=None).set_weights(self.weights)
        return self


NOT_STATED = "not stated"
_PROVENANCE = (RUN_FILE, RESULTS_FILE)  # copied as they are, where the run has them
_OF_DATA = ("train_pairs", "validation_pairs", "config", "files", CHECKSUMS)  # fields of the prepared data's manifest


def write_bundle(parts: Parts, directory: Path, *, storage: Storage = "float32") -> None:
    """Write a bundle, from which ``Translator.load`` and all commands read as from a run.

    The directory must be empty or absent.  ``bundle.json``, written last, has the licence, the storage of the weights,
    the version of the code, the fingerprints of the training data, and size and SHA-256 of all other files.
    Raises: ConversionError if the directory is not empty, or if a choice of the configuration is unknown; StorageError
    if a weight does not fit the storage; CheckpointError if the directory cannot be written.
    """
    require_empty(directory)
    parts.require_known_choices()
    arrays = stored(parts.weights, storage)
    parts.tokenizer.save(directory)
    for name in _PROVENANCE:
        if parts.run is not None and (parts.run / name).exists():
            with atomic_write(directory / name) as temporary:
                shutil.copyfile(parts.run / name, temporary)
    write_model_files(directory, parts.config, arrays)
    about = {
        "licence": parts.licence or NOT_STATED,
        "storage": storage,
        "code": code_version(),
        "data": _data_of(parts.run),
    }
    names = [path.name for path in directory.iterdir()]
    write_list(directory / BUNDLE_FILE, checksums_of(directory, names), about)


def _data_of(run: Path | None) -> dict[str, Any] | None:
    """Return the fingerprints of the data with which a model was trained; None if its directory does not have them.

    They are in the manifest of the run's prepared data, or in the bundle from which the model was read.
    """
    if run is None:
        return None
    if manifest := read_object(run / "data" / MANIFEST):
        return {name: manifest[name] for name in _OF_DATA if name in manifest}
    return as_object(read_object(run / BUNDLE_FILE).get("data")) or None
