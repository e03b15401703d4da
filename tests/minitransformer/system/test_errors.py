"""Packages of extras: a missing or old one is answered with the command that installs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minitransformer.system.errors import MissingExtraError, import_extra


def test_a_module_that_is_installed_is_returned() -> None:
    assert import_extra("convert", "json") is json


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "No module named 'extra_package'"), ("raise TypeError('version 3 is needed')", "version 3 is needed")],
    ids=["missing", "too old"],
)
def test_a_module_that_cannot_be_imported_is_answered_with_the_command(
    text: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "extra_package.py").write_text(text)
    with pytest.raises(MissingExtraError) as caught:
        import_extra("convert", "extra_package")
    assert str(caught.value) == (
        f'the extra "convert" is missing or too old ({reason}): install it with pip install -e ".[convert]" in the'
        " directory of the clone"
    )
