"""Data diversification: its three trainings, their text, and what an interrupted call repeats."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small_run import SMALL_MODEL, write_parallel_text

from cli.entry import INTERRUPTED
from cli.train import read_options
from cli.train import train as train_command
from minitransformer.config import ConfigError, RunConfig
from minitransformer.data.corpus import read_pairs
from minitransformer.extras.diversification import train_diversified
from minitransformer.inference.translator import Translator
from minitransformer.system.files import read_json
from minitransformer.training.run import train
from minitransformer.training.update import learning_rate
from parallel.communicator import SerialCommunicator

WORLD = SerialCommunicator()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("text")
    write_parallel_text(folder, "train", 60, seed=1)
    write_parallel_text(folder, "valid", 10, seed=2)
    options = f"--run {folder}/run --data.raw {folder} {SMALL_MODEL} --training.max-updates 20"
    return read_options(options.split())


@pytest.fixture(scope="module")
def trainings(config: RunConfig) -> list[RunConfig]:
    """The trainings of three calls: the first two are interrupted, each in the next training."""
    made: list[RunConfig] = []

    def train_until(n: int, one: RunConfig) -> bool:
        made.append(one)
        return len(made) != n and train(one, callbacks=[]).is_complete

    for n in (2, 5, 0):
        assert train_diversified(config, 6, lambda one, n=n: train_until(n, one), WORLD) == (n == 0)
    return made


def test_an_interrupted_call_goes_on_with_the_training_that_it_had_begun(
    config: RunConfig, trainings: list[RunConfig]
) -> None:
    runs = ["forward", "backward", "forward", "backward", "run", "forward", "backward", "run"]
    assert [one.run.name for one in trainings] == runs
    updates = {one.run.name: read_json(one.run / "results.json")["updates"] for one in trainings}
    assert updates == {"forward": 20, "backward": 8, "run": 6}


def test_the_last_training_has_the_given_pairs_and_translations_of_both_sides(
    config: RunConfig, trainings: list[RunConfig]
) -> None:
    sources, targets = zip(*read_pairs(config.data.raw / "train.en", config.data.raw / "train.de"), strict=True)
    to_target = Translator.load(config.run / "forward").translate(sources)
    to_source = Translator.load(config.run / "backward").translate(targets)
    data = trainings[-1].data
    pairs = list(read_pairs(data.raw / data.train_source[0], data.raw / data.train_target[0]))
    assert pairs == [
        *zip(sources, targets, strict=True), *zip(sources, to_target, strict=True),
        *zip(to_source, targets, strict=True),
    ]  # fmt: skip
    assert any(to_target)
    assert any(to_source)


def test_the_backward_training_has_the_sides_the_other_way_round(trainings: list[RunConfig]) -> None:
    forward, backward, last = trainings[-3:]
    assert (backward.data.languages, last.data.languages) == (("de", "en"), ("en", "de"))
    for split in ("train", "validation"):
        source, target = (
            backward.data.raw / getattr(backward.data, f"{split}_{side}")[0] for side in ("source", "target")
        )
        given = [forward.data.raw / getattr(forward.data, f"{split}_{side}")[0] for side in ("target", "source")]
        assert list(read_pairs(source, target)) == list(read_pairs(*given))


def test_the_last_training_begins_from_the_first_model_in_small_steps(
    config: RunConfig, trainings: list[RunConfig]
) -> None:
    forward, backward, last = (one.training for one in trainings[-3:])
    assert read_json(config.run / "run.json")["pretrained"]["weights"] == str(config.run / "forward/model.safetensors")
    assert [one.model.alpha for one in trainings[-3:]] == [None, None, config.model.alpha]
    assert learning_rate(4, 32, last) == pytest.approx(0.2 * learning_rate(4, 32, forward))
    assert (forward.schedule, last.schedule) == ("paper", "linear")
    assert forward == config.training
    assert backward == dataclasses.replace(forward, max_updates=8)


def test_text_without_another_direction_and_a_negative_number_are_refused(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a translation of text has another direction"):
        train_diversified(RunConfig(tmp_path), 3, lambda one: True, WORLD)
    with pytest.raises(ConfigError, match="diversify must be a number of updates; got -1"):
        train_diversified(config, -1, lambda one: True, WORLD)


def test_the_command_diversifies_with_the_updates_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr("cli.train.train_diversified", lambda config, n, train, world: called.append(n))
    assert train_command(["--diversify", "7"]) == INTERRUPTED
    assert called == [7]
