"""A model in memory, ``Parts``: the readers of all formats return it, and the writers of all formats receive it.

A bundle is a directory with a model, its tokenizer, its provenance, and the SHA-256 of every file.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import CHOICES
from minitransformer.config.run import RESULTS_FILE, RUN_FILE
from minitransformer.data.profile import TextProfile
from minitransformer.data.store import CHECKSUMS, MANIFEST
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.known_layers import UnknownLayerError, require_known_layers
from minitransformer.model.files import BUNDLE_FILE, load_model_files, save_model_files, write_model_files
from minitransformer.model.storage import Storage, stored
from minitransformer.model.symbols import END, UNKNOWN
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
_MOST_INFLATED, _SMALL = 20, 64 << 20  # most bytes of arrays: 20 × the file's size + 64 MiB, enough for sparse weights


class ConversionError(UserError):
    """An error: a model cannot be expressed in the other format, or a file violates its format."""


class ContentError(ConversionError):
    """An error in a file's content; ``foreign_content`` adds the file's name, which the message lacks."""


_TRAINING_ONLY = ("label_smoothing_over",)  # settings that change no output of a trained model
SEARCH_ONLY: dict[str, Mapping[Any, Any]] = {
    "normalisation": dict.fromkeys(get_args(CHOICES["normalisation"]))
}  # settings that a format need not express, because only the search reads them


def looked_up(place: str, setting: str, value: Any, table: Mapping[Any, T]) -> T:
    """Return the entry of a table for the value of a setting.

    Raises: ConversionError if the table lacks the value; the message begins with ``place``, the name of a file or
    format.
    """
    if value not in table:
        raise ConversionError(f"{place}: {setting} = {value!r} is not supported; only {', '.join(map(repr, table))}")
    return table[value]


def expressed(place: str, config: ModelConfig, tables: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    """Return how a format expresses each choice of a configuration: setting → entry of the setting's table.

    Raises: ConversionError if a setting has no table, if the table lacks the value, if the model is a class of the user
    (``implementation``), or if it has a layer that is not the paper's: the format would show another model.
    """
    require_no_class(place, config)
    settings = [name for name in CHOICES if name not in _TRAINING_ONLY]
    choices = {
        name: looked_up(place, f"model.{name}", getattr(config, name), tables.get(name, {})) for name in settings
    }
    n_words = END + 2  # embeddings may be small, because only the operations are compared
    small = replace(config, vocabulary_size=n_words, source_vocabulary_size=None)
    try:
        require_known_layers(Transformer(small, seed=None))
    except UnknownLayerError as error:
        raise ConversionError(f"{place} cannot express this model: {error}") from error
    return choices


def require_no_class(place: str, config: ModelConfig) -> None:
    """Raise ConversionError if the model is a class of the user (``implementation``)."""
    looked_up(place, "model.implementation", config.implementation, {None: None})


def warning_of_penalty(config: ModelConfig, exponent: float, reason: str) -> str | None:
    """Return a warning if the model's length penalty is not length^``exponent``, the other program's; else None."""
    alpha = config.own_alpha
    if alpha == exponent and (config.normalisation == "length" or not alpha):
        return None
    ours = "length" if config.normalisation == "length" else "((5 + length) / 6)"
    return (
        f"the length penalty {ours}^{alpha:g} becomes length^{exponent:g}, because {reason}: beam search may choose"
        " other translations"
    )


def require_empty(directory: Path) -> None:
    """Raise ConversionError unless a path is absent, or is an empty directory that can be replaced."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConversionError(f"{directory}: exists and is not an empty directory; choose another, or remove it")
    if directory.exists() and (directory.samefile(Path.cwd()) or directory.is_mount()):
        raise ConversionError(
            f"{directory}: is the current directory or a mount point, and cannot be replaced; choose a directory in it"
        )


def require_finite(path: Path, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return ``array``.  Raises: ConversionError, naming file and array, if a number is infinite or NaN."""
    if n_bad := array.size - np.count_nonzero(np.isfinite(array)):
        raise ConversionError(
            f"{path}: {name} has values that are not finite (NaN or infinite: {n_bad:,} of {array.size:,}); the model"
            " has diverged: take another checkpoint"
        )
    return array


def require_inflatable(path: Path, n_bytes: int) -> None:
    """Raise ConversionError if arrays of ``n_bytes`` are too large for the file ``path`` or for the free memory."""
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

    ``rows`` has the foreign id of each word, or None if the foreign model lacks the word.  A word that the foreign
    model lacks gets the embedding of the unknown word: the foreign model would read this word as unknown.
    """

    words: tuple[str, ...]
    rows: tuple[int | None, ...]

    @classmethod
    def of(cls, ids: Mapping[str, int], *, unknown: str, start: str, end: str) -> Vocabulary:
        """Return a vocabulary from the foreign id of each word; ``ids`` may lack the start symbol.

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
        """Return a vocabulary from the foreign id of each word; ``symbols`` come first, even if ``ids`` lacks them."""
        words = (*symbols, *(word for word in sorted(ids, key=ids.__getitem__) if word not in symbols))
        return cls(words, tuple(map(ids.get, words)))

    @cached_property
    def foreign_ids(self) -> list[int]:
        """The foreign id of each of our ids; the id of the unknown word for words that the foreign model lacks."""
        return [int(self.rows[UNKNOWN] or 0) if row is None else row for row in self.rows]

    @cached_property
    def foreign_words(self) -> list[str]:
        """The foreign word of each of our ids; the unknown word for words that the foreign model lacks."""
        return [self.words[UNKNOWN if row is None else i] for i, row in enumerate(self.rows)]

    @cached_property
    def ids_of_foreign(self) -> dict[int, int]:
        """A map of each foreign id to our id."""
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

        Raises: ContentError if the embedding has another number of rows than the foreign model has words.
        """
        if foreign.shape[:1] != (self.n_foreign,):
            n_rows = len(foreign) if foreign.ndim else "no"
            raise ContentError(f"vocabulary: it has {self.n_foreign} words, but the model {n_rows}; restore its file")
        rows: Array = foreign[np.array(self.foreign_ids)]
        return rows

    def bias(self, foreign: Array | None) -> Array | None:
        """Return the bias of each word's logit, or None if all are 0.  Shapes: (foreign words,) → (words,).

        Words that the foreign model lacks get the bias ``IMPOSSIBLE``.
        Raises: ContentError if ``foreign`` has another length than the foreign model has words.
        """
        values = np.zeros(len(self.rows), np.float32) if foreign is None else self.matrix(foreign)
        values[[row is None for row in self.rows]] = IMPOSSIBLE
        return values if values.any() else None


@dataclass(frozen=True)
class Parts:
    """A model in memory: the content of a directory that ``Translator.load`` reads.

    ``weights`` are float32 arrays under the names of ``Transformer.named_parameters``.  ``vocabularies`` map our ids of
    source and target words to ids of the other program's model; None if the parts were read from no such model.
    ``run`` is the directory from which a model in our own format was read; a bundle copies its provenance.  ``licence``
    is the model's licence, or None.  ``profile`` has the languages, if the other program names them.
    """

    config: ModelConfig
    weights: Mapping[str, np.ndarray[Any, Any]]
    tokenizer: Tokenizer
    vocabularies: tuple[Vocabulary, Vocabulary] | None = None
    run: Path | None = None
    licence: str | None = None
    profile: TextProfile = field(default_factory=TextProfile)

    @classmethod
    def load(cls, directory: Path) -> Parts:
        """Read a run, a bundle, or any other directory of a trained model.  Raises: CheckpointError."""
        config, weights = load_model_files(directory)
        licence = read_object(directory / BUNDLE_FILE).get("licence")
        tokenizer, profile = Tokenizer.load(directory), TextProfile.load(directory)
        return cls(config, weights, tokenizer, run=directory, licence=licence, profile=profile)

    def save(self, directory: Path) -> None:
        """Write a directory that ``Translator.load`` reads.

        Raises: ConversionError if the model is a class of the user; CheckpointError if the directory cannot be written.
        """
        require_no_class("our format", self.config)
        save_model_files(directory, self.config, self.weights)
        self.tokenizer.save(directory)
        self.profile.save(directory)

    def require_fitting(self) -> Parts:
        """Return self.  Raises: WeightsError if names or shapes of the weights do not fit the configuration."""
        Transformer(self.config, seed=None).set_weights(self.weights)
        return self


NOT_STATED = "not stated"
_PROVENANCE = (RUN_FILE, RESULTS_FILE)  # copied unchanged if the run has them
_DATA_FIELDS = ("train_pairs", "validation_pairs", "config", "files", CHECKSUMS)  # in the data's manifest


def write_bundle(parts: Parts, directory: Path, *, storage: Storage = "float32") -> None:
    """Write a bundle, which ``Translator.load`` and all commands can read like a run.

    The directory must be empty or absent.  ``bundle.json`` is written last.  It has the licence, the storage of the
    weights, the version of the code, the fingerprints of the training data, and size and SHA-256 of all other files.
    Raises: ConversionError if the directory is not empty, or if the model is a class of the user; StorageError
    if a weight does not fit the storage; CheckpointError if the directory cannot be written.
    """
    require_empty(directory)
    require_no_class("our format", parts.config)
    arrays = stored(parts.weights, storage)
    parts.tokenizer.save(directory)
    parts.profile.save(directory)
    for name in _PROVENANCE:
        if parts.run is not None and (parts.run / name).exists():
            with atomic_write(directory / name) as temporary:
                shutil.copyfile(parts.run / name, temporary)
    write_model_files(directory, parts.config, arrays)
    about = {
        "licence": parts.licence or NOT_STATED,
        "storage": storage,
        "code": code_version(),
        "data": _data_fingerprints(parts.run),
    }
    names = [path.name for path in directory.iterdir()]
    write_list(directory / BUNDLE_FILE, checksums_of(directory, names), about)


def _data_fingerprints(run: Path | None) -> dict[str, Any] | None:
    """Return the fingerprints of the training data; None if the directory ``run`` does not have them.

    A run has the fingerprints in the manifest of its prepared data, a bundle in ``bundle.json``.
    """
    if run is None:
        return None
    if manifest := read_object(run / "data" / MANIFEST):
        return {name: manifest[name] for name in _DATA_FIELDS if name in manifest}
    return as_object(read_object(run / BUNDLE_FILE).get("data")) or None
