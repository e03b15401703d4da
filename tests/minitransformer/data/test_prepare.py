"""From raw text to prepared data: what is dropped, what is noted, and what interruptions and changes leave behind."""

import dataclasses
import json
import os
import shutil
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest

from minitransformer.config import ConfigError, DataConfig, RunConfig, TextNormalisation
from minitransformer.data import prepare as prepare_module
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.prepare import PreparedData, prepare, selected_text
from minitransformer.data.selection import HeldOut, separate, worth_training_on
from minitransformer.data.store import TokenStore
from minitransformer.data.survey import CorpusError, Found
from minitransformer.system import checksums
from minitransformer.system.checksums import checksums_of
from minitransformer.system.files import CheckpointError, CorruptFileError, lock_directory
from minitransformer.training.run_data import open_or_prepare
from tests.support.training import FULL_DISK, corrupt, peak_of

# Words of one letter become one token each: a vocabulary of the alphabet and the reserved symbols allows no merges.
LETTERS = "abcdefgh"
GOOD = [(" ".join(LETTERS), " ".join(reversed(LETTERS)))] * 20
ODD = [("", "a"), ("a", ""), ("", ""), ("a " * 81, "a " * 81), ("a " * 30, "a"), ("a", "b " * 30), ("a", "b " * 8)]


def config_of(folder: Path, pairs: list[tuple[str, str]], **fields: Any) -> DataConfig:
    for side, name in enumerate(("en", "de")):
        (folder / name).write_text("".join(f"{pair[side].strip()}\n" for pair in pairs), encoding="utf-8")
    (folder / "v.en").write_text("a b\n\nd\n", encoding="utf-8")
    (folder / "v.de").write_text("b a\nc\nd\u2028d\n", encoding="utf-8")
    train: dict[str, Any] = {"train_source": ("en",), "train_target": ("de",)}
    validation = {"validation_source": ("v.en",), "validation_target": ("v.de",)}
    sizes = {"vocabulary_size": 20, "max_length": 80, "max_ratio": 3.0, "filter": ()}  # the text repeats letters
    return DataConfig(raw=folder, directory=folder / "data", **(train | validation | sizes | fields))


def prepared(config: DataConfig) -> PreparedData:
    return prepare(config, config.directory)


def test_a_missing_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    config = dataclasses.replace(config_of(tmp_path, GOOD), raw=tmp_path / "nowhere")
    with pytest.raises(CorpusError, match=r"nowhere/en: not found; set data\.raw to the folder that holds them"):
        prepared(config)
    downloadable = dataclasses.replace(config, sha256=(f"en:{'0' * 64}",))
    with pytest.raises(CorpusError, match=r"not found; to fetch the files, run minitransformer-prepare with the same"):
        prepared(downloadable)
    misspelt = dataclasses.replace(config_of(tmp_path, GOOD), train_source=("en.txr",))
    (tmp_path / "en.txt").touch()
    with pytest.raises(CorpusError, match=r"en\.txr: not found; did you mean \S*en\.txt\? Or set data\.raw"):
        prepared(misspelt)
    assert not (tmp_path / "data").exists()


def test_a_pipe_is_refused_because_text_is_read_several_times(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(CorpusError, match=f"/dev/fd/{read}: is a pipe, but text is read several times; write it to a"):
        prepared(config_of(tmp_path, GOOD, train_source=(f"/dev/fd/{read}",)))
    os.close(read)


REFUSE = Mock(side_effect=FULL_DISK)


@pytest.mark.parametrize(("n_source", "n_target", "reason"), [
    (0, 5, "empty"), (5, 0, "empty"), (0, 0, "empty"), (0, 300, "empty"), (80, 80, None), (81, 80, "too long"),
    (80, 81, "too long"), (1, 20, None), (1, 21, "too unequal"), (21, 1, "too unequal"), (20, 60, None),
    (20, 61, "too unequal"),
])  # fmt: skip
def test_reasons_to_drop_a_pair(n_source: int, n_target: int, reason: str | None) -> None:
    dropped: dict[str, Found] = {}
    config = DataConfig(max_length=80, max_ratio=3.0)
    kept = list(worth_training_on([([3] * n_source, [3] * n_target)], config, dropped, str))
    assert len(kept) == (1 if reason is None else 0)
    assert dropped == ({} if reason is None else {reason: Found(1, ["0"])})


def test_dropped_pairs_and_odd_lines_are_counted_and_named_the_rest_stored(tmp_path: Path, logged: list[str]) -> None:
    data = prepared(config_of(tmp_path, [*GOOD, *ODD, *[("", "a")] * 4, ("a \0 b", "b a"), ("a\u2028b", "b a")]))
    assert data.manifest["dropped"] == {"empty": 7, "too long": 1, "too unequal": 2}
    assert data.manifest["first_dropped"] == {
        "empty": ["en:21", "en:22", "en:23", "en:28", "en:29"],
        "too long": ["en:24"],
        "too unequal": ["en:25", "en:26"],
    }
    assert data.manifest["odd_lines"]["en"] == {"control characters": 1, "a separator that ends no line": 1}
    assert f"{tmp_path / 'en'}: control characters: 1 lines (32)" in logged
    assert data.manifest["train_pairs"] == len(data.stores["train"]) == 23
    assert "pairs dropped as empty: 7 (en:21, en:22, en:23, en:28, en:29 …)" in logged
    assert "23 training pairs (dropped: 7 empty, 1 too long, 2 too unequal), 3 validation pairs" in logged[-1]


@pytest.mark.parametrize("validation", [{}, {"validation_source": (), "validation_target": ()}])
def test_the_training_pairs_of_each_file_are_counted(tmp_path: Path, validation: dict[str, Any]) -> None:
    """File a has the word "a" in all pairs, file b the word "b"; some of both are dropped or held out."""
    for name, n in (("a", 31), ("b", 45)):
        for side in ("en", "de"):
            lines = [f"{name} {' '.join(LETTERS)}" if i % 7 else "" for i in range(n)]
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {"train_source": ("a.en", "b.en"), "train_target": ("a.de", "b.de")}
    data = prepared(config_of(tmp_path, GOOD, **files, **validation))
    sources = [data.tokenizer.source.decode(list(source)) for source, _ in stored_pairs(data, "train")]
    counts = [sum(source.startswith(name) for source in sources) for name in ("a", "b")]
    assert data.manifest["train_pairs_of_files"] == counts
    assert sum(counts) == data.manifest["train_pairs"] > 40
    assert counts == [26, 38] if not validation else min(counts) > 20


def test_a_link_to_a_device_without_an_end_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, GOOD)
    (tmp_path / "de").unlink()
    (tmp_path / "de").symlink_to("/dev/zero")
    with pytest.raises(CorpusError, match="/de: is a device or a socket, but text is read several times; write it to"):
        prepared(config)


def test_held_out_pairs_of_the_training_text_are_dropped_for_the_same_reasons(tmp_path: Path) -> None:
    pairs = [*GOOD, *GOOD]
    pairs[5], pairs[15], pairs[25], pairs[26] = ("", "a"), ("a " * 81, "a"), ("a " * 30, "a"), ("a", "")
    data = prepared(config_of(tmp_path, pairs, validation_source=(), validation_target=()))  # 5, 15, 25, 35 held out
    assert data.manifest["dropped"] == {"empty": 2, "too long": 1, "too unequal": 1}
    places = {"empty": ["en:6", "en:27"], "too long": ["en:16"], "too unequal": ["en:26"]}
    assert data.manifest["first_dropped"] == places
    assert data.text("validation") == [pairs[35]]
    assert (data.manifest["train_pairs"], data.manifest["validation_pairs"]) == (35, 1)


# Sixty different pairs; each is one letter on the source side and three on the target side, or the other way round.
DISTINCT = [(a, f"{a} {b} {c}") for a in LETTERS[:5] for b in "fgh" for c in "ab"]
DISTINCT += [(target, source) for source, target in DISTINCT]
HELD_OUT_OF_TEXT: dict[str, Any] = {"validation_source": (), "validation_target": ()}


def stored_pairs(data: PreparedData, split: str) -> list[tuple[tuple[int, ...], ...]]:
    store = data.stores[split].read()
    return [tuple(tuple(side.tolist()) for side in store.pair(i)) for i in range(len(store))]


def test_no_held_out_pair_of_a_text_that_repeats_itself_is_trained_on(tmp_path: Path, logged: list[str]) -> None:
    data = prepared(config_of(tmp_path, DISTINCT[:59] * 3, **HELD_OUT_OF_TEXT))  # 18 held out, each with two copies
    train, validation = stored_pairs(data, "train"), stored_pairs(data, "validation")
    assert set(train).isdisjoint(validation)
    assert (len(train), len(validation), len(set(train))) == (177 - 18 - 18, 9, 59 - 9)
    assert data.manifest["dropped"] == {"copies of training pairs": 9, "copies of held-out pairs": 18}
    assert data.manifest["validation_in_training"] == 0
    assert any(line.startswith("pairs dropped as copies of held-out pairs: 18 (en:") for line in logged)


@pytest.mark.parametrize("keeps_files", [False, True], ids=["held out", "validation files"])
@pytest.mark.parametrize("pairs", [DISTINCT * 2 + ODD, GOOD + ODD, DISTINCT[:9] + GOOD])
def test_the_selected_text_is_the_text_of_the_training_pairs(
    pairs: list[tuple[str, str]], keeps_files: bool, tmp_path: Path
) -> None:
    """In the second text no pair can be held out without copies, so these are trained on."""
    config = config_of(tmp_path, pairs, **({} if keeps_files else HELD_OUT_OF_TEXT))
    data = prepared(config)
    selected = list(selected_text(FileCorpus.of(config), data, config))
    sources, targets = map(list, zip(*(pair for _, pair in selected), strict=True))
    assert {file for file, _ in selected} == {0}
    ids = zip(data.tokenizer.encode_source(sources), data.tokenizer.encode_target(targets), strict=True)
    assert [tuple(map(tuple, pair)) for pair in ids] == stored_pairs(data, "train")


def test_copies_have_the_same_tokens_on_both_sides_and_a_frequent_sentence_stays_in_training(tmp_path: Path) -> None:
    copied, frequent = list(DISTINCT), list(DISTINCT)
    source, target = copied[5]  # held out, as 15, 25 …
    copied[7], copied[8], copied[9] = (source, "h h"), ("h h", target), (source, target.replace(" ", "\u2028 "))
    for i in (*range(0, 60, 4), 5):  # of these only 5 is held out
        frequent[i] = ("h", "g")
    for pairs, dropped, n_train, n_validation in (
        (copied, {"copies of held-out pairs": ["en:10"]}, 60 - 6 - 1, 6),
        (frequent, {"copies of training pairs": ["en:6"]}, 60 - 6, 5),
    ):
        data = prepared(config_of(tmp_path, pairs, **HELD_OUT_OF_TEXT))
        assert data.manifest["first_dropped"] == dropped
        assert (data.manifest["train_pairs"], data.manifest["validation_pairs"]) == (n_train, n_validation)


def test_of_many_pairs_with_copies_those_with_the_fewest_stay_held_out() -> None:
    held_out = [HeldOut((str(i), ""), ([], []), f"en:{i}") for i in range(8)]
    copies = [array("q", range(10 * i, 10 * i + (3 if i < 4 else 1))) for i in range(8)]
    dropped, in_training = dict[str, Found](), Found()
    apart, removed = separate(held_out, copies, dropped, in_training)
    assert [one in apart for one in held_out[4:]] == [True] * 4
    assert (len(apart), len(removed)) == (5, 7)  # one with three copies fits beside the four with one
    assert (dropped["copies of training pairs"].count, in_training.count) == (3, 0)


def test_validation_pairs_that_are_also_trained_on_are_counted(tmp_path: Path, logged: list[str]) -> None:
    data = prepared(config_of(tmp_path, GOOD, **HELD_OUT_OF_TEXT))  # one sentence
    assert (data.manifest["train_pairs"], data.manifest["validation_pairs"]) == (18, 2)
    assert data.manifest["validation_in_training"] == 2
    assert any("validation pairs that are also trained on: 2 of 2 (number 1, 2)." in line for line in logged)
    config = config_of(tmp_path, [*GOOD, ("a b", " b a"), ("", "c"), ("d", "c")])  # "" is dropped from training
    data = prepared(config)
    assert (data.manifest["train_pairs"], data.manifest["validation_pairs"]) == (22, 3)
    assert data.manifest["validation_in_training"] == 1
    assert "warning: validation pairs that are also trained on: 1 of 3 (number 1). Their loss and score" in logged[-2]
    (tmp_path / "v.en").write_text("a c\n\nd\n", encoding="utf-8")
    assert prepared(config).manifest["validation_in_training"] == 0


@pytest.mark.parametrize(("pairs", "fields", "message"), [
    ([*GOOD[:5], ("", "a")], HELD_OUT_OF_TEXT,
        r"no held-out pair is left; dropped: 1 empty \(en:6\)\..* set data\.valid"),
    (GOOD, {"max_length": 1}, r"dropped: 20 too long \(en:1, .* …\)\..*data\.max_length"),
    (GOOD, {"validation_source": ("long",), "validation_target": ("long2",)},
        "no validation pair is left: all 1 have more than 1,024 tokens on a side"),
])  # fmt: skip
def test_text_of_which_nothing_is_left_is_refused_and_says_what_was_dropped(
    tmp_path: Path, pairs: list[tuple[str, str]], fields: dict[str, Any], message: str
) -> None:
    for name in ("long", "long2"):
        (tmp_path / name).write_text("a " * 1_024 + "a\n")
    config = config_of(tmp_path, pairs, **fields)
    with pytest.raises(CorpusError, match=message):
        prepared(config)
    assert not (config.directory / "manifest.json").exists()


def test_a_line_of_100_000_characters_is_dropped_and_teaches_the_tokenizer_nothing(tmp_path: Path) -> None:
    line = "abc efgh " * 11_112
    for name, pairs in (("with", [*GOOD, (line, line), ("a", line)]), ("without", GOOD)):
        (tmp_path / name).mkdir()
        prepared(config_of(tmp_path / name, [*pairs, ("a", "b")]))
    long, short = (PreparedData.open(tmp_path / name / "data") for name in ("with", "without"))
    assert long.manifest["first_dropped"] == {"too long": ["en:21", "en:22"]}
    assert long.manifest["train_pairs"] == short.manifest["train_pairs"] == 21
    assert long.tokenizer.equals(short.tokenizer)


@pytest.mark.parametrize(("rule", "count", "lost"), [
    ("keep", 1, "(en:24); lost: U+00AD 1"),
    ("nmt_nfkc", 2, '(en:21, en:22); lost: ， 2; to keep them, set data.normalisation to "keep"'),
])  # fmt: skip
def test_targets_that_cannot_be_written_again_are_counted_and_their_characters_named(
    tmp_path: Path, logged: list[str], rule: TextNormalisation, count: int, lost: str
) -> None:
    pairs = [*GOOD, ("a b", "a， b"), ("a b", "b，"), ("a\xad b", "a \v b"), ("a b", "a\xadb")]
    data = prepared(config_of(tmp_path, pairs, normalisation=rule))
    assert data.manifest["targets_with_lost_characters"] == count
    assert f"no model can write, because their pieces lose characters: {count} of 24 {lost}" in "".join(logged)


def test_text_that_changes_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, GOOD)

    def touch(*arguments: Any) -> Any:
        (tmp_path / "v.de").write_text("other\nlines\nhere\n")
        return DEFAULT

    monkeypatch.setattr(prepare_module, "write_store", Mock(wraps=prepare_module.write_store, side_effect=touch))
    with pytest.raises(CorpusError, match=r"v\.de: has changed while it was read"):
        prepared(config)
    assert not (config.directory / "manifest.json").exists()


@pytest.mark.parametrize("change", ["longer", "another letter"])
def test_text_that_changed_between_preparing_and_training_is_named_with_the_remedy(tmp_path: Path, change: str) -> None:
    config = config_of(tmp_path, GOOD)
    prepared(config)
    text = (tmp_path / "en").read_text()
    (tmp_path / "en").write_text(text + "a b\n" if change == "longer" else text.replace("h", "g", 1))
    with pytest.raises(CheckpointError) as caught:
        open_or_prepare(RunConfig(data=config))
    assert str(caught.value).startswith(f"{tmp_path / 'en'}: not the text that {config.directory} was prepared from.")
    assert "set run (or data.directory) to another directory" in str(caught.value)
    (tmp_path / "en").write_text(text)
    assert open_or_prepare(RunConfig(data=config)).manifest["train_pairs"] == 20


@pytest.mark.parametrize("side", ["v.en", "v.de"])
def test_of_validation_pairs_only_very_long_ones_have_no_loss(tmp_path: Path, side: str, logged: list[str]) -> None:
    """An empty line on one side stays with the greatest length on the other."""
    config = config_of(tmp_path, GOOD)
    for name, line in (("v.en", ""), ("v.de", "a " * 1_024)):
        (tmp_path / name).write_text(f"{line}\n{'a ' * 49_999 if name == side else ''}b\nd\n")
    data = prepared(config)
    assert data.stores["validation"].read().lengths.tolist() == [[0, 1_024], [1, 1]]
    assert data.manifest["validation_pairs"] == len(data.stores["validation"]) == 2
    assert data.manifest["validation_too_long"] == 1
    assert "too long for the validation loss: 1 validation pairs (number 2)" in logged
    assert len(data.text("validation")) == 3
    longer = dataclasses.replace(config, max_length=100_000)
    assert prepared(longer).manifest["validation_pairs"] == 3


SETTINGS = {
    "train_source": ["en"], "train_target": ["de"], "validation_source": ["v.en"], "validation_target": ["v.de"],
    "languages": [], "train_trees": [], "validation_trees": [], "leaf_symbols": "normalised", "held_out": 1_000,
    "tokenizer": "bpe", "vocabulary_size": 20, "normalisation": "keep", "joint_vocabulary": True,
    "max_length": 80, "max_ratio": 3.0, "tags": [], "validation_tags": [], "filter": [],
}  # fmt: skip


def test_prepared_data_are_the_text_and_its_ids_with_a_manifest_and_the_same_bytes_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, GOOD)
    data = prepared(config)
    assert data.text("validation") == [("a b", "b a"), ("", "c"), ("d", "d\u2028d")]
    assert data.text("test") == data.text("no such split") == []
    source, target = data.stores["train"].read().pair(0)
    assert source.tolist() == data.tokenizer.encode_source([GOOD[0][0]])[0]
    assert target.tolist() == data.tokenizer.encode_target([GOOD[0][1]])[0]
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest["source_words"] == manifest["target_words"] == 20
    assert manifest["config"] == SETTINGS
    before = {path.name: path.read_bytes() for path in config.directory.iterdir()}
    prepared(config)
    assert {path.name: path.read_bytes() for path in config.directory.iterdir()} == before


def test_a_directory_is_prepared_when_everything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it was prepared before; what a killed process left half written is removed."""
    config = config_of(tmp_path, GOOD)
    for size in (20, 19):
        with monkeypatch.context() as patch:  # training text is written before, in shards
            patch.setattr(prepare_module, "write_store", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                prepared(dataclasses.replace(config, vocabulary_size=size))
        assert (config.directory / "train-00000.source.npy").exists()
        with pytest.raises(CheckpointError, match=r"data: no prepared data here \(no manifest\.json\); prepare the"):
            PreparedData.open(config.directory)
        (config.directory / ".train-00000.source.npy.123.tmp").write_bytes(b"half of a shard")
        assert len(prepared(config).stores["train"]) == 20
        assert not list(config.directory.glob(".*"))


def test_a_directory_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    config = config_of(tmp_path, GOOD)
    config.directory.write_text("a file in the place of the directory")
    with pytest.raises(CheckpointError, match=r"data: cannot be written .*; free some space or choose another dir"):
        prepared(config)
    assert config.directory.read_text() == "a file in the place of the directory"


@pytest.mark.parametrize("name", ["run.json", "model.safetensors", "checkpoints"])
def test_a_directory_that_holds_a_run_or_a_model_keeps_its_tokenizer(tmp_path: Path, name: str) -> None:
    config = config_of(tmp_path, GOOD)
    for there in (name, "tokenizer.model"):
        (config.directory / there).mkdir(parents=True)
    with pytest.raises(CheckpointError, match=rf"data: holds a run or a model \({name} is .* set data.directory"):
        prepared(config)
    assert sorted(path.name for path in config.directory.iterdir()) == sorted([name, "tokenizer.model"])


@pytest.mark.parametrize(("owner", "function", "named", "left"), [
    (os, "fsync", "", []), (Path, "replace", "", []), (Path, "write_bytes", "", []),
    (np, "save", r"/train-00000\.[a-z]+\.npy", ["tokenizer.checksums.json", "tokenizer.model"]),
])  # fmt: skip
def test_a_full_disk_leaves_no_manifest_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, named: str, left: list[str]
) -> None:
    config = config_of(tmp_path, GOOD)
    monkeypatch.setattr(owner, function, REFUSE)
    with pytest.raises(CheckpointError, match=rf"data.*{named}: cannot be written .*No space left.*free some space"):
        prepared(config)
    assert sorted(path.name for path in config.directory.glob("*")) == left


def test_moved_data_is_not_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    config = config_of(tmp_path, GOOD)
    open_or_prepare(RunConfig(data=config))
    monkeypatch.setattr("minitransformer.training.run_data.prepare", REFUSE)
    logged.clear()
    assert open_or_prepare(RunConfig(data=config)).manifest["train_pairs"] == 20
    moved = dataclasses.replace(config, directory=tmp_path / "moved", raw=tmp_path / "gone")
    config.directory.rename(moved.directory)
    assert open_or_prepare(RunConfig(data=moved)).manifest["train_pairs"] == 20
    assert logged == []


def test_data_of_another_configuration_is_refused_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    config = config_of(tmp_path, GOOD)
    prepared(config)
    other = dataclasses.replace(config, max_length=50, vocabulary_size=19)
    with pytest.raises(CheckpointError) as caught:
        open_or_prepare(RunConfig(data=other))
    assert str(caught.value).startswith(
        f"{config.directory}: was prepared with other settings: data.vocabulary_size is 20 there, 19 here;"
        " data.max_length is 80 there, 50 here. "
    )
    shutil.rmtree(config.directory)  # one of the remedies
    assert open_or_prepare(RunConfig(data=other)).manifest["target_words"] == 19


def test_python_holds_no_more_of_a_text_eight_times_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With lines at once, shards and the tokenizer's sample so small that either text is many times as long."""
    monkeypatch.setattr(prepare_module, "_LINES_AT_ONCE", 40)
    monkeypatch.setattr("minitransformer.data.store.PAIRS_PER_SHARD", 100)
    monkeypatch.setattr("minitransformer.data.inspection.N_SAMPLED", 40)
    monkeypatch.setattr("minitransformer.data.tokenizer.MAX_TRAINING_SENTENCES", 100)

    def peak(times: int) -> int:
        config = config_of(tmp_path, GOOD * 10, train_source=("en",) * times, train_target=("de",) * times)
        found = peak_of(lambda: prepared(config))
        assert PreparedData.open(config.directory).manifest["train_pairs"] == 200 * times
        return found

    peak(1)  # what is made once is made
    assert min(peak(8), peak(8)) < 1.1 * peak(1)  # in one of them Python may enlarge its table of interned strings


# Files that changed after they were written, or were written by two processes

SHARD = "train-00000.target.npy"
FILES = [
    "tokenizer.model", "validation.json", "test.json",
    *(f"{split}-00000.{part}.npy" for split in ("train", "validation") for part in ("source", "target", "lengths")),
]  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Prepared data."""
    return prepared(config_of(tmp_path, GOOD)).directory


def other_data(folder: Path) -> PreparedData:
    (folder / "other").mkdir()
    line = "a b c d e f g h i"
    return prepared(config_of(folder / "other", [(line, line)] * 20, vocabulary_size=21))


def change_manifest(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    change(manifest)
    (directory / "manifest.json").write_text(json.dumps(manifest))


def note_checksums(directory: Path) -> None:
    """Make the manifest's checksums those of the files that are there."""
    change_manifest(directory, lambda facts: facts.update(checksums=checksums_of(directory, facts["checksums"])))


def test_a_flipped_bit_is_noticed_when_data_is_opened_which_is_not_replaced(tmp_path: Path) -> None:
    run = RunConfig(data=config_of(tmp_path, GOOD))
    directory = prepared(run.data).directory
    for name in FILES:
        whole = (directory / name).read_bytes()
        corrupt(directory / name)
        with pytest.raises(CheckpointError, match=f"{name}.*has changed since it was written"):
            open_or_prepare(run)
        (directory / name).write_bytes(whole)
    assert open_or_prepare(run).manifest["train_pairs"] == 20
    (directory / "manifest.json").write_bytes(b'{"train_pairs": ')
    with pytest.raises(CheckpointError, match=r"manifest\.json: cannot be read .*corrupt"):
        open_or_prepare(run)


def test_data_and_text_are_read_once_until_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(checksums, "SETTLED", 0)
    run = RunConfig(data=config_of(tmp_path, GOOD))
    directory = prepared(run.data).directory
    compare = Mock(side_effect=prepare_module.compare_files)
    monkeypatch.setattr(prepare_module, "compare_files", compare)
    monkeypatch.setattr(TokenStore, "check_ids", pytest.fail)
    monkeypatch.setattr("minitransformer.data.corpus.fingerprint_of_file", pytest.fail)
    assert open_or_prepare(run).manifest["train_pairs"] == 20
    assert not compare.called
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "en").write_text((tmp_path / "en").read_text().replace("a", "b"))
    with pytest.raises(CheckpointError, match=r"/en: not the text that .* was prepared from"):
        open_or_prepare(run)
    corrupt(directory / SHARD)
    with pytest.raises(CorruptFileError, match=f"{SHARD}.*has changed since it was written"):
        open_or_prepare(run)


def test_a_bit_that_the_disk_flips_is_found_when_all_bytes_are_compared(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "_mark", lambda *_: (directory.parent / "the same size and times", 0))
    PreparedData.open(directory)
    corrupt(directory / SHARD)
    PreparedData.open(directory)
    for anew in (True, False):
        with pytest.raises(CorruptFileError, match=f"{SHARD}.*has changed since it was written"):
            PreparedData.open(directory, anew=anew)


def test_a_manifest_without_checksums_and_held_out_lines_that_are_no_pairs_are_named(directory: Path) -> None:
    data = PreparedData.open(directory)
    (directory / "test.json").write_text('[["a", "b"], ["a"]]')
    with pytest.raises(CorruptFileError, match=r"test\.json: pairs\[1\] must be a list of 2; .*; prepare the data"):
        data.text("test")
    change_manifest(directory, lambda manifest: manifest.pop("checksums"))
    with pytest.raises(CorruptFileError, match=r"manifest\.json: is no manifest of prepared data; .*repare the data"):
        PreparedData.open(directory)


def test_a_shard_that_was_added_or_lost_is_noticed(directory: Path) -> None:
    shutil.copy(directory / SHARD, directory / "train-00001.target.npy")
    with pytest.raises(CorruptFileError, match=r"train-00001.*expected the files that manifest\.json lists"):
        PreparedData.open(directory)
    (directory / "train-00001.target.npy").unlink()
    (directory / "test.json").unlink()
    with pytest.raises(CorruptFileError, match=r"expected the files that manifest\.json lists.*repare the data again"):
        PreparedData.open(directory)


def test_the_tokenizer_of_another_preparation_is_noticed(directory: Path, tmp_path: Path) -> None:
    other = other_data(tmp_path).directory
    for name in ("tokenizer.model", "tokenizer.checksums.json"):
        shutil.copy(other / name, directory / name)
    with pytest.raises(CorruptFileError, match=r"tokenizer\.model: .*Prepare the data again"):
        PreparedData.open(directory)


@pytest.mark.parametrize("name", [SHARD, "validation-00000.source.npy"])
def test_ids_that_the_tokenizer_has_not_are_refused_though_the_checksums_fit(directory: Path, name: str) -> None:
    ids = np.load(directory / name)
    ids[0] += 1 << 14
    np.save(directory / name, ids)
    note_checksums(directory)
    with pytest.raises(CorruptFileError, match=rf"{name}: has token 16,\d+, expected less than \d+, the size"):
        PreparedData.open(directory)


def test_the_digest_stands_for_what_is_trained_on(directory: Path, tmp_path: Path) -> None:
    digest = PreparedData.open(directory).digest
    assert len(digest) == 10
    assert PreparedData.open(directory).digest == digest != other_data(tmp_path).digest
    path = directory / SHARD
    path.write_bytes(path.read_bytes()[:-2] + np.uint16(4).tobytes())  # another id of the vocabulary
    note_checksums(directory)
    assert PreparedData.open(directory).digest != digest


def test_a_second_preparation_at_the_same_time_is_refused_and_changes_nothing(directory: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    config = config_of(tmp_path, DISTINCT)
    with lock_directory(directory, "preparing data"):
        with pytest.raises(CheckpointError, match="data: another process is preparing data there; wait for its end"):
            prepared(config)
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert prepared(config).manifest["train_pairs"] == len(DISTINCT)


def test_a_run_does_not_lie_in_the_directory_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(run=tmp_path)
    for directory in (tmp_path, Path()):
        with pytest.raises(ConfigError, match="data.directory and run are both"):
            dataclasses.replace(config, data=DataConfig(directory=directory))
