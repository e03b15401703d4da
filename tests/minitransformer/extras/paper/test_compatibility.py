"""The conventions of other systems: what each switch is set to, and that its effect is that of the switch alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import ConfigError
from minitransformer.extras.paper.compatibility import CONVENTIONS, Effect, compatible, effects, penalties
from minitransformer.model.transformer import WeightsError

SMALL = ModelConfig(vocabulary_size=12, n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
BATCH = Batch.from_token_ids([[3, 4, 5], [8]], [[6, 7], [11, 3, 3]])


def effects_of(system: str, **how: Any) -> dict[str, Effect]:
    return {effect.switch: effect for effect in effects(SMALL, BATCH, system, dtype="float64", **how)}


HALVES_AND_ZERO = {"positions": "halves", "start": "zero"}


@pytest.mark.parametrize(("system", "switches"), [
    ("paper", {}), ("tensor2tensor", HALVES_AND_ZERO),
    ("fairseq", {"positions": "halves", "start": "end", "first_position": 2, "layer_norm_eps": 1e-5,
        "attention_bias": True, "attention_gain": pytest.approx(1 / np.sqrt(2)), "normalisation": "length"}),
    ("marian", HALVES_AND_ZERO | {"label_smoothing_over": "V", "softmax_bias": True, "attention_bias": True,
        "normalisation": "length"}),  # its epsilon is 1e-6 (layers/generic.h); 1e-9 is that of the operator alone
])  # fmt: skip
def test_the_switches_of_each_system(system: str, switches: dict[str, Any]) -> None:
    """Read in their sources; every switch is a difference that somebody has met."""
    config = compatible(SMALL, system)
    assert {name: value for name, value in vars(config).items() if value != getattr(SMALL, name)} == switches
    assert (SMALL.label_smoothing_over, SMALL.layer_norm_eps, SMALL.normalisation) == ("V-1", 1e-6, "gnmt")
    assert np.isfinite(float(Transformer(config).loss(BATCH)))
    assert effects_of(system).keys() == switches.keys() - {"normalisation"}


def test_an_effect_is_that_of_its_switch_alone() -> None:
    plain = Transformer(SMALL, dtype="float64")
    for switch, effect in effects_of("fairseq").items():
        turned = Transformer(dataclasses.replace(SMALL, **{switch: effect.after}), dtype="float64")
        assert effect.loss_before == float(plain.loss(BATCH)) / BATCH.n_target_tokens
        assert effect.loss_after == float(turned.loss(BATCH)) / BATCH.n_target_tokens
        assert effect.largest_change == np.abs(turned.log_probabilities(BATCH) - plain.log_probabilities(BATCH)).max()
        assert effect.before == getattr(SMALL, switch)


def test_biases_change_nothing_before_they_are_trained_and_the_others_do() -> None:
    for system in ("fairseq", "marian"):
        found = effects_of(system)
        still = {switch for switch, effect in found.items() if effect.largest_change == 0}
        assert still == {"attention_bias", "softmax_bias", "label_smoothing_over"} & found.keys()
    assert found["label_smoothing_over"].loss_after != found["label_smoothing_over"].loss_before  # Marian's loss


def test_weights_that_were_trained_stay() -> None:
    weights = {name: 2 * value for name, value in Transformer(SMALL, seed=5, dtype="float64").weights().items()}
    found = effects_of("fairseq", weights=weights)
    assert found["attention_gain"].largest_change == 0
    assert found["attention_bias"].largest_change == 0
    trained = Transformer(SMALL, dtype="float64")
    trained.set_weights(weights)
    assert found["start"].loss_before == float(trained.loss(BATCH)) / BATCH.n_target_tokens
    assert found["start"].largest_change > 0


@pytest.mark.parametrize("system", ["tensor2tensor", "fairseq", "marian"])
def test_a_trained_table_of_positions_is_left_out_where_the_system_has_sinusoids(system: str) -> None:
    config = dataclasses.replace(SMALL, positions="learned")
    trained = Transformer(config, seed=5, dtype="float64")
    found = {one.switch: one for one in effects(config, BATCH, system, weights=trained.weights(), dtype="float64")}
    assert list(found) == list(CONVENTIONS[system].model)
    turned = Transformer(dataclasses.replace(SMALL, positions="halves"), dtype="float64")
    turned.set_weights({name: value for name, value in trained.weights().items() if "positions" not in name})
    assert found["positions"].loss_after == float(turned.loss(BATCH)) / BATCH.n_target_tokens


def test_what_the_score_of_a_translation_is_divided_by() -> None:
    assert penalties("paper", [1, 7]) == pytest.approx([1, 2**0.6])
    assert penalties("tensor2tensor", [7]) == penalties("paper", [7])
    assert penalties("fairseq", [1, 7], alpha=1) == penalties("marian", [1, 7], alpha=1) == [1, 7]


def test_an_unknown_system_and_weights_of_another_model_are_refused() -> None:
    for ask in (compatible, lambda _, system: effects_of(system)):
        with pytest.raises(ConfigError, match="^compat: expected one of paper, tensor2tensor, fairseq, marian; got 's"):
            ask(SMALL, "sockeye")
    with pytest.raises(WeightsError, match="weights do not fit this model: missing"):
        effects_of("fairseq", weights={"nothing": np.zeros(3)})
