"""Table 3 at a small scale: which models its rows are, how cells are trained, and what is made of their figures."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import Transformer, presets
from minitransformer.config import ConfigError, DataConfig, RunConfig, TrainingConfig
from minitransformer.config.run import resolved
from minitransformer.extras.paper.statistics import Estimate
from minitransformer.extras.paper.table3 import PRINTED, Experiment, Scale, rows_named
from minitransformer.system.files import CorruptFileError
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import average_weights, checkpoints
from minitransformer.training.loop import Trainer
from minitransformer.training.memory import OutOfMemoryError
from minitransformer.training.update import TrainingStep
from minitransformer.training.validation import BEST
from parallel.communicator import SerialCommunicator
from tests.support.training import StoppingMonitor

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier"}
SMALLEST = Scale(d_model=32, n_layers=3)


def experiment(folder: Path, *rows: str, seeds: tuple[int, ...] = (1,), budget: int = 20) -> Experiment:
    pairs = [(f"{a} {b} {c}", f"{WORDS[a]} {WORDS[b]} {WORDS[c]}") for a in WORDS for b in WORDS for c in WORDS]
    for side, name in enumerate(("t.en", "t.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    data = DataConfig(raw=folder, train_source=("t.en",), train_target=("t.de",), vocabulary_size=40, held_out=6)
    training = TrainingConfig(batch_tokens=100, n_micro_batches=1, warmup_steps=400)
    template = RunConfig(data=data, training=training)
    return Experiment(template, folder / "table3", SMALLEST, budget, rows_named(rows), seeds)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """An experiment whose base model is trained."""
    e = experiment(tmp_path_factory.mktemp("trained"), "E")
    assert e.result("base", 1) is None
    assert train(e, "base")
    return e


def train(experiment: Experiment, row: str, seed: int = 1, callback: Callback | None = None) -> bool:
    return experiment.train(row, seed, SerialCommunicator(), [callback or Callback()])


def test_letters_and_names_stand_for_rows_and_the_base_model_is_always_there() -> None:
    assert rows_named([]) == list(PRINTED)
    assert rows_named(["E", "B"]) == ["base", "table3-B-dk16", "table3-B-dk32", "table3-E"]
    assert rows_named(["big", "table3-D-ls0"]) == ["base", "table3-D-ls0", "big"]
    assert rows_named(["table3-A-h1"]) == rows_named(["A-h1"]) == ["base", "table3-A-h1"]
    with pytest.raises(ConfigError, match="rows are A, B, C, D, E or one of base, A-h1, .*, E, big; got 'F'"):
        rows_named(["F"])
    for word in ("A-h", "", "b", "table3"):  # no name of a row: A-h1 and A-h16 begin so
        with pytest.raises(ConfigError, match=f"rows are .*; got '{word}'"):
            rows_named([word])


def test_a_smaller_scale_keeps_proportions_heads_and_rates() -> None:
    quarter = Scale(d_model=128, n_layers=3)
    assert quarter.of("base") == dataclasses.replace(presets.base(), n_layers=3, d_model=128, d_ff=512, d_k=16, d_v=16)
    h32, big = quarter.of("table3-A-h32"), quarter.of("big")
    assert (h32.n_heads, h32.d_k) == (32, 4)
    assert (big.d_model, big.d_ff, big.n_heads, big.p_drop) == (256, 1024, 16, 0.3)
    assert [quarter.of(f"table3-C-n{n}").n_layers for n in (2, 4, 8)] == [1, 2, 4]


def test_rows_are_the_papers_at_its_scale_and_in_proportion_at_the_smallest() -> None:
    assert list(PRINTED) == ["base", *presets.TABLE3, "big"]
    for row in PRINTED:
        assert Scale().of(row) == presets.named(row)
        assert Scale(d_model=32, n_layers=3).of(row).d_k * 16 == presets.named(row).d_k


@pytest.mark.parametrize(("make", "message"), [
    (lambda _: Scale(d_model=48), "d_model must be a multiple of 32"),
    (lambda _: Scale(n_layers=4), "n_layers must be a multiple of 3"),
    (lambda path: experiment(path, budget=19), "budget must be at least 20 updates; got 19"),
    (lambda path: experiment(path, seeds=()), "expected one seed or more, all different"),
    (lambda path: experiment(path, seeds=(1, 1)), "expected one seed or more, all different"),
])  # fmt: skip
def test_scales_budgets_and_seeds_that_make_no_table_are_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(tmp_path)


@pytest.mark.parametrize(("data", "message"), [
    (DataConfig(train_trees=("a",), validation_trees=("b",), joint_vocabulary=False), "the corpus is a treebank"),
    (DataConfig(joint_vocabulary=False), "the corpus has joint_vocabulary = false"),
])  # fmt: skip
def test_a_corpus_that_its_models_cannot_be_trained_on_is_refused(
    tmp_path: Path, data: DataConfig, message: str
) -> None:
    model = dataclasses.replace(presets.base(), tied="none")
    with pytest.raises(ConfigError, match=f"table3: .*{message}"):
        Experiment(RunConfig(data=data, model=model), tmp_path, SMALLEST, 20, ["base"], [1])


def test_cells_differ_in_model_and_seed_alone_and_the_big_one_is_trained_longer(tmp_path: Path) -> None:
    e = experiment(tmp_path, seeds=(1, 2), budget=60)
    base, other, big = e.cell("base", 1), e.cell("table3-A-h1", 2), e.cell("big", 1)
    assert dataclasses.replace(other, run=base.run, model=base.model, training=base.training) == base
    assert dataclasses.replace(other.training, seed=1) == base.training
    assert (base.training.max_updates, base.training.warmup_steps, big.training.max_updates) == (60, 20, 180)
    assert base.training.checkpoint_every == 3
    training = dataclasses.replace(e.template.training, schedule="linear")  # a corpus's own, which no cell has
    linear = dataclasses.replace(e, template=dataclasses.replace(e.template, training=training))
    assert linear.cell("base", 1) == base
    assert base.training.schedule == "paper"
    cells = list(experiment(tmp_path, "E", seeds=(3, 5)).cells())
    assert cells == [("base", 3), ("table3-E", 3), ("base", 5), ("table3-E", 5)]


def test_a_cell_is_trained_to_its_end_and_leaves_its_model_and_figures(trained: Experiment) -> None:
    found, run = trained.result("base", 1), trained.cell("base", 1).run
    assert found is not None
    assert (found.updates, found.parameters) == (20, Transformer.load(run).n_parameters)
    assert math.isfinite(found.perplexity)
    assert found.flops > 0
    assert 0 <= found.bleu <= 100
    assert (run / "checkpoints").exists()
    trained.forget_checkpoints("base", 1)
    assert not (run / "checkpoints").exists()
    assert trained.result("base", 1) == found
    assert trained.result("table3-E", 1) is None


def test_a_cell_is_averaged_as_in_the_paper_even_if_a_single_model_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single model is kept whose validation loss no average undercuts."""
    train_to_the_end = Trainer.train

    def train_and_keep(trainer: Trainer, callback: Callback) -> bool:
        done = train_to_the_end(trainer, callback)
        trainer.model.save(trainer.run_directory / BEST)
        trainer.state = dataclasses.replace(trainer.state, best_loss=0.0)
        return done

    monkeypatch.setattr(Trainer, "train", train_and_keep)
    e = experiment(tmp_path)
    assert train(e, "base")
    found, run = e.result("base", 1), e.cell("base", 1).run
    assert found is not None
    assert found.weights == "average of the last 5 checkpoints"
    averaged = average_weights(checkpoints(run))
    for name, value in Transformer.load(run).weights().items():
        np.testing.assert_array_equal(value, averaged[name])


CELL = {
    "perplexity": 9.5, "bleu": 1.5, "parameters": 7, "updates": 20, "seconds": 3.5, "code": "x", "flops": 8,
    "weights": "average", "configuration": "0123", "signature": "tok:13a", "text": "4567",
}  # fmt: skip


def test_figures_without_the_settings_of_their_training_or_corrupt_are_refused(tmp_path: Path) -> None:
    e = experiment(tmp_path)
    file = e.cell("base", 1).run / "cell.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(CELL))
    with pytest.raises(CorruptFileError, match=r"run\.json: not found; .* remove .*base-seed-1 to train it again"):
        e.result("base", 1)
    resolved(e.cell("base", 1), 1, None).claim_directory()  # as a training that begins
    found = e.result("base", 1)
    assert found is not None
    assert dataclasses.asdict(found) == CELL
    for written, message in (
        (json.dumps(CELL | {"flops": "8"}), "flops must be a whole number; got '8'; .*: remove it$"),
        (json.dumps(CELL | {"more": 1}), r"expected an object with perplexity, .*: \['more'\]; .*: remove it$"),
        ("{", "cannot be read"),
    ):
        file.write_text(written)
        with pytest.raises(CorruptFileError, match=rf"cell\.json: {message}"):
            e.result("base", 1)


def test_a_cell_interrupted_and_killed_before_its_figures_were_written_ends_with_the_same_ones(
    trained: Experiment, tmp_path: Path
) -> None:
    stopped = experiment(tmp_path)
    assert not train(stopped, "base", callback=StoppingMonitor(7))
    assert stopped.result("base", 1) is None
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("minitransformer.training.run.write_text", interrupt)  # of results.json
        train(stopped, "base")
    assert stopped.result("base", 1) is None
    assert train(stopped, "base")
    one, other = trained.result("base", 1), stopped.result("base", 1)
    assert one is not None
    assert other is not None
    assert (one.perplexity, one.bleu) == (other.perplexity, other.bleu)


def interrupt(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_a_cell_for_which_memory_does_not_suffice_says_what_would_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(TrainingStep, "__call__", lacking)
    with pytest.raises(OutOfMemoryError, match=r"out of memory \(update 1\)"):
        train(experiment(tmp_path), "base")


def test_means_come_with_students_interval() -> None:
    assert Estimate.of([3.0]) == Estimate(3.0, None)
    two = Estimate.of([1.0, 3.0])
    assert two.mean == 2
    assert two.half_width == pytest.approx(12.706)
    few = enumerate((4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306), 3)
    for n, quantile in (*few, (10, 2.2622), (11, 2.2281), (21, 2.0860), (121, 1.9799)):  # in any table of Student's t
        numbers = [0.0, 2.0] * (n // 2) + [1.0] * (n % 2)
        expected = quantile * statistics.stdev(numbers) / math.sqrt(n)
        assert Estimate.of(numbers).half_width == pytest.approx(expected, rel=1e-4), n
    assert [str(Estimate.of([1.0])), str(two)] == ["1.00", "2.00 ± 12.71"]
    with pytest.raises(ValueError, match="expected at least one number"):
        Estimate.of([])
