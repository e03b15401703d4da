"""Configurations by name, and the sizes that Table 3 prints."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from autograd import named_parameters
from minitransformer import ModelConfig, Transformer, presets
from minitransformer.config import ConfigError
from minitransformer.model import transformer


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The number of parameters of a configuration, without memory for them."""

    class Counted:
        def __init__(self, layer: Any, **_: Any) -> None:
            self.n_parameters = sum(parameter.size for _, parameter in named_parameters(layer))

    monkeypatch.setattr(transformer, "ParameterBuffer", Counted)
    return lambda config: Transformer(config).n_parameters


def formula(config: ModelConfig) -> int:
    """Parameters counted by hand: embeddings, 4 projections an attention, 2 matrices and biases a network, norms."""
    d, n = config.d_model, config.n_layers
    attention = 2 * d * config.n_heads * (config.d_k + config.d_v)
    feed_forward = 2 * d * config.d_ff + config.d_ff + d
    positions = 2 * config.max_positions * d if config.positions == "learned" else 0
    encoder_layer, decoder_layer = attention + feed_forward + 2 * 2 * d, 2 * attention + feed_forward + 3 * 2 * d
    return config.vocabulary_size * d + positions + n * encoder_layer + (config.n_decoder_layers or n) * decoder_layer


PRESETS = {"base": presets.base(37_000), "big": presets.big(37_000)} | {
    name: presets.named(name, 37_000) for name in presets.TABLE3
}


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_counts_follow_from_the_paper(name: str, count: Any) -> None:
    assert count(PRESETS[name]) == formula(PRESETS[name])
    for n_decoder_layers in (1, 9):
        uneven = dataclasses.replace(PRESETS[name], n_decoder_layers=n_decoder_layers)
        assert count(uneven) == formula(uneven)


# Table 3's last column, our count with 37,000 words, and with the vocabulary that explains the column (docs/paper.md).
MILLIONS = {
    "base": (65, 63.0, 65.1),
    "table3-B-dk16": (58, 56.0, 58.1),
    "table3-B-dk32": (60, 58.3, 60.4),
    "table3-C-n2": (36, 33.6, 35.7),
    "table3-C-n4": (50, 48.3, 50.4),
    "table3-C-n8": (80, 77.7, 79.8),
    "table3-C-d256": (28, 26.8, 27.9),
    "table3-C-d1024": (168, 163.8, 168.0),
    "table3-C-ff1024": (53, 50.5, 52.5),
    "table3-C-ff4096": (90, 88.2, 90.3),
    "big": (213, 214.2, 218.4),
}
EXPLAINING_VOCABULARY = 41_100


@pytest.mark.parametrize("name", MILLIONS)
def test_parameter_counts_against_table_3(name: str, count: Any) -> None:
    printed, ours, explained = MILLIONS[name]
    assert round(count(PRESETS[name]) / 1e6, 1) == ours
    with_more = dataclasses.replace(PRESETS[name], vocabulary_size=EXPLAINING_VOCABULARY)
    assert round(count(with_more) / 1e6, 1) == explained
    assert (round(count(with_more) / 1e6) == printed) == (name != "big")


def test_the_vocabularies_that_explain_table_3_are_those_of_the_documentation(count: Any) -> None:
    """docs/paper.md: ten rows agree for 41,004 to 41,208 words and no others, the big model for 35,368 to 36,344."""

    def agrees(name: str, vocabulary_size: int) -> bool:
        config = dataclasses.replace(PRESETS[name], vocabulary_size=vocabulary_size)
        return abs(count(config) / 1e6 - MILLIONS[name][0]) <= 0.5

    ten = [name for name in MILLIONS if name != "big"]
    around = {w: all(agrees(name, w) for name in ten) for w in (41_003, 41_004, 41_208, 41_209)}
    assert list(around.values()) == [False, True, True, False]
    assert [agrees("big", w) for w in (35_367, 35_368, 36_344, 36_345)] == [False, True, True, False]


def test_rows_that_change_the_number_of_heads_or_the_width_keep_the_computation_of_a_head() -> None:
    changes = {"n_heads": 4, "d_k": 128, "d_v": 128}
    assert presets.named("table3-A-h4", 37_000) == dataclasses.replace(presets.base(37_000), **changes)
    for name in presets.TABLE3:
        model = presets.named(name)
        if name.startswith(("table3-A", "table3-C-d")):
            assert model.n_heads * model.d_k == model.n_heads * model.d_v == model.d_model


def test_unknown_presets_and_fields_are_named() -> None:
    with pytest.raises(ConfigError, match="preset: expected one of tiny, small, base.*got 'huge'"):
        presets.named("huge")
    with pytest.raises(ConfigError, match="unknown key 'model.depth'"):
        ModelConfig.from_mapping({"depth": 3})


def test_a_benchmarks_model_with_a_presets_name_has_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    workloads = importlib.import_module("workload").WORKLOADS
    sizes = ("n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v")
    measured = workloads.keys() & presets.PRESETS.keys()
    assert measured
    for name in measured:
        config, preset = workloads[name].config, presets.PRESETS[name](0)
        assert [getattr(config, size) for size in sizes] == [getattr(preset, size) for size in sizes], name
