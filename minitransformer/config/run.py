"""The configuration of a training run: its model, data, training and directories."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograd.array import Device
from autograd.kernel_choice import KernelChoice
from minitransformer.config import presets
from minitransformer.config.checks import ConfigError
from minitransformer.config.data import DataConfig
from minitransformer.config.model import ModelConfig
from minitransformer.config.training import TrainingConfig
from minitransformer.system.files import CorruptFileError, read_json, write_text

# Files in a run's directory: its settings, its log, its final scores, and its translations of held-out text.
RUN_FILE, METRICS_FILE, RESULTS_FILE = "run.json", "metrics.jsonl", "results.json"
TRANSLATIONS_FILE = "translations.jsonl"

# Settings of training that may change when an interrupted run is resumed.
FREE = (
    "max_updates", "log_every", "validate_every", "checkpoint_every", "keep_checkpoints", "average_checkpoints",
    "learning_rate_factor", "clip_norm", "sum", "gradients_sent_in",
)  # fmt: skip


def demo_training() -> TrainingConfig:
    """Return the demonstration's training."""
    return TrainingConfig(
        max_updates=1_800,
        batch_tokens=2_000,
        warmup_steps=400,
        validate_every=400,
        checkpoint_every=100,
    )


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run.  The defaults train the demonstration, which takes minutes on two CPU cores."""

    run: Path = Path("runs/demo")
    """Directory of the run: model, tokenizer, checkpoints, metrics."""
    data: DataConfig = field(default_factory=DataConfig)
    """The data."""
    model: ModelConfig = field(default_factory=presets.tiny)
    """The model."""
    training: TrainingConfig = field(default_factory=demo_training)
    """The training."""
    device: Device = "cpu"
    """Device that computes; "cuda" needs CuPy."""
    kernels: KernelChoice = "compiled"
    """"compiled" kernels, or the "reference" of each operation in NumPy or CuPy, which is slower."""

    def __post_init__(self) -> None:
        if self.model.vocabulary_size or self.model.source_vocabulary_size:
            raise ConfigError("model.vocabulary_size follows from the data in a training run: set data.vocabulary_size")
        if not self.model.source_end:
            raise ConfigError("model.source_end must be true in a training run: only converted models can lack it")
        if self.data.directory == self.run:
            raise ConfigError(f"data.directory and run are both {self.run}: choose another data.directory, or none")
        if self.training.bpe_dropout and (self.data.tokenizer != "bpe" or self.data.train_trees):
            raise ConfigError(
                f"training.bpe_dropout is {self.training.bpe_dropout}, but only text in byte pairs can be segmented"
                ' anew: set it to 0, or set data.tokenizer to "bpe" for text'
            )
        if self.model.tied == "all" and not self.data.joint_vocabulary:
            raise ConfigError(
                'model.tied is "all", but with data.joint_vocabulary = false a row of the shared matrix would be one'
                ' piece of the source and another piece of the target: set model.tied to "target" or "none"'
            )

    @classmethod
    def of_preset(cls, name: str) -> RunConfig:
        """Return the run of a preset: "tiny" and "small" train like the demonstration, the others as in the paper."""
        if name in ("tiny", "small"):
            return cls(model=presets.named(name))
        if name in ("parsing", "parsing-small"):
            data = DataConfig(vocabulary_size=16_000, joint_vocabulary=False)
            return cls(data=data, model=presets.named(name), training=TrainingConfig())
        return cls(data=DataConfig(vocabulary_size=37_000), model=presets.named(name), training=TrainingConfig())

    @property
    def data_directory(self) -> Path:
        """The directory of the prepared data."""
        return self.data.directory or self.run / "data"

    def to_json(self) -> str:
        """Return all settings that determine the result, as JSON; a score's configuration hash is computed from it."""
        parts = {
            "model": dataclasses.asdict(self.model),
            "data": self.data.fingerprint(),
            "training": dataclasses.asdict(self.training),
        }
        return json.dumps(parts, indent=2) + "\n"

    def settings(self) -> dict[str, str]:
        """Return the settings that determine the result, device and kernels, by names such as "training.seed"."""
        parts: dict[str, dict[str, Any]] = json.loads(self.to_json())
        named = ((f"{part}.{name}", value) for part, fields in parts.items() for name, value in fields.items())
        return {name: json.dumps(value) for name, value in named} | {
            "device": self.device,
            "kernels": self.kernels,
        }

    def claim_directory(self) -> None:
        """Write this configuration into the run's directory."""
        write_text(self.run / RUN_FILE, self.to_json())

    def check_directory(self) -> None:
        """Raise ConfigError naming the settings that differ, if the run's directory holds another run."""
        if differences := self.differences(FREE):
            raise ConfigError(
                f"{self.run}: holds another run: {'; '.join(differences[:4])}. Set run to another directory, or remove"
                " this one"
            )

    def differences(self, free: Collection[str]) -> list[str]:
        """Return the settings that differ from those of the run in this directory; none if there is no run.

        The ``free`` fields of training are not compared.
        """
        path = self.run / RUN_FILE
        if not path.exists():
            return []
        mine, theirs = json.loads(self.to_json()), read_json(path)
        if not isinstance(theirs, dict) or not all(
            isinstance(theirs.get(part), dict) and theirs[part].keys() == fields.keys() for part, fields in mine.items()
        ):
            raise CorruptFileError(
                f"{path}: does not hold the settings of a run; remove it if you know them, or set run to another"
                " directory"
            )
        return [
            f"{part}.{name} is {there!r} there, {value!r} here"
            for part, fields in mine.items()
            for name, value in fields.items()
            if (there := theirs[part][name]) != value and not (part == "training" and name in free)
        ]
