"""A training run as a whole: what to train, on what, and where its files go."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from minitransformer import presets
from minitransformer.config import ConfigError, DataConfig, ModelConfig, TrainingConfig
from minitransformer.data.prepare import fingerprint
from minitransformer.files import DamagedError, read_json, write_text

RUN_FILE = "run.json"

# What may change between the parts of an interrupted run without making it another run.
FREE = (
    "max_updates", "log_every", "validate_every", "checkpoint_every", "keep_checkpoints", "average_checkpoints",
    "learning_rate_factor", "clip_norm", "sum", "gradients_sent_in",
)  # fmt: skip


def demo_model() -> ModelConfig:
    """The demonstration's model."""
    return presets.tiny()


def demo_training() -> TrainingConfig:
    """The demonstration's training."""
    return TrainingConfig(
        max_updates=1_800,
        batch_tokens=2_000,
        n_shards=2,
        warmup_steps=400,
        validate_every=400,
        checkpoint_every=100,
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
        if self.data.directory == self.run:
            raise ConfigError(f"data.directory and run are both {self.run}: choose another data.directory, or none")
        if self.model.tied == "all" and not self.data.joint_vocabulary:
            raise ConfigError(
                'model.tied is "all", but with data.joint_vocabulary = false the same row would be one piece of the'
                ' source and another one of the target: set model.tied to "target" or "none"'
            )

    @classmethod
    def of_preset(cls, name: str) -> RunConfig:
        """A model by name: "tiny" and "small" are trained like the demonstration, the paper's as in the paper."""
        if name in ("tiny", "small"):
            return cls(model=presets.named(name))
        if name in ("parsing", "parsing-small"):
            data = DataConfig(vocabulary_size=16_000, joint_vocabulary=False)
            return cls(data=data, model=presets.named(name), training=TrainingConfig())
        return cls(data=DataConfig(vocabulary_size=37_000), model=presets.named(name), training=TrainingConfig())

    @property
    def data_directory(self) -> Path:
        """Where the prepared data lies."""
        return self.data.directory or self.run / "data"

    def to_json(self) -> str:
        """Everything that decides the outcome: what a score's configuration hash stands for."""
        parts = {
            "model": dataclasses.asdict(self.model),
            "data": fingerprint(self.data),
            "training": dataclasses.asdict(self.training),
        }
        return json.dumps(parts, indent=2) + "\n"

    def settings(self) -> dict[str, str]:
        """Return what decides the outcome, and the device, by names such as "training.seed"."""
        parts: dict[str, dict[str, Any]] = json.loads(self.to_json())
        named = ((f"{part}.{name}", value) for part, fields in parts.items() for name, value in fields.items())
        return {name: json.dumps(value) for name, value in named} | {"device": self.device}

    def claim_directory(self) -> None:
        """Note in the run's directory what it is a run of."""
        write_text(self.run / RUN_FILE, self.to_json())

    def check_directory(self) -> None:
        """Raise ConfigError naming what differs, if the run's directory holds another run."""
        if differences := self.differences(FREE):
            raise ConfigError(
                f"{self.run}: holds another run: {'; '.join(differences[:4])}. Choose another --run, or remove it"
            )

    def differences(self, free: Collection[str]) -> list[str]:
        """What is otherwise in the run that the directory holds, if it holds one, but for these fields of training.

        A field that did not exist yet when that was begun has its default there.
        """
        path = self.run / RUN_FILE
        if not path.exists():
            return []
        mine, theirs = json.loads(self.to_json()), read_json(path)
        defaults = json.loads(RunConfig(model=ModelConfig(), training=TrainingConfig()).to_json())
        if not isinstance(theirs, dict) or not all(isinstance(theirs.get(part), dict) for part in mine):
            raise DamagedError(
                f"{path}: does not say what this is a run of; remove it if you know, or choose another --run"
            )
        return [
            f"{part}.{name} is {there!r} there, {value!r} here"
            for part, fields in mine.items()
            for name, value in fields.items()
            if (there := theirs[part].get(name, defaults[part][name])) != value
            and not (part == "training" and name in free)
        ]
