"""Models are converted by their name on the Hugging Face Hub, which a server on loopback stands for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzzed_readers import READERS
from hub_server import COMMIT, NAME, hub_server
from pytorch_files import zip_file

from cli.convert import convert
from minitransformer.extras.convert.formats import read_parts
from minitransformer.extras.packages import MissingExtraError
from minitransformer.system.files import read_arrays

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
    pytest.importorskip("huggingface_hub")
    with hub_server(model) as served:
        yield served


def converted(folder: Path, address: str, *words: str, **environment: str) -> tuple[int, str]:
    """The status of the command, in a process of its own, because the package reads the environment at its import."""
    code = "import sys; from cli.convert import main; sys.exit(main())"
    variables = {"HF_ENDPOINT": address, "HF_HOME": str(folder / "cache"), "NO_PROXY": "127.0.0.1", **environment}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_model_is_downloaded_converted_and_recorded(tmp_path: Path, model: Path, hub: tuple[str, list[str]]) -> None:
    """Only the files that are needed are sent, once; then the cache is enough without a network."""
    address, sent = hub
    status, output = converted(tmp_path, address, NAME, "--output", "ours")
    assert status == 0, output
    assert f"read {NAME} at commit {COMMIT}" in output
    assert sorted(sent) == SENT
    assert json.loads((tmp_path / "ours/origin.json").read_text()) == {"name": NAME, "revision": COMMIT}
    found, expected = read_arrays(tmp_path / "ours/model.safetensors"), read_parts(model).weights
    assert all(found[name].tobytes() == expected[name].tobytes() for name in expected)
    again = ["--output", "again", "--revision", COMMIT]
    for words, variables in ((["--output", "offline"], {"HF_HUB_OFFLINE": "1"}), (again, {"HF_HUB_OFFLINE": "1"})):
        assert converted(tmp_path, address, NAME, *words, **variables)[0] == 0
    assert len(sent) == len(SENT)


@pytest.mark.parametrize(("words", "problem"), [
    (["Helsinki-NLP/opus-mt-en-xx"], "neither a directory here nor a model on the Hugging Face Hub; check"),
    ([NAME, "--revision", "v9"], "has no revision v9; give a branch, a tag or a commit"),
    (["model", "--revision", "v9"], "--revision: model is no name of a model on the Hugging Face Hub"),
])  # fmt: skip
def test_a_wrong_name_or_revision_says_so(
    tmp_path: Path, hub: tuple[str, list[str]], words: list[str], problem: str
) -> None:
    status, output = converted(tmp_path, hub[0], *words, "--output", "ours")
    assert (status != 0, problem in output) == (True, True), output
    assert "Traceback" not in output


def test_another_architecture_is_refused_before_its_weights_are_sent(
    tmp_path: Path, model: Path, hub: tuple[str, list[str]]
) -> None:
    (model / "config.json").write_text('{"model_type": "m2m_100"}')
    _, output = converted(tmp_path, hub[0], NAME, "--output", "ours")
    assert f"{NAME}: config.json: model_type = 'm2m_100' is not supported; only 'marian'" in output
    assert hub[1] == ["config.json"]


def test_without_the_extra_a_misspelt_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingExtraError, match=r"^runs/dmeo: not found here; to download it .* the extra \"hub\""):
        convert(["runs/dmeo", "--output", "ours"])


def test_without_a_network_and_a_cache_the_remedy_is_named(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    _, output = converted(tmp_path, "http://127.0.0.1:9", NAME, "--output", "ours", HF_HUB_OFFLINE="1")
    assert "is not complete in the cache of the Hugging Face Hub, which cannot be reached" in output
    assert "Traceback" not in output
