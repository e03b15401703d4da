"""Packages of Argos Translate are read as the CTranslate2 models that they contain; others are refused by name."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ctranslate2_models import argos_package
from number_words import trained_parts

from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.convert.parts import ConversionError, Parts


def members(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def change(package: Path, **changes: bytes | None) -> Path:
    """Replace members, by the ends of their names, or remove them."""
    found = members(package)
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            changed = changes.get(name.rpartition("/")[2].replace(".", "_"), content)
            if changed is not None:
                archive.writestr(name, changed)
    return package


def require_equal(found: Parts, expected: Parts) -> None:
    assert found.tokenizer.equals(expected.tokenizer)
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)


def test_a_package_is_read_as_a_file_and_as_a_directory(tmp_path: Path) -> None:
    package = argos_package(tmp_path / "a.argosmodel", trained_parts())
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    directory = tmp_path / "translate-en_de"
    expected = read_parts(directory / "model", "ctranslate2", source_spm=directory / "sentencepiece.model")
    for path in (package, directory):
        assert recognise(path) == "argos"
        found = read_parts(path)
        require_equal(found, expected)
        assert (found.config.normalisation, found.config.alpha) == ("length", 0.2)


def test_members_elsewhere_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with other names are no part of the model: none of them is written anywhere."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    package = argos_package(tmp_path / "a.argosmodel", trained_parts())
    with zipfile.ZipFile(package, "a") as archive:
        for name in ("../model/evil", "/model/evil", "x/model/../../evil", "x/../evil.model", "x/model/y/evil"):
            archive.writestr(name, "evil")
    read_parts(package)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.argosmodel", "temporary"]


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "prefix": (lambda path: change(path, metadata_json=b'{"target_prefix": "__de__"}'),
        "metadata.json: target_prefix = '__de__' is not supported"),
    "sentences": (lambda path: change(path, metadata_json=b'{"type": "sbd"}'), "type = 'sbd' is not supported"),
    "tokenizer": (lambda path: change(path, sentencepiece_model=None), "sentencepiece.model: not found; packages with"),
    "model": (lambda path: change(path, model_bin=b"x"), "model/model.bin: "),
    "no metadata": (lambda path: change(path, metadata_json=None), "metadata.json: not found"),
    "too large": (lambda path: change(path, model_bin=bytes(90_000_000)), "bytes inflate to 90,"),
    "text": (lambda path: path.write_text("text"), "cannot be read as a package of Argos Translate .BadZipFile"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_package_of_a_translator_is_refused_by_name(tmp_path: Path, name: str) -> None:
    make, problem = REFUSED[name]
    package = argos_package(tmp_path / "a.argosmodel", trained_parts())
    make(package)
    with pytest.raises(ConversionError, match=problem) as caught:
        read_parts(package)
    assert str(caught.value).startswith(str(package))


@pytest.mark.parametrize("kind", ["m2m_100", "t5", "mbart", "fsmt"])
def test_a_model_of_another_architecture_is_refused_by_its_type(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ConversionError, match=rf"config.json: model_type = '{kind}' is not supported; only 'marian'"):
        read_parts(tmp_path)


def test_a_marian_model_without_weights_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    with pytest.raises(ConversionError, match=r"has no model.safetensors or pytorch_model.bin"):
        read_parts(tmp_path)
