"""Fetching text from a server on this machine: checksums are checked, and failures say what to do."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import io
import socket
import tarfile
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest

from minitransformer.config import DataConfig
from minitransformer.extras.files.download import DownloadError, download

CONTENT = b"one line\nanother\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
WRONG = "0" * 64
UNREACHABLE = "http://127.0.0.1:9"


class Handler(SimpleHTTPRequestHandler):
    """Serves files without a word on stderr, and remembers what was asked for."""

    requested: list[str]

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self.requested.append(self.path)
        super().do_GET()


@pytest.fixture
def requested() -> list[str]:
    return []


@pytest.fixture
def address(tmp_path: Path, requested: list[str]) -> Iterator[str]:
    served = tmp_path / "served"
    served.mkdir()
    (served / "text.en").write_bytes(CONTENT)
    handler = type("RememberingHandler", (Handler,), {"requested": requested})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(served))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    close_what_pooch_left_open()


def close_what_pooch_left_open() -> None:
    """pooch closes no response that has a status of failure; the collector does, and warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def config_of(folder: Path, address: str, *sha256: str) -> DataConfig:
    return DataConfig(raw=folder / "raw", download_from=address, sha256=sha256)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("ending", ["", "/"])
@pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper()], ids=["lower case", "upper case"])
def test_a_file_with_the_right_checksum_is_fetched(
    tmp_path: Path, address: str, ending: str, digest: str, logged: list[str]
) -> None:
    level = pooch.get_logger().level
    paths = download(config_of(tmp_path, address + ending, f"text.en:{digest}"))
    assert pooch.get_logger().level == level
    assert paths == [tmp_path / "raw" / "text.en"]
    assert paths[0].read_bytes() == CONTENT
    assert logged == [f"{paths[0]} from {address}/text.en"]


def test_a_file_with_a_wrong_checksum_is_refused_and_not_kept(tmp_path: Path, address: str) -> None:
    with pytest.raises(DownloadError, match=r"text\.en: cannot be used .*update data") as caught:
        download(config_of(tmp_path, address, f"text.en:{WRONG}"))
    assert f"{address}/text.en" in str(caught.value)
    assert names_in(tmp_path / "raw") == []


def test_the_message_about_a_wrong_checksum_is_one_line(tmp_path: Path, address: str) -> None:
    with pytest.raises(DownloadError) as caught:
        download(config_of(tmp_path, address, f"text.en:{WRONG}"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper()], ids=["lower case", "upper case"])
def test_a_file_already_there_is_checked_and_not_fetched(
    tmp_path: Path, address: str, requested: list[str], digest: str
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "text.en").write_bytes(CONTENT)
    download(config_of(tmp_path, address, f"text.en:{digest}"))
    assert requested == []


def test_a_file_already_there_with_another_content_is_refused_and_left_alone(
    tmp_path: Path, address: str, requested: list[str]
) -> None:
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / "text.en"
    path.write_bytes(b"something else\n")
    with pytest.raises(DownloadError, match=f"is there, but its sha256 is not {DIGEST}; remove it to fetch it again"):
        download(config_of(tmp_path, address, f"text.en:{DIGEST}"))
    assert path.read_bytes() == b"something else\n"
    assert requested == []


def test_what_stands_in_the_place_of_a_file_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "raw" / "text.en").mkdir(parents=True)
    with pytest.raises(DownloadError, match=r"text\.en: is there, but cannot be read .*; move it out of the way"):
        download(config_of(tmp_path, UNREACHABLE, f"text.en:{DIGEST}"))


def test_an_address_without_its_protocol_is_not_taken_for_a_file_that_has_changed(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"statmt\.org/text\.en: cannot be used \(.*this is no address \(https://"):
        download(config_of(tmp_path, "statmt.org", f"text.en:{DIGEST}"))


def test_a_file_that_the_server_does_not_have_is_named_with_the_remedy(tmp_path: Path, address: str) -> None:
    with pytest.raises(DownloadError, match="404") as caught:
        download(config_of(tmp_path, address, f"absent.en:{DIGEST}"))
    assert str(caught.value).startswith(f"{address}/absent.en: cannot be fetched")
    assert f"fetch it by hand into {tmp_path / 'raw'}, or try again later" in str(caught.value)
    assert names_in(tmp_path / "raw") == []


def test_a_refused_connection_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(DownloadError, match="or try again later") as caught:
        download(config_of(tmp_path, address, f"text.en:{DIGEST}"))
    assert str(caught.value).startswith(f"{address}/text.en: cannot be fetched")


@pytest.mark.parametrize("entry", [
    "text.en", DIGEST, f":{DIGEST}", f"text.en:{DIGEST[:-1]}", f"text.en:{'g' * 64}", "",
], ids=["no checksum", "no name", "empty name", "63 digits", "no hexadecimal digits", "nothing"])  # fmt: skip
def test_a_malformed_entry_is_quoted_with_the_form_it_should_have(tmp_path: Path, address: str, entry: str) -> None:
    with pytest.raises(DownloadError, match=r'data\.sha256: expected "file name:64 hexadecimal digits"') as caught:
        download(config_of(tmp_path, address, entry))
    assert repr(entry) in str(caught.value)


def test_a_malformed_entry_is_noticed_before_anything_is_fetched(
    tmp_path: Path, address: str, requested: list[str]
) -> None:
    with pytest.raises(DownloadError):
        download(config_of(tmp_path, address, f"text.en:{DIGEST}", "other.en:short"))
    assert requested == []


@pytest.mark.parametrize("other", ["text.en", "dev/text.en", "https://example.org/text.en"])
def test_two_entries_for_the_same_file_are_refused_before_anything_is_fetched(
    tmp_path: Path, address: str, requested: list[str], other: str
) -> None:
    with pytest.raises(DownloadError, match=rf"text\.en and {other} would both be .*raw/text\.en; leave one"):
        download(config_of(tmp_path, address, f"text.en:{DIGEST}", f"{other}:{WRONG}"))
    assert requested == []


@pytest.mark.parametrize("fields", [{}, {"sha256": (f"text.en:{DIGEST}",)}, {"download_from": "http://127.0.0.1"}])
def test_a_configuration_without_address_or_checksums_says_what_to_set(fields: dict[str, str]) -> None:
    with pytest.raises(DownloadError, match=r"nothing to download: set data\.download_from and data\.sha256"):
        download(DataConfig(**fields))


def test_a_file_name_may_not_lead_out_of_the_folder(tmp_path: Path, address: str) -> None:
    with pytest.raises(DownloadError):
        download(config_of(tmp_path, address, f"../text.en:{DIGEST}"))
    assert not (tmp_path / "text.en").exists()


MEMBERS = {
    "training/a.en": b"one\n", "./a.de": b"eins\n", "training/unwanted.en": b"two\n", "../outside.en": b"three\n",
}  # fmt: skip


def archive(path: Path) -> str:
    """Write an archive; return its checksum."""
    with tarfile.open(path, "w:gz") as members:
        for name, content in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            members.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link.en")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        members.addfile(link)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def of_archive(config: DataConfig) -> DataConfig:
    return dataclasses.replace(config, train_source=("training/a.en", "link.en"), train_target=("a.de", "absent.de"))


def test_of_an_archive_the_text_is_taken_out_and_nothing_else(tmp_path: Path, address: str, logged: list[str]) -> None:
    (tmp_path / "served" / "wmt13").mkdir()
    digest = archive(tmp_path / "served" / "wmt13" / "text.tgz")
    config = of_archive(config_of(tmp_path, address, f"wmt13/text.tgz:{digest}"))
    download(config)
    raw = tmp_path / "raw"
    assert {str(path.relative_to(raw)) for path in raw.rglob("*")} == {"text.tgz", "training", "training/a.en", "a.de"}
    assert (raw / "training" / "a.en").read_bytes() == b"one\n"
    assert (raw / "a.de").read_bytes() == b"eins\n"
    assert logged == [
        f"{raw / 'text.tgz'} from {address}/wmt13/text.tgz",
        f"{raw / 'training' / 'a.en'} out of text.tgz",
        f"{raw / 'a.de'} out of text.tgz",
    ]


def test_text_that_is_there_is_not_taken_out_again(tmp_path: Path, address: str, requested: list[str]) -> None:
    config = config_of(tmp_path, "", f"{address}/text.tgz:{archive(tmp_path / 'served' / 'text.tgz')}")
    config = of_archive(config)
    download(config)
    (tmp_path / "raw" / "a.de").write_bytes(b"changed by hand\n")
    download(config)
    assert (tmp_path / "raw" / "a.de").read_bytes() == b"changed by hand\n"
    assert requested == ["/text.tgz"]


def config_of_text(folder: Path, address: str, *sha256: str) -> DataConfig:
    """A configuration whose text is two members of the archive."""
    config = config_of(folder, address, *sha256)
    return dataclasses.replace(config, train_source=("training/a.en",), train_target=("a.de",))


def test_where_no_text_is_missing_no_archive_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "raw" / "training").mkdir(parents=True)
    for name in ("training/a.en", "a.de"):
        (tmp_path / "raw" / name).write_bytes(CONTENT)
    config = config_of_text(tmp_path, UNREACHABLE, f"one.tgz:{DIGEST}", f"{UNREACHABLE}/other.tar.xz:{DIGEST}")
    assert download(config) == []
    (tmp_path / "raw" / "a.de").unlink()
    with pytest.raises(DownloadError, match=r"one\.tgz: cannot be fetched"):
        download(config)


def test_archives_are_fetched_until_no_text_is_missing(tmp_path: Path, address: str, requested: list[str]) -> None:
    digest = archive(tmp_path / "served" / "text.tgz")
    config = config_of_text(tmp_path, address, f"text.tgz:{digest}", f"later.tgz:{DIGEST}", f"text.en:{DIGEST}")
    assert download(config) == [tmp_path / "raw" / "text.en", tmp_path / "raw" / "text.tgz"]
    assert requested == ["/text.en", "/text.tgz"]


def test_an_archive_that_is_none_is_named(tmp_path: Path, address: str) -> None:
    (tmp_path / "served" / "text.tar").write_bytes(CONTENT)
    with pytest.raises(DownloadError, match=r"text\.tar: cannot be unpacked \(.*unpack it by hand"):
        download(of_archive(config_of(tmp_path, address, f"text.tar:{DIGEST}")))
