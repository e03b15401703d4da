"""A reader and a writer of packages of Argos Translate: .argosmodel files, or directories to which it unpacks them.

A package is a .zip archive of one directory.  The directory has ``metadata.json``, ``sentencepiece.model`` for both
languages, and ``model``, the directory of a CTranslate2 model.

Source: Argos Translate 1.11, ``package.py`` and ``translate.py`` (https://github.com/argosopentech/argos-translate).
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from minitransformer.data.languages import normalised
from minitransformer.data.profile import PROFILE_FILE
from minitransformer.data.rare_words import splits_at_blanks
from minitransformer.extras.convert.ctranslate2 import read_ctranslate2
from minitransformer.extras.convert.ctranslate2_writer import write_model
from minitransformer.extras.convert.foreign_files import SettingsFile, foreign_content
from minitransformer.extras.convert.parts import (
    NOT_STATED,
    ConversionError,
    Parts,
    require_inflatable,
    warning_of_penalty,
)
from minitransformer.extras.convert.vocabulary import model_format, parsed, words_beyond
from minitransformer.extras.serve.languages import Language
from minitransformer.model.storage import Storage
from minitransformer.system.errors import UserError
from minitransformer.system.files import require_regular, write_text

LOG = logging.getLogger(__name__)
SUFFIX = ".argosmodel"
METADATA, TOKENIZER, MODEL = "metadata.json", "sentencepiece.model", "model"
ALPHA = 0.2  # exponent of the length penalty in Argos Translate's search
_FILES = re.compile(rf"[^/]+/({re.escape(METADATA)}|\w+\.model|{MODEL}/[\w.]+)")  # DIRECTORY/FILE


def is_argos(path: Path) -> bool:
    """Return whether a path is a package of Argos Translate: a .argosmodel file, a directory with one, or unpacked."""
    return _package(path).suffix == SUFFIX or ((path / METADATA).is_file() and (path / MODEL).is_dir())


def read_argos(path: Path) -> Parts:
    """Read the package at ``path``, for which ``is_argos`` is true.

    Raises: ConversionError if the tokenizer is not a sentencepiece model, if translations need a prefix, if our
    Transformer lacks a feature of the model, or if a .argosmodel file is corrupt; CorruptFileError if a JSON file in a
    directory is missing or corrupt.
    """
    package = _package(path)
    with unpacked(package) as directory:
        try:
            return _read_directory(directory)
        except UserError as error:
            if directory == package:
                raise
            raise ConversionError(str(error).replace(str(directory), str(package))) from error


def _package(path: Path) -> Path:
    """Return the only .argosmodel file in a directory, or else ``path``."""
    found = list(path.glob(f"*{SUFFIX}"))
    return found[0] if len(found) == 1 else path


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield the directory of a package, which is a temporary one if ``path`` is or has a .argosmodel file.

    Raises: ConversionError if a .argosmodel file is corrupt.
    """
    package = _package(path)
    if package.is_dir():
        yield package
        return
    with TemporaryDirectory() as temporary:
        directory = Path(temporary).resolve()
        with foreign_content(package, "a package of Argos Translate"):
            _extract(package, directory)
        yield directory


def _extract(path: Path, directory: Path) -> None:
    """Unpack the files that ``_read_directory`` reads from a .argosmodel file to a directory."""
    require_regular(path)
    with zipfile.ZipFile(path) as archive:
        members = {found[1]: each for each in archive.infolist() if (found := _FILES.fullmatch(each.filename))}
        require_inflatable(path, sum(member.file_size for member in members.values()))
        (directory / MODEL).mkdir()
        for name, member in members.items():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{member.filename} is compressed in an unknown way")
            with archive.open(member) as stored, (directory / name).open("wb") as file:
                shutil.copyfileobj(stored, file)


def _read_directory(directory: Path) -> Parts:
    settings = SettingsFile.load(directory / METADATA)
    settings.refuse({"type": "translate", "target_prefix": ""})
    if not (directory / TOKENIZER).exists():
        raise ConversionError(f"{directory / TOKENIZER}: not found; packages with another tokenizer are not read")
    parts = read_ctranslate2(directory / MODEL, directory / TOKENIZER)
    profile = settings.languages("from_code", "to_code")
    return replace(parts, config=replace(parts.config, alpha=ALPHA), profile=profile)


def write_argos(parts: Parts, directory: Path, storage: Storage = "float32") -> None:
    """Write ``translate-SOURCE_TARGET.argosmodel`` to a directory, for Argos Translate and LibreTranslate.

    Raises: ConversionError if CTranslate2 cannot express the model, if its languages are not known, or if no single
    sentencepiece model serves both languages; CheckpointError if a file cannot be written.
    """
    with TemporaryDirectory(dir=directory) as temporary:
        package = Path(temporary) / "package"
        (package / MODEL).mkdir(parents=True)
        write_model(parts, package / MODEL, storage)
        (package / TOKENIZER).write_bytes(_subwords(parts))
        source, target = _languages(parts)
        name = f"translate-{source.code}_{target.code}"
        about = {
            "type": "translate", "code": name, "package_version": "1.0", "argos_version": "1.11",
            "from_code": source.code, "from_name": source.name, "to_code": target.code, "to_name": target.name,
        }  # fmt: skip
        write_text(package / METADATA, json.dumps(about, indent=2) + "\n")
        licence = f"Licence: {parts.licence or NOT_STATED}."
        readme = f"# {source.name} to {target.name}\n\nWritten by minitransformer. {licence}\n"
        write_text(package / "README.md", readme)
        package.rename(package.with_name(name))
        archive = Path(shutil.make_archive(str(directory / name), "zip", temporary, name))
        archive.rename(archive.with_suffix(SUFFIX))
    if penalty := warning_of_penalty(parts.config, ALPHA, "Argos Translate has no other"):
        LOG.warning(penalty)


def _subwords(parts: Parts) -> bytes:
    """Return the sentencepiece model of the source, which must also decode the words of the target.

    Raises: ConversionError if there is no such model.
    """
    source, target = parts.tokenizer.models[0], parts.tokenizer.models[-1]
    control = model_format().ModelProto.SentencePiece.CONTROL  # control symbols decode to nothing
    decoded = [piece.piece for piece in parsed(source).pieces if piece.type != control]
    if splits_at_blanks(source) or words_beyond(target, decoded):
        raise ConversionError(
            "tokenizer: a package of Argos Translate has one sentencepiece model, which must split the source and join"
            " the target; this model has none that does both: write it as ctranslate2, or train one tokenizer for both"
            " languages"
        )
    return source


def _languages(parts: Parts) -> tuple[Language, Language]:
    """Return the languages of a model.

    Raises: ConversionError if one is not known, or if the model has several targets.
    """
    if parts.profile.targets:
        raise ConversionError(
            f"the model translates to {', '.join(parts.profile.targets)}: a package of Argos Translate has one target"
        )
    source, target = parts.profile.languages
    if source is None or target is None:
        raise ConversionError(
            "the model names no languages, and a package of Argos Translate needs them; write their codes beside the"
            f' model, for example {{"source": "en", "target": "de"}} to {PROFILE_FILE}'
        )
    return Language(normalised(source)), Language(normalised(target))
