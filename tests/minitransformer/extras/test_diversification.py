"""Data diversification: its three trainings, their text, and what an interrupted call repeats."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from small_run import SMALL_MODEL, changed, write_parallel_text

from cli.entry import INTERRUPTED
from cli.train import read_options
from cli.train import train as train_command
from minitransformer.config import ConfigError, DataConfig, RunConfig
from minitransformer.data.corpus import read_pairs
from minitransformer.data.prepare import prepare
from minitransformer.data.survey import read_lines
from minitransformer.extras.diversification import train_diversified
from minitransformer.extras.made_pairs import files_of, pairs_of
from minitransformer.inference.translator import Translator
from minitransformer.system.files import read_json
from minitransformer.text.loops import repetition
from minitransformer.text.road import STEPS
from minitransformer.training.run import train
from minitransformer.training.update import learning_rate
from parallel.communicator import SerialCommunicator

WORLD = SerialCommunicator()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("text")
    write_parallel_text(folder, "train", 30, seed=1)
    write_parallel_text(folder, "valid", 4, seed=2)
    options = f"--run {folder}/run --data.raw {folder} {SMALL_MODEL} --training.learning-rate-factor 0.4"
    return read_options(changed(options.split(), "--training.max-updates", "20", "--training.warmup-steps", "4"))


@pytest.fixture(scope="module")
def trainings(config: RunConfig) -> list[RunConfig]:
    """The trainings of three calls: the first two are interrupted, each in the next training.

    Before, the text was prepared in the run's directory, as a dry run does.
    """
    prepare(config.data, config.data_directory)
    made: list[RunConfig] = []

    def train_until(n: int, one: RunConfig) -> bool:
        made.append(one)
        return len(made) != n and train(one, callbacks=[]).is_complete

    for n in (2, 5, 0):
        assert train_diversified(config, 6, lambda one, n=n: train_until(n, one), WORLD) == (n == 0)
    return made


@pytest.mark.slow
def test_an_interrupted_call_goes_on_with_the_training_that_it_had_begun(trainings: list[RunConfig]) -> None:
    runs = ["forward", "backward", "forward", "backward", "run", "forward", "backward", "run"]
    assert [one.run.name for one in trainings] == runs
    updates = {one.run.name: read_json(one.run / "results.json")["updates"] for one in trainings}
    assert updates == {"forward": 20, "backward": 8, "run": 6}


def test_the_last_training_has_translations_of_both_sides(config: RunConfig, trainings: list[RunConfig]) -> None:
    sources, targets = zip(*read_pairs(config.data.raw / "train.en", config.data.raw / "train.de"), strict=True)
    to_target = Translator.load(config.run / "forward").translate(sources, skip=STEPS)
    to_source = Translator.load(config.run / "backward").translate(targets, skip=STEPS)
    data = trainings[-1].data
    pairs = list(read_pairs(data.raw / data.train_source[0], data.raw / data.train_target[0]))
    new_targets = [(s, t) for s, t in zip(sources, to_target, strict=True) if t and not repetition(t, s)]
    new_sources = [(s, t) for s, t in zip(to_source, targets, strict=True) if s and not repetition(s, t)]
    assert [path.read_text(encoding="utf-8").splitlines() for path in files_of(data.raw / "translated")] == [
        to_source,
        to_target,
    ]
    assert pairs[: len(sources)] == list(zip(sources, targets, strict=True))
    assert pairs[len(sources) :] == [*new_targets, *new_sources]
    assert pairs[len(sources) :]


def test_the_backward_training_has_the_sides_the_other_way_round(trainings: list[RunConfig]) -> None:
    forward, backward, last = trainings[-3:]
    assert (backward.data.languages, last.data.languages) == (("de", "en"), ("en", "de"))
    for split in ("train", "validation"):
        names = [f"{split}_source", f"{split}_target"]
        turned = [backward.data.raw / getattr(backward.data, name)[0] for name in names]
        given = [forward.data.raw / getattr(forward.data, name)[0] for name in reversed(names)]
        assert list(read_pairs(*turned)) == list(read_pairs(*given))


def test_the_last_training_begins_from_the_first_model(config: RunConfig, trainings: list[RunConfig]) -> None:
    forward, backward, last = (one.training for one in trainings[-3:])
    assert read_json(config.run / "run.json")["pretrained"]["weights"] == str(config.run / "forward/model.safetensors")
    assert [one.model.alpha for one in trainings[-3:]] == [None, None, config.model.alpha]
    rates = [learning_rate(step, 32, last) for step in (4, 5, 6)]
    assert rates[0] == pytest.approx(0.2 * learning_rate(4, 32, forward))
    assert rates[0] > rates[1] > rates[2]
    assert (forward.schedule, last.schedule) == ("paper", "linear")
    assert forward == config.training
    assert backward == dataclasses.replace(forward, max_updates=8)


def test_no_training_learns_copies_of_held_out_pairs(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every pair occurs twice, and both models know all translations."""
    sources, targets = ((config.data.raw / f"train.{side}").read_text().splitlines() for side in ("en", "de"))
    known = dict(zip(sources, targets, strict=True))
    for side, lines in (("en", sources), ("de", targets)):
        (tmp_path / f"train.{side}").write_text("".join(f"{line}\n" for line in (*lines, *reversed(lines))))
    data = dataclasses.replace(config.data, raw=tmp_path, validation_source=(), validation_target=(), held_out=6)
    doubled = dataclasses.replace(config, data=data, run=tmp_path / "run")
    both = known | {target: source for source, target in known.items()}

    def translate(run: RunConfig, source: Path, output: Path) -> None:
        output.write_text("".join(f"{both[line]}\n" for line in read_lines(source)), encoding="utf-8")

    monkeypatch.setattr("minitransformer.extras.diversification.translate_text", translate)
    assert train_diversified(doubled, 6, lambda one: train(one, callbacks=[]).is_complete, WORLD)
    text = tmp_path / "run" / "text"
    held_out, *others = (set(pairs_of(text / part)) for part in ("validation", "given", "all"))
    assert len(held_out) == 5
    assert others == [set(known.items()) - held_out] * 2
    assert all(held_out.isdisjoint(pairs) for pairs in others)
    assert "also trained on" not in caplog.text


@pytest.mark.usefixtures("trainings")
def test_what_would_be_in_vain_is_refused_at_the_start(config: RunConfig) -> None:
    cases: list[tuple[int, dict[str, Any], str]] = [
        (3, {"data": DataConfig()}, "only a translation of text has another direction"),
        (-1, {}, "diversify must be a number of updates; got -1"),
        (4, {}, "diversify must be more updates than training.warmup_steps, 4, because .* got 4"),
        (6, {"data": dataclasses.replace(config.data, weights=(2.0,))}, "to one text: leave data.weights out"),
        (6, {"data": dataclasses.replace(config.data, tags=("de",), validation_tags=("de",))},
            "to one text: leave data.tags out"),
        (6, {"init_from": Path("other")}, "for which init_from has no model: leave one out"),
        (6, {"run": config.run / "forward"}, "forward: holds a run without diversify: set run to another directory"),
        (6, {"training": dataclasses.replace(config.training, max_updates=30)},
            "translations by a model of 20 updates, but training.max_updates is 30"),
    ]  # fmt: skip
    for n_updates, change, message in cases:
        with pytest.raises(ConfigError, match=message):
            train_diversified(dataclasses.replace(config, **change), n_updates, pytest.fail, WORLD)


def test_a_dry_run_refuses_what_the_training_would(config: RunConfig, tmp_path: Path) -> None:
    options = f"--run {tmp_path}/run --data.raw {config.data.raw} {SMALL_MODEL} --dry-run"
    words = changed(options.split(), "--training.warmup-steps", "4")
    with pytest.raises(ConfigError, match="diversify must be more updates than training.warmup_steps, 4"):
        train_command([*words, "--diversify", "4"])
    assert train_command([*words, "--diversify", "5"]) == 0


def test_the_command_diversifies_with_the_updates_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr("cli.train.train_diversified", lambda config, n, train, world: called.append(n))
    assert train_command(["--diversify", "7"]) == INTERRUPTED
    assert called == [7]
