"""Callbacks that measure the model, and callbacks that fail."""

import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from minitransformer.config import ConfigError
from minitransformer.model.transformer import Transformer
from minitransformer.text.road import STEPS
from minitransformer.training.callbacks import Callback, CallbackError, Callbacks
from minitransformer.training.checkpoint import checkpoints
from minitransformer.training.run import train
from tests.minitransformer.training.test_trainer import FixedLosses, everything, trained, trainer_of
from tests.support.training import Recorder, names_in, run_of


class ChrF(Callback):
    def __init__(self, run: Path) -> None:
        self.run, self.scores = run, list[float]()

    def validated(self, *arguments: Any) -> dict[str, float]:
        model, translator, sources, references, translations = arguments
        assert translator.translate(sources[:1], beam=1, skip=STEPS)[0].startswith(translations[0])
        assert len(sources) == len(references) == len(translations) == 10
        saved = Transformer.load(checkpoints(self.run)[-1]).parameters.values
        assert np.array_equal(saved, model.parameters.values) == (len(self.scores) < 3)  # the last one is the average
        self.scores.append(CHRF(word_order=2).corpus_score(list(translations), [list(references)]).score)
        return {"chrF++": np.float64(self.scores[-1])}


class Given(Callback):
    def __init__(self, *measures: Any) -> None:
        self._measures = iter(measures)

    def validated(self, *arguments: Any, **named: Any) -> Any:
        return next(self._measures)


class Failing(Callback):
    def __init__(self, method: str) -> None:
        setattr(self, method, Mock(side_effect=[KeyError("on purpose"), *[{}] * 9]))

    @property
    def measures(self) -> bool:
        return "validated" in vars(self)


def test_what_a_callback_measures_is_logged_and_chooses_the_model(tmp_path: Path) -> None:
    config = run_of(tmp_path, best_by="chrF++", patience_for="chrF++", checkpoint_every=7, max_updates=22)
    metric = ChrF(config.run)
    result = train(config, callbacks=[metric])
    lines = [json.loads(line) for line in (config.run / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["kind"] == "validation"]
    *during, average = metric.scores
    assert [line["chrF++"] for line in validations] == during
    best = [score > max(during[:i], default=-1.0) for i, score in enumerate(during)]
    assert [line["best"] for line in validations] == best
    chosen = result.results["weights"]
    assert chosen == (
        f"best single model, validation chrF++ {max(during):.4f}"
        if max(during) > average
        else "average of the last 3 checkpoints"
    )


def test_patience_and_the_best_model_follow_the_measure_that_they_name(tmp_path: Path) -> None:
    losses, errors = (4.0, 3.0, 2.0, 1.0), ({"ter": 60.0}, {"ter": 50.0}, {"ter": 55.0}, {"ter": 40.0})
    changes = {"validate_every": 2, "best_by": "-ter", "patience_for": "-ter", "patience": 1}
    trainer, monitor = trainer_of(tmp_path, validation=FixedLosses(*losses), **changes), Recorder()
    assert trainer.train(Callbacks([Given(*errors), monitor]))
    assert trainer.state.step == 6
    assert trainer.state.best == trainer.state.best_watched == ("-ter", 50.0)
    resumed = trainer_of(tmp_path, validation=FixedLosses(0.5), **changes | {"patience": 2})
    resumed.resume()
    assert resumed.train(Given({"ter": 40.0}))
    assert resumed.state.best == ("-ter", 40.0)


@pytest.mark.parametrize("wrong", [Recorder, print, None])
def test_what_is_no_callback_is_refused_at_the_start(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="^callbacks: expected instances of classes derived from Callback; got [<N]"):
        train(run_of(tmp_path), callbacks=[Recorder(), wrong])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["best_by", "patience_for"])
def test_a_figure_that_nothing_measures_is_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"training.{setting} must be .* callback; got 'blue'"):
        train(run_of(tmp_path, **{setting: "blue"}), callbacks=[])
    assert not (tmp_path / "run").exists()
    trainer = trainer_of(tmp_path, validation=FixedLosses(1.0), validate_every=2, **{setting: "blue"})
    with pytest.raises(ConfigError, match="one of loss, perplexity, bleu, ter; got 'blue'"):
        trainer.train(Given({"ter": 1.0}))
    assert names_in(tmp_path / "run" / "checkpoints") == ["step-00000002"]


@pytest.mark.parametrize(
    ("measures", "problem"),
    [
        (5.0, "returned 5.0; expected a dict of numbers"),
        ({"bleu": 1.0}, "of the name 'bleu'"),
        ({"samples": 1.0}, "of the name 'samples'"),
        ({"first": 1.0}, "of the name 'first'"),
        ({"-ter": 1.0}, "of the name '-ter'"),
        ({7: 1.0}, "of the name 7"),
        ({"chrf": math.nan}, "chrf = nan; expected a finite number"),
        ({"chrf": "50"}, "chrf = '50'; expected a finite number"),
    ],
)
def test_measures_without_a_name_of_their_own_or_a_number_are_refused(measures: Any, problem: str) -> None:
    callbacks = Callbacks([Given({"first": 1.0}), Given(None), Given(measures)])
    with pytest.raises(CallbackError, match=rf"^callback Given.validated: .*{problem}"):
        callbacks.validated(None, None, [], [], [])


@pytest.mark.parametrize("method", ["after_step", "report", "validating", "validated"])
def test_after_an_error_of_a_callback_the_run_goes_on(method: str, tmp_path: Path, logged: list[str]) -> None:
    changes: dict[str, Any] = {"validate_every": 4, "log_every": 4}
    step, failing = 1 if method == "after_step" else 4, Failing(method)
    changes["validation"] = FixedLosses(2.0, 1.0)
    with pytest.raises(CallbackError, match=rf"callback Failing.{method}: KeyError: 'on purpose'") as raised:
        trainer_of(tmp_path, **changes).train(failing)
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__notes__ == [f"(in update {step})"]
    assert logged == [f"interrupted after update {step} and saved; the same run goes on from there"]
    assert names_in(tmp_path / "run" / "checkpoints") == [f"step-{step:08d}"]
    resumed = trainer_of(tmp_path, **changes)
    assert resumed.resume()
    assert resumed.train(failing)
    whole = trained(tmp_path, run="whole", **changes | {"validation": FixedLosses(2.0, 1.0)})
    assert everything(resumed) == everything(whole)
