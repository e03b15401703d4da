"""Fetching public text, with checksums."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pooch

from minitransformer.config import DataConfig
from minitransformer.errors import UserError


class DownloadError(UserError, RuntimeError):
    """A file cannot be fetched, or is not what it should be."""


def download(config: DataConfig, say: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Fetch the files with a checksum in ``config.sha256`` into ``config.raw``; those already there are checked only.

    Raises: DownloadError if there is no address, a file cannot be fetched, or its checksum is wrong.
    """
    sums = dict(_parse(entry) for entry in config.sha256)
    if not config.download_from or not sums:
        raise DownloadError("there is nothing to download: set data.download_from and data.sha256, as recipes/ do")
    return [_fetch(config, name, digest, say) for name, digest in sums.items()]


def _fetch(config: DataConfig, name: str, digest: str, say: Callable[[str], None]) -> Path:
    address = f"{config.download_from.rstrip('/')}/{name}"
    if (config.raw / name).exists() and pooch.file_hash(str(config.raw / name), alg="sha256") != digest:
        raise DownloadError(
            f"{config.raw / name}: is there, but its sha256 is not {digest}; remove it to fetch it again"
        )
    say(f"checking {config.raw / name}" if (config.raw / name).exists() else f"{config.raw / name} from {address}")
    pooch.get_logger().setLevel("WARNING")  # the line above says it
    try:
        return Path(pooch.retrieve(address, f"sha256:{digest}", fname=name, path=config.raw, progressbar=False))
    except OSError as error:  # requests' errors are OSErrors
        raise DownloadError(
            f"{address}: cannot be fetched ({error}); fetch it by hand into {config.raw}, or try again later"
        ) from error
    except ValueError as error:  # pooch: a wrong checksum
        raise DownloadError(
            f"{address}: cannot be used ({error}); the file there is another one now: update data.download_from or"
            " data.sha256"
        ) from error


def _parse(entry: str) -> tuple[str, str]:
    name, _, digest = entry.rpartition(":")
    if name in ("", "..") or Path(name).name != name or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise DownloadError(f'data.sha256: expected "file name:64 hexadecimal digits", got {entry!r}')
    return name, digest.lower()
