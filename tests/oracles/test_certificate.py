"""Certificates of real conversions: each program beside ours."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ctranslate2_models import argos_package, ctranslate2_directory, random_parts, write_parts
from marian_models import LINES, converted_by_ctranslate2, ids_of, subwords, write_directory
from marian_npz_files import SETTINGS, TARGET, parameters, vocabulary_in_yaml, write_marian, write_npz
from number_words import sentences, trained_parts
from small_run import output_of
from state_dict_files import WORDS, write_fairseq, write_joeynmt

from cli.convert import convert
from minitransformer.data.profile import TextProfile
from minitransformer.extras.convert.certificate import SIDES, OtherModel, certify, other_side
from minitransformer.extras.convert.formats import READABLE, read_parts

ctranslate2, *_ = (
    pytest.importorskip(package, reason=f'{package} is not installed: pip install -e ".[oracles]"')
    for package in ("ctranslate2", "onnx", "onnxruntime")
)

MARIANS = {"attention_bias": True, "layer_norm_eps": 1e-5, "normalisation": "length"}  # transformers has no other
WRITTEN: list[tuple[str, dict[str, Any]]] = [  # to a format, and of which models
    ("onnx", {}), ("onnx", {"joint": False}), ("marian", MARIANS), ("ctranslate2", {}),
    ("ctranslate2", {"norm": "pre", "attention_bias": True, "start": "zero", "positions": "halves"}),
    ("ctranslate2", {"joint": False, "positions": "learned", "start": "end"}), ("argos", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes"), WRITTEN, ids=str)
def test_a_model_that_was_written_is_certified_by_the_command(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    lines = sentences(20 if name == "ctranslate2" else 5, seed=5)
    dataclasses.replace(trained_parts(**changes), profile=TextProfile("en", "de")).save(tmp_path / "ours")
    (tmp_path / "lines").write_text("\n".join(lines), encoding="utf-8")
    words = [str(tmp_path / "ours"), "--to", name, "--output", str(tmp_path / "theirs")]
    output = output_of(lambda: convert([*words, "--certify", str(tmp_path / "lines")]))
    found = json.loads((tmp_path / "theirs/certificate.json").read_text())
    assert found["sentences"] == len(lines) + 3
    assert found["target_tokens"] > 16
    assert 0 < found["largest_difference_in_nats"] < 1e-5
    assert found["equal_greedy"] == 1
    if name == "onnx":
        assert found["equal_beam_4"] is None
    else:  # the model may repeat words after unknown ones until the greatest length; others score that without the end
        assert found["equal_beam_4"] >= len(lines) / found["sentences"]
    assert found["equal_sources"] == 1
    assert "certificate.json: minitransformer 1.0.0 and " in output
    assert found["weights"]


@pytest.mark.parametrize(("name", "changes"), WRITTEN[1:4], ids=str)
def test_a_wrong_weight_is_seen_in_a_certificate(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    parts = trained_parts(**changes)
    table = parts.weights["source_embedding.weight"]
    wrong = dataclasses.replace(parts, weights={**parts.weights, "source_embedding.weight": 1.2 * table})
    write_parts(wrong, tmp_path / "theirs", name)
    theirs = parts if name == "onnx" else read_parts(tmp_path / "theirs", name)
    certificate = certify(parts, other_side(name, OtherModel(tmp_path / "theirs", theirs)), sentences(1, seed=5))
    assert certificate.largest_difference_in_nats > 1e-2


@pytest.mark.parametrize(("changes", "options"), [
    ({"separate": True}, []), ({"kind": "bpe", "lacking": 5}, []), ({"codes": (">>deu<<",)}, []),
    ({"codes": (">>deu<<",)}, ["--to", "ctranslate2"]),  # there codes have a blank before them, unlike in ours
], ids=str)  # fmt: skip
def test_a_model_of_marianmt_that_was_read_is_certified_by_the_command(
    tmp_path: Path, changes: dict[str, Any], options: list[str]
) -> None:
    write_directory(tmp_path / "theirs", **changes)
    lines = [f">>deu<< {line}" if "codes" in changes else line for line in LINES[:2]]
    found = certificate_of(tmp_path / "theirs", lines, tmp_path, *options, within=1e-5)
    assert found["versions"].keys() == {"minitransformer", "ctranslate2" if options else "transformers"}
    assert found["weights"].keys() == {"model.bin" if options else "model.safetensors"}


def test_marianmt_computes_on_one_thread(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    write_directory(tmp_path / "theirs")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        other_side("marian", OtherModel(tmp_path / "theirs", read_parts(tmp_path / "theirs", "marian")))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def certificate_of(source: Path, lines: list[str], folder: Path, *options: str, within: float = 1e-4) -> dict[str, Any]:
    """Convert with a certificate, which must say that the models are equal; return it."""
    (folder / "lines").write_text("\n".join(lines), encoding="utf-8")
    words = [str(source), "--output", str(folder / "written"), "--certify", str(folder / "lines"), *options]
    output_of(lambda: convert(words))
    found: dict[str, Any] = json.loads((folder / "written/certificate.json").read_text())
    assert (found["equal_sources"], found["equal_greedy"]) == (1, 1)
    assert found["largest_difference_in_nats"] < within
    return found


def with_subwords(write: Callable[..., object], directory: Path) -> None:
    """Write a model of the pieces of both languages' sentencepiece models, which lie beside it."""
    models = {side: subwords(side) for side in ("source", "target")}
    write(directory, [piece for piece in ids_of(*models.values()) if piece not in ("</s>", "<unk>", "<pad>")])
    for side, model in models.items():
        (directory / f"{side}.spm").write_bytes(model)


def marian_npz(directory: Path, words: list[str]) -> None:
    vocabulary = ["</s>", "<unk>", *words]
    write_npz(directory / "model.npz", SETTINGS, parameters(SETTINGS, len(vocabulary), len(vocabulary)))
    (directory / "vocab.yml").write_text(vocabulary_in_yaml(vocabulary), encoding="utf-8")


def argos(directory: Path) -> None:
    """Write the directory that Argos Translate makes of a package."""
    with zipfile.ZipFile(argos_package(directory.with_suffix(".argosmodel"), trained_parts())) as archive:
        archive.extractall(directory.parent)
    (directory.parent / "translate-en_de").rename(directory)


# The writer of each model, its format, and lines of its words.
MODELS: dict[str, tuple[Callable[[Path], object], str, list[str]]] = {
    "ours": (lambda path: trained_parts().save(path), "minitransformer", sentences(6, seed=5)),
    "ours, words": (lambda path: random_parts({}).save(path), "minitransformer", ["a b c j", "c"]),
    "marian": (write_directory, "marian", LINES),
    "marian-npz": (lambda path: with_subwords(marian_npz, path), "marian-npz", LINES),
    "marian-npz, words": (write_marian, "marian-npz", [" ".join(TARGET[2:5]), TARGET[3]]),
    "ctranslate2": (lambda path: ctranslate2_directory(path, trained_parts()), "ctranslate2", sentences(6, seed=5)),
    "ctranslate2, words": (lambda path: ctranslate2_directory(path, random_parts({})), "ctranslate2", ["a b c j", "c"]),
    "argos": (argos, "argos", sentences(6, seed=5)),
    "fairseq": (lambda path: with_subwords(write_fairseq, path), "fairseq", LINES),
    "fairseq, words": (write_fairseq, "fairseq", [" ".join(WORDS), WORDS[1]]),
    "joeynmt": (lambda path: with_subwords(write_joeynmt, path), "joeynmt", LINES),
    "joeynmt, words": (write_joeynmt, "joeynmt", [" ".join(WORDS), WORDS[1]]),
}


def test_every_format_that_is_read_is_among_the_models() -> None:
    assert {format_name for _, format_name, _ in MODELS.values()} == set(READABLE)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_with_and_without_subwords_is_certified_in_ctranslate2_and_its_program(
    name: str, tmp_path: Path
) -> None:
    """Lines with one, two and three unknown words in a row are among the sentences."""
    write, format_name, lines = MODELS[name]
    (tmp_path / "theirs").mkdir()
    write(tmp_path / "theirs")
    found = certificate_of(tmp_path / "theirs", lines[:2], tmp_path, "--to", "ctranslate2", "--from", format_name)
    assert found["sentences"] == 5
    subwords = [path for path in (tmp_path / "written").iterdir() if path.suffix in (".spm", ".model")]
    assert bool(subwords) != name.endswith("words")
    if format_name in SIDES:
        (tmp_path / "written").rename(tmp_path / "in CTranslate2")
        certificate_of(tmp_path / "theirs", lines[:2], tmp_path)


@pytest.mark.parametrize(("changes", "quantization", "within"), [
    ({}, "float16", 2e-2), ({"activation_function": "gelu", "decoder_layers": 1}, None, 1e-4),
    ({"lacking": 3}, None, 1e-4),
])  # fmt: skip
def test_a_model_that_ctranslate2_made_of_marianmt_is_certified(
    tmp_path: Path, changes: dict[str, Any], quantization: str | None, within: float
) -> None:
    """It has neither a start symbol nor a tokenizer, and its users append the end of every source."""
    write_directory(tmp_path / "marian", **changes)
    converted_by_ctranslate2(tmp_path / "marian", tmp_path / "theirs", quantization)
    certificate_of(tmp_path / "theirs", LINES, tmp_path, within=within)
