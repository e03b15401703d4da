"""Conversion from end to end: the command, its messages, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_run import Trained, as_command, contents, output_of, translated

from cli.convert import convert
from minitransformer.convert.parts import ConversionError


def test_a_run_is_copied_as_a_model_that_translates_the_same(trained: Trained, tmp_path: Path) -> None:
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


def test_of_an_unknown_directory_all_known_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(ConversionError, match=r"old: no known format; .*minitransformer: model.json and model.safe"):
        convert([str(tmp_path / "old"), "--output", str(tmp_path / "new")])


def test_a_directory_that_is_not_empty_is_left_alone(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConversionError, match=f"{tmp_path}: exists and is not an empty directory; choose another"):
        convert([str(trained.run), "--output", str(tmp_path)])
    assert contents(tmp_path) == {"notes": b"mine"}


def test_an_empty_directory_is_written(trained: Trained, tmp_path: Path) -> None:
    output_of(lambda: convert([str(trained.run), "--output", str(tmp_path)]))
    assert "model.safetensors" in contents(tmp_path)


def test_a_storage_that_a_format_lacks_is_refused_before_reading(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"minitransformer has no int8 weights; possible: minitransformer"):
        convert(["nowhere", "--output", str(tmp_path), "--storage", "int8"])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "last.ckpt"])
def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04cposix\nsystem\n.")
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(ConversionError, match=r"is a pickle, .* never read; .*python -c \"import torch") as caught:
            convert([str(source), "--output", str(tmp_path / "new")])
        assert f"torch.load('{tmp_path / name}', map_location='cpu', weights_only=True)" in str(caught.value)
