"""Files of other programs: sentencepiece models, what is refused of any format, and packages of Argos Translate."""

import argparse
import dataclasses
import json
import os
import re
import signal
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from ctranslate2_models import argos_package, change_json, change_variables, random_parts, subword_parts, write_parts
from fuzzed_readers import READERS
from marian_npz_files import write_marian
from pytorch_files import older_file, zip_file

from minitransformer.config import model as config_module
from minitransformer.config.model import CHOICES, ModelConfig
from minitransformer.data.profile import TextProfile
from minitransformer.extras.convert.ctranslate2 import read_model_file
from minitransformer.extras.convert.foreign_files import read_lines, read_npz, sentencepiece_models
from minitransformer.extras.convert.formats import FORMATS, WRITABLE, read_parts, recognise
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.extras.convert.pytorch_files import read_pytorch
from minitransformer.extras.convert.vocabulary import word_model
from minitransformer.extras.paper.compatibility import CONVENTIONS
from minitransformer.model.positions import sinusoids
from minitransformer.system.errors import UserError
from minitransformer.system.files import read_arrays, write_arrays


def model_of(name: str) -> bytes:
    return {"empty": b"", "junk": b"junk"}.get(name, word_model(["<unk>", "<s>", "</s>", name]))


def models(folder: Path, there: str, source: str | None, target: str | None) -> tuple[bytes | None, bytes | None]:
    """The models found if files are there, and others given; a file's model has its name as a word."""
    for name in {*there.split(), source, target} - {None}:
        (folder / str(name)).write_bytes(model_of(str(name)))
    return sentencepiece_models(folder, *(None if name is None else folder / name for name in (source, target)))


@pytest.mark.parametrize(("there", "source", "target", "expected"), [
    ("", "a", "b", ("a", "b")), ("", "a", None, ("a", "a")), ("", None, None, (None, None)),
    ("tokenizer.model", None, None, ("tokenizer.model", "tokenizer.model")),
    ("tokenizer.model", "a", None, ("a", "a")), ("tokenizer.model", None, "b", ("tokenizer.model", "b")),
    ("source.spm target.spm", None, None, ("source.spm", "target.spm")),
    ("source.spm target.spm", "a", None, ("a", "target.spm")),
    ("source.spm target.spm", None, "b", ("source.spm", "b")),
    ("", "a", "junk", "/junk: not a sentencepiece model"), ("", "empty", None, "/empty: not a sentencepiece model"),
    ("", None, "b", "/b: .* no source.spm for the other; set source_spm"),
    ("target.spm", None, None, "/target.spm: .* no source.spm for the other; set source_spm"),
    ("source.spm", None, None, "/source.spm: .* no target.spm for the other; set target_spm"),
])  # fmt: skip
def test_each_language_has_its_own_model_or_the_one_for_both(
    tmp_path: Path, there: str, source: str | None, target: str | None, expected: Any
) -> None:
    if isinstance(expected, tuple):
        assert models(tmp_path, there, source, target) == tuple(name and model_of(name) for name in expected)
    else:
        with pytest.raises(ConversionError, match=expected.replace(".*", "is the .* of one language, and there is")):
            models(tmp_path, there, source, target)


def write_ours(directory: Path) -> None:
    """A model without checksums, which would be compared before the files are read."""
    READERS["bundle"].write(directory)
    for name in ("bundle.json", "tokenizer.checksums.json"):
        (directory / name).unlink()


WRITERS: dict[str, Callable[[Path], object]] = {  # by format
    **{name: READERS[name].write for name in ("ctranslate2", "fairseq", "joeynmt", "marian", "marian-npz")},
    "minitransformer": write_ours,
}
TABLE = "encoder/embeddings_0/weight"
OPTIONAL = {  # files that a format may have
    "fairseq": ["tokenizer.model", "dict.txt", "args.json"],
    "joeynmt": ["tokenizer.model"],
    "marian-npz": ["decoder.yml", "source.spm"],
    "ctranslate2": ["tokenizer.model", "config.json"],
}


def refused(directory: Path, name: str) -> str:
    """The refusal of a model, which is one line, and comes at once."""

    def fail(*_: object) -> None:
        raise TimeoutError("a reader waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(120)
    try:
        with pytest.raises(UserError) as caught:
            read_parts(directory, name)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert "\n" not in str(caught.value)
    assert "a reader waits" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_of_a_model_must_be_a_regular_one(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    assert recognise(tmp_path) == name
    read_parts(tmp_path, name)
    for path in sorted({*tmp_path.iterdir(), *(tmp_path / other for other in OPTIONAL.get(name, []))}):
        content = path.read_bytes() if path.exists() else None
        for kind, make in {"FIFO": os.mkfifo, "device": lambda link: link.symlink_to("/dev/null")}.items():
            path.unlink(missing_ok=True)
            make(path)
            message = refused(tmp_path, name)
            if name == "ctranslate2" and "vocabulary" in path.name:  # another file is looked for
                assert f"expected {path.name} (or .txt)" in message
            else:
                assert message.startswith(str(tmp_path))
                assert f"is a {kind}; expected a regular file" in message
                assert path.name in message
        path.unlink()
        if content is not None:
            path.write_bytes(content)


@pytest.mark.parametrize(("content", "words"), [
    (b"", [""]), (b"a\n", ["a"]), (b"a\nb", ["a", "b"]), (b"a\r\nb\r\n", ["a", "b"]), (b"a\r\nb", ["a", "b"]),
    (b"a\r\n\n", ["a\r", ""]), (b"a\r", ["a\r"]),
])  # fmt: skip
def test_only_what_ends_a_line_is_left_out_of_its_word(content: bytes, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(content)
    assert read_lines(tmp_path / "words") == words


def change_weights(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write a model's weights again after a change of its arrays."""
    if (path := directory / "model.bin").exists():
        arrays = dict(read_model_file(path).variables)
        change(arrays)
        change_variables(directory, arrays)
    elif (path := directory / "model.npz").exists():
        with np.load(path) as file:
            arrays = dict(file)
        change(arrays)
        np.savez(path, **arrays)
    elif (path := directory / "checkpoint_best.pt").exists():
        content, arrays = read_pytorch(path, "model")
        change(arrays)
        path.write_bytes(older_file({"args": argparse.Namespace(**content["args"]), "model": arrays}))
    elif (path := directory / "best.ckpt").exists():
        _, arrays = read_pytorch(path, "model_state")
        change(arrays)
        path.write_bytes(zip_file({"model_state": arrays}))
    else:
        arrays = read_arrays(directory / "model.safetensors")
        change(arrays)
        write_arrays(directory / "model.safetensors", arrays)


@pytest.mark.parametrize("value", [np.nan, 1e300])
@pytest.mark.parametrize("name", WRITERS)
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path: Path, name: str, value: float) -> None:
    """A number of float64 that float32 does not have becomes infinite."""
    changed = list[str]()

    def change(arrays: dict[str, Any]) -> None:
        changed.append(next(array for array in sorted(arrays) if re.search("ffn|fc1|feed_forward", array)))
        dtype = np.float64 if name not in ("ctranslate2", "minitransformer") else np.float32
        with np.errstate(over="ignore"):
            arrays[changed[0]] = arrays[changed[0]].astype(dtype)
            arrays[changed[0]].flat[1] = np.array(value).astype(dtype)

    WRITERS[name](tmp_path)
    change_weights(tmp_path, change)
    assert f": {changed[0]} has values that are not finite" in refused(tmp_path, name)


FAIRSEQ = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"]
JOEYNMT = ["src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"]


def change_settings(directory: Path, **settings: Any) -> None:
    """Change the arguments of fairseq, or settings of the object "model" of JoeyNMT."""
    path = directory / "config.json"
    if path.exists():
        change_json(path, model=json.loads(path.read_text())["model"] | settings)
    else:
        (directory / "args.json").write_text(json.dumps(settings))


@pytest.mark.parametrize(("name", "setting", "tied"), [
    ("fairseq", "share_all_embeddings", FAIRSEQ), ("fairseq", "share_decoder_input_output_embed", FAIRSEQ[1:]),
    ("joeynmt", "tied_embeddings", JOEYNMT[:2]), ("joeynmt", "tied_softmax", JOEYNMT[1:]),
])  # fmt: skip
def test_tables_that_a_setting_ties_must_be_equal(tmp_path: Path, name: str, setting: str, tied: list[str]) -> None:
    """The programs have one matrix for them: which of two different ones they read depends on their order."""
    WRITERS[name](tmp_path)
    first, *others = FAIRSEQ if name == "fairseq" else JOEYNMT
    change_weights(tmp_path, lambda arrays: arrays.update({other: 2 * arrays[first] for other in others}))
    change_settings(tmp_path, **{setting: True})
    if first not in tied:  # the tables of the target are equal
        read_parts(tmp_path, name)
        change_weights(tmp_path, lambda arrays: arrays.update({tied[-1]: 3 * arrays[first]}))
    assert f": {tied[0]} and {tied[1]} differ, although" in (message := refused(tmp_path, name))
    assert f"{setting} is true; correct the setting" in message


def test_an_untied_softmax_of_fairseq_needs_its_own_matrix(tmp_path: Path) -> None:
    WRITERS["fairseq"](tmp_path)
    assert read_parts(tmp_path, "fairseq").config.tied == "target"
    change_settings(tmp_path, share_decoder_input_output_embed=False)
    assert f"it has no {FAIRSEQ[2]}; is it complete" in refused(tmp_path, "fairseq")


def test_an_array_under_an_old_and_a_new_name_is_refused(tmp_path: Path) -> None:
    WRITERS["fairseq"](tmp_path)
    change_weights(
        tmp_path, lambda arrays: arrays.update({n: arrays[FAIRSEQ[1]] for n in (FAIRSEQ[2], "decoder.embed_out")})
    )
    assert f": decoder.embed_out and {FAIRSEQ[2]} are two names of one array" in refused(tmp_path, "fairseq")
    joint = "encoder.layers.0.self_attn.in_proj_weight"
    change_weights(tmp_path, lambda arrays: arrays.update({joint: arrays.pop("decoder.embed_out")}))
    assert f": {joint} and {joint.replace('in_proj_', 'q_proj.')} are two names" in refused(tmp_path, "fairseq")


@pytest.mark.parametrize("change", ["none", "other numbers", "other axes", "later positions"])
def test_the_table_of_positions_in_a_file_of_joeynmt_is_compared(tmp_path: Path, change: str) -> None:
    """JoeyNMT adds what the file has; ours computes sinusoids."""
    table = sinusoids(50, 4)[None].astype(np.float32)
    tables = {"none": table, "other numbers": 2 * table, "other axes": table[0], "later positions": table[:, 1:]}
    WRITERS["joeynmt"](tmp_path)
    change_weights(tmp_path, lambda arrays: arrays.update({"encoder.pe.pe": table, "decoder.pe.pe": tables[change]}))
    if change == "none":
        read_parts(tmp_path, "joeynmt")
    else:
        assert "decoder.pe.pe is not JoeyNMT's table of sinusoids" in refused(tmp_path, "joeynmt")


def test_a_factor_that_makes_weights_infinite_is_refused(tmp_path: Path) -> None:
    WRITERS["ctranslate2"](tmp_path)
    table = read_model_file(tmp_path / "model.bin").variables[TABLE]
    change_variables(tmp_path, {"encoder/scale_embeddings": np.array(3e38, np.float32), TABLE: 100 * table})
    with np.errstate(over="ignore"):
        assert "source_embedding.weight has" in refused(tmp_path, "ctranslate2")


@pytest.mark.parametrize(("error", "cause"), [
    (ValueError("bad\nvalue"), "ValueError: bad value"), (struct.error("x"), "error: x"),
    (StopIteration("x"), "StopIteration: x"), (AssertionError(), "AssertionError"), (MemoryError(), "MemoryError"),
    (KeyboardInterrupt(), None),
])  # fmt: skip
def test_any_reader_error_names_the_model_and_interruptions_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, cause: str | None
) -> None:
    def fail(path: Path) -> Parts:
        raise error

    monkeypatch.setitem(FORMATS, "marian", dataclasses.replace(FORMATS["marian"], read=fail))
    if cause is None:
        with pytest.raises(KeyboardInterrupt):
            read_parts(tmp_path, "marian")
    else:
        assert refused(tmp_path, "marian") == (
            f"{tmp_path}: cannot be read as a model in the format marian ({cause}): it is missing, corrupt or of"
            f" another kind; copy it again{', or free some memory' if cause == 'MemoryError' else ''}"
        )


def npy(header: str, data: bytes) -> bytes:
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(("content", "problem"), [
    (b"no array at all", "it has 1 arrays that this Transformer does not have: w"),
    (b"", "it has 1 arrays that this Transformer does not have: w"),
    (b"\x93NUMPY\x09\x00", r"ValueError: .*\(9, 0\)"),
    (npy("{'descr': '<f4', 'fortran_order'", b""), "cannot be read as a model of Marian"),
    (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}", bytes(4)), "cannot be read as"),
    (npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 65}}}", bytes(4)), "maximum supported dim"),
    (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)), "Object arrays cannot be loaded"),
], ids=["text", "empty", "version", "header", "too little", "65 axes", "objects"])  # fmt: skip
def test_members_of_an_npz_file_that_are_no_arrays_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    WRITERS["marian-npz"](tmp_path)
    with zipfile.ZipFile(tmp_path / "model.npz", "a") as archive:
        archive.writestr("w.npy", content)
    message = refused(tmp_path, "marian-npz")
    assert re.match(rf"{tmp_path}/model.npz: .*{problem}", message), message


@pytest.mark.parametrize(("kind", "declared", "problem"), [
    (zipfile.ZIP_DEFLATED, None, r"[\d,]+ bytes inflate to 100,\d\d\d,\d\d\d; expected at most"),
    (zipfile.ZIP_DEFLATED, 1, r"cannot be read .*Bad CRC-32"),
    (zipfile.ZIP_BZIP2, 1, r"cannot be read .*a member is compressed in a way that NumPy does not write"),
])  # fmt: skip
def test_an_npz_file_is_inflated_within_limits(tmp_path: Path, kind: int, declared: int | None, problem: str) -> None:
    """The declared size is too large, or is a lie; ``declared`` is a number of values."""
    WRITERS["marian-npz"](tmp_path)
    header = npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({declared or 25_000_000},)}}", b"")
    with (
        zipfile.ZipFile(tmp_path / "model.npz", "a", kind, compresslevel=1) as archive,
        archive.open("w.npy", "w") as member,
    ):
        member.write(header)
        for _ in range(25):
            member.write(bytes(4_000_000))
    if declared:
        sizes = [struct.pack("<I", len(header) + 4 * n) for n in (25_000_000, declared)]
        content = (tmp_path / "model.npz").read_bytes()
        assert content.count(sizes[0]) == 2
        (tmp_path / "model.npz").write_bytes(content.replace(*sizes))
    tracemalloc.start()
    try:
        message = refused(tmp_path, "marian-npz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert re.search(rf"model.npz: {problem}", message), message
    assert peak < 20_000_000


def test_compressed_arrays_in_any_order_are_read(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "e": np.zeros((0, 3)),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays, scalar=np.float32(2))
    found = read_npz(tmp_path / "x.npz")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert found["scalar"] == 2


def change(package: Path, **changes: bytes | None) -> Path:
    """Replace members, by the ends of their names, or remove them."""
    with zipfile.ZipFile(package) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            changed = changes.get(name.rpartition("/")[2].replace(".", "_"), content)
            if changed is not None:
                archive.writestr(name, changed)
    return package


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return argos_package(tmp_path / "a.argosmodel", subword_parts({}))


def test_a_package_is_read_as_a_file_and_as_a_directory(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path)
    directory = tmp_path / "translate-en_de"
    expected = read_parts(directory / "model", "ctranslate2", source_spm=directory / "sentencepiece.model")
    for path in (package, directory):
        assert recognise(path) == "argos"
        found = read_parts(path)
        assert found.tokenizer.equals(expected.tokenizer)
        for name, array in expected.weights.items():
            np.testing.assert_array_equal(found.weights[name], array)
        assert (found.config.normalisation, found.config.alpha) == ("length", 0.2)
        assert found.profile.languages == ("en", "de")


ENGLISH_TO_GERMAN = TextProfile("en", "de")


def test_a_package_that_was_written_is_read_again(tmp_path: Path, logged: list[str]) -> None:
    """Argos Translate reads the names of the languages; our reader does not."""
    before = dataclasses.replace(subword_parts({}), profile=ENGLISH_TO_GERMAN, licence="CC0")
    write_parts(before, tmp_path / "written", "argos")
    (package,) = (tmp_path / "written").iterdir()
    for path in (tmp_path / "written", package):
        assert recognise(path) == "argos"
        after = read_parts(path)
        line = ["a bad cad d"]
        assert after.tokenizer.encode_target(line) == before.tokenizer.encode_target(line)
        assert after.profile == ENGLISH_TO_GERMAN
        for name, array in before.weights.items():
            np.testing.assert_array_equal(after.weights[name], array)
    with zipfile.ZipFile(package) as archive:
        about = json.loads(archive.read("translate-en_de/metadata.json"))
        assert b"Licence: CC0." in archive.read("translate-en_de/README.md")
    names = {"from_code": "en", "from_name": "English", "to_code": "de", "to_name": "German", "type": "translate"}
    assert names.items() <= about.items()
    assert ["^0.6 becomes length^0.2, because Argos Translate has no other" in line for line in logged] == [True]


@pytest.mark.parametrize(("parts", "message"), [
    (subword_parts({}), "the model names no languages, .* to text.json"),
    (dataclasses.replace(subword_parts({}), profile=TextProfile("en", targets=("de", "fr"))),
     "translates to de, fr: a package of Argos Translate has one target"),
    (dataclasses.replace(subword_parts({}, joint=False), profile=ENGLISH_TO_GERMAN), "tokenizer: .* both: write it as"),
    (dataclasses.replace(random_parts({}), profile=ENGLISH_TO_GERMAN), "tokenizer: .* one sentencepiece model"),
    (random_parts({"neighbourhood": 3}), "model.neighbourhood: CTranslate2 has no self-attention"),
])  # fmt: skip
def test_what_argos_translate_lacks_is_named(parts: Parts, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=message):
        write_parts(parts, tmp_path / "written", "argos")
    assert not (tmp_path / "written").exists()


def test_members_elsewhere_are_not_written(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with other names are no part of the model: none of them is written anywhere."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
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
def test_what_is_no_package_of_a_translator_is_refused_by_name(package: Path, name: str) -> None:
    make, problem = REFUSED[name]
    make(package)
    with pytest.raises(ConversionError, match=problem) as caught:
        read_parts(package)
    assert str(caught.value).startswith(str(package))


def test_a_model_of_another_architecture_or_without_weights_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ConversionError, match=r"config.json: model_type = 't5' is not supported; only 'marian'"):
        read_parts(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ConversionError, match=r"has no model.safetensors or pytorch_model.bin"):
        read_parts(tmp_path)


TRAINING_ONLY = {"label_smoothing_over"}


def test_every_choice_of_a_model_is_checked() -> None:
    kinds = get_type_hints(ModelConfig)
    assert set(CHOICES) == {name for name, kind in kinds.items() if get_origin(kind) is Literal}


@pytest.mark.parametrize("name", sorted(set(CHOICES) - TRAINING_ONLY))
@pytest.mark.parametrize("to", WRITABLE)
def test_no_writer_mistakes_an_added_value(to: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A value that was added to the choices after the format was written; our format has all choices."""
    parts = random_parts(CONVENTIONS["marian"])  # all formats can express it
    more = Literal[(*get_args(CHOICES[name]), "added")]  # type: ignore[valid-type]
    monkeypatch.setattr(config_module, "CHOICES", {**CHOICES, name: more})
    parts = dataclasses.replace(parts, config=dataclasses.replace(parts.config, **{name: "added"}))
    if to in ("minitransformer", "bundle"):
        write_parts(parts, tmp_path / "written", to)
        assert json.loads((tmp_path / "written" / "model.json").read_text("utf-8"))[name] == "added"
        return
    with pytest.raises(ConversionError, match=rf"^(?!/).+: model\.{name} = 'added' is not supported; only '\w+'"):
        write_parts(parts, tmp_path / "written", to)
    assert not (tmp_path / "written").exists()


STACKS = ("encoder", "decoder")
STACK = {"type": "transformer", "num_heads": 2, "layer_norm": "added"}
UNKNOWN: list[tuple[str, Callable[[Path], object], str]] = [  # what gives a setting a value that the format lacks
    ("minitransformer", lambda path: change_json(path / "model.json", positions="added"),
     "model.positions must be one of ('interleaved', 'halves', 'learned'); got 'added'"),
    ("ctranslate2", lambda path: change_variables(path, {f"{stack}/activation": np.int8(9) for stack in STACKS}),
     "activation = 9 is not supported; only 0, 1, 2, 3"),
    ("ctranslate2", lambda path: change_variables(path, {f"{stack}/pre_norm": np.int8(2) for stack in STACKS}),
     "pre_norm = 2 is not supported; only 0, 1"),
    ("marian", lambda path: change_json(path / "config.json", activation_function="added"),
     "activation_function = 'added' is not supported; only 'relu'"),
    ("marian-npz", lambda path: write_marian(path, **{"transformer-ffn-activation": "added"}),
     "transformer-ffn-activation = 'added' is not supported; only 'relu', 'swish', 'gelu'"),
    ("fairseq", lambda path: change_settings(path, activation_fn="added"),
     "activation_fn = 'added' is not supported; only 'relu'"),
    ("joeynmt", lambda path: change_settings(path, **dict.fromkeys(STACKS, STACK)),
     "model.decoder.layer_norm = 'added' is not supported; only 'pre'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), UNKNOWN)
def test_no_reader_takes_an_unknown_value_for_another_one(
    name: str, change: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    WRITERS[name](tmp_path)
    change(tmp_path)
    assert message in (refusal := refused(tmp_path, name))
    assert str(tmp_path) in refusal
