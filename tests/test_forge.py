"""The files for a public forge: they are read without an error, say why they exist, and name what exists."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
FILES = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")}
PRE_COMMIT = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
CONTAINER = (ROOT / ".devcontainer/devcontainer.json").read_text("utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_is_yaml_that_begins_with_its_reason(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith("# ")
    assert isinstance(yaml.safe_load(text), dict)


def steps() -> list[dict[str, Any]]:
    return [step for flow in WORKFLOWS.values() for job in flow["jobs"].values() for step in job["steps"]]


def test_they_name_targets_of_make_that_exist() -> None:
    container = json.loads(re.sub(r"(^|\s)//.*", "", CONTAINER))
    hooks = [hook["entry"] for repository in PRE_COMMIT["repos"] for hook in repository["hooks"]]
    commands = [container["postCreateCommand"], *hooks, *(step.get("run", "") for step in steps())]
    named = {name for command in commands for name in re.findall(r"\bmake ([\w-]+)", command)}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"lint", "test", "test-lowest", "docs"} <= named <= set(targets)


def test_workflows_name_versions_of_actions_and_files_that_exist() -> None:
    used = {step["uses"] for step in steps() if "uses" in step}
    assert used
    assert all(re.search(r"@\S+$|^docker://\S+:[\d.]+$", name) for name in used), used
    for step in steps():
        for path in re.findall(r"(?<![\w/])(?:tests|\.ci)/\w+", step.get("run", "")):
            assert (ROOT / path).exists(), path
        assert "${{ github." not in step.get("run", ""), "a title of a pull request would be code of the shell"


def test_only_jobs_that_run_none_of_our_code_may_write() -> None:
    for name, flow in WORKFLOWS.items():
        assert flow["permissions"] == {"contents": "read"}, name
        for job in flow["jobs"].values():
            assert "permissions" not in job or not any("run" in step for step in job["steps"]), name


def test_the_tested_pythons_are_those_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r"Python :: 3\.\d+$", each)]
    assert WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    done = subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
