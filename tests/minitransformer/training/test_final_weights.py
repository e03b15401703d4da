"""Which weights a run ends with: the average of its last checkpoints, or the best single model."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import Transformer
from minitransformer.config import RunConfig
from minitransformer.inference.length_penalty import ALPHAS
from minitransformer.model.files import load_model_files
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import average_weights, checkpoint_path, checkpoints
from minitransformer.training.run import finish, train
from minitransformer.training.validation import BEST, exceeds
from tests.minitransformer.training.test_open_run import InterruptingValidation
from tests.support.training import job_of, run_of


def kept_weights(config: RunConfig) -> str:
    return str(json.loads((config.run / "results.json").read_text())["weights"])


def require_equal(config: RunConfig, expected: dict[str, Any]) -> None:
    weights = Transformer.load(config.run).weights()
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, expected[name])


def test_results_say_which_weights_the_model_has_and_the_average_can_be_insisted_on(finished_run: RunConfig) -> None:
    """So early in training the last model is better than the average with those before it."""
    config, job = finished_run, job_of(finished_run)
    best, average = load_model_files(config.run / BEST)[1], average_weights(checkpoints(config.run))
    finish(job, Callback())
    assert kept_weights(config) == f"best single model, validation loss {(job.trainer.state.best or ('', 0))[1]:.4f}"
    require_equal(config, best)
    finish(job, Callback(), always_average=True)
    assert kept_weights(config) == "average of the last 3 checkpoints"
    require_equal(config, average)
    shutil.rmtree(config.run / BEST)
    finish(job, Callback())
    assert kept_weights(config) == "average of the last 3 checkpoints"


@pytest.mark.parametrize(
    ("name", "value", "kept", "expected"),
    [
        ("loss", 2.0, None, True), ("loss", 2.0, 2.0, False), ("loss", 2.0, float(np.nextafter(2.0, 99)), True),
        ("bleu", 2.0, 2.0, False), ("bleu", 2.0, 1.0, True), ("-ter", 2.0, 1.0, False), ("-ter", 1.0, 2.0, True),
        ("perplexity", 1.0, 2.0, True), ("lossless", 2.0, 1.0, True),
    ],
)  # fmt: skip
def test_a_figure_exceeds_the_kept_one_only_if_it_is_better(
    name: str, value: float, kept: float | None, expected: bool
) -> None:
    assert exceeds((name, value), None if kept is None else (name, kept)) == expected
    assert exceeds((name, value), ("another", 99.0))


def test_a_best_single_model_that_is_only_as_good_as_the_average_is_not_chosen(finished_run: RunConfig) -> None:
    config, job = finished_run, job_of(finished_run)
    job.trainer.model.set_weights(average := average_weights(checkpoints(config.run)))
    loss = job.trainer.validation.loss(job.trainer.model).loss
    for best_loss, expected in ((loss, "average of the last"), (np.nextafter(loss, 0), "best single model")):
        job.trainer.state = dataclasses.replace(job.trainer.state, best=("loss", float(best_loss)))
        finish(job, Callback())
        assert kept_weights(config).startswith(expected)
        if best_loss == loss:
            require_equal(config, average)


def test_an_average_with_old_checkpoints_says_so(tmp_path: Path, logged: list[str]) -> None:
    """A disk that is full for a while leaves a gap."""
    config = run_of(tmp_path, keep_checkpoints=5)
    job = job_of(config)
    assert job.trainer.train(Callback())
    finish(job, Callback(), always_average=True)
    assert not any(line.startswith("warning") for line in logged)
    for missing, older, gap in (
        (16, "step-00000008", "update 16"),
        (12, "step-00000004, step-00000008", "update 12, update 16"),
    ):
        shutil.rmtree(checkpoint_path(config.run, missing))
        finish(job, Callback(), always_average=True)
        assert [line for line in logged if line.startswith("warning")][-1] == (
            f"warning: the average takes in {older}, older than the last 3 intervals: there is no complete checkpoint"
            f" after {gap}"
        )


def test_the_length_penalty_is_chosen_on_held_out_text_unless_the_run_has_one(
    finished_run: RunConfig, logged: list[str]
) -> None:
    job, free = job_of(finished_run), dataclasses.replace(finished_run.model, alpha=None)
    for model, n_tried in ((finished_run.model, 0), (free, len(ALPHAS)), (free, len(ALPHAS))):
        logged.clear()
        job.trainer.model.config = dataclasses.replace(job.trainer.model.config, alpha=model.alpha)
        finish(dataclasses.replace(job, config=dataclasses.replace(finished_run, model=model)), Callback())
        said = [line for line in logged if line.startswith("length penalty: ")]
        scores = dict(re.findall(r"([0-9.]+): ([0-9.]+)", " ".join(said)))
        stored = [json.loads((finished_run.run / name).read_text()) for name in ("results.json", "model.json")]
        assert len(scores) == n_tried
        assert stored[0]["alpha"] == stored[1]["alpha"]
        if scores:
            alpha = stored[0]["alpha"]
            assert f"chose α {alpha:g}; " in said[0]
            assert scores[f"{alpha:g}"] == f"{stored[0]['validation']['bleu']:.2f}"
            assert float(scores[f"{alpha:g}"]) >= float(scores["0.6"])
    assert job.trainer.model.config.alpha == stored[1]["alpha"]


def test_ctrl_c_in_the_final_evaluation_leaves_it_to_the_run_started_again(
    finished_run: RunConfig, logged: list[str]
) -> None:
    (finished_run.run / "results.json").unlink()
    monitor = InterruptingValidation()
    with pytest.raises(KeyboardInterrupt):
        finish(job_of(finished_run), monitor)
    assert monitor.seen[0][0] == 0 < monitor.seen[-1][0]
    assert not (finished_run.run / "results.json").exists()
    assert logged[-1] == "interrupted after the last update; the same run, started again, makes what is missing"
    assert train(finished_run, callbacks=[]).results["updates"] == finished_run.training.max_updates
