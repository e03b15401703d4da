"""A reader of packages of Argos Translate: .argosmodel files, or the directories to which Argos Translate unpacks them.

A package is a .zip archive of one directory.  The directory has ``metadata.json``, ``sentencepiece.model`` for both
languages, and ``model``, the directory of a CTranslate2 model.

Source: Argos Translate 1.11, ``package.py`` and ``translate.py`` (https://github.com/argosopentech/argos-translate).
"""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from minitransformer.extras.convert.ctranslate2 import read_ctranslate2
from minitransformer.extras.convert.foreign_files import SettingsFile, foreign_content
from minitransformer.extras.convert.parts import ConversionError, Parts, require_inflatable
from minitransformer.system.errors import UserError
from minitransformer.system.files import require_regular

SUFFIX = ".argosmodel"
METADATA, TOKENIZER, MODEL = "metadata.json", "sentencepiece.model", "model"
ALPHA = 0.2  # exponent of the length penalty in Argos Translate's search
_FILES = re.compile(rf"[^/]+/({re.escape(METADATA)}|\w+\.model|{MODEL}/[\w.]+)")  # DIRECTORY/FILE


def is_argos(path: Path) -> bool:
    """Return whether a path is a package of Argos Translate: a .argosmodel file, or a directory."""
    return path.suffix == SUFFIX if path.is_file() else (path / METADATA).is_file() and (path / MODEL).is_dir()


def read_argos(path: Path) -> Parts:
    """Read a package.

    Raises: ConversionError if the tokenizer is not a sentencepiece model, if translations need a prefix, if our
    Transformer lacks a feature of the model, or if a .argosmodel file is corrupt; CorruptFileError if a JSON file in a
    directory is missing or corrupt.
    """
    if path.is_dir():
        return _read_directory(path)
    with TemporaryDirectory() as temporary:
        directory = Path(temporary).resolve()
        with foreign_content(path, "a package of Argos Translate"):
            _extract(path, directory)
        try:
            return _read_directory(directory)
        except UserError as error:
            raise ConversionError(str(error).replace(str(directory), str(path))) from error


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
