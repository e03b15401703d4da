"""Settings from files have the types of the configuration; messages name those of a wrong type or value."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from minitransformer.config import ConfigError, DataConfig, ModelConfig, RunConfig, TrainingConfig
from minitransformer.config.checks import COUNT, with_changes
from minitransformer.config.run import PARTS, initial_settings, resolved, with_values
from minitransformer.system.records import require_bounds


@dataclass(frozen=True)
class Core:
    seeds: int | None = None
    hard: bool = False


@dataclass(frozen=True)
class Fruit:
    name: str = "apple"
    colours: tuple[str, ...] = ()
    ripe: bool = True
    weight: float = 1.0
    place: Path = Path()
    taste: Literal["sweet", "sour"] = "sweet"
    core: Core = field(default_factory=Core)


PLUM = Fruit(name="plum", core=Core(seeds=1))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "two words"}, {"name": "two words"}),
        ({"colours": ["red", "green"]}, {"colours": ("red", "green")}),
        ({"ripe": False}, {"ripe": False}),
        ({"weight": -1e-9}, {"weight": -1e-9}),
        ({"place": "a/b"}, {"place": Path("a/b")}),
        ({"taste": "sour"}, {"taste": "sour"}),
        ({"core": {"seeds": 1_000}}, {"core": Core(seeds=1_000)}),
        ({"core": {"seeds": None}}, {"core": Core()}),
        ({"core": {"hard": True}}, {"core": Core(seeds=1, hard=True)}),
        ({"weight": 2}, {"weight": 2.0}),
    ],
)
def test_values_of_files_become_settings(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    fruit = with_changes(PLUM, changes)
    assert fruit == dataclasses.replace(PLUM, **expected)
    assert type(fruit.weight) is float


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "basket.name must be a string; got 3"),
        ({"colours": "red"}, "basket.colours must be a list; got 'red'"),
        ({"colours": ["red", 3]}, "basket.colours[1] must be a string; got 3"),
        ({"ripe": 1}, "basket.ripe must be true or false; got 1"),
        ({"weight": "2"}, "basket.weight must be a number; got '2'"),
        ({"weight": True}, "basket.weight must be a number; got True"),
        ({"weight": 10**400}, "basket.weight is too large"),
        ({"place": []}, "basket.place must be a string; got []"),
        ({"taste": ["sour"]}, "basket.taste must be one of ('sweet', 'sour'); got ['sour']"),
        ({"core": 3}, "basket.core must be a table of settings; got 3"),
        ({"core": {"seeds": 1.5}}, "basket.core.seeds must be a whole number; got 1.5"),
        ({"core": {"seed": 1}}, "unknown key 'basket.core.seed'; did you mean 'basket.core.seeds'?"),
        ({"owner": 1}, "unknown key 'basket.owner'; known here: name, colours, ripe, weight, place, taste, core, size"),
    ],
)
def test_wrong_values_and_unknown_keys_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_changes(Fruit(), changes, "basket.", ["size"])
    assert str(caught.value).startswith(message)


def test_a_count_is_at_least_one_and_fits_32_bits() -> None:
    for seeds in (1, 2**31 - 1):
        require_bounds(Core(seeds=seeds), {"seeds": COUNT}, ConfigError, "core.")
    for seeds in (0, 2**31):
        message = f"core.seeds must be at least 1 and less than 2,147,483,648; got {seeds}"
        with pytest.raises(ConfigError, match=message):
            require_bounds(Core(seeds=seeds), {"seeds": COUNT}, ConfigError, "core.")


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (ModelConfig, {"d_model": 7}, "d_model must be even"),
        (ModelConfig, {"p_drop": 1.0}, "p_drop must be at least 0 and less than 1; got 1.0"),
        (ModelConfig, {"n_heads": 0}, "n_heads must be at least 1 and less than 1,048,576; got 0"),
        (ModelConfig, {"norm": "middle"}, "norm must be one of"),
        (ModelConfig, {"activation": "silu"}, "activation must be one of .*'swish'.*; got 'silu'"),
        (ModelConfig, {"n_decoder_layers": 0}, "n_decoder_layers must be at least 1 and less than 1,000; got 0"),
        (ModelConfig, {"source_vocabulary_size": 9, "vocabulary_size": 8}, 'tied must be "target" or "none"'),
        (ModelConfig, {"neighbourhood": -1}, "neighbourhood must be at least 0 .*; got -1"),
        (ModelConfig, {"n_layers": 2**31 - 1}, "n_layers must be at least 1 and less than 1,000; got 2147483647"),
        (ModelConfig, {"d_ff": 10**20}, "d_ff must be at least 1 and less than 1,048,576; got 100000000000000000000"),
        (ModelConfig, {"max_positions": 10**30}, "max_positions must be .* less than 1,048,576; got 1000"),
        (ModelConfig, {"attention_gain": 1e300}, r"attention_gain must be .* less than 1,000,000; got 1e\+300"),
        (ModelConfig, {"layer_norm_eps": 1e-60}, "layer_norm_eps must be at least 1e-30 .*; got 1e-60"),
        (TrainingConfig, {"n_micro_batches": 6}, "training.n_micro_batches must be a power of two, or 0; got 6"),
        (TrainingConfig, {"gradients_sent_in": "float16"}, r"sent_in must be one of .*'bfloat16'\); got 'float16'"),
        (TrainingConfig, {"precision": "float16"}, r"precision must be one of .*'bfloat16'\); got 'float16'"),
        (TrainingConfig, {"average_checkpoints": 9}, r"\(9\) cannot exceed training.keep_checkpoints \(5\)"),
        (TrainingConfig, {"max_updates": 10**30}, "training.max_updates must be"),
        (TrainingConfig, {"n_micro_batches": 2**30}, "training.n_micro_batches must be"),
        (TrainingConfig, {"clip_norm": math.nan}, "training.clip_norm must be"),
        (TrainingConfig, {"clip_norm": -1.0}, "training.clip_norm must be"),
        (TrainingConfig, {"seed": -1}, "training.seed must be"),
        (TrainingConfig, {"beta2": 1.0}, "training.beta2 must be"),
        (TrainingConfig, {"eps": 1e-50}, "training.eps must be"),
        *(
            (TrainingConfig, {"learning_rate_factor": factor}, "training.learning_rate_factor must be")
            for factor in (0.0, math.inf, 1e30)
        ),
        (DataConfig, {"train_source": ("en",)}, "in data.train_target as in data.train_source; got 0 and 1"),
        (DataConfig, {"weights": (2.0,)}, "weights: expected a number for each file of data.train_source, 0; got 1"),
        (
            DataConfig,
            {"train_source": ("en",), "train_target": ("de",), "weights": (0.0,)},
            "data.weights must be at least 1e-06 and less than 1,000; got 0.0",
        ),
        (DataConfig, {"held_out": 0}, "data.held_out must be at least 1 and less than .*; got 0"),
        (DataConfig, {"vocabulary_size": 3}, "data.vocabulary_size must be at least 4 and less than .*; got 3"),
        (DataConfig, {"max_length": 0}, "data.max_length must be at least 1 and less than .*; got 0"),
        (DataConfig, {"max_ratio": 0.5}, "data.max_ratio must be at least 1 and less than .*; got 0.5"),
        (DataConfig, {"max_ratio": math.nan}, "data.max_ratio must be at least 1 and less than .*; got nan"),
        (
            RunConfig,
            {"data": DataConfig(tokenizer="unigram"), "training": TrainingConfig(bpe_dropout=0.1)},
            r"training\.bpe_dropout is 0.1, but only text in byte pairs",
        ),
        (
            RunConfig,
            {"training": TrainingConfig(word_dropout=2.0)},
            r"training\.word_dropout is 2.0, but only whole words have classes",
        ),
        (
            RunConfig,
            {
                "data": DataConfig(train_trees=("a",), validation_trees=("b",), joint_vocabulary=False),
                "training": TrainingConfig(noise=("typos=0.1", "title=0.1")),
                "model": ModelConfig(tied="target"),
            },
            r"training\.noise is typos=0\.1 title=0\.1, but only text for translation can have noise",
        ),
    ],
)
def test_impossible_settings_are_refused(config: type, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


# Automatic settings: what a run began with, else what suits the device and the number of processes


def values(config: RunConfig) -> tuple[int, str]:
    return config.training.n_micro_batches, config.training.precision


def config_with(device: Any, **training: Any) -> RunConfig:
    return RunConfig(training=TrainingConfig(**training), device=device)


@pytest.mark.parametrize(("n_ranks", "expected"), [(1, 1), (2, 2), (3, 2), (4, 4), (6, 4), (7, 4), (8, 8), (16, 16)])
@pytest.mark.parametrize("order", ["exact", "fast"])
def test_a_gpu_has_bfloat16_and_one_micro_batch_for_each_working_rank(order: Any, n_ranks: int, expected: int) -> None:
    assert values(resolved(config_with("cuda", sum=order), n_ranks, None)) == (expected, "bfloat16")


@pytest.mark.parametrize("n_ranks", [1, 6, 16])
@pytest.mark.parametrize(("batch_tokens", "expected"), [(25_000, 8), (4_000, 8), (3_999, 2), (1, 2)])
def test_a_cpu_has_as_many_micro_batches_for_any_ranks(batch_tokens: int, expected: int, n_ranks: int) -> None:
    assert values(resolved(config_with("cpu", batch_tokens=batch_tokens), n_ranks, None))[0] == expected


def test_both_settings_are_automatic_by_default_and_presets_have_on_a_cpu_the_micro_batches_of_their_size() -> None:
    presets = [RunConfig(), *(RunConfig.of_preset(name) for name in ("tiny", "small", "base", "big", "parsing"))]
    assert {values(preset) for preset in presets} == {(0, "automatic")}
    assert [values(resolved(preset, 1, None))[0] for preset in presets] == [2, 2, 2, 8, 8, 8]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("obstacle", "expected"), [(None, "bfloat16"), ("ml_dtypes is missing", "float32")])
def test_a_device_has_bfloat16_unless_something_is_missing(device: Any, obstacle: Any, expected: str) -> None:
    assert values(resolved(config_with(device), 1, obstacle))[1] == expected


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_set_is_kept(device: Any) -> None:
    set_to = {"n_micro_batches": 16, "precision": "float32" if device == "cuda" else "bfloat16"}
    config = config_with(device, **set_to)
    assert resolved(config, 4, None) == config
    assert values(resolved(config_with(device, n_micro_batches=16), 4, None))[0] == 16


def begin(run: Path, **training: Any) -> None:
    RunConfig(run=run, training=TrainingConfig(**training)).claim_directory()


def test_a_run_keeps_the_values_it_began_with_where_they_are_automatic(tmp_path: Path) -> None:
    begin(tmp_path, n_micro_batches=8, precision="float32")
    training = {"n_micro_batches": 8, "precision": "float32"}
    assert initial_settings(tmp_path) == {"model": {"alpha": None}, "data": {}, "training": training}
    assert values(with_values(config_with("cuda"), initial_settings(tmp_path))) == (8, "float32")
    set_here = config_with("cuda", n_micro_batches=1, precision="bfloat16")
    assert with_values(set_here, initial_settings(tmp_path)) == set_here


@pytest.mark.parametrize("part", PARTS)
def test_a_setting_that_a_run_of_an_earlier_version_lacks_costs_nothing(part: str, tmp_path: Path) -> None:
    """Each setting is taken out of the file of a run in turn, as if it were new."""
    config = resolved(RunConfig(run=tmp_path, model=ModelConfig(), training=TrainingConfig()), 1, None)
    settings = json.loads(config.to_json())
    for name in settings[part]:
        lacking = settings | {part: {key: value for key, value in settings[part].items() if key != name}}
        (tmp_path / "run.json").write_text(json.dumps(lacking))
        begun = with_values(
            RunConfig(run=tmp_path, model=ModelConfig(), training=TrainingConfig()), initial_settings(tmp_path)
        )
        assert begun.differences(()) == []
        assert begun.data.normalisation == ("nmt_nfkc" if name == "normalisation" and part == "data" else "keep")


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"training": 3}', '{"model": {}}'])
def test_where_no_run_began_all_stays_automatic(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert with_values(RunConfig(), initial_settings(tmp_path)) == RunConfig()


@pytest.mark.parametrize(("name", "value"), [("n_micro_batches", "x"), ("n_micro_batches", 3), ("precision", 5)])
def test_an_impossible_value_in_the_file_is_named(name: str, value: Any, tmp_path: Path) -> None:
    begin(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    content["training"][name] = value
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=f"{name} must be "):
        with_values(RunConfig(device="cuda"), initial_settings(tmp_path))
