"""Download of training text; checksums are compared."""

from __future__ import annotations

import logging
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pooch

from minitransformer.config import DataConfig
from minitransformer.data.corpus import text_files
from minitransformer.data.survey import READ_ERRORS
from minitransformer.system.errors import UserError
from minitransformer.system.files import atomic_write, make_directory

_log = logging.getLogger(__name__)
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.xz")


class DownloadError(UserError, RuntimeError):
    """An error: a file cannot be downloaded, or has the wrong checksum."""


def download(config: DataConfig) -> list[Path]:
    """Download the files that have a checksum in ``config.sha256`` to ``config.raw``; existing files are only checked.

    An archive is downloaded only if a text file of the configuration is still missing.  Then the missing files are
    extracted from the archive.
    Returns: the paths of the files and archives that were downloaded or checked.
    Raises: DownloadError if there is no checksum or no URL, if a checksum is wrong, or if a file cannot be fetched or
    unpacked.
    """
    sums = _checksums(config)
    if not sums or not (config.download_from or all("://" in name for name in sums)):
        raise DownloadError("there is nothing to download: set data.download_from and data.sha256, as recipes/ do")
    paths = [_fetch(config, name, digest) for name, digest in sums.items() if not name.endswith(ARCHIVES)]
    for name, digest in sums.items():
        missing = {text: file for text, file in text_files(config).items() if not file.exists()}
        if name.endswith(ARCHIVES) and missing:
            paths.append(_fetch(config, name, digest))
            _unpack(paths[-1], missing)
    return paths


def _fetch(config: DataConfig, name: str, digest: str) -> Path:
    address = name if "://" in name else f"{config.download_from.rstrip('/')}/{name}"
    path = config.raw / Path(name).name
    if path.exists() and _sha256(path) != digest:
        raise DownloadError(f"{path}: is there, but its sha256 is not {digest}; remove it to fetch it again")
    _log.info(f"checking {path}" if path.exists() else f"{path} from {address}")
    try:
        with _quiet(pooch.get_logger()):  # pooch would log the same again
            fetched = pooch.retrieve(address, f"sha256:{digest}", fname=path.name, path=config.raw, progressbar=False)
        return Path(fetched)
    except OSError as error:  # requests' errors are OSErrors
        raise DownloadError(
            f"{address}: cannot be fetched ({error}); fetch it by hand into {config.raw}, or try again later"
        ) from error
    except ValueError as error:  # from pooch: a wrong checksum, or an address of an unknown kind
        raise DownloadError(
            f"{address}: cannot be used ({error}); this is no address (https://…), or the file there is another one"
            " now: update data.download_from or data.sha256"
        ) from error


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Log only warnings and errors within this context."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _sha256(path: Path) -> str:
    try:
        return str(pooch.file_hash(str(path), alg="sha256"))
    except OSError as error:
        raise DownloadError(f"{path}: is there, but cannot be read ({error}); move it out of the way") from error


def _unpack(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Extract files from an archive; ``wanted`` has the path for each member's name.  Other members are skipped.

    Raises: DownloadError if the archive cannot be unpacked.
    """
    try:
        with tarfile.open(archive, "r|*") as members:
            for member in members:
                path = wanted.get(member.name.removeprefix("./"))
                content = members.extractfile(member) if path and member.isfile() else None
                if path and content:
                    _log.info(f"{path} out of {archive.name}")
                    make_directory(path.parent)
                    with atomic_write(path) as temporary, temporary.open("wb") as target:
                        shutil.copyfileobj(content, target)
    except (tarfile.TarError, *READ_ERRORS) as error:
        raise DownloadError(
            f"{archive}: cannot be unpacked ({error}); unpack it by hand into {archive.parent}"
        ) from error


def _checksums(config: DataConfig) -> dict[str, str]:
    """Return the checksum of each file name or URL.

    Raises: DownloadError if an entry has a wrong form, or if two files would be saved under one name.
    """
    sums: dict[str, str] = {}
    files: dict[str, str] = {}
    for entry in config.sha256:
        name, digest = _parse(entry)
        file = Path(name).name
        if file in files:
            raise DownloadError(
                f"data.sha256: {files[file]} and {name} would both be {config.raw / file}; leave one of them out"
            )
        files[file], sums[name] = name, digest
    return sums


def _parse(entry: str) -> tuple[str, str]:
    name, _, digest = entry.rpartition(":")
    parts = name.split("/")
    if parts[-1] == "" or ".." in parts or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise DownloadError(
            f'data.sha256: expected "file name:64 hexadecimal digits" (or an address for the name), got {entry!r}'
        )
    return name, digest.lower()
