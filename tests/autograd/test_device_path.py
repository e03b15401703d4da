"""Device "cuda" without a GPU: everything runs on a stand-in for CuPy that refuses to mix host and device."""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import Draw
from op_cases import CASES, OpCase, is_float

from autograd import DeviceError, RandomStream, Tensor, backward, ops, to_device, to_host
from autograd.array import Device, device_of, namespace_of_device
from autograd.op import operations
from autograd.precision import dtype_named
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.inference.scoring import score_pairs
from minitransformer.training.callbacks import Callback
from minitransformer.training.loop import Trainer
from parallel.communicator import SerialCommunicator

DEVICES: tuple[Device, ...] = ("cpu", "cuda")

VOCABULARY = 19
SMALL = {"vocabulary_size": VOCABULARY, "n_layers": 2, "d_model": 8, "d_ff": 12, "n_heads": 2, "d_k": 4, "d_v": 3}
VARIATIONS = {
    "paper": {},
    "all kinds of dropout": {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_relu": 0.1},
    "pre norm, nothing tied": {"norm": "pre", "layer_norm_eps": 1e-5, "tied": "none", "source_vocabulary_size": 23},
    "learned positions, neighbourhood": {"positions": "learned", "max_positions": 80, "neighbourhood": 2},
    "halves, no smoothing": {"positions": "halves", "label_smoothing": 0.0, "tied": "target"},
    "biases, from position 1": {"attention_bias": True, "softmax_bias": True, "first_position": 1},
    "a zero vector first": {"start": "zero"},
    "swish, fewer decoder layers": {"activation": "swish", "n_decoder_layers": 1},
}
SOURCES = [[5, 6, 7, 8, 9, 10, 11, 12], [], [4], [12, 11]]
TARGETS = [[7], [4, 5, 6, 7, 8, 9, 10], [3, 8, 4], []]


def models(variation: str = "all kinds of dropout", *, dtype: str = "float64") -> list[Transformer]:
    config = ModelConfig.from_mapping({**SMALL, **VARIATIONS[variation]})
    return [Transformer(config, seed=3, dtype=dtype, device=device) for device in DEVICES]


def assert_near(on_device: Any, on_host: Any) -> None:
    """Check that results are equal within rounding, in float32 or better, and on the device."""
    assert device_of(on_device) == "cuda"
    assert on_device.dtype == on_host.dtype
    np.testing.assert_allclose(to_host(on_device), on_host, rtol=1e-5, atol=1e-6 * np.abs(on_host).max(initial=0))


# The stand-in is as strict as it says.

MIXTURES: dict[str, Callable[[Any, Any], Any]] = {
    "device + host": lambda device, host: device + host,
    "host + device": lambda device, host: host + device,
    "device += host": lambda device, host: device.__iadd__(host),
    "device[...] = host": lambda device, host: device.__setitem__(..., host),
    "host[...] = device": lambda device, host: host.__setitem__(..., device),
    "device[host]": lambda device, host: device[host.astype(int)],
    "device[:, host]": lambda device, host: device[:, host[0].astype(int)],
    "np.asarray(device)": lambda device, host: np.asarray(device),
    "np.exp(device)": lambda device, host: np.exp(device),
    "device.dot(host)": lambda device, host: device.dot(host),
    "device[of booleans]": lambda device, host: device[device > 0],
    "device[of booleans] = number": lambda device, host: device.__setitem__(device > 0, 0),
    "device.max(initial=0)": lambda device, host: device.max(initial=0),
}


WITH_BFLOAT16: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda x: x * 2.0, "scales": lambda x: 2.0 * x, "plus one": lambda x: x + 1, "product": lambda x: x @ x,
    "mixed sum": lambda x: x + x.astype("float32"), "mixed difference": lambda x: x.astype("float32") - x,
    "in place": lambda x: x.__iadd__(1.0), "sum": lambda x: x.sum(), "max": lambda x: x.max(), "minus": lambda x: -x,
}  # fmt: skip


def test_the_stand_in_refuses_what_cupy_refuses(cupy: Any) -> None:
    host, device, integers = np.ones((2, 2)), cupy.ones((2, 2)), np.ones((2, 2), int)
    for name, mix in MIXTURES.items():
        with pytest.raises(TypeError):
            pytest.fail(f"{name}: {mix(device, host)}")
    for name in ("where", "maximum", "take_along_axis", "stack"):
        with pytest.raises(TypeError, match="Unsupported type"):
            getattr(cupy, name)([integers, integers] if name == "stack" else integers, cupy.ones(2), 0)
    x = cupy.ones((2, 2), dtype_named("bfloat16"))
    for operate in WITH_BFLOAT16.values():
        with pytest.raises(TypeError, match="of bfloat16"):
            operate(x)
    assert (x + x).dtype == x.T.reshape(4).copy().dtype == x.dtype


def test_copies_between_host_and_device_share_no_memory(cupy: Any) -> None:
    host = np.zeros(3)
    device = to_device(host, "cuda")
    back = to_host(device)
    device += 1
    assert (host.tolist(), back.tolist(), to_host(device).tolist()) == ([0] * 3, [0] * 3, [1] * 3)


def test_one_element_of_a_device_array_is_an_array_on_the_device(cupy: Any) -> None:
    x = cupy.arange(6).reshape(2, 3)
    assert all(isinstance(y, cupy.ndarray) for y in (x[1, 2], x.sum(), x[0].max(), x[0] @ x[1], -x[0, 0]))
    assert float(x[1, 2]) == 5


# The engine and the model on it.


SIZES = {"B": 2, "T": 3, "S": 4, "D": 5, "H": 1, "K": 3, "V": 2, "W": 4}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_operation_stays_on_the_device(case: OpCase, cupy: Any) -> None:
    found = []
    for device in DEVICES:
        draw = Draw(np.random.default_rng(1), SIZES)
        arguments = [Tensor(on(x, device)) if is_float(x) else on(x, device) for x in case.arguments(draw)]
        y = operations[case.op](*arguments, **{name: on(x, device) for name, x in case.static(draw).items()})
        backward(ops.sum(y * y))
        assert device_of(y.value) == device
        found.append([y.value, *(x.grad for x in arguments if isinstance(x, Tensor))])
    for here, there in zip(*found, strict=True):
        assert_near(there, here)


def test_gathering_by_a_list_stays_on_the_device(cupy: Any) -> None:
    x = np.arange(6.0).reshape(3, 2)
    assert_near(Tensor(to_device(x, "cuda"))[[2, 0, 2]].value, x[[2, 0, 2]])


def on(x: Any, device: Device) -> Any:
    return to_device(x, device) if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("variation", VARIATIONS)
def test_loss_and_gradients_with_dropout_are_those_of_the_cpu(variation: str, cupy: Any) -> None:
    batch = Batch.from_token_ids(SOURCES, TARGETS)
    here, there = models(variation)
    loss_here, loss_there = (model.loss(batch, RandomStream(1, update=2)) for model in (here, there))
    assert_near(loss_there.value, loss_here.value)
    backward(loss_here)
    backward(loss_there)
    for name, parameter in here.named_parameters():
        assert parameter.grad.any(), name
    assert_near(there.parameters.gradients, here.parameters.gradients)


def test_scores_of_pairs_are_those_of_the_cpu_and_dropout_matters(cupy: Any) -> None:
    pairs, batch = list(zip(SOURCES, TARGETS, strict=True)), Batch.from_token_ids(SOURCES, TARGETS)
    here, there = models()
    assert_near(there.log_probabilities(batch), here.log_probabilities(batch))
    scores, expected = (score_pairs(model, pairs) for model in (there, here))
    assert [score.n_tokens for score in scores] == [score.n_tokens for score in expected]
    assert [score.log_probability for score in scores] == pytest.approx([score.log_probability for score in expected])
    assert len({float(there.loss(batch, random)) for random in (None, RandomStream(1), RandomStream(2))}) == 3


def test_a_model_saved_from_the_device_is_loaded_there_and_on_the_cpu(cupy: Any, tmp_path: Path) -> None:
    here, there = models(dtype="float32")
    there.save(tmp_path)
    for device in DEVICES:
        loaded = Transformer.load(tmp_path, device=device).parameters.values
        assert device_of(loaded) == device
        np.testing.assert_array_equal(to_host(loaded), here.parameters.values)


def train(model: Transformer, run: Path, data: Path, n_updates: int) -> None:
    config = TrainingConfig(
        precision="float32", max_updates=n_updates, batch_tokens=40, n_micro_batches=4, warmup_steps=4, clip_norm=1.0
    )
    store = TokenStore(data, "train")
    trainer = Trainer(model, store, None, config, run, SerialCommunicator(), n_threads=1)
    trainer.resume()
    assert trainer.train(Callback())


@pytest.mark.slow
def test_a_training_run_stopped_and_resumed_on_the_device_is_that_of_the_cpu(cupy: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    sentences = [random.integers(3, VOCABULARY, random.integers(0, 9)).tolist() for _ in range(40)]
    write_store(tmp_path, "train", zip(sentences[:20], sentences[20:], strict=True), VOCABULARY)
    (here, stopped), (_, there) = models("paper"), models("paper")
    train(here, tmp_path / "cpu", tmp_path, 5)
    train(stopped, tmp_path / "cuda", tmp_path, 2)
    train(there, tmp_path / "cuda", tmp_path, 5)
    assert_near(there.parameters.values, here.parameters.values)


# Without CuPy.


def test_a_device_without_cupy_is_an_error_that_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    remedy = (
        r'CuPy cannot be imported .*pip install "cupy-cuda13x\[ctk\]" or "cupy-cuda12x\[ctk\]", .* or use device "cpu"'
    )
    with pytest.raises(DeviceError, match=remedy):
        Transformer(ModelConfig.from_mapping(SMALL), device="cuda")


@pytest.mark.parametrize("cuda", ["12", "13"])
def test_an_extra_installs_all_libraries_but_the_driver(cuda: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {requirement.split(">=")[0] for requirement in project["optional-dependencies"][f"cuda{cuda}"]}
    assert names == {f"cupy-cuda{cuda}x[ctk]", f"nvidia-nccl-cu{cuda}", "ml_dtypes"}


def test_an_unknown_device_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(DeviceError, match='got \'tpu\'; expected "cpu" or "cuda"'):
        namespace_of_device("tpu")  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match='got \'gpu\'; expected "cpu" or "cuda"'):
        to_device(np.ones(2), "gpu")  # type: ignore[arg-type]
