"""minitransformer-doctor --explain-compat: what other systems do differently, and how much each of it matters."""

import dataclasses
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from small_run import Command, Trained, plain
from threadpoolctl import threadpool_limits

from cli.explain_compat import explain_compat
from cli.train import read_options
from minitransformer import Batch, Transformer
from minitransformer.config import RunConfig
from minitransformer.data.prepare import PreparedData
from minitransformer.extras.paper.compatibility import CONVENTIONS, effects
from minitransformer.extras.paper.switch_effects import Subject, switches

SYSTEMS = ("tensor2tensor", "fairseq", "marian")


@pytest.fixture(autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Products are small, and threads of several test processes would wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


def test_trained_models_are_measured_on_validation_data(trained: Trained, command: Command) -> None:
    output = command("doctor", "--explain-compat", "fairseq", *trained.arguments).output
    first = f"Measured on the trained model of {trained.run}, on the first 16 pairs of its validation data."
    assert plain(output).startswith(first)
    store = PreparedData.open(read_options(trained.arguments).data_directory).stores["validation"].read()
    sources, targets = zip(*(store.pair(i) for i in range(16)), strict=True)
    model = Transformer.load(trained.run)
    batch = Batch.from_token_ids(sources, targets)
    measured = list(effects(model.config, batch, "fairseq", weights=model.weights(), dtype="float64"))
    switches = CONVENTIONS["fairseq"].model
    assert [each.switch for each in measured] == [
        name for name, value in switches.items() if getattr(model.config, name) != value
    ]
    for effect in measured:
        change = re.escape(f"{effect.largest_change:.2g}")
        line = f"\n{effect.switch} .* {effect.loss_before:.6f} → {effect.loss_after:.6f} +{change}\n"
        assert re.search(line, output), effect
    assert re.search(r"\nlayer_norm_eps +1e-06 +1e-05 ", output)
    assert re.search(r"\nattention_bias +no +yes ", output)


def test_without_a_model_a_small_untrained_one_is_measured(command: Command, tmp_path: Path) -> None:
    output = command("doctor", "--run", str(tmp_path), "--explain-compat").output
    assert plain(output).startswith(
        f"Measured on an untrained tiny model, on random words ({tmp_path} holds no model)."
    )
    for system in SYSTEMS:
        assert f"\n{system} " in output
        for switch in CONVENTIONS[system].model:
            assert f"\n{switch} " in output


def test_random_words_are_always_the_same() -> None:
    one, other = Subject.untrained("").batch, Subject.untrained("").batch
    np.testing.assert_array_equal(one.source_ids, other.source_ids)


def test_a_model_without_its_data_is_not_measured(trained: Trained, tmp_path: Path) -> None:
    for path in trained.run.glob("*.*"):
        shutil.copy(path, tmp_path)
    subject = Subject.of(RunConfig(run=tmp_path))
    assert (subject.weights, f"no prepared data in {tmp_path / 'data'}" in subject.what) == (None, True)


def test_a_switch_that_the_model_has_is_not_turned() -> None:
    untrained = Subject.untrained("")
    turned = dataclasses.replace(untrained, config=dataclasses.replace(untrained.config, positions="halves"))
    by_name = {switch.name: switch for switch in switches(turned, "tensor2tensor")}
    assert (by_name["positions"].effect, by_name["positions"].paper_value) == (None, "interleaved")
    assert by_name["start"].effect


@pytest.mark.parametrize("width", [60, 80])
def test_tables_fit_into_the_terminal(tmp_path: Path, width: int) -> None:
    screen = io.StringIO()
    explain_compat(RunConfig(run=tmp_path), ["marian"], Console(file=screen, width=width))
    tables = [line for line in screen.getvalue().splitlines() if "length penalty" not in line]
    assert max(map(len, tables)) <= width
    if width == 80:
        assert "label_smoothing_over  V-1" in screen.getvalue()


def test_a_system_that_cannot_be_explained_is_refused(command: Command) -> None:
    ended = command("doctor", "--explain-compat", "paper")
    assert (ended.status, f"unknown value 'paper'; known here: {', '.join(SYSTEMS)}" in ended.refusal) == (2, True)


def test_systems_in_order_are_explained_with_penalties(command: Command, tmp_path: Path) -> None:
    output = command("doctor", "--explain-compat", "marian", "fairseq", "--run", str(tmp_path)).output
    assert 0 < output.index("\nmarian ") < output.index("\nfairseq ")
    assert "tensor2tensor" not in output
    gnmt, length = ([rule(n) ** 0.6 for n in (5, 20, 80)] for rule in (lambda n: (5 + n) / 6, lambda n: n))
    assert f"(gnmt) of paper at 5, 20, 80 tokens: {', '.join(f'{x:.2f}' for x in gnmt)}\n" in output
    assert f"(length) of marian at 5, 20, 80 tokens: {', '.join(f'{x:.2f}' for x in length)}\n" in output
