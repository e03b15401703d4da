"""Repro bundles: an update computed again from its own files, and what went wrong in it found."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autograd import RandomStream, backward
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import cut_into_micro_batches
from minitransformer.extras.doctor.check import replay_repro_bundle
from minitransformer.system.files import CheckpointError, read_arrays, write_arrays
from minitransformer.training.divergence import BATCH_FILE, UPDATE_FILE, UpdateFacts, write_repro_bundle
from minitransformer.training.state import TrainingState

GRADIENT_IS_INFINITE = "decoder.layers.0.feed_forward.hidden.weight"
SMALL = ModelConfig(vocabulary_size=12, n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4, p_drop=0.3)
PAIRS = [(np.array(source), np.array(target)) for source, target in (([3, 4, 5], [6]), ([8], []), ([], [7, 9, 3, 3]))]
STATE, TRAINING = TrainingState(step=17, epoch=1, next_batch=5), TrainingConfig(seed=3, n_micro_batches=2)
FACTS = UpdateFacts.of(STATE, np.array([5, 0, 2]), TRAINING, 1e-3, "the loss is nan")


def bundle(folder: Path, **values: float) -> Path:
    """A repro bundle of a model with another first value, or row, in some parameters."""
    model = Transformer(SMALL)
    for name, value in values.items():
        model.parameters.named[name].value[0] = value
    gradients = np.ones_like(model.parameters.values)
    gradients[model.parameters.named[GRADIENT_IS_INFINITE].offset] = np.inf
    write_repro_bundle(folder, model, PAIRS, FACTS, gradients)
    return folder


def test_a_replay_is_the_update_itself(tmp_path: Path) -> None:
    """Its micro-batches, its dropout masks, its parameters; in float64."""
    model = Transformer(SMALL, dtype="float64")
    model.set_weights(Transformer(SMALL).weights())
    lengths = np.array([[len(source), len(target)] for source, target in PAIRS])
    loss, gradient, n_tokens = 0.0, np.zeros_like(model.parameters.values), sum(lengths[:, 1] + 1)
    for micro_batch, indices in enumerate(cut_into_micro_batches(np.arange(3), lengths, 2)):
        batch = Batch.from_token_ids([PAIRS[i][0] for i in indices], [PAIRS[i][1] for i in indices])
        micro_batch_loss = model.loss(batch, RandomStream(3, 17, micro_batch))
        backward(micro_batch_loss)
        loss, gradient = loss + float(micro_batch_loss), gradient + model.parameters.gradients
    replay = replay_repro_bundle(bundle(tmp_path))
    assert replay.found is None
    assert replay.mean_loss == pytest.approx(loss / n_tokens, rel=1e-12)
    assert replay.gradient_norm == pytest.approx(np.linalg.norm(gradient) / n_tokens, rel=1e-12)
    assert str(replay).startswith("float64: all numbers are finite; loss ")


def test_a_parameter_that_is_no_number_is_named(tmp_path: Path) -> None:
    name = "encoder.layers.0.feed_forward.hidden.weight"
    replay = replay_repro_bundle(bundle(tmp_path, **{name: np.nan}))
    assert (replay.found.operation, replay.found.array) == ("linear_relu", "argument 1")
    assert name in str(replay)


def test_everything_that_is_known_of_the_update_stands_in_the_file(tmp_path: Path) -> None:
    infinite = "encoder.layers.0.self_attention.query.weight"
    written = json.loads((bundle(tmp_path, **{infinite: np.inf}) / UPDATE_FILE).read_text())
    assert (written["step"], written["pairs"], written["what"]) == (17, [5, 0, 2], "the loss is nan")
    for name, parameter in Transformer(SMALL).named_parameters():
        value = "inf" if name == infinite else pytest.approx(np.linalg.norm(parameter.value))
        gradient = "inf" if name == GRADIENT_IS_INFINITE else pytest.approx(np.sqrt(parameter.size))
        norms = written["norms"].pop(name)
        assert (norms["value"], norms["gradient"]) == (value, gradient), name
    assert written["norms"] == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 2**64}, f"step must be at least 1 and less than .*; got {2**64}; the repro bundle is corrupt"),
        ({"n_micro_batches": 0}, "n_micro_batches must be at least 1 and less than 65,537; got 0; the repro"),
        ({"seed": -1}, "seed must be at least 0 and less than .*; got -1; the repro bundle is corrupt"),
    ],
)
def test_corrupt_and_missing_facts_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = bundle(tmp_path) / UPDATE_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(CheckpointError, match=message):
        replay_repro_bundle(tmp_path)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="expected an object with step, epoch, .*; the repro bundle is corrupt"):
        replay_repro_bundle(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"update\.json: not found"):
        replay_repro_bundle(tmp_path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("source", np.arange(2)),
        ("source", np.zeros((4, 1), np.int64)),
        ("target", np.zeros(5)),
        ("source", np.array([3, 12, 4, 4])),
        ("target", np.array([3, 12, 4, 4, 4])),
        ("target", np.array([3, -1, 4, 4, 4])),
        ("target", np.array([3, 1, 4, 4, 4])),  # the start symbol
        ("lengths", np.zeros((0, 2), np.int64)),
        ("lengths", np.array(2)),
        ("lengths", np.array([[-1, 5], [4, 0], [1, 0]])),
        ("lengths", np.array([[1, 2, 0], [3, 3, 0]])),
        ("more", np.arange(2)),
    ],
)
def test_corrupt_batches_are_refused(tmp_path: Path, name: str, array: Any) -> None:
    path = bundle(tmp_path) / BATCH_FILE
    write_arrays(path, read_arrays(path) | {name: array})
    with pytest.raises(CheckpointError, match="expected two lengths for each pair, .* the repro bundle is corrupt"):
        replay_repro_bundle(tmp_path)
