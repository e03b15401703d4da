"""The moving average of the weights: its equation, validation, the final model, checkpoints, and fine-tuning."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_optimizers import optimizers

from autograd import Layer, Parameter, ParameterBuffer
from autograd.optim import Adam, Optimizer
from autograd.parameters import glorot_uniform
from minitransformer import Transformer, train
from minitransformer.config import ConfigError, RunConfig, TrainingConfig
from minitransformer.system.files import read_arrays
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import OPTIMIZER_FILE, checkpoints
from minitransformer.training.loop import Trainer
from minitransformer.training.run import finish
from parallel.communicator import SerialCommunicator
from tests.support.training import TINY, Recorder, StoppingMonitor, changed, copy_store, job_of, run_of


class Matrix(Layer):
    def __init__(self) -> None:
        self.weight = Parameter((5, 30), glorot_uniform)


@pytest.mark.parametrize("kind", [Adam, optimizers.Lion])
@pytest.mark.parametrize("decay", [0.3, 0.999])
def test_the_average_follows_the_equation_and_leaves_skipped_updates_out(kind: type[Optimizer], decay: float) -> None:
    buffer = ParameterBuffer(Matrix(), seed=1, dtype="float64")
    optimizer = kind(buffer)
    optimizer.begin_average(decay)
    expected = buffer.values.copy()
    for step in range(1, 9):
        buffer.gradients[:] = np.random.default_rng(step).standard_normal(len(buffer.gradients))
        if step in (1, 4):
            buffer.gradients[3] = np.nan
        optimizer.step(0.1, step)
        if step not in (1, 4):
            d = min(decay, (1 + step) / (10 + step))
            expected = d * expected + (1 - d) * buffer.values
        np.testing.assert_allclose(optimizer.ema, expected, rtol=1e-12, atol=1e-15)
    assert not np.allclose(expected, buffer.values)


def trainer_of(folder: Path, *, run: str = "run", n_threads: int = 1, **changes: Any) -> Trainer:
    settings = {"max_updates": 8, "batch_tokens": 60, "n_micro_batches": 2, "precision": "float32", "warmup_steps": 20}
    config = TrainingConfig(**settings | {"ema": 0.6, "checkpoint_every": 4} | changes)
    model = Transformer(TINY, seed=1)
    return Trainer(model, copy_store(folder, 30), None, config, folder / run, SerialCommunicator(), n_threads=n_threads)


@pytest.mark.parametrize("name", ["adam", "optimizers:Lion", "optimizers:Muon"])
def test_threads_and_an_interruption_change_no_bit(name: str, tmp_path: Path) -> None:
    whole, first = (trainer_of(tmp_path, run=run, optimizer=name) for run in ("whole", "run"))
    assert whole.train(Callback())
    assert not first.train(StoppingMonitor(5))
    resumed = trainer_of(tmp_path, n_threads=3, optimizer=name)
    assert resumed.resume()
    assert resumed.state.step == 5
    assert resumed.train(Callback())
    assert [x.tobytes() for x in resumed.optimizer.state.values()] == [
        x.tobytes() for x in whole.optimizer.state.values()
    ]
    assert "ema" in whole.optimizer.state
    assert not np.array_equal(whole.optimizer.ema, whole.model.parameters.values)


def test_the_weights_are_those_of_a_training_without_it_which_has_no_array_of_it(tmp_path: Path) -> None:
    one, other = (trainer_of(tmp_path, run=str(ema), ema=ema) for ema in (0.0, 0.9))
    assert one.train(Callback())
    assert other.train(Callback())
    assert one.model.parameters.values.tobytes() == other.model.parameters.values.tobytes()
    assert (one.optimizer.ema, one.optimizer.state.keys()) == (None, {"m", "v"})
    saved = [read_arrays(checkpoints(tmp_path / run)[-1] / OPTIMIZER_FILE) for run in ("0.0", "0.9")]
    assert saved[1].keys() - saved[0].keys() == {f"ema.{name}" for name, _ in one.model.named_parameters()}
    assert one.validated_model() is one.model


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, list[Any]]:
    """A run with a moving average, and the reports of its validations."""
    config, recorder = run_of(tmp_path_factory.mktemp("averaged"), ema=0.8, learning_rate_factor=0.2), Recorder()
    train(config, callbacks=[recorder])
    return config, [report for report in recorder.reports if hasattr(report, "perplexity")]


def test_validations_score_the_average_and_keep_it_as_the_best_and_the_final_model(
    averaged: tuple[RunConfig, list[Any]],
) -> None:
    config, reports = averaged
    job = job_of(config)
    saved = read_arrays(checkpoints(config.run)[-1] / OPTIMIZER_FILE)
    average = {name.removeprefix("ema."): array for name, array in saved.items() if name.startswith("ema.")}
    model = Transformer(job.trainer.model.config)
    model.set_weights(average)
    validation = job.trainer.validation
    assert validation is not None
    assert reports[-1].loss == validation.loss(model).loss != validation.loss(job.trainer.model).loss
    assert reports[-1].best, "its loss falls"
    for directory in (config.run / "best", config.run):
        weights = Transformer.load(directory).weights()
        assert all(np.array_equal(weights[name], array) for name, array in average.items())
    results = json.loads((config.run / "results.json").read_text("utf-8"))
    assert results["weights"] == "moving average of the weights (decay 0.8) after update 20"
    assert results["validation"]["perplexity"] == pytest.approx(np.exp(reports[-1].loss))


def test_an_earlier_average_becomes_the_final_model_if_it_is_better(tmp_path: Path) -> None:
    config = run_of(tmp_path, ema=0.8, learning_rate_factor=300.0, clip_norm=1.0, warmup_steps=10**6, max_updates=20)
    job = job_of(config)
    assert job.trainer.train(Callback())
    best = job.trainer.state.best
    assert best is not None
    job.trainer.state = dataclasses.replace(job.trainer.state, best=("loss", best[1] - 1))
    finish(job, Callback())
    results = json.loads((config.run / "results.json").read_text("utf-8"))
    assert results["weights"].startswith("best moving average of the weights, validation loss ")


def test_a_finished_run_that_goes_on_has_the_bits_of_one_that_did_not_stop(tmp_path: Path) -> None:
    configs = [run_of(tmp_path / name, ema=0.8, max_updates=20) for name in ("straight", "parts")]
    train(configs[0], callbacks=[])
    train(changed(configs[1], max_updates=10), callbacks=[])
    train(configs[1], callbacks=[])
    files = [(config.run / "model.safetensors").read_bytes() for config in configs]
    assert files[0] == files[1]


@pytest.mark.parametrize(("theirs", "ours"), [(0.8, 0.0), (0.8, 0.5), (0.0, 0.5)])
def test_the_average_begins_anew_in_a_run_from_another_one(
    theirs: float, ours: float, averaged: tuple[RunConfig, list[Any]], tmp_path: Path
) -> None:
    source = averaged[0]
    if not theirs:
        source = run_of(tmp_path / "source")
        train(source, callbacks=[])
    config = dataclasses.replace(run_of(tmp_path, ema=ours), init_from=source.run, init_optimizer=True)
    optimizer = job_of(config).trainer.optimizer
    assert optimizer.state["m"].any()
    if ours:
        weights = Transformer.load(checkpoints(source.run)[-1]).parameters.values
        assert optimizer.ema is not None
        assert optimizer.ema.tobytes() == optimizer.buffer.values.tobytes() == weights.tobytes()
    else:
        assert optimizer.ema is None


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training.ema must be at least 0 and less than 1; got 1"):
        TrainingConfig(ema=1)
    train(run_of(tmp_path, ema=0.5, max_updates=4), callbacks=[], evaluates=False)
    with pytest.raises(ConfigError, match=r"training.ema is 0.5 there, 0.0 here"):
        train(run_of(tmp_path), callbacks=[])

    class Taken(optimizers.Lion):  # type: ignore[misc, name-defined]
        arrays = ("ema",)

    with pytest.raises(ValueError, match=r"Taken.arrays: 'ema' is the name of the moving average of the parameters"):
        Taken(ParameterBuffer(Matrix(), seed=1)).begin_average(0.5)
    with pytest.raises(ValueError, match=r"Adam.begin_average: expected 0 ≤ decay < 1; got 1"):
        Adam(ParameterBuffer(Matrix(), seed=1)).begin_average(1)
