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


def test_the_papers_conventions_are_the_defaults() -> None:
    assert compatible(SMALL, "paper") == SMALL
    assert effects_of("paper") == {}


@pytest.mark.parametrize("system", CONVENTIONS)
def test_every_system_makes_a_model_and_keeps_sizes(system: str) -> None:
    config = compatible(SMALL, system)
    sizes = ("vocabulary_size", "n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "norm", "tied")
    assert all(getattr(config, name) == getattr(SMALL, name) for name in sizes)
    assert np.isfinite(float(Transformer(config).loss(BATCH)))


def test_the_switches_of_each_system() -> None:
    """Read in their sources; every line is a difference that somebody has met."""
    t2t, fairseq, marian = (compatible(SMALL, system) for system in ("tensor2tensor", "fairseq", "marian"))
    assert (t2t.positions, t2t.start, t2t.label_smoothing_over, t2t.layer_norm_eps) == ("halves", "zero", "V-1", 1e-6)
    assert (fairseq.start, fairseq.first_position, fairseq.layer_norm_eps) == ("end", 2, 1e-5)
    assert fairseq.attention_gain == pytest.approx(1 / np.sqrt(2))
    assert (marian.start, marian.label_smoothing_over, marian.softmax_bias) == ("zero", "V", True)
    assert marian.layer_norm_eps == 1e-6  # layers/generic.h; 1e-9 is the default of the operator alone
    assert (t2t.attention_bias, fairseq.attention_bias, marian.attention_bias) == (False, True, True)
    assert (t2t.normalisation, fairseq.normalisation, marian.normalisation) == ("gnmt", "length", "length")


def test_an_effect_is_that_of_its_switch_alone() -> None:
    found = effects_of("fairseq")
    assert list(found) == list(CONVENTIONS["fairseq"].model)
    for switch, effect in found.items():
        turned = Transformer(dataclasses.replace(SMALL, **{switch: effect.after}), dtype="float64")
        plain = Transformer(SMALL, dtype="float64")
        assert effect.loss_before == float(plain.loss(BATCH)) / BATCH.n_target_tokens
        assert effect.loss_after == float(turned.loss(BATCH)) / BATCH.n_target_tokens
        change = np.abs(turned.log_probabilities(BATCH) - plain.log_probabilities(BATCH)).max()
        assert effect.largest_change == change
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
    for ask in (compatible, lambda config, system: effects_of(system)):
        with pytest.raises(
            ConfigError, match="^compat: expected one of paper, tensor2tensor, fairseq, marian; got 'soc"
        ):
            ask(SMALL, "sockeye")
    with pytest.raises(WeightsError, match="weights do not fit this model: missing"):
        effects_of("fairseq", weights={"nothing": np.zeros(3)})
