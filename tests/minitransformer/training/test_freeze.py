"""Frozen parameters: what is computed and moved, the gradient's norm, resumed runs, and patterns that are refused."""

import dataclasses
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import page_optimizers  # noqa: F401  (settings name its optimizers)
import pytest

from autograd import RandomStream, backward
from autograd.optim import gradient_norm
from autograd.tensor import nodes_in_order
from cli.train import train as train_command
from minitransformer import Batch, Transformer, train
from minitransformer.config import ConfigError, TrainingConfig
from minitransformer.training.callbacks import Callback
from minitransformer.training.loop import Trainer
from minitransformer.training.update import frozen_parameters
from parallel.communicator import SerialCommunicator
from tests.support.training import TINY, StoppingMonitor, copy_store, job_of, run_of, write_text

FREEZE = ("encoder.*", "*.bias")
UNTIED = dataclasses.replace(TINY, tied="none")


def trainer_of(folder: Path, *, run: str = "run", n_threads: int = 1, **changes: Any) -> Trainer:
    settings = {"max_updates": 8, "batch_tokens": 60, "n_micro_batches": 2, "precision": "float32", "warmup_steps": 20}
    config = TrainingConfig(**settings | {"freeze": FREEZE, "checkpoint_every": 4} | changes)
    model = Transformer(UNTIED, seed=1)
    return Trainer(model, copy_store(folder, 30), None, config, folder / run, SerialCommunicator(), n_threads=n_threads)


def is_frozen(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in FREEZE)


@pytest.mark.parametrize("optimizer", ["adam", "optimizers:AdamW", "optimizers:Lion", "optimizers:Muon"])
def test_only_what_is_trained_moves_and_threads_and_an_interruption_change_no_bit(
    optimizer: str, tmp_path: Path
) -> None:
    """AdamW, Lion and Muon also have weight decay."""
    whole, first = (trainer_of(tmp_path, run=run, optimizer=optimizer, ema=0.5) for run in ("whole", "run"))
    before = whole.model.weights()
    before = {name: array.copy() for name, array in before.items()}
    assert whole.train(Callback())
    moved = {name for name, array in whole.model.weights().items() if not np.array_equal(array, before[name])}
    assert moved == {name for name in before if not is_frozen(name)}
    for name, parameter in whole.model.named_parameters():
        if is_frozen(name):
            assert not any(parameter.view_of(getattr(whole.optimizer, array)).any() for array in whole.optimizer.arrays)
            assert np.array_equal(parameter.view_of(whole.optimizer.ema), parameter.value)
    assert not first.train(StoppingMonitor(5))
    resumed = trainer_of(tmp_path, n_threads=3, optimizer=optimizer, ema=0.5)
    assert resumed.resume()
    assert resumed.train(Callback())
    for array, other in zip(resumed.optimizer.state.values(), whole.optimizer.state.values(), strict=True):
        assert array.tobytes() == other.tobytes()
    assert resumed.model.parameters.values.tobytes() == whole.model.parameters.values.tobytes()


def test_gradients_of_trained_parameters_are_as_before_and_the_norm_is_of_these(tmp_path: Path) -> None:
    batch = Batch.from_token_ids([[3, 4], [5, 6, 7]], [[8, 3], [4, 5, 6]])
    models = [Transformer(UNTIED, seed=1, dtype="float64") for _ in range(2)]
    models[1].parameters.freeze([name for name in models[1].parameters.named if is_frozen(name)])
    for model in models:
        backward(model.loss(batch, RandomStream(1)))
    expected, found = ({n: p.grad for n, p in model.named_parameters()} for model in models)
    for name, gradient in expected.items():
        assert np.array_equal(found[name], gradient * (not is_frozen(name))), name
    flat = np.concatenate([found[name].ravel() for name in found if not is_frozen(name)])
    assert gradient_norm(models[1].parameters.gradients) == pytest.approx(np.linalg.norm(flat))
    one, other = trainer_of(tmp_path), trainer_of(tmp_path, freeze=())
    pairs = np.arange(6)
    assert 0 < one.step(pairs).norm < other.step(pairs).norm


def test_the_backward_pass_leaves_out_operations_before_the_first_trained_parameter() -> None:
    batch, names = Batch.from_token_ids([[3, 4]], [[8, 3]]), list[list[str]]()
    for freeze in ((), ("source_embedding.*", "encoder.*")):
        model = Transformer(UNTIED, seed=1)
        model.parameters.freeze(frozen_parameters(freeze, list(model.parameters.named)))
        node = model.loss(batch).node
        assert node is not None
        names.append([each.name for each in nodes_in_order(node)])
    operations_of_encoder = ["embedding_with_positions", "attention", "add_norm", "linear", "linear_relu"]
    for operation in operations_of_encoder:
        assert names[0].count(operation) > names[1].count(operation), operation


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (("encodr.*",), r"training.freeze: no parameter matches 'encodr.\*'; there are encoder.\*"),
        (("*.bais",), r"no parameter matches '\*.bais'; there are \*.bias"),
        (("encoder.*", "xyz"), r"no parameter matches 'xyz'; there are source_embedding, encoder, decoder"),
        (("*",), r"training.freeze: \* leaves no parameter to train; take a pattern out"),
        (("[!s]*", "source*"), r"leaves no parameter to train"),
    ],
)
def test_patterns_that_match_nothing_or_everything_are_refused(
    freeze: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        job_of(run_of(tmp_path, freeze=freeze))


def test_the_log_counts_what_is_trained_and_a_run_keeps_what_it_freezes(tmp_path: Path, logged: list[str]) -> None:
    config = run_of(tmp_path, freeze=FREEZE, max_updates=4)
    job = job_of(config)
    n_trained = sum(p.size for name, p in job.trainer.model.named_parameters() if not is_frozen(name))
    n_all = job.trainer.model.n_parameters
    assert 0 < n_trained < n_all
    assert any(f"{n_trained:,} of {n_all:,} parameters are trained (training.freeze)" in line for line in logged)
    train(config, callbacks=[], evaluates=False)
    with pytest.raises(ConfigError, match=re.escape("training.freeze is ['encoder.*', '*.bias'] there, [] here")):
        train(run_of(tmp_path), callbacks=[])


def test_moments_of_another_run_do_not_move_a_frozen_parameter(tmp_path: Path) -> None:
    source = run_of(tmp_path / "source", max_updates=4)
    train(source, callbacks=[], evaluates=False)
    config = run_of(tmp_path, freeze=FREEZE, max_updates=4)
    job = job_of(dataclasses.replace(config, init_from=source.run, init_optimizer=True))
    before = {name: array.copy() for name, array in job.trainer.model.weights().items()}
    assert job.trainer.train(Callback())
    for name, array in job.trainer.model.weights().items():
        assert np.array_equal(array, before[name]) == is_frozen(name), name


def test_the_command_line_takes_patterns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_text(tmp_path)
    options = (
        "--preset tiny --data.train-source t.en --data.train-target t.de --data.vocabulary-size 50 --data.held-out 10"
        " --training.freeze encoder.* *.bias --training.batch-tokens 60 --dry-run"
    )
    assert train_command([*options.split(), "--run", str(tmp_path / "run"), "--data.raw", str(tmp_path)]) == 0
    assert "parameters are trained (training.freeze)" in capfd.readouterr().err
