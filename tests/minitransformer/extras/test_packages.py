"""Packages of extras: a missing or old one is answered with the command that installs it."""

import json
from pathlib import Path

import pytest

from minitransformer.extras import packages
from minitransformer.extras.packages import MissingExtraError, import_extra


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
        f'the extra "convert" is missing or too old ({reason}): install it with'
        f' pip install -e "{packages.CLONE}[convert]"'
    )


@pytest.mark.parametrize(
    ("prefix", "has_pip", "command"),
    [
        ("/home/me/.venv", True, "pip install"),
        ("/home/me/.local/share/pipx/venvs/minitransformer", True, "pipx inject minitransformer"),
        ("/home/me/.local/share/uv/tools/mt", False, "uv pip install -p /home/me/.local/share/uv/tools/mt"),
    ],
    ids=["pip", "pipx", "uv"],
)
def test_an_installed_module_is_returned_and_without_a_clone_the_command_names_the_packages(
    prefix: str, has_pip: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert import_extra("convert", "json") is json
    lines = ["numpy>=2.1", "onnx>=1.20; extra == 'convert'", "a[b]>=2; (python_version > '3') and extra == 'convert'"]
    monkeypatch.setattr(packages, "CLONE", tmp_path)
    monkeypatch.setattr(packages, "requires", lambda name: lines)
    monkeypatch.setattr(packages, "find_spec", lambda name: has_pip or None)
    monkeypatch.setattr(packages.sys, "prefix", prefix)
    with pytest.raises(MissingExtraError) as caught:
        import_extra("convert", "extra_package")
    assert str(caught.value).endswith(f': install it with {command} "onnx>=1.20" "a[b]>=2"')
