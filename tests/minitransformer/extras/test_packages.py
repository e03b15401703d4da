"""Packages of extras: a missing or old one is answered with the command that installs it."""

from pathlib import Path

import pytest

from minitransformer.extras import packages
from minitransformer.extras.packages import MissingExtraError, import_extra


def refused(extra: str, module: str) -> str:
    with pytest.raises(MissingExtraError) as caught:
        import_extra(extra, module)
    return str(caught.value)


def test_a_module_that_is_missing_or_too_old_is_answered_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "too_old.py").write_text("raise TypeError('version 3 is needed')")
    for module, reason in (("missing", "No module named 'missing'"), ("too_old", "version 3 is needed")):
        assert refused("convert", module) == (
            f'the extra "convert" is missing or too old ({reason}): install it with'
            f' pip install -e "{packages.CLONE}[convert]"'
        )
    assert import_extra("convert", "pathlib").Path is Path


@pytest.mark.parametrize(("prefix", "has_pip", "command"), [
    ("/home/me/.venv", True, "pip install"),
    ("/home/me/.local/share/pipx/venvs/minitransformer", True, "pipx inject minitransformer"),
    ("/home/me/.local/share/uv/tools/mt", False, "uv pip install -p /home/me/.local/share/uv/tools/mt"),
])  # fmt: skip
def test_without_a_clone_the_command_names_the_packages(
    prefix: str, has_pip: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["numpy>=2.1", "onnx>=1.20; extra == 'convert'", "a[b]>=2; (python_version > '3') and extra == 'convert'"]
    monkeypatch.setattr(packages, "CLONE", tmp_path)
    monkeypatch.setattr(packages, "requires", lambda name: lines)
    monkeypatch.setattr(packages, "find_spec", lambda name: has_pip or None)
    monkeypatch.setattr(packages.sys, "prefix", prefix)
    assert refused("convert", "missing").endswith(f': install it with {command} "onnx>=1.20" "a[b]>=2"')
