"""Conversion from end to end: the command, its messages, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_run import Trained, as_command, contents, output_of, translated

from cli.convert import convert
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.system.files import CheckpointError


def test_a_run_is_copied_as_a_model_that_translates_the_same(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()  # an empty directory may be there
    output = output_of(lambda: convert([str(trained.run), "--output", str(tmp_path / "copy")]))
    assert output == f"wrote {tmp_path / 'copy'} (minitransformer: model.json and model.safetensors)\n"
    copied, kept = contents(tmp_path / "copy"), contents(trained.run)
    assert {name: kept[name] for name in copied if name != "checksums.json"}.items() <= copied.items()
    lines = b"one two\nsix\n"
    assert translated(Trained(tmp_path / "copy", [], ""), lines) == translated(trained, lines)


def test_the_installed_command_reports_an_error_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_command("convert", ["nowhere", "--output", str(tmp_path / "new")], monkeypatch) == 1
    assert re.fullmatch(r"error: nowhere: not found; [^\n]+\n", capsys.readouterr().err)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{tmp}/old", "--output", "{tmp}/new"], "old: no known format; .*minitransformer: model.json and model.safe"),
        (["{tmp}/onnx", "--output", "{tmp}/new"], "ONNX graphs are written, not read; give the model from which"),
        (["{run}/model.safetensors", "--output", "{tmp}/new"], "model.safetensors: is a file; give the directory of a"),
        (["{run}", "--output", "{tmp}/mine"], "mine: exists and is not an empty directory; choose another"),
        (["{run}", "--output", "{tmp}/mine/notes/new"], r"new: cannot be written \(.*\); .* choose another directory$"),
        (["{run}", "--output", "."], r"^\.: is the current directory or a mount point.*; choose a directory in"),
        (["nowhere", "--output", "{tmp}/new", "--storage", "int8"], r"no int8 weights; possible: .* \(float32\)"),
        (["{run}", "--output", "{tmp}/new", "--licence", "CC0"], "--licence: .* records no licence; use --to bundle"),
    ],
)
def test_what_cannot_be_converted_or_written_is_refused_and_nothing_changed(
    words: list[str], message: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "onnx", "mine", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "onnx" / "encoder.onnx").touch()
    (tmp_path / "mine" / "notes").write_text("mine")
    monkeypatch.chdir(tmp_path / "here")
    before = contents(tmp_path)
    with pytest.raises((ConversionError, CheckpointError), match=message):
        convert([word.format(tmp=tmp_path, run=trained.run) for word in words])
    assert contents(tmp_path) == before


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


def test_a_failed_certificate_leaves_no_output(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConversionError("other program")

    (tmp_path / "text").write_text("one two\n")
    monkeypatch.setattr("cli.convert.require_side", lambda name: None)
    monkeypatch.setattr("cli.convert.other_side", fail)
    words = ["--output", str(tmp_path / "new"), "--to", "ctranslate2", "--certify", str(tmp_path / "text")]
    with pytest.raises(ConversionError, match="other program"):
        convert([str(trained.run), *words])
    assert list(contents(tmp_path)) == ["text"]


def test_a_run_becomes_a_ctranslate2_model_and_a_model_of_ours_again(trained: Trained, tmp_path: Path) -> None:
    there, back = tmp_path / "ct2", tmp_path / "back"
    output = output_of(lambda: convert([str(trained.run), "--output", str(there), "--to", "ctranslate2"]))
    assert output == f"wrote {there} (ctranslate2: model.bin, config.json and vocabularies)\n"
    output_of(lambda: convert([str(there), "--output", str(back)]))
    assert contents(back)["model.safetensors"] == contents(trained.run)["model.safetensors"]
    small = tmp_path / "small"
    output_of(lambda: convert([str(there), "--output", str(small), "--to", "ctranslate2", "--storage", "int8"]))
    assert (small / "model.bin").stat().st_size < 0.9 * (there / "model.bin").stat().st_size


def test_sentencepiece_models_are_given_to_a_model_without_a_tokenizer(trained: Trained, tmp_path: Path) -> None:
    there, back, model = tmp_path / "ct2", tmp_path / "back", tmp_path / "joint.model"
    output_of(lambda: convert([str(trained.run), "--output", str(there), "--to", "ctranslate2"]))
    (there / "tokenizer.model").rename(model)
    with pytest.raises(ConversionError, match="are pieces of sentencepiece"):
        convert([str(there), "--output", str(back)])
    with pytest.raises(ConversionError) as caught:
        convert([str(there), "--output", str(back), "--target-spm", str(model)])
    assert "there is no source.spm for the other; set source_spm (" in str(caught.value)
    output_of(lambda: convert([str(there), "--output", str(back), "--source-spm", str(model)]))
    options = b"one two\nsix\n", "--alpha", "0"  # the penalty of lengths is the user's setting in CTranslate2
    assert translated(Trained(back, [], ""), *options) == translated(trained, *options)
    with pytest.raises(ConversionError, match="the format minitransformer have a tokenizer; give no sentencepiece"):
        convert([str(trained.run), "--output", str(tmp_path / "new"), "--target-spm", str(model)])


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_a_bundle_of_a_trained_model_translates_like_it(trained: Trained, tmp_path: Path, storage: str) -> None:
    """Rounding moves no weight far enough to change one of these translations."""
    words = [str(trained.run), "--output", str(tmp_path / "bundle"), "--to", "bundle", "--licence", "CC-BY-4.0"]
    output = output_of(lambda: convert([*words, "--storage", storage]))
    assert output == f"wrote {tmp_path / 'bundle'} (bundle: bundle.json, model.json and model.safetensors)\n"
    about = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    manifest = json.loads((trained.run / "data" / "manifest.json").read_text())
    assert (about["licence"], about["storage"], about["data"]["files"]) == ("CC-BY-4.0", storage, manifest["files"])
    assert contents(tmp_path / "bundle")["results.json"] == contents(trained.run)["results.json"]
    lines = b"one two\nsix\nthree four five\n"
    assert translated(Trained(tmp_path / "bundle", [], ""), lines) == translated(trained, lines)
