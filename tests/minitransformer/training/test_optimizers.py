"""Optimizers of users: the page's formulas, threads, checkpoints, and what is refused."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_optimizers import CODE, optimizers

from autograd import Layer, Parameter, ParameterBuffer
from autograd.optim import Adam, Optimizer
from autograd.parameters import glorot_uniform, ones, scaled_normal
from minitransformer import Transformer, train
from minitransformer.config import ConfigError, TrainingConfig
from minitransformer.system.files import CheckpointError, UnfitError, read_arrays
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import OPTIMIZER_FILE, checkpoints
from minitransformer.training.loop import Trainer
from parallel.communicator import SerialCommunicator
from tests.support.training import TINY, changed, copy_store, job_of, run_of

NAMES = ("AdamW", "Lion", "Muon")
ARRAYS = {"AdamW": ("m", "v"), "Lion": ("m",), "Muon": ("m",)}
RATES = (0.1, 0.02, 0.05)


class Stack(Layer):
    """Parameters of an encoder: two matrices of layers, and a gain."""

    def __init__(self) -> None:
        self.wide, self.tall = Parameter((3, 8), glorot_uniform), Parameter((7, 4), glorot_uniform)
        self.gain = Parameter((5,), ones)


class Model(Layer):
    def __init__(self) -> None:
        self.embedding, self.encoder = Parameter((9, 3), scaled_normal), Stack()


def updated(kind: type[Optimizer], **changes: Any) -> list[dict[str, Any]]:
    """Return all parameters before and after each of three updates with the gradients of ``gradient``, in float64."""
    buffer = ParameterBuffer(Model(), seed=1, dtype="float64")
    optimizer, found = kind(buffer, **changes), []
    for step, rate in enumerate(RATES, 1):
        found.append({name: values.copy() for name, values in buffer.named_values().items()})
        for name, parameter in buffer.named.items():
            parameter.view_of(buffer.gradients)[...] = gradient(step, name, parameter.shape)
        optimizer.step(rate, step, n_tokens=4)
    return [*found, buffer.named_values()]


def gradient(step: int, name: str, shape: tuple[int, ...]) -> Any:
    """Return the sum of the gradients of four tokens."""
    return np.random.default_rng([step, len(name)]).standard_normal(shape) * 4


def test_adamw_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-all has it")
    found = updated(optimizers.AdamW, beta1=0.8, beta2=0.95, eps=1e-6)
    tensors = {name: torch.tensor(values, requires_grad=True) for name, values in found[0].items()}
    peer = torch.optim.AdamW(tensors.values(), lr=1.0, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.01)
    for step, rate in enumerate(RATES, 1):
        peer.param_groups[0]["lr"] = rate
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(gradient(step, name, tuple(tensor.shape)) / 4)
        peer.step()
        for name, tensor in tensors.items():
            np.testing.assert_allclose(found[step][name], tensor.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_lion_is_algorithm_2() -> None:
    found = updated(optimizers.Lion, beta1=0.9, beta2=0.99)
    for name, start in found[0].items():
        theta, m = start, np.zeros(start.shape)
        for step, rate in enumerate(RATES, 1):
            g = gradient(step, name, theta.shape) / 4
            c = 0.9 * m + 0.1 * g
            theta = theta - rate * (np.where(c > 0, 1.0, -1.0) + 0.1 * theta)
            m = 0.99 * m + 0.01 * g
            np.testing.assert_allclose(found[step][name], theta, rtol=1e-10, atol=1e-12)


def polynomial(s: Any) -> Any:
    """Apply the polynomial of Newton–Schulz steps to singular values, five times."""
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return s


def test_muon_changes_only_the_singular_values_of_the_momentum_of_matrices() -> None:
    found = updated(optimizers.Muon, beta1=0.95)
    for name, start in found[0].items():
        theta, m = start, np.zeros(start.shape)
        for step, rate in enumerate(RATES, 1):
            g = gradient(step, name, theta.shape) / 4
            m = 0.95 * m + 0.05 * g
            momentum = 0.95 * m + 0.05 * g
            if name in ("encoder.wide", "encoder.tall"):
                u, s, v = np.linalg.svd(momentum, full_matrices=False)
                direction = 0.2 * np.sqrt(max(theta.shape)) * (u * polynomial(s / np.linalg.norm(s))) @ v
            else:
                direction = 0.2 * np.sign(momentum)
            theta = theta - rate * (direction + 0.1 * theta)
            np.testing.assert_allclose(found[step][name], theta, rtol=1e-5, atol=1e-7)


def test_so_says_pytorch_in_bfloat16() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-all has it")
    found = updated(optimizers.Muon, beta1=0.95)
    for name in ("encoder.wide", "encoder.tall"):
        tensor = torch.tensor(found[0][name], requires_grad=True)
        peer = torch.optim.Muon(
            [tensor], lr=1.0, momentum=0.95, nesterov=True, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        )
        for step, rate in enumerate(RATES, 1):
            peer.param_groups[0]["lr"] = rate
            tensor.grad = torch.tensor(gradient(step, name, tuple(tensor.shape)) / 4)
            peer.step()
            np.testing.assert_allclose(found[step][name], tensor.detach().numpy(), atol=0.03 * step * 0.1)


def test_each_example_has_at_most_40_lines() -> None:
    parts = re.split(r"^(?=class )", CODE[0], flags=re.MULTILINE)
    assert [re.match(r"class (\w+)", part)[1] for part in parts[1:]] == list(NAMES)  # type: ignore[index]
    assert max(part.count("\n") for part in parts) <= 40


def test_the_page_trains_with_lion(tmp_path: Path) -> None:
    code = CODE[1].replace("RunConfig()", "settings")
    assert code != CODE[1]
    names = {"settings": run_of(tmp_path, max_updates=3)}
    exec(compile(code, "docs", "exec"), names)
    saved = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["training"]
    assert (saved["optimizer"], saved["beta2"], saved["learning_rate_factor"]) == ("optimizers:Lion", 0.99, 0.1)


def trainer_of(folder: Path, name: str, *, run: str = "run", n_threads: int = 1, **changes: Any) -> Trainer:
    settings = {"max_updates": 8, "batch_tokens": 60, "n_micro_batches": 2, "precision": "float32", "warmup_steps": 20}
    config = TrainingConfig(**settings | {"optimizer": name, "checkpoint_every": 4} | changes)
    model = Transformer(TINY, seed=1)
    return Trainer(model, copy_store(folder, 30), None, config, folder / run, SerialCommunicator(), n_threads=n_threads)


def state_of(trainer: Trainer) -> list[bytes]:
    arrays = trainer.model.parameters.values, *trainer.optimizer.state.values()
    return [array.tobytes() for array in arrays]


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return f"optimizers:{request.param}"


def test_threads_and_an_interruption_change_no_bit_and_no_unused_array_is_kept(name: str, tmp_path: Path) -> None:
    whole = trainer_of(tmp_path, name, run="whole")
    assert whole.train(Callback())
    assert trainer_of(tmp_path, name, max_updates=5).train(Callback())
    resumed = trainer_of(tmp_path, name, n_threads=3)
    assert resumed.resume()
    assert resumed.state.step == 5
    assert resumed.train(Callback())
    assert state_of(resumed) == state_of(whole)
    arrays = ARRAYS[name.removeprefix("optimizers:")]
    saved = read_arrays(checkpoints(tmp_path / "run")[-1] / OPTIMIZER_FILE)
    assert {key.partition(".")[0] for key in saved} == set(arrays) == whole.optimizer.state.keys()
    adam = trainer_of(tmp_path, "adam", run="adam")
    assert adam.train(Callback())
    assert not np.array_equal(adam.model.parameters.values, whole.model.parameters.values)


class Descent(Optimizer):
    """Gradient descent, without state."""

    def direction(self, gradients: Any, *state: Any) -> Any:
        return (gradients,)


def test_an_optimizer_without_state_is_saved_and_resumed(tmp_path: Path) -> None:
    name = f"{__name__}:Descent"
    whole, first = trainer_of(tmp_path, name, run="whole"), trainer_of(tmp_path, name, max_updates=5)
    assert whole.train(Callback())
    assert first.train(Callback())
    resumed = trainer_of(tmp_path, name)
    assert resumed.resume()
    assert resumed.train(Callback())
    assert state_of(resumed) == state_of(whole)


@pytest.mark.parametrize("kind", [optimizers.AdamW, optimizers.Lion, optimizers.Muon, Descent, Adam])
def test_an_update_that_is_not_finite_changes_nothing(kind: type[Optimizer]) -> None:
    buffer = ParameterBuffer(Model(), seed=1)
    optimizer = kind(buffer)
    optimizer.begin_average(0.5)
    buffer.gradients[:] = 1.0
    optimizer.step(0.1, 1)
    before = [buffer.values.tobytes(), *(array.tobytes() for array in optimizer.state.values())]
    buffer.gradients[3] = np.nan
    assert np.isnan(optimizer.step(0.1, 2))
    assert np.isnan(buffer.gradients[3]), "a repro bundle reads the gradients"
    assert [buffer.values.tobytes(), *(array.tobytes() for array in optimizer.state.values())] == before


@pytest.mark.parametrize("kind", [optimizers.AdamW, optimizers.Lion])
def test_pieces_and_slices_of_them_are_updated_like_the_whole(kind: Callable[..., Optimizer]) -> None:
    """Two ranks have two pieces each; each piece is updated in two slices."""
    shards = [(slice(0, 64), slice(128, 192)), (slice(64, 128), slice(192, None))]
    whole, divided = (ParameterBuffer(Model(), seed=1) for _ in range(2))
    ranks, alone = [kind(divided, pieces=pieces) for pieces in shards], kind(whole)
    for step in (1, 2):
        for buffer in (whole, divided):
            buffer.gradients[:] = np.random.default_rng(step).standard_normal(len(buffer.gradients))
        alone.update(alone.scalars(0.1, step), np.float64(1))
        for rank in ranks:
            for within in (slice(0, 40), slice(40, None)):
                rank.update(rank.scalars(0.1, step), np.float64(1), within)
    assert divided.values.tobytes() == whole.values.tobytes()
    assert sum(rank.size for rank in ranks) == len(whole.values)


def test_a_low_precision_weight_follows_its_master() -> None:
    buffer = ParameterBuffer(Model(), seed=1, dtype="float32")
    buffer.low_precision = buffer.values.astype(np.float16)  # as bfloat16, which NumPy lacks
    optimizer = optimizers.Muon(buffer)
    buffer.gradients[:] = np.random.default_rng(1).standard_normal(len(buffer.gradients))
    optimizer.step(0.1, 1)
    assert np.array_equal(buffer.low_precision, buffer.values.astype(np.float16))


def not_a_class(buffer: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lion", r"training.optimizer must be adam, or package.module:Class; got 'lion'"),
        ("optimizers:Missing", r"training.optimizer: 'optimizers:Missing' cannot be imported \(AttributeError"),
        (f"{__name__}:not_a_class", r"training.optimizer must be a class derived from autograd.optim.Optimizer; got"),
        (f"{__name__}:Model", r"training.optimizer must be a class derived from autograd.optim.Optimizer; got"),
    ],
)
def test_a_name_of_no_optimizer_is_refused_before_text_is_prepared(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(run_of(tmp_path, optimizer=name), callbacks=[])
    assert not (tmp_path / "run" / "data").exists()


def with_gradients() -> ParameterBuffer:
    buffer = ParameterBuffer(Model(), seed=1)
    buffer.gradients.fill(0)
    return buffer


def test_a_class_without_a_direction_is_named() -> None:
    class Empty(Optimizer):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty: define direction\(self, gradients, \*state\)"):
        Empty(with_gradients()).step(0.1, 1)


def test_a_direction_without_its_state_is_named() -> None:
    class Forgetful(Optimizer):
        arrays = ("m", "v")

        def direction(self, gradients: Any, *state: Any) -> Any:
            return gradients, state[0]

    with pytest.raises(
        ValueError, match=r"Forgetful.direction: expected a tuple of 3 arrays: the direction, m, v; got"
    ):
        Forgetful(with_gradients()).step(0.1, 1)


def test_the_state_of_another_optimizer_is_refused_by_its_arrays(tmp_path: Path) -> None:
    assert trainer_of(tmp_path, "adam").train(Callback())
    with pytest.raises(
        CheckpointError, match=r"is of another optimizer: expected the arrays m, as of Lion, found m, v"
    ):
        trainer_of(tmp_path, "optimizers:Lion").resume()
    config = run_of(tmp_path / "adam", max_updates=4)
    train(config, callbacks=[], evaluates=False)
    other = changed(run_of(tmp_path / "lion", max_updates=4, optimizer="optimizers:Lion"), "data")
    other = dataclasses.replace(other, init_from=config.run, init_optimizer=True)
    with pytest.raises(UnfitError, match=r"is of another optimizer: expected the arrays m, as of Lion, found m, v"):
        job_of(other)


def test_a_run_goes_on_with_its_optimizer_only(tmp_path: Path) -> None:
    config = run_of(tmp_path, max_updates=4, optimizer="optimizers:Lion")
    train(config, callbacks=[], evaluates=False)
    with pytest.raises(ConfigError, match=r"training.optimizer is 'optimizers:Lion' there, 'adam' here"):
        train(run_of(tmp_path, max_updates=8), callbacks=[], evaluates=False)
    assert train(changed(config, max_updates=8), callbacks=[], evaluates=False).updates == 8
