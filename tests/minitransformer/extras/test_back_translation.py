"""Back-translation: its trainings and their text, leaks, and what an interrupted call repeats."""

from __future__ import annotations

import dataclasses
import gzip
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from mpirun import MPIRUN, needs_mpi, run
from small_run import SMALL_MODEL, changed, contents, write_parallel_text

from cli.entry import INTERRUPTED
from cli.train import read_options
from cli.train import train as train_command
from minitransformer.config import ConfigError, DataConfig, RunConfig
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.data.profile import TextProfile
from minitransformer.data.survey import CorpusError
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras import made_pairs
from minitransformer.extras.back_translation import TAG, BackTranslation, train_back_translated
from minitransformer.extras.files.output_file import ResumeError
from minitransformer.extras.made_pairs import files_of, pairs_of, translate_text
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError, read_json
from minitransformer.text.road import STEPS
from minitransformer.training.run import train
from parallel.communicator import SerialCommunicator

WORLD = SerialCommunicator()
FEW = ["--training.max-updates", "20", "--training.warmup-steps", "4"]
OPTIONS = ["--back-translate", "mono.de", "more.de.gz", "--back-translate-search", "sampling"]
BACK = BackTranslation(("mono.de", "more.de.gz"), search="sampling")


def train_all(config: RunConfig) -> bool:
    return train(config, callbacks=[]).is_complete


def words_in(folder: Path, name: str) -> list[str]:
    return changed(["--run", str(folder / name), "--data.raw", str(folder), *SMALL_MODEL.split()], *FEW)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text; the target text has held-out targets, an empty and a long line, and lines to translate."""
    folder = tmp_path_factory.mktemp("text")
    write_parallel_text(folder, "train", 60, seed=1)
    write_parallel_text(folder, "valid", 4, seed=2)
    write_parallel_text(folder, "mono", 8, seed=3)
    held_out = (folder / "valid.de").read_text(encoding="utf-8").splitlines()
    more = f"  {held_out[0]}\t\n\n{'eins ' * 300}\n{held_out[1]}\nsechs sechs sechs\n"
    with gzip.open(folder / "more.de.gz", "wt", encoding="utf-8") as file:
        file.write(more)
    return folder


@pytest.fixture(scope="module")
def config(folder: Path) -> RunConfig:
    return read_options(words_in(folder, "run"))


@pytest.fixture(scope="module")
def trainings(config: RunConfig) -> list[RunConfig]:
    made: list[RunConfig] = []
    assert train_back_translated(config, BACK, lambda one: not made.append(one) and train_all(one), WORLD)
    return made


def test_a_model_of_the_other_direction_is_trained_first(config: RunConfig, trainings: list[RunConfig]) -> None:
    backward, last = trainings
    assert (backward.run, last.run) == (config.run / "backward", config.run)
    assert [read_json(one.run / "results.json")["updates"] for one in trainings] == [8, 20]
    assert (backward.data.languages, last.data.languages) == (("de", "en"), ("en", "de"))
    assert (backward.model.alpha, last.model, last.training) == (None, config.model, config.training)
    given = list(pairs_of(config.run / "text" / "given"))
    assert [pair[::-1] for pair in FileCorpus.of(backward.data).train()] == given
    assert list(FileCorpus.of(config.data).train()) == given
    assert list(FileCorpus.of(last.data).train())[: len(given)] == given


@pytest.mark.usefixtures("trainings")
def test_held_out_targets_and_useless_lines_are_not_translated(config: RunConfig, folder: Path) -> None:
    lines = (config.run / "text" / "monolingual-target").read_text(encoding="utf-8").splitlines()
    held_out = (folder / "valid.de").read_text(encoding="utf-8").splitlines()
    mono = (folder / "mono.de").read_text(encoding="utf-8").splitlines()
    assert lines == [*(line for line in mono if line not in held_out), "sechs sechs sechs"]


def test_dropped_lines_are_counted(config: RunConfig, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first training is interrupted, so that only the text is written."""
    caplog.set_level("INFO")
    other = dataclasses.replace(config, run=folder / "counted")
    back = dataclasses.replace(BACK, files=("more.de.gz",))
    assert not train_back_translated(other, back, lambda one: False, WORLD)
    for dropped in ("held-out targets: 2 (more.de.gz:1, more.de.gz:4)", "empty: 1 (more.de.gz:2)",
                    "too long: 1 (more.de.gz:3)"):  # fmt: skip
        assert f"lines to translate back dropped as {dropped}" in caplog.text


def test_the_last_training_has_tagged_samples_of_the_seed(config: RunConfig, trainings: list[RunConfig]) -> None:
    text = config.run / "text"
    targets = (text / "monolingual-target").read_text(encoding="utf-8").splitlines()
    translator = Translator.load(config.run / "backward")

    def sample(seed: int) -> list[str]:
        return translator.translate(targets, beam=1, sampling=Sampling(seed), skip=STEPS)

    sampled = sample(config.training.seed)
    assert sample(2) != sampled
    made = list(pairs_of(text / "made"))
    pairs = [(f"{TAG} {source}", target) for source, target in zip(sampled, targets, strict=True)]
    assert len(made) > 3
    assert made == [pair for pair in pairs if pair in made]
    n_given = len(list(pairs_of(text / "given")))
    assert list(FileCorpus.of(trainings[-1].data).train())[n_given:] == made


@pytest.mark.usefixtures("trainings")
def test_the_tag_is_a_piece_and_users_need_not_give_it(config: RunConfig) -> None:
    assert TAG in "".join(Tokenizer.load(config.run).source_pieces(f"{TAG} one")[:2]).removeprefix("▁")
    assert 0 not in Tokenizer.load(config.run).encode_source([f"{TAG} one"])[0]
    validation = PreparedData.open(config.run / "text" / "data").text("validation")
    assert validation
    assert not any(TAG in source for source, _ in validation)


def usable(pairs: list[tuple[str, str]], data: PreparedData) -> list[tuple[str, str]]:
    return list(made_pairs.usable_pairs(pairs, "source", data))


@pytest.mark.usefixtures("trainings")
def test_useless_translations_are_dropped_and_counted(config: RunConfig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    data = PreparedData.open(config.data_directory)
    loop, good = ("one two three four " * 3, "eins"), ("one two", "eins zwei")
    assert usable([good, ("", "eins"), loop, data.text("validation")[0], good], data) == [good, good]
    for dropped in ("empty: 1 (2)", "repeating itself: 1 (3)", "copies of held-out pairs: 1 (4)"):
        assert f"translations dropped as {dropped}" in caplog.text


def test_pairs_held_out_of_the_text_are_those_of_a_run_without(config: RunConfig, folder: Path, tmp_path: Path) -> None:
    """Their targets are dropped, although the target text is that of the training pairs."""
    data = dataclasses.replace(config.data, validation_source=(), validation_target=(), held_out=6)
    other = dataclasses.replace(config, run=tmp_path / "run", data=data)
    held_out = prepare(data, tmp_path / "data").text("validation")
    made: list[RunConfig] = []
    assert not train_back_translated(other, BackTranslation(("train.de",)), lambda one: bool(made.append(one)), WORLD)
    assert list(pairs_of(other.run / "text" / "validation")) == held_out
    lines = set((other.run / "text" / "monolingual-target").read_text(encoding="utf-8").splitlines())
    assert lines == set((folder / "train.de").read_text(encoding="utf-8").splitlines()) - {de for _, de in held_out}
    assert lines


def test_a_given_run_translates_and_files_keep_their_weights(
    config: RunConfig, trainings: list[RunConfig], folder: Path, tmp_path: Path
) -> None:
    write_parallel_text(folder, "other", 30, seed=4)
    names = {"train_source": ("train.en", "other.en"), "train_target": ("train.de", "other.de")}
    data = dataclasses.replace(config.data, weights=(0.5, 2.0), **names)
    other = dataclasses.replace(config, run=tmp_path / "run", data=data)
    back = dataclasses.replace(BACK, run=trainings[0].run, search="beam", tag=False)
    made: list[RunConfig] = []
    assert not train_back_translated(other, back, lambda one: bool(made.append(one)), WORLD)
    (last,) = made
    assert last.run == other.run
    assert last.data.train_source == ("given-1-source", "given-2-source", "made-source")
    assert last.data.weights == (0.5, 2.0, 1.0)
    text = other.run / "text"
    for number, name in ((1, "train"), (2, "other")):
        lines = [path.read_text(encoding="utf-8") for path in files_of(text / f"given-{number}")]
        assert lines == [(folder / f"{name}.{side}").read_text(encoding="utf-8") for side in ("en", "de")]
    assert not any(TAG in source for source, _ in pairs_of(text / "made"))
    assert text.joinpath("monolingual-source").read_text(encoding="utf-8").count("\n") > 3
    assert not (other.run / "backward").exists()


def interrupting(after: int) -> Callable[..., Any]:
    """Return ``Translator.translate_texts`` that is interrupted in the call after so many."""
    original, calls = Translator.translate_texts, list[int]()

    def translate(self: Translator, texts: Any, *arguments: Any, **options: Any) -> Any:
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(len(texts))
        return original(self, texts, *arguments, **options)

    return translate


def test_an_interrupted_translation_goes_on_at_its_line(
    trainings: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    backward = trainings[0]
    monkeypatch.setattr(made_pairs, "LINES_AT_ONCE", 3)
    source = tmp_path / "source"
    source.write_text("eins zwei\nsechs\n\nvier\n" * 2, encoding="utf-8")
    search, sampling = SearchConfig(beam=1), Sampling(seed=7)
    translate_text(backward, source, tmp_path / "undisturbed", search, sampling)
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate_texts", interrupting(2))
        with pytest.raises(KeyboardInterrupt):
            translate_text(backward, source, tmp_path / "disturbed", search, sampling)
    begun = (tmp_path / "disturbed").read_bytes()
    assert begun.count(b"\n") == 6
    translate_text(backward, source, tmp_path / "disturbed", search, sampling)
    assert "going on after line 6" in caplog.text
    assert (tmp_path / "disturbed").read_bytes() == (tmp_path / "undisturbed").read_bytes()
    with pytest.raises(ResumeError, match="was begun with other settings: sampling"):
        translate_text(backward, source, tmp_path / "disturbed", search, Sampling(seed=8))


@pytest.mark.slow
def test_a_run_interrupted_in_each_stage_has_the_same_bits(
    config: RunConfig, trainings: list[RunConfig], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is interrupted one stage later, in the middle of writing or training."""
    names = ("minitransformer.extras.back_translation", "minitransformer.extras.made_pairs")
    other = dataclasses.replace(config, run=folder / "disturbed")

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def first_of(pairs: Iterable[Any], **_: Any) -> Any:
        yield next(iter(pairs))
        raise KeyboardInterrupt

    def interrupted(patch: dict[str, Any]) -> None:
        with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
            for name, value in patch.items():
                patches.setattr(name, value)
            train_back_translated(other, BACK, train_all, WORLD)

    interrupted({"minitransformer.data.prepare.write_shard": interrupt})
    original = made_pairs.selected_text
    interrupted({f"{names[1]}.selected_text": lambda *a: first_of(original(*a))})
    assert not (other.run / "text" / "given-source").exists()
    lines = sys.modules[names[0]]._lines_to_translate
    interrupted({f"{names[0]}._lines_to_translate": lambda *a: first_of(lines(*a))})
    assert not (other.run / "text" / "monolingual-target").exists()
    interrupted({"minitransformer.training.run.finish": interrupt})
    interrupted({"minitransformer.inference.translator.Translator.translate_texts": interrupting(0)})
    usable_pairs = sys.modules[names[0]].usable_pairs
    interrupted({f"{names[0]}.usable_pairs": lambda *a: first_of(usable_pairs(*a))})
    assert not (other.run / "text" / "made-source").exists()
    interrupted({"minitransformer.training.run.finish": interrupt})
    assert train_back_translated(other, BACK, train_all, WORLD)
    for name in ("text", "text/data", "backward", "."):
        ours, theirs = contents(config.run / name), contents(other.run / name)
        compared = [file for file in ours if not file.endswith((".json", ".jsonl", ".html"))]
        assert [file for file in compared if ours[file] != theirs.get(file)] == []
        assert "model.safetensors" in compared or name.startswith("text")


@needs_mpi
@pytest.mark.slow
def test_several_ranks_have_the_same_bits(folder: Path, trainings: list[RunConfig]) -> None:
    assert MPIRUN is not None
    start = [sys.executable, "-c", "from cli.train import main; raise SystemExit(main())"]
    done = run([MPIRUN, "-n", "2", *start, *words_in(folder, "ranks"), *OPTIONS])
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "backward/model.safetensors", "text/made-source"):
        assert (folder / "ranks" / name).read_bytes() == (trainings[-1].run / name).read_bytes()


@pytest.mark.usefixtures("trainings")
def test_what_contradicts_the_text_or_the_run_is_refused(config: RunConfig, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(config.run, tmp_path / "run")
    (folder / "empty.de").write_text("\n", encoding="utf-8")
    (folder / "latin.de").write_bytes("fünf\n".encode("latin-1"))
    new, wrong = tmp_path / "new", dataclasses.replace(BACK, run=config.run)
    shutil.copytree(config.run, several := tmp_path / "several")
    TextProfile("en", targets=("de", "fr")).save(several)
    cases: list[tuple[BackTranslation, dict[str, Any], type[Exception], str]] = [
        (BACK, {"data": DataConfig()}, ConfigError, "only a translation of text has another direction"),
        (
            BACK,
            {"data": dataclasses.replace(config.data, tags=("de",), validation_tags=("de",))},
            ConfigError,
            "back_translate trains one direction, and data.tags names several: leave one out",
        ),
        (BACK, {"init_from": Path("other")}, ConfigError, "not from init_from: leave one out"),
        (BACK, {"run": config.run / "backward"}, ConfigError, "backward: holds a run without back_translate"),
        (dataclasses.replace(BACK, search="beam"), {"run": tmp_path / "run"}, ConfigError, "back_translate: search;"),
        (dataclasses.replace(BACK, tag=False), {"run": tmp_path / "run"}, ConfigError, "back_translate: tag;"),
        (dataclasses.replace(BACK, files=("mono.de",)), {"run": tmp_path / "run"}, ConfigError, "translate: files;"),
        (wrong, {"run": new}, ConfigError, "translates from en to de; back_translate needs a model from de to en"),
        (
            dataclasses.replace(BACK, run=several),
            {"run": new},
            ConfigError,
            "from en to de and fr; .* from de to en alone",
        ),
        (dataclasses.replace(BACK, run=tmp_path), {"run": new}, CheckpointError, "there is no model here"),
        (BackTranslation(("mono.en",)), {"run": new}, ConfigError, "mono.en: has text in en, by its ending"),
        (BackTranslation(("empty.de",)), {"run": new}, CorpusError, "empty.de: no line is left to translate back"),
        (BackTranslation(("latin.de",)), {"run": new}, CorpusError, "latin.de, line 1: not UTF-8"),
        (BackTranslation(("absent.de",)), {"run": new}, CorpusError, "absent.de: not found"),
    ]
    for back, change, kind, message in cases:
        with pytest.raises(kind, match=message):
            train_back_translated(dataclasses.replace(config, **change), back, pytest.fail, WORLD)
    assert not train_back_translated(dataclasses.replace(config, run=new), BACK, lambda _: False, WORLD), "corrected"
    changed_text = dataclasses.replace(
        config, run=tmp_path / "run", data=dataclasses.replace(config.data, raw=tmp_path)
    )
    for path in folder.glob("*.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "mono.de").write_text("eins\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="was made with other settings of back_translate: mono.de;"):
        train_back_translated(changed_text, BACK, pytest.fail, WORLD)


def test_a_dry_run_refuses_what_the_training_would(folder: Path) -> None:
    """Its text may be of other files afterwards."""
    words = [*words_in(folder, "dry"), "--dry-run"]
    with pytest.raises(CorpusError, match="absent.de: not found"):
        train_command([*words, "--back-translate", "absent.de"])
    with pytest.raises(CheckpointError, match="there is no model here"):
        train_command([*words, *OPTIONS, "--back-translate-run", str(folder)])
    assert train_command([*words, "--back-translate", "more.de.gz"]) == 0
    assert train_command([*words, *OPTIONS]) == 0
    lines = (folder / "dry" / "text" / "monolingual-target").read_text(encoding="utf-8").splitlines()
    assert set((folder / "mono.de").read_text(encoding="utf-8").splitlines()) & set(lines)


def test_the_command_translates_back_as_its_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[BackTranslation] = []
    monkeypatch.setattr("cli.train.train_back_translated", lambda config, back, train, world: called.append(back))
    options = ["--back-translate-run", "runs/de-en", "--no-back-translate-tag"]
    assert train_command([*OPTIONS, *options]) == INTERRUPTED
    assert called == [BackTranslation(("mono.de", "more.de.gz"), Path("runs/de-en"), "sampling", tag=False)]
