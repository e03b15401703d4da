"""The formats of models by name: functions that read, write and recognise each format."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from minitransformer.extras.convert.argos import is_argos, read_argos, write_argos
from minitransformer.extras.convert.ctranslate2 import is_ctranslate2, read_ctranslate2
from minitransformer.extras.convert.ctranslate2_writer import write_ctranslate2
from minitransformer.extras.convert.fairseq import is_fairseq, read_fairseq
from minitransformer.extras.convert.foreign_files import WEIGHTS, foreign_content
from minitransformer.extras.convert.joeynmt import is_joeynmt, read_joeynmt
from minitransformer.extras.convert.marian_directory import is_marian, read_marian, write_marian
from minitransformer.extras.convert.marian_npz import is_marian_npz, read_marian_npz
from minitransformer.extras.convert.marian_npz_writer import BINARY_FILE, write_bergamot, write_marian_npz
from minitransformer.extras.convert.parts import (
    ConversionError,
    Parts,
    looked_up,
    require_empty,
    require_finite,
    write_bundle,
)
from minitransformer.extras.packages import import_extra
from minitransformer.model.files import BUNDLE_FILE, CONFIG_FILE, WEIGHTS_FILE
from minitransformer.model.storage import Storage
from minitransformer.system.files import CheckpointError, lock_directory, make_directory, sync, temporary_path, try_lock
from minitransformer.system.records import read_object


@dataclass(frozen=True)
class Format:
    """A format: a description of its files, and functions that recognise, read and write it.

    ``read(path)`` reads a model.  If ``has_tokenizer`` is False, call ``read(path, source_spm, target_spm)``.  Then
    ``source_spm`` and ``target_spm`` are paths of sentencepiece models, or None.  ``write(parts, directory, storage)``
    stores weights in the dtype ``storage``, one of ``storages``.
    """

    files: str
    recognise: Callable[[Path], bool]
    read: Callable[..., Parts] | None = None
    write: Callable[[Parts, Path, Storage], None] | None = None
    storages: tuple[Storage, ...] = ("float32",)
    has_tokenizer: bool = True


def _write_onnx(parts: Parts, directory: Path, _: Storage) -> None:
    import_extra("convert", "onnx")
    from minitransformer.extras.convert.onnx_writer import write_onnx  # noqa: PLC0415

    write_onnx(parts, directory)


FORMATS: dict[str, Format] = {
    "minitransformer": Format(
        f"{CONFIG_FILE} and {WEIGHTS_FILE}",
        lambda path: (path / CONFIG_FILE).exists() and (path / WEIGHTS_FILE).exists(),
        Parts.load,
        lambda parts, directory, storage: parts.save(directory),
    ),
    "bundle": Format(  # a bundle has the files of "minitransformer", and is read in this format
        f"{BUNDLE_FILE}, {CONFIG_FILE} and {WEIGHTS_FILE}",
        lambda path: (path / BUNDLE_FILE).exists(),
        write=lambda parts, directory, storage: write_bundle(parts, directory, storage=storage),
        storages=get_args(Storage),
    ),
    "marian": Format(
        "config.json with model_type marian, model.safetensors or pytorch_model.bin, vocab.json, *.spm",
        is_marian,
        read_marian,
        write_marian,
        ("float32", "float16"),
    ),
    "ctranslate2": Format(
        "model.bin, config.json and vocabularies",
        is_ctranslate2,
        read_ctranslate2,
        write_ctranslate2,
        ("float32", "float16", "int8"),
        has_tokenizer=False,
    ),
    "argos": Format(
        "a package of Argos Translate (.argosmodel)", is_argos, read_argos, write_argos, ("float32", "float16", "int8")
    ),
    "marian-npz": Format(
        "a .npz file of Marian, with its vocabulary (.yml, .json or .spm) and perhaps source.spm and target.spm",
        is_marian_npz,
        read_marian_npz,
        write_marian_npz,
    ),
    "bergamot": Format(
        f"{BINARY_FILE}, config.yml and vocab*.spm",
        lambda path: (path / BINARY_FILE).exists() and any(path.glob("vocab*.spm")),
        write=write_bergamot,
    ),
    "fairseq": Format(
        "a checkpoint (.pt), or model.safetensors and args.json; dict.txt or dict.LANGUAGE.txt",
        is_fairseq,
        read_fairseq,
        has_tokenizer=False,
    ),
    "joeynmt": Format(
        "a checkpoint (.ckpt) or model.safetensors, config.json, src_vocab.txt and trg_vocab.txt",
        is_joeynmt,
        read_joeynmt,
        has_tokenizer=False,
    ),
    "onnx": Format(
        "encoder.onnx and decoder_step.onnx", lambda path: (path / "encoder.onnx").exists(), write=_write_onnx
    ),
}
READABLE = tuple(name for name, each in FORMATS.items() if each.read)
WRITABLE = tuple(name for name, each in FORMATS.items() if each.write)


def read_parts(
    source: Path, name: str | None = None, *, source_spm: Path | None = None, target_spm: Path | None = None
) -> Parts:
    """Read a model in the format ``name``; if it is None, recognise the format by the files.

    Args:
        source_spm, target_spm: paths of sentencepiece models, for formats without a tokenizer.

    Raises: ConversionError if no format is recognised, if the format cannot be read or has a tokenizer of its own, or
    if a file cannot be read or expressed; CheckpointError if a file is missing or corrupt; WeightsError if the weights
    do not fit the configuration.
    """
    if not source.exists():
        raise ConversionError(f"{source}: not found; give the directory of a model")
    name = name or recognise(source)
    read = FORMATS[name].read
    if read is None:
        raise ConversionError(f"{source}: {name} is written only; the formats that are read: {', '.join(READABLE)}")
    models = (source_spm, target_spm)
    if FORMATS[name].has_tokenizer and models != (None, None):
        raise ConversionError(f"{source}: models in the format {name} have a tokenizer; give no sentencepiece models")
    with foreign_content(source, f"a model in the format {name}"):
        parts = (read(source) if FORMATS[name].has_tokenizer else read(source, *models)).require_fitting()
    for parameter, weights in parts.weights.items():  # multiplication by a factor may have made weights infinite
        require_finite(source, parameter, weights)
    return parts


@contextmanager
def atomic_directory(directory: Path) -> Iterator[Path]:
    """Yield an empty temporary directory beside ``directory``; on success rename it to ``directory``, else remove it.

    ``directory`` must be absent or empty.  Older temporary directories that killed processes left beside ``directory``
    are removed.  Temporary directories of running processes are locked, and stay.
    Raises: CheckpointError if the directory cannot be written.
    """
    path = directory.resolve()  # a link to an empty directory stays a link
    new_parents = [parent for parent in path.parents if not parent.exists()]
    temporary = temporary_path(path)
    try:
        make_directory(path.parent)
        _remove_unfinished_beside(path)
        with lock_directory(temporary, "writing"):
            if path.exists():
                shutil.copymode(path, temporary)
            yield temporary
            sync(temporary)
            temporary.rename(path)
        sync(path.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):  # another process has written there
            for parent in new_parents:
                parent.rmdir()
        if isinstance(error, OSError):
            raise CheckpointError(
                f"{directory}: cannot be written ({error}); free some space or choose another directory"
            ) from error
        raise


def _remove_unfinished_beside(path: Path) -> None:
    """Remove the temporary directories of ``path`` that no process has locked."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]+\.tmp")
    for unfinished in path.parent.iterdir():
        if name.fullmatch(unfinished.name) and unfinished.is_dir() and not unfinished.is_symlink():
            descriptor = os.open(unfinished, os.O_RDONLY)
            if try_lock(descriptor):
                shutil.rmtree(unfinished, ignore_errors=True)
            os.close(descriptor)


@contextmanager
def output_directory(parts: Parts, directory: Path, name: str, storage: Storage) -> Iterator[Path]:
    """Write a model in the format ``name`` to a temporary directory, and yield the directory's path.

    The caller may check the model there and add files.  When the context ends, the temporary directory is renamed to
    ``directory``.  After an error, ``directory`` is as it was.
    Raises: ConversionError if ``directory`` is not empty, or if the format cannot express the model or lacks the
    storage; StorageError if a weight of a bundle does not fit the storage; CheckpointError if a file cannot be written.
    """
    write = require_writable(directory, name, storage)
    with atomic_directory(directory) as temporary:
        write(parts, temporary, storage)
        yield temporary


def require_writable(directory: Path, name: str, storage: Storage) -> Callable[[Parts, Path, Storage], None]:
    """Return the function that writes the format ``name``.

    Raises: ConversionError if the directory is not empty, or if the format cannot be written with ``storage``.
    """
    write = FORMATS[name].write
    if write is None or storage not in FORMATS[name].storages:
        possible = [f"{other} ({', '.join(each.storages)})" for other, each in FORMATS.items() if each.write]
        raise ConversionError(f"{directory}: {name} has no {storage} weights; possible: {', '.join(possible)}")
    require_empty(directory)
    return write


def recognise(source: Path) -> str:
    """Return the name of the format of a model, given its directory or file.

    Raises: ConversionError if no format is recognised, or if a directory has several checkpoints; CorruptFileError if
    ``config.json`` is not JSON.
    """
    for name, each in FORMATS.items():
        if each.read and each.recognise(source):
            return name
    if source.is_file():
        raise ConversionError(f"{source}: is a file; give the directory of a model, a .npz file or a .argosmodel file")
    for name in ("onnx", "bergamot"):
        if FORMATS[name].recognise(source):
            raise ConversionError(f"{source}: {name} is written, not read; give the model from which this was made")
    if kind := read_object(source / "config.json").get("model_type"):
        looked_up(str(source / "config.json"), "model_type", kind, {"marian": None})
        raise ConversionError(f"{source}: has no {' or '.join(WEIGHTS[::2])}; download it, too")
    looked_for = "; ".join(f"{name}: {each.files}" for name, each in FORMATS.items() if each.read)
    raise ConversionError(f"{source}: no known format; files that were looked for: {looked_for}")
