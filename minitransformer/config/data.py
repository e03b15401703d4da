"""The settings of data: text files, tokenizer and limits."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from minitransformer.config.checks import COUNT, ConfigError, require
from minitransformer.system.file_kinds import has_both_sides
from minitransformer.system.records import is_object_name, require_bounds, require_types

TokenizerType = Literal["bpe", "unigram", "word"]
KINDS = get_args(TokenizerType)
TextNormalisation = Literal["keep", "nfc", "nmt_nfkc"]
LeafSymbols = Literal["normalised", "tags"]
TaskName = Literal["translation", "demonstration", "parsing"]
Fault = Literal["repeated", "copied", "mojibake", "markup", "repetition", "script", "language", "numbers"]
FAULTS: tuple[Fault, ...] = get_args(Fault)  # a pair with several faults is dropped for the first of them

_BOUNDS = {
    "held_out": COUNT,
    "vocabulary_size": (4, 2**31),  # three ids are reserved: unknown, start and end
    "max_length": COUNT,
    "max_ratio": (1, 1e30),
    "weights": (1e-6, 1_000),
}
_COMPRESSED = r"(\.gz|\.xz|\.zst)?$"
_CODE = re.compile("[a-z]{2,3}([-_][a-z0-9]{2,8})*", re.IGNORECASE)  # BCP 47, also with "_" as in names of locales


def is_language(code: str) -> bool:
    """Return whether a text has the form of a language's code, such as "en" or "pt-BR"."""
    return _CODE.fullmatch(code) is not None


def require_language(name: str, code: str | None) -> None:
    """Raise ConfigError if the setting ``name`` is given and is not the code of a language."""
    require(code is None or is_language(code), name, 'a code such as "en" or "pt-BR"', code)


def target_language(data: Mapping[str, Any]) -> str | None:
    """Return the code of the target language in ``data``, the fields of a DataConfig; None if no field names it.

    The code is the second of ``languages``, or else the ending that all target files share.
    """
    languages, files = data.get("languages"), data.get("train_target")
    if isinstance(languages, list | tuple) and len(languages) == 2:
        return str(languages[1])
    return common_ending(map(str, files)) if isinstance(files, list | tuple) else None


def common_ending(names: Iterable[str | Path]) -> str | None:
    """Return the ending that all file names share, such as "de" for train.de.gz; None if they share none."""
    endings = {Path(re.sub(_COMPRESSED, "", str(name), flags=re.IGNORECASE)).suffix.removeprefix(".") for name in names}
    return endings.pop() or None if len(endings) == 1 else None


@dataclass(frozen=True)
class DataConfig:
    """The text and its conversion to tokens.  Without training files, the text is the project's own demo corpus."""

    directory: Path | None = None
    """Directory of the prepared data; "data" in the run's directory if not given."""
    raw: Path = Path()
    """Folder that contains the text files."""
    train_source: tuple[str, ...] = ()
    """Training text, source side: UTF-8, one sentence per line, plain, .gz, .xz or .zst; several files are
    concatenated.  A file with both sides (.tmx, .tsv, .jsonl, .zip) needs no file in train_target."""
    train_target: tuple[str, ...] = ()
    """Training text, target side: a file for each source file without target side, with the same number of lines."""
    validation_source: tuple[str, ...] = ()
    """Held-out text, source side; if not given, pairs spread over the training text are held out."""
    validation_target: tuple[str, ...] = ()
    """Held-out text, target side."""
    weights: tuple[float, ...] = ()
    """A weight for each file of train_source.  An epoch has weight × as many of the file's pairs: 2, each twice; 0.5, a
    random half, another one in every epoch.  If not given, each pair once.  The tokenizer is trained without weights,
    so that the same prepared text serves for other weights."""
    tags: tuple[str, ...] = ()
    """For one model of several languages, the code of the target language of each file of train_source, such as de fr.
    Each source line of the file then begins with its tag, such as >>de<<, which the tokenizer keeps as one piece."""
    validation_tags: tuple[str, ...] = ()
    """With tags, the code of the target language of each file of validation_source."""
    languages: tuple[str, ...] = ()
    """Language codes of source and target, such as en de, for files with both sides and for BLEU.  If not given, a
    file's own source language and its only other language; for BLEU, the ending of the target files."""
    train_trees: tuple[str, ...] = ()
    """For parsing, instead of text: treebank files in Penn bracket format; sources are the words of the trees."""
    validation_trees: tuple[str, ...] = ()
    """Held-out treebank files."""
    leaf_symbols: LeafSymbols = "normalised"
    """Symbols for the words of a tree.  "normalised": XX for all but punctuation (Vinyals et al.).  "tags": the
    part-of-speech tags."""
    held_out: int = 1_000
    """Largest number of pairs to hold out if there are no validation files; at most a tenth of the training text."""
    tokenizer: TokenizerType | Path | str = "bpe"
    """Kind of subword model that sentencepiece trains.  "word", only for parsing: whole words, with classes for rare
    words.  A file: the tokenizer of another program, as a sentencepiece model or a tokenizer.json.  For text also
    package.module:name, a function of yours that makes the tokenizer."""
    vocabulary_size: int = 2_000
    """Number of subword pieces or words; for each language if the vocabulary is not joint.  From 20,000 on, 256 pieces
    are single bytes."""
    normalisation: TextNormalisation = "keep"
    """The rule of the tokenizer for characters, on both sides.  "keep": tabs and other separators become blanks;
    control characters, and invisible characters that the text does not need, are removed; all others stay.  "nfc":
    letters are also joined with their accents.  "nmt_nfkc": sentencepiece's own rule, with full-width forms as ASCII,
    "²" as "2" and "…" as "...".  Whole words (tokenizer "word") are never changed."""
    joint_vocabulary: bool = True
    """One vocabulary for both languages (the paper), or one for each language.  With two vocabularies, the source and
    target embeddings share no matrix (model.tied)."""
    max_length: int = 256
    """Pairs of training text with more tokens than this on a side are dropped and counted.  The validation loss leaves
    out pairs with more tokens on a side than this number or 1,024, whichever is larger."""
    max_ratio: float = 6.0
    """Pairs of training text are dropped and counted if one side has more than 20 tokens, and more than this many times
    the tokens of the other side."""
    filter: tuple[Fault, ...] = ("mojibake", "repetition")
    """Faults for which pairs of training text are dropped; all faults are counted.  "repeated": an earlier pair again.
    "copied": the same text on both sides.  "mojibake": UTF-8 read as Latin-1 or Windows-1252, as in "Ã¼".  "markup":
    entities or tags, as in "&nbsp;".  "repetition": only one character at least ten times, or one word at least five
    times.  "script", "language": another script or language than the rest of the side.  "numbers": each
    side has a number in digits that the other side lacks."""
    download_from: str = ""
    """URL of the folder from which missing files are downloaded."""
    sha256: tuple[str, ...] = ()
    """Checksums of downloads, as "file name:hexadecimal digits"; the name may be a URL.  A file without a checksum is
    not downloaded.  From archives (.tar, .tgz …) the named text files are extracted."""

    def __post_init__(self) -> None:
        require_types(self, ConfigError, "data.")
        require_bounds(self, _BOUNDS, ConfigError, "data.")
        self._check_files()
        require(
            isinstance(self.tokenizer, Path) or self.tokenizer in KINDS or is_object_name(self.tokenizer),
            "data.tokenizer",
            f"one of {KINDS}, the Path of a file, or package.module:name",
            self.tokenizer,
        )
        is_pair = len(self.languages) == len(set(self.languages)) == 2
        require(is_pair or not self.languages, "data.languages", "the codes of source and target", self.languages)
        for code in self.languages:
            require_language("data.languages", code)
        require(set(self.filter) <= set(FAULTS), "data.filter", f"some of {FAULTS}", self.filter)
        if bool(self.train_trees) != bool(self.validation_trees) or (self.train_trees and self.train_source):
            raise ConfigError("name both data.train_trees and data.validation_trees, or text, not one of each")
        if self.train_trees and self.joint_vocabulary:
            raise ConfigError("words and trees share no vocabulary: set data.joint_vocabulary = false")
        if self.tokenizer == "word" and not self.train_trees:
            raise ConfigError(
                'data.tokenizer = "word" is for parsing: name data.train_trees, or set "bpe" or "unigram"'
            )
        if self.tokenizer not in KINDS and self.train_trees:
            raise ConfigError(f"data.tokenizer: {self.tokenizer} is for text; a treebank has its own tokenizer")
        if self.validation_source and not self.train_source:
            raise ConfigError("validation files without training files: name data.train_source and data.train_target")

    def _check_files(self) -> None:
        """Raise ConfigError if the numbers of sources, targets, weights and tags do not fit together."""
        for side_a, side_b in (("train_source", "train_target"), ("validation_source", "validation_target")):
            a, b = getattr(self, side_a), getattr(self, side_b)
            if memories := [name for name in b if has_both_sides(name)]:
                raise ConfigError(f"data.{side_b}: {memories[0]} has both sides; name it in data.{side_a} alone")
            a = [name for name in a if not has_both_sides(name)]
            if len(a) != len(b):
                raise ConfigError(
                    f"expected as many files in data.{side_b} as in data.{side_a}; got {len(b)} and {len(a)}"
                )
        if self.weights and len(self.weights) != len(self.train_source):
            raise ConfigError(
                f"data.weights: expected a number for each file of data.train_source, {len(self.train_source)}; got"
                f" {len(self.weights)}"
            )
        for tags, files in (("tags", "train_source"), ("validation_tags", "validation_source")):
            expected, got = len(getattr(self, files)) if self.tags else 0, len(getattr(self, tags))
            if got != expected:
                needed = f"one for each file of data.{files}, {expected}" if self.tags else "none without data.tags"
                raise ConfigError(f"data.{tags}: expected {needed}; got {got}")
            for code in getattr(self, tags):
                require_language(f"data.{tags}", code)
        if self.tags and self.languages:
            raise ConfigError("data.tags name the target language of each file: leave data.languages out")

    @property
    def task(self) -> TaskName:
        """The task: "parsing" if targets are trees, "demonstration" if no files are named, else "translation"."""
        if self.train_trees:
            return "parsing"
        return "translation" if self.train_source else "demonstration"

    @property
    def remedy_if_missing(self) -> str:
        """The remedy if a text file is missing, as a part of an error message."""
        fetch = "to fetch the files, run minitransformer-prepare with the same options and download; or "
        return f"{fetch if self.sha256 else ''}set data.raw to the folder that holds them"

    def fingerprint(self) -> dict[str, Any]:
        """Return the fields that determine the pairs of a training, as JSON values."""
        fields = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        return {
            name: value for name, value in fields.items() if name not in ("directory", "raw", "download_from", "sha256")
        }

    def preparation(self) -> dict[str, Any]:
        """Return the fields that determine the prepared data, as JSON values."""
        return {name: value for name, value in self.fingerprint().items() if name != "weights"}
