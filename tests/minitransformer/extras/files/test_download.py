"""Fetching text from a server on this machine: checksums are checked, and failures say what to do."""

import gc
import hashlib
import io
import re
import tarfile
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pooch
import pytest

from minitransformer.config import DataConfig
from minitransformer.extras.files.download import DownloadError, download

CONTENT = b"one line\nanother\n"
MEMBERS = {
    "training/a.en": b"one\n", "./a.de": b"eins\n", "training/unwanted.en": b"two\n", "../outside.en": b"three\n",
}  # fmt: skip
SOME_MEMBERS = {"train_source": ("training/a.en", "link.en"), "train_target": ("a.de", "absent.de")}
TWO_MEMBERS = {"train_source": ("training/a.en",), "train_target": ("a.de",)}


def archive() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as members:
        for name, text in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            members.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("link.en")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        members.addfile(link)
    return content.getvalue()


ARCHIVE = archive()
DIGEST, DIGEST_OF_ARCHIVE = (hashlib.sha256(content).hexdigest() for content in (CONTENT, ARCHIVE))
WRONG = "0" * 64
UNREACHABLE = "http://127.0.0.1:9"


class Handler(SimpleHTTPRequestHandler):
    """Serves files without a word on stderr, and remembers what was asked for."""

    requested: ClassVar[list[str]] = []

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        self.requested.append(self.path)
        super().do_GET()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "old").mkdir()
    for name, content in (("text.en", CONTENT), ("text.tar", CONTENT), ("old/text.tgz", ARCHIVE)):
        (folder / name).write_bytes(content)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def address(server: str) -> str:
    Handler.requested.clear()
    return server


def config_of(folder: Path, address: str, *sha256: str, **fields: Any) -> DataConfig:
    return DataConfig(raw=folder / "raw", download_from=address, sha256=sha256, **fields)


def refused(config: DataConfig) -> str:
    """The message; pooch closes no response that has a status of failure, but the collector does, and warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with pytest.raises(DownloadError) as caught:
            download(config)
        message = str(caught.value)
        del caught
        if "404" in message:
            gc.collect()
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("ending", "digest"), [("", DIGEST), ("/", DIGEST.upper())])
def test_a_file_is_fetched_once(tmp_path: Path, address: str, ending: str, digest: str, logged: list[str]) -> None:
    level = pooch.get_logger().level
    config = config_of(tmp_path, address + ending, f"text.en:{digest}")
    paths = download(config)
    assert pooch.get_logger().level == level
    assert paths == [tmp_path / "raw" / "text.en"]
    assert paths[0].read_bytes() == CONTENT
    assert logged == [f"{paths[0]} from {address}/text.en"]
    download(config)
    assert Handler.requested == ["/text.en"]


def test_a_file_already_there_with_another_content_is_refused_and_left_alone(tmp_path: Path, address: str) -> None:
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / "text.en"
    path.write_bytes(b"something else\n")
    message = refused(config_of(tmp_path, address, f"text.en:{DIGEST}"))
    assert f"is there, but its sha256 is not {DIGEST}; remove it to fetch it again" in message
    assert path.read_bytes() == b"something else\n"
    path.unlink()
    path.mkdir()
    message = refused(config_of(tmp_path, address, f"text.en:{DIGEST}"))
    assert re.search(r"text\.en: is there, but cannot be read .*; move it out of the way", message)
    assert Handler.requested == []


@pytest.mark.parametrize(("entry", "message"), [
    (f"text.en:{WRONG}", r"{address}/text\.en: cannot be used .*update data"),
    (f"absent.en:{DIGEST}",
        "{address}/absent.en: cannot be fetched .*404.*fetch it by hand into {folder}/raw, or try again later"),
    (f"https://127.0.0.1:9/text.en:{DIGEST}", "https://127.0.0.1:9/text.en: cannot be fetched .*or try again later"),
    (f"../text.en:{DIGEST}", ""),
    (f"text.tar:{DIGEST}", r".*text\.tar: cannot be unpacked \(.*unpack it by hand"),
])  # fmt: skip
def test_an_unusable_file_is_named_and_not_kept(tmp_path: Path, address: str, entry: str, message: str) -> None:
    found = refused(config_of(tmp_path, address, entry, **SOME_MEMBERS))
    assert re.match(message.format(address=address, folder=tmp_path), found), found
    assert not [path for path in (tmp_path / "raw").glob("*") if path.name != "text.tar"]
    assert not (tmp_path / "text.en").exists()


def test_an_address_without_its_protocol_is_not_taken_for_a_file_that_has_changed(tmp_path: Path) -> None:
    message = refused(config_of(tmp_path, "statmt.org", f"text.en:{DIGEST}"))
    assert re.search(r"statmt\.org/text\.en: cannot be used \(.*this is no address \(https://", message)


FORM = "expected .file name:64 hexadecimal digits. .*, got "


@pytest.mark.parametrize(("entry", "message"), [
    ("text.en", f"{FORM}'text.en'"), (DIGEST, f"{FORM}'{DIGEST}"), (f":{DIGEST}", f"{FORM}':"), ("", f"{FORM}''"),
    (f"text.en:{DIGEST[:-1]}", f"{FORM}'text.en:"), (f"text.en:{'g' * 64}", f"{FORM}'text.en:gg"),
    *((f"{other}:{WRONG}", rf"text\.en and {other} would both be .*raw/text\.en; leave one")
        for other in ("text.en", "dev/text.en", "https://example.org/text.en")),
], ids=lambda value: value[:30])  # fmt: skip
def test_a_wrong_entry_is_refused_before_fetching(tmp_path: Path, address: str, entry: str, message: str) -> None:
    assert re.search(f"data.sha256: {message}", refused(config_of(tmp_path, address, f"text.en:{DIGEST}", entry)))
    assert Handler.requested == []


@pytest.mark.parametrize("fields", [{}, {"sha256": (f"text.en:{DIGEST}",)}, {"download_from": "http://127.0.0.1"}])
def test_a_configuration_without_address_or_checksums_says_what_to_set(fields: dict[str, Any]) -> None:
    assert "nothing to download: set data.download_from and data.sha256" in refused(DataConfig(**fields))


def test_only_text_is_taken_once_from_an_archive(tmp_path: Path, address: str, logged: list[str]) -> None:
    config, raw = config_of(tmp_path, address, f"old/text.tgz:{DIGEST_OF_ARCHIVE}", **SOME_MEMBERS), tmp_path / "raw"
    download(config)
    assert {str(path.relative_to(raw)) for path in raw.rglob("*")} == {"text.tgz", "training", "training/a.en", "a.de"}
    assert (raw / "training" / "a.en").read_bytes() == b"one\n"
    assert (raw / "a.de").read_bytes() == b"eins\n"
    assert logged == [
        f"{raw / 'text.tgz'} from {address}/old/text.tgz",
        f"{raw / 'training' / 'a.en'} out of text.tgz",
        f"{raw / 'a.de'} out of text.tgz",
    ]
    (raw / "a.de").write_bytes(b"changed by hand\n")
    download(config)
    assert (raw / "a.de").read_bytes() == b"changed by hand\n"
    assert Handler.requested == ["/old/text.tgz"]


def test_where_no_text_is_missing_no_archive_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "raw" / "training").mkdir(parents=True)
    for name in ("training/a.en", "a.de"):
        (tmp_path / "raw" / name).write_bytes(CONTENT)
    entries = f"one.tgz:{DIGEST}", f"{UNREACHABLE}/other.tar.xz:{DIGEST}"
    config = config_of(tmp_path, UNREACHABLE, *entries, **TWO_MEMBERS)
    assert download(config) == []
    (tmp_path / "raw" / "a.de").unlink()
    assert "one.tgz: cannot be fetched" in refused(config)


def test_archives_are_fetched_until_no_text_is_missing(tmp_path: Path, address: str) -> None:
    entries = f"{address}/old/text.tgz:{DIGEST_OF_ARCHIVE}", f"later.tgz:{DIGEST}", f"text.en:{DIGEST}"
    config = config_of(tmp_path, address, *entries, **TWO_MEMBERS)
    assert download(config) == [tmp_path / "raw" / "text.en", tmp_path / "raw" / "text.tgz"]
    assert Handler.requested == ["/text.en", "/old/text.tgz"]
