"""A run that begins from a model: its weights, its tokenizer, its moments, and what is refused."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import Batch, Transformer, fine_tuning, presets, train
from minitransformer.config import ConfigError, DataConfig, RunConfig, TrainingConfig
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.system.checksums import checksums_of
from minitransformer.system.files import CheckpointError, read_arrays
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import Snapshot
from minitransformer.training.open_run import OpenRun
from tests.support.training import PAIRS, WORDS, StoppingMonitor, changed, corrupt, job_of, write_text

NEW_WORDS = WORDS | {"three": "drü", "five": "foif €", "six": "sächs ☃"}
TRAINING = TrainingConfig(
    max_updates=8, batch_tokens=150, n_micro_batches=2, warmup_steps=4, log_every=5, validate_every=8,
    checkpoint_every=4, keep_checkpoints=3, average_checkpoints=2,
)  # fmt: skip
LAST = "step-00000020"


@pytest.fixture
def source(shared_run: RunConfig) -> Path:
    """The directory of a finished run of 20 updates."""
    return shared_run.run


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    """A copy of that directory, which a test may change."""
    shutil.copytree(source, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def config(source: Path, tmp_path: Path) -> RunConfig:
    """Settings of a run that begins from ``source``, on another text."""
    data = dataclasses.replace(write_text(tmp_path / "text", NEW_WORDS), vocabulary_size=DataConfig.vocabulary_size)
    return fine_tuning(RunConfig(tmp_path / "run", data, training=TRAINING, init_from=source))


def moments_of(job: OpenRun) -> Mapping[str, np.ndarray]:
    return Snapshot.of(job.trainer.model, job.trainer.optimizer, job.trainer.state).moments


def test_the_settings_of_model_and_tokenizer_are_those_of_the_model(config: RunConfig, shared_run: RunConfig) -> None:
    model = dataclasses.replace(shared_run.model, alpha=None)  # it is chosen anew
    assert (config.model, config.training, config.init_from) == (model, TRAINING, shared_run.run)
    assert (config.data.vocabulary_size, config.data.tokenizer, config.data.joint_vocabulary) == (50, "bpe", True)


def test_it_has_the_models_weights_loss_and_tokenizer(config: RunConfig, source: Path, logged: list[str]) -> None:
    config = changed(changed(config, "model", p_drop=0.0), seed=7, precision="float32")
    job = job_of(config)
    theirs = Transformer.load(source).weights()
    assert all(np.array_equal(array, theirs[name]) for name, array in job.trainer.model.weights().items())
    assert (job.trainer.state.step, job.trainer.state.earlier_updates, job.trainer.optimizer.earlier_updates) == (
        0,
        0,
        0,
    )
    assert not any(array.any() for array in moments_of(job).values())
    assert job.data.tokenizer.equals(Tokenizer.load(source))
    assert Tokenizer.load(config.run).equals(Tokenizer.load(source))
    digest = checksums_of(source, ["model.safetensors"])["model.safetensors"]["sha256"]
    assert any(f"begun from the model in {source} (SHA-256 of its weights {digest})" in line for line in logged)
    assert not any("tokenizer of 50 pieces" in line for line in logged)
    (lacking,) = (line for line in logged if "the tokenizer lacks characters of the training text: " in line)
    assert "€ 105, ä 100, ☃ 100. They are read as unknown" in lacking
    assert "unless init_extend_vocabulary is set" in lacking
    pairs = np.arange(12)
    sources, targets = zip(*(job.trainer.pairs.pair(i) for i in pairs), strict=True)
    batch = Batch.from_token_ids([s.tolist() for s in sources], [t.tolist() for t in targets])
    assert job.trainer.step(pairs).loss == pytest.approx(float(Transformer.load(source).loss(batch)), rel=1e-6)


def test_moments_are_kept_on_request_with_their_weights(config: RunConfig, source: Path, logged: list[str]) -> None:
    job = job_of(dataclasses.replace(config, init_optimizer=True))
    checkpoint = source / "checkpoints" / LAST
    expected = read_arrays(checkpoint / "optimizer.safetensors")
    assert all(np.array_equal(array, expected[name]) for name, array in moments_of(job).items())
    weights = read_arrays(checkpoint / "model.safetensors")
    assert all(np.array_equal(array, weights[name]) for name, array in job.trainer.model.weights().items())
    assert (job.trainer.state.step, job.trainer.state.earlier_updates, job.trainer.optimizer.earlier_updates) == (
        0,
        20,
        20,
    )
    assert any(LAST in line and "the optimizer's moments of 20 updates" in line for line in logged)


def test_a_corrupt_checkpoint_gives_way_to_an_earlier_one(config: RunConfig, copy: Path, logged: list[str]) -> None:
    corrupt(copy / "checkpoints" / LAST / "optimizer.safetensors")
    job = job_of(dataclasses.replace(config, init_from=copy, init_optimizer=True))
    assert job.trainer.state.earlier_updates == 16
    assert any(f"checkpoint {LAST} is corrupt" in line for line in logged)


@pytest.mark.parametrize("choice", [{}, {"init_optimizer": True, "init_extend_vocabulary": True}])
def test_an_interrupted_run_goes_on_to_the_same_bits_without_the_model(
    config: RunConfig, source: Path, copy: Path, tmp_path: Path, choice: dict[str, bool]
) -> None:
    config = dataclasses.replace(changed(config, "model", alpha=0.6), init_from=copy, **choice)
    straight, parts = (dataclasses.replace(config, run=tmp_path / name) for name in ("straight", "parts"))
    results = train(straight, callbacks=[]).results
    assert not train(parts, callbacks=[StoppingMonitor(6)]).is_complete
    shutil.rmtree(copy)
    again = changed(fine_tuning(dataclasses.replace(parts, model=presets.tiny())), "model", alpha=0.6)
    assert again == parts
    resumed = train(again, callbacks=[]).results
    n_words = Transformer.load(parts.run).config.vocabulary_size
    assert Tokenizer.load(parts.run).n_target_words == n_words == (53 if choice else 50)
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (run / "checkpoints" / "step-00000008" / name for run in (straight.run, parts.run))
        assert one.read_bytes() == other.read_bytes()
    within = Path("checkpoints", LAST) if choice else Path()
    digest = checksums_of(source / within, ["model.safetensors"])["model.safetensors"]["sha256"]
    weights = str(copy / within / "model.safetensors")
    noted = {"weights": weights, "sha256": digest, "optimizer_updates": 20 if choice else 0}
    assert resumed["pretrained"] == results["pretrained"] == noted
    settings = json.loads((parts.run / "run.json").read_text())
    assert (settings["pretrained"], settings["init_from"]) == (noted, str(copy))


# An extended vocabulary


def test_an_extension_keeps_every_row_and_begins_new_ones_with_the_mean(config: RunConfig, source: Path) -> None:
    job = job_of(dataclasses.replace(config, init_extend_vocabulary=True, init_optimizer=True))
    old = read_arrays(source / "checkpoints" / LAST / "model.safetensors")
    new = job.trainer.model.weights()
    name = "source_embedding.weight"
    assert (len(old[name]), len(new[name])) == (50, 53)
    assert new[name][:50].tobytes() == old[name].tobytes()
    np.testing.assert_allclose(new[name][50:], np.tile(old[name].sum(0) / 50, (3, 1)), atol=1e-7)
    assert all(np.array_equal(new[other], old[other]) for other in old if other != name)
    moments, kept = moments_of(job), read_arrays(source / "checkpoints" / LAST / "optimizer.safetensors")
    for moment in ("m", "v"):
        assert np.array_equal(moments[f"{moment}.{name}"][:50], kept[f"{moment}.{name}"])
        assert not moments[f"{moment}.{name}"][50:].any()


def test_a_model_of_two_vocabularies_is_extended_on_each_side(shared_run: RunConfig, tmp_path: Path) -> None:
    apart = dataclasses.replace(write_text(tmp_path / "old", WORDS), joint_vocabulary=False, vocabulary_size=30)
    untied = dataclasses.replace(shared_run.model, tied="none", softmax_bias=True)
    first = tmp_path / "first"
    job_of(RunConfig(first, apart, untied, TRAINING)).trainer.model.save(first)
    data = write_text(tmp_path / "new", NEW_WORDS)  # whose German has ä, ☃, € and o that the first one's lacks
    begun = RunConfig(tmp_path / "second", data, training=TRAINING, init_from=first, init_extend_vocabulary=True)
    second = job_of(fine_tuning(begun))
    shapes = {name: array.shape for name, array in second.trainer.model.weights().items()}
    assert shapes["source_embedding.weight"] == (30, 16)
    assert shapes["target_embedding.weight"] == shapes["projection.weight"] == (34, 16)
    assert shapes["softmax_bias"] == (34,)


def test_two_tokenizers_of_one_vocabulary_are_not_extended(config: RunConfig, source: Path, tmp_path: Path) -> None:
    """Models of Marian are such: both tokenizers give ids of the same shared matrix."""
    Transformer.load(source).save(tmp_path / "converted")
    model = Tokenizer.load(source).models[0]
    Tokenizer(model, model).save(tmp_path / "converted")
    config = fine_tuning(dataclasses.replace(config, init_from=tmp_path / "converted"))
    assert not config.data.joint_vocabulary
    with pytest.raises(ConfigError, match="two tokenizers that share one vocabulary.*set it to false"):
        job_of(dataclasses.replace(config, init_extend_vocabulary=True))
    assert job_of(config).trainer.model.config.source_vocabulary_size == 50


# What is refused


def test_a_directory_without_a_model_and_a_choice_without_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'none'}: there is no such directory; init_from must be"):
        fine_tuning(RunConfig(init_from=tmp_path / "none"))
    with pytest.raises(CheckpointError, match=f"{tmp_path}: there is no model here .no model.json"):
        fine_tuning(RunConfig(init_from=tmp_path))
    with pytest.raises(ConfigError, match="set init_from to the directory of one"):
        fine_tuning(RunConfig())
    for name in ("init_optimizer", "init_extend_vocabulary"):
        with pytest.raises(ConfigError, match=f"{name} is set, but no model to begin from: set init_from"):
            RunConfig(**{name: True})


def test_a_model_of_sources_without_an_end_symbol_is_refused(config: RunConfig, source: Path, tmp_path: Path) -> None:
    """Converted models may be such."""
    model = Transformer.load(source)
    without_end = Transformer(dataclasses.replace(model.config, source_end=False))
    without_end.set_weights(model.weights())
    without_end.save(tmp_path / "converted")
    Tokenizer.load(source).save(tmp_path / "converted")
    config = dataclasses.replace(config, init_from=tmp_path / "converted")
    for begin in (fine_tuning, job_of):
        with pytest.raises(ConfigError, match=f"the model in {config.init_from} reads sources without an end symbol"):
            begin(config)


def test_a_model_whose_tokenizer_has_changed_or_is_anothers_is_refused(copy: Path) -> None:
    corrupt(copy / "tokenizer.model")
    with pytest.raises(CheckpointError, match="copy/tokenizer.model: has changed since it was written"):
        fine_tuning(RunConfig(init_from=copy))
    Tokenizer.train(PAIRS, vocabulary_size=40).save(copy)
    with pytest.raises(CheckpointError, match="the model has 50 source and 50 target words, but its tokenizer 40"):
        fine_tuning(RunConfig(init_from=copy))


def test_corrupt_weights_and_missing_moments_leave_the_directory_free(config: RunConfig, copy: Path) -> None:
    corrupt(copy / "model.safetensors")
    with pytest.raises(CheckpointError, match="model.safetensors: has changed since it was written"):
        job_of(dataclasses.replace(config, init_from=copy))
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(CheckpointError, match="has no complete checkpoint.*set init_optimizer to false"):
        job_of(dataclasses.replace(config, init_from=copy, init_optimizer=True))
    assert job_of(config).trainer.state.step == 0


@pytest.mark.parametrize(
    ("part", "changes", "parts"),
    [
        ("model", {"n_layers": 3, "d_ff": 32}, ["model.n_layers: expected 1, got 3; model.d_ff: expected 16, got 32"]),
        ("model", {"norm": "pre"}, ["model.norm: expected 'post', got 'pre'", "p_drop"]),
        ("data", {"vocabulary_size": 60}, ["data.vocabulary_size: expected 50, got 60", "keeps its tokenizer"]),
        ("data", {"tokenizer": "unigram"}, ["data.tokenizer: expected 'bpe', got 'unigram'"]),
        ("data", {"joint_vocabulary": False}, ["data.joint_vocabulary: expected True, got False"]),
    ],
)
def test_settings_that_contradict_the_model_are_named(
    config: RunConfig, source: Path, part: str, changes: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(ConfigError, match="eave these settings out") as caught:
        job_of(changed(config, part, **changes))
    assert [text for text in (str(source), *parts) if text not in str(caught.value)] == []


def test_the_run_is_not_the_directory_of_the_model(config: RunConfig, source: Path) -> None:
    with pytest.raises(ConfigError, match="run and init_from are both.*set run to another directory"):
        job_of(dataclasses.replace(config, run=source))


def test_a_run_does_not_go_on_with_another_model_or_the_model_in_another_state(config: RunConfig, copy: Path) -> None:
    """A run that ended before its first checkpoint begins again, from the same weights only."""
    config = dataclasses.replace(config, init_from=copy)
    job_of(config)
    with pytest.raises(ConfigError, match=f"holds another run: init_from is '{copy}' there, None here"):
        job_of(dataclasses.replace(config, init_from=None))
    with pytest.raises(ConfigError, match="init_optimizer is False there, True here"):
        job_of(dataclasses.replace(config, init_optimizer=True))
    model = Transformer.load(copy)
    model.parameters.values[0] += 1
    model.save(copy)
    with pytest.raises(CheckpointError, match="model.safetensors: has changed since.*began from it"):
        job_of(config)


def test_data_that_was_prepared_with_another_tokenizer_is_refused(config: RunConfig, tmp_path: Path) -> None:
    directory = tmp_path / "prepared"
    apart = changed(config, "data", directory=directory)
    job_of(dataclasses.replace(apart, run=tmp_path / "a", init_from=None))
    with pytest.raises(CheckpointError, match=f"{directory}: was prepared with another tokenizer; expected that of"):
        job_of(apart)
    shutil.rmtree(directory)
    job_of(apart)
    extended = dataclasses.replace(apart, run=tmp_path / "b", init_extend_vocabulary=True)
    with pytest.raises(CheckpointError, match="extended by the characters of the text"):
        job_of(extended)
    shutil.rmtree(directory)
    job_of(extended)
    with pytest.raises(CheckpointError, match=f"{directory}: was prepared with another tokenizer"):
        job_of(dataclasses.replace(apart, run=tmp_path / "c"))


def test_settings_that_may_change_do(config: RunConfig) -> None:
    changes = {"p_drop": 0.3, "label_smoothing": 0.0, "alpha": 1.2, "normalisation": "length"}
    job = job_of(changed(config, "model", **changes))
    assert all(getattr(job.trainer.model.config, name) == value for name, value in changes.items())
    assert job.trainer.train(Callback())
