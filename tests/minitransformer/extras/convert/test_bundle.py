"""Bundles: read as a run is, complete, and refused if a byte of them has changed."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from minitransformer import ModelConfig, Transformer, Translator
from minitransformer.data.profile import TextProfile
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.parts import ConversionError, Parts, write_bundle
from minitransformer.model.storage import Storage
from minitransformer.system.files import CheckpointError, CorruptFileError

WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
CONFIG = ModelConfig(40, n_layers=2, d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16, activation="swish")
RESULTS = {"test": {"bleu": 12.5, "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"}}
MANIFEST = {"files": {"train.en": {"size": 3, "sha256": "aa"}}, "config": {"seed": 1}, "train_pairs": 7, "other": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the end of a training leaves there."""
    directory = tmp_path_factory.mktemp("run")
    lines = [(f"{a} {b}", f"{b} {a}") for a in WORDS for b in WORDS]
    model = Transformer(CONFIG, seed=1)
    model.parameters.values *= 2
    tokenizer, profile = Tokenizer.train(lines, vocabulary_size=40), TextProfile("en", "de", 2, 9)
    Parts(CONFIG, model.weights(), tokenizer, profile=profile).save(directory)
    (directory / "run.json").write_text('{"model": {}}')
    (directory / "results.json").write_text(json.dumps(RESULTS))
    (directory / "data").mkdir()
    (directory / "data" / "manifest.json").write_text(json.dumps(MANIFEST))
    return directory


def bundled(run: Path, folder: Path, storage: Storage = "float32", licence: str | None = None) -> Path:
    write_bundle(dataclasses.replace(Parts.load(run), licence=licence), folder / "bundle", storage=storage)
    return folder / "bundle"


def test_a_bundle_translates_as_the_run_from_which_it_was_made(run: Path, tmp_path: Path) -> None:
    lines = [f"{a} {b}" for a in WORDS[:3] for b in WORDS]
    bundle = Translator.load(bundled(run, tmp_path))
    assert bundle.fingerprint() == Translator.load(run).fingerprint()
    assert bundle.profile == TextProfile("en", "de", 2, 9)
    assert bundle.translate(lines, beam=2) == Translator.load(run).translate(lines, beam=2)


@pytest.mark.parametrize(("storage", "low", "high"), [("float16", 0.5, 0.53), ("int8", 0.25, 0.31)])
def test_smaller_weights_are_read_by_every_command(
    run: Path, tmp_path: Path, storage: Storage, low: float, high: float
) -> None:
    bundle = bundled(run, tmp_path, storage)
    share = (bundle / "model.safetensors").stat().st_size / (run / "model.safetensors").stat().st_size
    assert low < share < high
    assert Translator.load(bundle).translate(["one two"], beam=2)
    assert Parts.load(bundle).weights["source_embedding.weight"].dtype == np.float32


def test_every_file_is_listed_with_its_sha256(run: Path, tmp_path: Path) -> None:
    bundle = bundled(run, tmp_path, licence="CC-BY-4.0")
    about = json.loads((bundle / "bundle.json").read_text())
    others = {path.name: path.read_bytes() for path in bundle.iterdir() if path.name != "bundle.json"}
    assert {"model.json", "model.safetensors", "tokenizer.model", "run.json", "results.json"} <= others.keys()
    assert about["files"] == {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in others.items()
    }
    assert (about["licence"], about["storage"]) == ("CC-BY-4.0", "float32")
    assert about["data"] == {name: value for name, value in MANIFEST.items() if name != "other"}
    assert json.loads((bundle / "results.json").read_text()) == RESULTS


def test_a_bundle_of_a_bundle_keeps_licence_data_and_scores(run: Path, tmp_path: Path) -> None:
    first = bundled(run, tmp_path, licence="CC0")
    write_bundle(Parts.load(first), tmp_path / "second", storage="int8")
    about, before = (json.loads((path / "bundle.json").read_text()) for path in (tmp_path / "second", first))
    assert (about["licence"], about["data"], about["storage"]) == ("CC0", before["data"], "int8")
    assert (tmp_path / "second" / "results.json").read_bytes() == (run / "results.json").read_bytes()


def test_a_model_without_a_run_has_no_provenance_and_no_licence(run: Path, tmp_path: Path) -> None:
    parts = Parts.load(run)
    write_bundle(Parts(parts.config, parts.weights, parts.tokenizer), tmp_path / "bundle")
    about = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert (about["licence"], about["data"]) == ("not stated", None)
    assert not (tmp_path / "bundle" / "results.json").exists()


def test_a_changed_or_missing_file_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    """Only ``bundle.json`` counts, even if another list that fits is put beside it."""
    bundle = bundled(run, tmp_path)
    Transformer(CONFIG, seed=9).save(tmp_path / "other")
    for name in ["model.json", "model.safetensors", "tokenizer.model", "results.json", "run.json"]:
        content = (bundle / name).read_bytes()
        (bundle / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        with pytest.raises(CorruptFileError, match=rf"bundle/{name}: has changed since it was written \(its SHA-256"):
            Translator.load(bundle)
        (bundle / name).unlink()
        with pytest.raises(CorruptFileError, match=rf"bundle/{name}: not found, though bundle.json lists it"):
            Translator.load(bundle)
        (bundle / name).write_bytes(content)
    for name in ("model.json", "model.safetensors", "checksums.json"):
        (bundle / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(CorruptFileError, match="bundle/model.safetensors: has changed"):
        Translator.load(bundle)


@pytest.mark.parametrize("name", ["../model.json", "/etc/passwd", "a\0b", "", "..", None])
def test_lists_that_leave_the_bundle_or_lack_the_model_are_refused(run: Path, tmp_path: Path, name: str | None) -> None:
    bundle = bundled(run, tmp_path)
    about = json.loads((bundle / "bundle.json").read_text())
    if name is None:
        del about["files"]["model.safetensors"]
    else:
        about["files"][name] = about["files"]["model.json"]
    (bundle / "bundle.json").write_text(json.dumps(about, indent=2) + "\n")
    wrong = "does not list model.safetensors" if name is None else "lists .*, which is no file's name; it is corrupt"
    with pytest.raises(CorruptFileError, match=f"bundle.json: {wrong}"):
        Translator.load(bundle)


def test_a_bundle_never_changes_in_place_and_nothing_is_written_over(run: Path, tmp_path: Path) -> None:
    bundle = bundled(run, tmp_path)
    with pytest.raises(CheckpointError, match="bundle: is a bundle, whose files never change; choose"):
        Transformer.load(bundle).save(bundle)
    Translator.load(bundle)
    before = {path.name for path in bundle.iterdir()}
    with pytest.raises(ConversionError, match="bundle: exists and is not an empty directory"):
        bundled(run, tmp_path)
    assert {path.name for path in bundle.iterdir()} == before
