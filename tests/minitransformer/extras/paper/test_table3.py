"""Table 3 at a small scale: its models, the training of cells, and the tables of their figures."""

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from small_run import write_parallel_text

from minitransformer import Transformer, presets
from minitransformer.config import ConfigError, DataConfig, RunConfig, TrainingConfig
from minitransformer.config.run import resolved
from minitransformer.extras.paper import table3_report
from minitransformer.extras.paper.statistics import Estimate
from minitransformer.extras.paper.table3 import PRINTED, Experiment, Result, Scale, rows_named
from minitransformer.system.files import CorruptFileError
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import average_weights, checkpoints
from minitransformer.training.loop import Trainer
from minitransformer.training.validation import BEST
from parallel.communicator import SerialCommunicator
from tests.support.training import StoppingMonitor

SMALLEST = Scale(d_model=32, n_layers=3)


def experiment(folder: Path, *rows: str, seeds: tuple[int, ...] = (1,), budget: int = 20) -> Experiment:
    write_parallel_text(folder, "t", 64, seed=1)
    data = DataConfig(raw=folder, train_source=("t.en",), train_target=("t.de",), vocabulary_size=40, held_out=6)
    training = TrainingConfig(batch_tokens=100, n_micro_batches=1, warmup_steps=400)
    template = RunConfig(data=data, training=training)
    return Experiment(template, folder / "table3", SMALLEST, budget, rows_named(rows), seeds)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    e = experiment(tmp_path_factory.mktemp("trained"), "E")
    assert e.result("base", 1) is None
    assert train(e)
    return e


def train(experiment: Experiment, *callbacks: Callback) -> bool:
    return experiment.train("base", 1, SerialCommunicator(), callbacks)


def test_letters_and_names_stand_for_rows_and_the_base_model_is_always_there() -> None:
    assert rows_named([]) == list(PRINTED)
    assert rows_named(["E", "B"]) == ["base", "table3-B-dk16", "table3-B-dk32", "table3-E"]
    assert rows_named(["big", "table3-D-ls0"]) == ["base", "table3-D-ls0", "big"]
    assert rows_named(["table3-A-h1"]) == rows_named(["A-h1"]) == ["base", "table3-A-h1"]
    for word in ("F", "A-h", "", "b", "table3"):  # no name of a row: A-h1 and A-h16 begin so
        with pytest.raises(ConfigError, match=f"rows are A, B, C, D, E or one of base, A-h1, .*, E, big; got '{word}'"):
            rows_named([word])


def test_rows_are_the_papers_at_its_scale_and_a_smaller_one_keeps_proportions_heads_and_rates() -> None:
    quarter = Scale(d_model=128, n_layers=3)
    assert quarter.of("base") == dataclasses.replace(presets.base(), n_layers=3, d_model=128, d_ff=512, d_k=16, d_v=16)
    h32, big = quarter.of("table3-A-h32"), quarter.of("big")
    assert (h32.n_heads, h32.d_k) == (32, 4)
    assert (big.d_model, big.d_ff, big.n_heads, big.p_drop) == (256, 1024, 16, 0.3)
    assert [quarter.of(f"table3-C-n{n}").n_layers for n in (2, 4, 8)] == [1, 2, 4]
    assert list(PRINTED) == ["base", *presets.TABLE3, "big"]
    for row in PRINTED:
        assert Scale().of(row) == presets.named(row)
        assert SMALLEST.of(row).d_k * 16 == presets.named(row).d_k


def with_separate_vocabularies(folder: Path, **data: Any) -> Experiment:
    model = dataclasses.replace(presets.base(), tied="none")
    template = RunConfig(data=DataConfig(joint_vocabulary=False, **data), model=model)
    return Experiment(template, folder, SMALLEST, 20, ["base"], [1])


@pytest.mark.parametrize(("make", "message"), [
    (lambda _: Scale(d_model=48), "d_model must be a multiple of 32"),
    (lambda _: Scale(n_layers=4), "n_layers must be a multiple of 3"),
    (lambda path: experiment(path, budget=19), "budget must be at least 20 updates; got 19"),
    (lambda path: experiment(path, seeds=()), "expected one seed or more, all different"),
    (lambda path: experiment(path, seeds=(1, 1)), "expected one seed or more, all different"),
    (lambda path: with_separate_vocabularies(path, train_trees=("a",), validation_trees=("b",)),
        "table3: .*the corpus is a treebank"),
    (with_separate_vocabularies, "table3: .*the corpus has joint_vocabulary = false"),
])  # fmt: skip
def test_settings_that_make_no_table_are_refused(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(tmp_path)


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
    assert (found.updates, found.parameters) == (20, Transformer.load(run).n_parameters)
    assert math.isfinite(found.perplexity)
    assert found.flops > 0
    assert 0 <= found.bleu <= 100
    assert (run / "checkpoints").exists()
    trained.forget_checkpoints("base", 1)
    assert not (run / "checkpoints").exists()
    assert trained.result("base", 1) == found
    assert trained.result("table3-E", 1) is None


def test_a_cell_is_averaged_even_if_a_single_model_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single model is kept whose validation loss no average undercuts."""
    train_to_the_end = Trainer.train

    def train_and_keep(trainer: Trainer, callback: Callback) -> bool:
        done = train_to_the_end(trainer, callback)
        trainer.model.save(trainer.run_directory / BEST)
        trainer.state = dataclasses.replace(trainer.state, best=("loss", 0.0))
        return done

    monkeypatch.setattr(Trainer, "train", train_and_keep)
    e = experiment(tmp_path)
    assert train(e)
    found, run = e.result("base", 1), e.cell("base", 1).run
    assert found.weights == "average of the last 5 checkpoints"
    averaged = average_weights(checkpoints(run))
    for name, value in Transformer.load(run).weights().items():
        np.testing.assert_array_equal(value, averaged[name])


CELL: dict[str, Any] = {
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
    assert dataclasses.asdict(found) == CELL
    for written, message in (
        (json.dumps(CELL | {"flops": "8"}), "flops must be a whole number; got '8'; .*: remove it$"),
        (json.dumps(CELL | {"more": 1}), r"expected an object with perplexity, .*: \['more'\]; .*: remove it$"),
        ("{", "cannot be read"),
    ):
        file.write_text(written)
        with pytest.raises(CorruptFileError, match=rf"cell\.json: {message}"):
            e.result("base", 1)


def test_an_interrupted_and_killed_cell_ends_with_the_same_figures(trained: Experiment, tmp_path: Path) -> None:
    stopped = experiment(tmp_path)
    assert not train(stopped, StoppingMonitor(7))
    assert stopped.result("base", 1) is None
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("minitransformer.training.run.write_text", Mock(side_effect=KeyboardInterrupt))  # of results.json
        train(stopped)
    assert stopped.result("base", 1) is None
    assert train(stopped)
    one, other = trained.result("base", 1), stopped.result("base", 1)
    assert (one.perplexity, one.bleu) == (other.perplexity, other.bleu)


def test_means_come_with_students_interval() -> None:
    assert Estimate.of([3.0]) == Estimate(3.0, None)
    two = Estimate.of([1.0, 3.0])
    assert (two.mean, two.half_width) == (2, pytest.approx(12.706))
    few = enumerate((4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306), 3)
    for n, quantile in (*few, (10, 2.2622), (11, 2.2281), (21, 2.0860), (121, 1.9799)):  # in any table of Student's t
        numbers = [0.0, 2.0] * (n // 2) + [1.0] * (n % 2)
        expected = quantile * statistics.stdev(numbers) / math.sqrt(n)
        assert Estimate.of(numbers).half_width == pytest.approx(expected, rel=1e-4), n
    assert [str(Estimate.of([1.0])), str(two)] == ["1.00", "2.00 ± 12.71"]
    with pytest.raises(ValueError, match="expected at least one number"):
        Estimate.of([])


RESULTS = Path(__file__).parents[4] / "docs" / "lab" / "table3.md"


def result(perplexity: float, bleu: float) -> Result:
    sizes = {"parameters": 1_234_567, "updates": 1_000, "flops": 12_345_678}
    names = {"code": "abc", "configuration": "0123456789", "text": "fedc"}
    return Result(**(CELL | sizes | names | {"perplexity": perplexity, "bleu": bleu}))


def test_the_committed_figures_stand_beside_the_papers_differences() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    printed = {row: {1: result(numbers.perplexity, numbers.bleu)} for row, numbers in PRINTED.items()}
    rows = table3_report.differences_as_markdown(printed).splitlines()[2:]
    differences = [(name, p, b) for name, _, p, _, b in (row.strip("| ").split(" | ") for row in rows)]
    found = re.findall(r"^\| (\S+) \| [^|]+" + 2 * r" \| \S+ ± \S+ \| \S+ ± \S+ \| (\S+)" + r" \|$", text, re.M)
    assert found == differences
    assert len(found) == 19


def test_differences_are_paired_by_seed() -> None:
    """Seeds differ much, the two models always by the same."""
    results = {
        "base": {1: result(5.0, 20.0), 2: result(9.0, 30.0), 3: result(7.0, 10.0)},
        "big": {1: result(4.0, 21.0), 3: result(6.0, 11.0)},
        "table3-E": {},
    }
    (row,) = table3_report.differences_as_markdown(results).splitlines()[2:]
    assert row == "| big | -1.00 ± 0.00 | -0.59 | +1.00 ± 0.00 | +0.60 |"


def test_the_table_prints_what_a_row_changes_beside_the_papers_figures() -> None:
    results: dict[str, dict[int, Any]] = {
        "base": {1: result(5.0, 20.0)}, "table3-A-h1": {1: result(6.0, 19.0)}, "table3-E": {1: result(5.0, 20.0)},
        "big": {},
    }  # fmt: skip
    header, rule, base, h1, learned = table3_report.as_markdown(results, Scale(d_model=128, n_layers=3)).splitlines()
    assert header.count("|") == rule.count("|") == base.count("|") == h1.count("|") == 17
    assert [base, h1] == [
        "| base | 3 | 128 | 512 | 8 | 16 | 16 | 0.1 | 0.1 | 1,000 | 5.00 | 4.92 | 20.00 | 25.8 | 1.23 | 1.2e+07 |",
        "| (A) |  |  |  | 1 | 128 | 128 |  |  | 1,000 | 6.00 | 5.29 | 19.00 | 24.9 | 1.23 | 1.2e+07 |",
    ]
    assert learned.startswith("| (E) learned positions |  |  |")
    assert table3_report.differences_as_markdown(results).splitlines()[2:] == [
        "| A-h1 | +1.00 | +0.37 | -1.00 | -0.90 |", "| E | 0.00 | +0.00 | 0.00 | -0.10 |",
    ]  # fmt: skip


def test_cells_of_other_text_or_code_or_with_other_weights_are_named() -> None:
    noted = result(5.0, 20.0)
    changes = {"updates": 3_000, "text": "ba98"}, {"weights": "best single model"}
    results = {
        "base": {1: noted, 2: dataclasses.replace(noted, code="def")},
        "big": {seed: dataclasses.replace(noted, **change) for seed, change in enumerate(changes, 1)},
    }
    assert table3_report.provenance_as_markdown(results, "x.toml").splitlines() == [
        "Text: x.toml, fedc; NOT THE SAME: ba98 (big-seed-1). Seeds: 1, 2. Updates: 1,000 or 3,000."
        " Configuration of base-seed-1: 0123456789.",
        "Code: abc; NOT THE SAME: def (base-seed-2). Weights: average; NOT THE SAME: best single model (big-seed-2)."
        " BLEU: beam 4, tok:13a.",
    ]
