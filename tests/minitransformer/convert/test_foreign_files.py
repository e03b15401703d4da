"""The sentencepiece models of a model of another program: which file is which language's."""

from __future__ import annotations

from pathlib import Path

import pytest

from minitransformer.convert.foreign_files import sentencepiece_models
from minitransformer.convert.parts import ConversionError


def models(folder: Path, there: str, source: str | None, target: str | None) -> tuple[bytes | None, bytes | None]:
    """The models found if files are there, and others given; a file contains its name."""
    for name in {*there.split(), source, target} - {None}:
        (folder / str(name)).write_text(str(name))
    return sentencepiece_models(folder, *(None if name is None else folder / name for name in (source, target)))


@pytest.mark.parametrize(
    ("there", "source", "target", "expected"),
    [
        ("", "a", "b", (b"a", b"b")),
        ("", "a", None, (b"a", b"a")),
        ("tokenizer.model", None, None, (b"tokenizer.model", b"tokenizer.model")),
        ("tokenizer.model", "a", None, (b"a", b"a")),
        ("tokenizer.model", None, "b", (b"tokenizer.model", b"b")),
        ("source.spm target.spm", None, None, (b"source.spm", b"target.spm")),
        ("source.spm target.spm", "a", None, (b"a", b"target.spm")),
        ("source.spm target.spm", None, "b", (b"source.spm", b"b")),
        ("", None, None, (None, None)),
    ],
)
def test_each_language_has_its_own_model_or_the_one_for_both(
    tmp_path: Path, there: str, source: str | None, target: str | None, expected: tuple[bytes | None, bytes | None]
) -> None:
    assert models(tmp_path, there, source, target) == expected


@pytest.mark.parametrize(
    ("there", "target", "found", "lacking"),
    [
        ("", "b", "b", "source"),
        ("target.spm", None, "target.spm", "source"),
        ("source.spm", None, "source.spm", "target"),
    ],
)
def test_a_model_of_one_language_only_is_refused(
    tmp_path: Path, there: str, target: str | None, found: str, lacking: str
) -> None:
    message = rf"/{found}: is the .* of one language, and there is no {lacking}.spm for the other; set {lacking}_spm"
    with pytest.raises(ConversionError, match=message):
        models(tmp_path, there, None, target)
