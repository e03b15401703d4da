"""A training run as a whole: what to train, on what, and where its files go."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from minitransformer import presets
from minitransformer.config import ConfigError, DataConfig, ModelConfig, TrainingConfig
from minitransformer.data.prepare import fingerprint
from minitransformer.files import read_json, write_text

RUN_FILE = "run.json"

# What may change between the parts of an interrupted run without making it another run.
_FREE = ("max_updates", "log_every", "validate_every", "checkpoint_every", "keep_checkpoints", "average_checkpoints")


def demo_model() -> ModelConfig:
    """The demonstration's model."""
    return presets.tiny()


def demo_training() -> TrainingConfig:
    """The demonstration's training."""
    return TrainingConfig(
        max_updates=2_400,
        batch_tokens=2_000,
        n_shards=2,
        warmup_steps=400,
        learning_rate_factor=1.0,
        validate_every=400,
        checkpoint_every=100,
        keep_checkpoints=5,
        average_checkpoints=5,
    )


@dataclass(frozen=True)
class RunConfig:
    """Everything that a training run is made of.  The defaults are the demonstration's: minutes on two CPU cores."""

    run: Path = Path("runs/demo")
    """Directory of the run: model, tokenizer, checkpoints, metrics."""
    data: DataConfig = field(default_factory=DataConfig)
    """The text."""
    model: ModelConfig = field(default_factory=demo_model)
    """The model."""
    training: TrainingConfig = field(default_factory=demo_training)
    """The training."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute; "cuda" needs CuPy."""

    def __post_init__(self) -> None:
        if self.model.vocabulary_size or self.model.source_vocabulary_size:
            raise ConfigError("model.vocabulary_size follows from the data in a training run: set data.vocabulary_size")

    @property
    def data_directory(self) -> Path:
        """Where the prepared data lies."""
        return self.data.directory or self.run / "data"

    def identity(self) -> dict[str, Any]:
        """What decides the outcome of the run, as plain JSON values."""
        training = dataclasses.asdict(self.training)
        return {
            "model": dataclasses.asdict(self.model),
            "data": fingerprint(self.data),
            "training": {name: value for name, value in training.items() if name not in _FREE},
        }

    def to_json(self) -> str:
        """The identity, as text: what is hashed and written beside every score."""
        return json.dumps(self.identity(), indent=2) + "\n"

    def claim_directory(self) -> None:
        """Note in the run's directory what it is a run of.

        Raises: ConfigError naming what differs, if the directory holds another run.
        """
        path = self.run / RUN_FILE
        mine = json.loads(self.to_json())
        if not path.exists():
            write_text(path, self.to_json())
            return
        theirs = read_json(path)
        differences = [
            f"{part}.{name} is {theirs.get(part, {}).get(name)!r} there, {value!r} here"
            for part, fields in mine.items()
            for name, value in fields.items()
            if theirs.get(part, {}).get(name) != value
        ]
        if differences:
            raise ConfigError(
                f"{self.run}: holds another run: {'; '.join(differences[:4])}. Choose another --run, or remove it"
            )
