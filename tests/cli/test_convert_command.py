"""Conversion from end to end: the command, its messages, and models of the Hugging Face Hub (a server on loopback)."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from fuzzed_readers import READERS
from pytorch_files import zip_file
from small_run import Trained, contents, output_of, translated

from cli.convert import convert
from minitransformer.extras.convert.formats import read_parts
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.extras.packages import MissingExtraError
from minitransformer.system.files import read_arrays


def test_a_run_is_copied_as_a_model_that_translates_the_same(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()  # an empty directory may be there
    output = output_of(lambda: convert([str(trained.run), "--output", str(tmp_path / "copy")]))
    assert output == f"wrote {tmp_path / 'copy'} (minitransformer: model.json and model.safetensors)\n"
    copied, kept = contents(tmp_path / "copy"), contents(trained.run)
    assert {name: kept[name] for name in copied if name != "checksums.json"}.items() <= copied.items()
    lines = b"one two\nsix\n"
    assert translated(Trained(tmp_path / "copy", [], ""), lines) == translated(trained, lines)


@pytest.mark.usefixtures("here")
def test_a_model_is_not_written_to_the_current_directory(trained: Trained) -> None:
    with pytest.raises(ConversionError, match=r"^\.: is the current directory or a mount point.*; choose a directory"):
        convert([str(trained.run), "--output", "."])


@pytest.mark.parametrize("error", [ConversionError("too large"), KeyboardInterrupt()], ids=["refused", "interrupted"])
def test_an_output_that_is_not_completed_leaves_nothing(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(path: Path, text: str) -> None:
        (written,) = contents(tmp_path)  # a file was written before, in a directory of another name
        assert re.fullmatch(rf"(new/)?\.{Path(name).name}\.[0-9a-f]+\.tmp/model.bin", written)
        raise error

    monkeypatch.setattr("minitransformer.extras.convert.ctranslate2_writer.write_text", fail)
    (tmp_path / "empty").mkdir()
    for name in ("new/one", "empty"):
        with pytest.raises(type(error)):
            convert([str(trained.run), "--output", str(tmp_path / name), "--to", "ctranslate2"])
        assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


@pytest.mark.parametrize("last", ["write_text", "write_certificate"])
def test_a_killed_conversion_leaves_nothing_that_blocks_the_same_command(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """The process is killed in the middle of the files, or when only the certificate is missing."""
    (tmp_path / "text").write_text("one two\n")
    words = [str(trained.run), "--output", str(tmp_path / "new"), "--to", "ctranslate2"]
    for name in ("require_side", "other_side", "certify"):
        monkeypatch.setattr(f"cli.convert.{name}", lambda *_: SimpleNamespace(description="same"))
    monkeypatch.setattr("cli.convert.write_certificate", lambda _, directory: (directory / "certificate.json").touch())
    module = "cli.convert" if last == "write_certificate" else "minitransformer.extras.convert.ctranslate2_writer"
    child = os.fork()
    if not child:
        monkeypatch.setattr(f"{module}.{last}", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        convert([*words, "--certify", str(tmp_path / "text")])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert sorted(contents(tmp_path)) != ["text"]
    output_of(lambda: convert([*words, "--certify", str(tmp_path / "text")]))
    assert {name.partition("/")[0] for name in contents(tmp_path)} == {"new", "text"}
    assert {"model.bin", "config.json", "certificate.json"} <= contents(tmp_path / "new").keys()


def test_a_run_becomes_a_ctranslate2_model_and_a_model_of_ours_again(trained: Trained, tmp_path: Path) -> None:
    """Also one without a tokenizer, to which the user gives sentencepiece's model."""
    there, back = tmp_path / "ct2", tmp_path / "back"
    output = output_of(lambda: convert([str(trained.run), "--output", str(there), "--to", "ctranslate2"]))
    warning, wrote = output.splitlines()
    assert "length^1" in warning
    assert wrote == f"wrote {there} (ctranslate2: model.bin, config.json and vocabularies)"
    output_of(lambda: convert([str(there), "--output", str(back)]))
    assert contents(back)["model.safetensors"] == contents(trained.run)["model.safetensors"]
    small = tmp_path / "small"
    output_of(lambda: convert([str(there), "--output", str(small), "--to", "ctranslate2", "--storage", "int8"]))
    assert (small / "model.bin").stat().st_size < 0.9 * (there / "model.bin").stat().st_size
    without, model, given = [str(there), "--output", str(tmp_path / "given")], tmp_path / "joint.model", "--target-spm"
    (there / "tokenizer.model").rename(model)
    with pytest.raises(ConversionError, match="there is no source.spm for the other; set source_spm"):
        convert([*without, given, str(model)])
    output_of(lambda: convert([*without, "--source-spm", str(model)]))
    options = b"one two\nsix\n", "--alpha", "0"  # the penalty of lengths is the user's setting in CTranslate2
    assert translated(Trained(tmp_path / "given", [], ""), *options) == translated(trained, *options)
    with pytest.raises(ConversionError, match="the format minitransformer have a tokenizer; give no sentencepiece"):
        convert([str(trained.run), "--output", str(tmp_path / "new"), given, str(model)])


def test_a_bundle_of_a_trained_model_translates_like_it(trained: Trained, tmp_path: Path) -> None:
    """Rounding moves no weight far enough to change one of these translations."""
    words = [str(trained.run), "--output", str(tmp_path / "bundle"), "--to", "bundle", "--licence", "CC-BY-4.0"]
    output = output_of(lambda: convert([*words, "--storage", "int8"]))
    assert output == f"wrote {tmp_path / 'bundle'} (bundle: bundle.json, model.json and model.safetensors)\n"
    about = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert (about["licence"], about["storage"]) == ("CC-BY-4.0", "int8")
    lines = b"one two\nsix\nthree four five\n"
    assert translated(Trained(tmp_path / "bundle", [], ""), lines) == translated(trained, lines)


NAME, COMMIT = "Helsinki-NLP/opus-mt-en-de", "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Answers the Hub's requests for files of ``directory``, one commit of a model; ``sent`` has their names."""

    directory: Path
    sent: list[str]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        if content := self.answer():
            self.sent.append(self.path.rpartition("/")[2])
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> bytes | None:
        """Send the headers; return the content, or None if there is no such file."""
        found = re.fullmatch(r"/(.+)/resolve/([^/]+)/([^/]+)", self.path)
        name, commit, file = found.groups() if found else ("", "", "")
        path, code = self.directory / file, None
        if name != NAME:
            code = "RepoNotFound"
        elif commit not in ("main", COMMIT):
            code = "RevisionNotFound"
        elif not path.is_file():
            code = "EntryNotFound"
        content = b"" if code else path.read_bytes()
        self.send_response(404 if code else 200)
        headers = {"X-Error-Code": code} if code else {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        headers |= {"X-Repo-Commit": COMMIT, "Content-Length": str(len(content))}
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        return content or None


PARTS, INDEX = ("pytorch_model-1.bin", "pytorch_model-2.bin"), "pytorch_model.bin.index.json"
SENT = [  # target.spm has the bytes of source.spm, so the cache has it
    "config.json", "generation_config.json", *PARTS, INDEX, "source.spm", "tokenizer_config.json", "vocab.json",
]  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A MarianMT model in two files of PyTorch, beside files of other programs."""
    directory = tmp_path / "model"
    directory.mkdir()
    READERS["marian"].write(directory)
    arrays = read_arrays(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    for i, name in enumerate(PARTS):
        (directory / name).write_bytes(zip_file({array: arrays[array] for array in sorted(arrays)[i::2]}))
    weight_map = {array: PARTS[i % 2] for i, array in enumerate(sorted(arrays))}
    (directory / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    for name in ("tf_model.h5", "README.md", "flax_model.msgpack"):
        (directory / name).write_text("large")
    return directory


@pytest.fixture
def hub(model: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a server of the model's files, and the names of those that it has sent."""
    pytest.importorskip("huggingface_hub")
    handler = type("HandlerOfModel", (Hub,), {"directory": model, "sent": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler.sent
        server.shutdown()


CONVERT = """
import json, sys
from cli.convert import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    print(main(), flush=True)
"""


def converted(folder: Path, address: str, *commands: list[str], offline: bool = False) -> tuple[list[int], list[str]]:
    """The status of each command, and the lines that they say.

    They run in a process of their own, because the package reads the environment at its import.
    """
    variables = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "cache"), "NO_PROXY": "127.0.0.1"}
    environment = {**os.environ, **variables, "HF_HUB_OFFLINE": str(int(offline))}
    program = [sys.executable, "-c", CONVERT, json.dumps(commands)]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return [int(status) for status in done.stdout.split()], done.stderr.splitlines()


def test_a_model_is_downloaded_converted_and_recorded(tmp_path: Path, model: Path, hub: tuple[str, list[str]]) -> None:
    """Only the files that are needed are sent, once; then the cache is enough without a network."""
    address, sent = hub
    statuses, said = converted(tmp_path, address, [NAME, "--output", "ours"])
    assert (statuses, said[0]) == ([0], f"read {NAME} at commit {COMMIT}")
    assert sorted(sent) == SENT
    assert json.loads((tmp_path / "ours/origin.json").read_text()) == {"name": NAME, "revision": COMMIT}
    found, expected = read_arrays(tmp_path / "ours/model.safetensors"), read_parts(model).weights
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)
    again = [[NAME, "--output", "offline"], [NAME, "--output", "again", "--revision", COMMIT]]
    statuses, said = converted(tmp_path, address, *again, ["another/model", "--output", "other"], offline=True)
    assert statuses == [0, 0, 1]
    assert "is not complete in the cache of the Hugging Face Hub, which cannot be reached" in said[-1]
    assert len(sent) == len(SENT)


def test_wrong_names_and_revisions_are_named_and_an_architecture_is_refused_before_its_weights(
    tmp_path: Path, model: Path, hub: tuple[str, list[str]]
) -> None:
    (model / "config.json").write_text('{"model_type": "m2m_100"}')
    refused = {
        "Helsinki-NLP/opus-mt-en-xx": "neither a directory here nor a model on the Hugging Face Hub; check",
        f"{NAME} --revision v9": "has no revision v9; give a branch, a tag or a commit",
        "model --revision v9": "--revision: model is no name of a model on the Hugging Face Hub",
        NAME: f"{NAME}: config.json: model_type = 'm2m_100' is not supported; only 'marian'",
    }
    statuses, said = converted(tmp_path, hub[0], *([*words.split(), "--output", "ours"] for words in refused))
    assert statuses == [1] * len(refused)
    for line, problem in zip(said, refused.values(), strict=True):
        assert problem in line
    assert hub[1] == ["config.json"]


@pytest.mark.usefixtures("here")
def test_without_the_extra_a_misspelt_directory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"^runs/dmeo: not found here; to download it .* the extra \"hub\""):
        convert(["runs/dmeo", "--output", "ours"])
