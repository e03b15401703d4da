"""The configuration of a training run: its model, data, training and directories; values for automatic settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autograd.array import Device
from autograd.kernel_registry import KernelChoice
from minitransformer.config import presets
from minitransformer.config.checks import ConfigError, with_changes
from minitransformer.config.data import DataConfig
from minitransformer.config.model import ModelConfig
from minitransformer.config.training import MAX_MICRO_BATCHES, TrainingConfig
from minitransformer.system.files import CorruptFileError, write_text
from minitransformer.system.records import as_object, read_object, require_types
from parallel.communicator import working_ranks

# Files in a run's directory: its settings, its log, its final scores, and its translations of held-out text.
RUN_FILE, METRICS_FILE, RESULTS_FILE = "run.json", "metrics.jsonl", "results.json"
TRANSLATIONS_FILE = "translations.jsonl"
PARTS = ("model", "data", "training")  # tables of settings
BEGINNING = ("init_from", "init_optimizer", "init_extend_vocabulary")  # settings about the model that a run begins from

# Settings of training that may change when an interrupted run is resumed.
FREE = (
    "max_updates", "log_every", "validate_every", "checkpoint_every", "keep_checkpoints", "average_checkpoints",
    "learning_rate_factor", "clip_norm", "patience", "patience_for", "best_by", "sum", "gradients_sent_in",
)  # fmt: skip
# Settings whose default means "automatic"; a run that goes on keeps the values with which it began.
AUTOMATIC = {"model": ("alpha",), "data": (), "training": ("n_micro_batches", "precision")}
# Values of settings in files that were written before the settings existed, if today's default is another value.
BEFORE: dict[str, dict[str, Any]] = {"data": {"normalisation": "nmt_nfkc", "filter": []}}
SMALL_BATCH = 4_000  # tokens; a smaller batch has only 2 micro-batches: operations on an eighth of it are too short


def demo_training() -> TrainingConfig:
    """Return the training settings of the demonstration."""
    return TrainingConfig(
        max_updates=4_400, batch_tokens=1_000, warmup_steps=600, validate_every=1_100, checkpoint_every=200
    )


def small_training() -> TrainingConfig:
    """Return the training settings of the preset "small": 50 minutes on two CPU cores with 29,000 captions."""
    return TrainingConfig(
        max_updates=20_000,
        batch_tokens=1_600,
        warmup_steps=800,
        learning_rate_factor=0.905,
        log_every=50,
        validate_every=2_000,
        checkpoint_every=200,
        keep_checkpoints=8,
        average_checkpoints=8,
    )


@dataclass(frozen=True)
class RunConfig:
    """All settings of a training run.  The defaults train the demonstration, which takes minutes on two CPU cores."""

    run: Path = Path("runs/demo")
    """Directory of the run: model, tokenizer, checkpoints, metrics."""
    data: DataConfig = field(default_factory=DataConfig)
    """The text, and its conversion to tokens."""
    model: ModelConfig = field(default_factory=presets.tiny)
    """The model: sizes, dropout, conventions."""
    training: TrainingConfig = field(default_factory=demo_training)
    """The training: batches, learning rate, validation, checkpoints."""
    device: Device = "cpu"
    """Device that computes; "cuda" needs CuPy."""
    kernels: KernelChoice = "compiled"
    """"compiled" kernels, or the "reference" of each operation in NumPy or CuPy, which is slower."""
    init_from: Path | None = None
    """Directory of a run or a model: training begins from its weights and its tokenizer, at update 0.  Random weights
    if not given."""
    init_optimizer: bool = False
    """Begin from the newest checkpoint of the run init_from: its weights and moments; else moments are 0."""
    init_extend_vocabulary: bool = False
    """Append the characters of the training text that the vocabulary of init_from lacks."""

    def __post_init__(self) -> None:
        require_types(self, ConfigError)
        if self.model.vocabulary_size or self.model.source_vocabulary_size:
            raise ConfigError("model.vocabulary_size follows from the data in a training run: set data.vocabulary_size")
        if not self.model.source_end:
            raise ConfigError("model.source_end must be true in a training run: only converted models can lack it")
        if self.data.directory and self.data.directory.absolute() == self.run.absolute():
            raise ConfigError(f"data.directory and run are both {self.run}: choose another data.directory, or none")
        may_be_bpe = self.data.tokenizer not in ("unigram", "word")
        if self.training.bpe_dropout and (not may_be_bpe or self.data.train_trees):
            raise ConfigError(
                f"training.bpe_dropout is {self.training.bpe_dropout}, but only text in byte pairs can be segmented"
                ' anew: set it to 0, or set data.tokenizer to "bpe" for text'
            )
        if self.training.word_dropout and self.data.tokenizer != "word":
            raise ConfigError(
                f"training.word_dropout is {self.training.word_dropout}, but only whole words have classes of rare"
                ' words: set it to 0, or set data.tokenizer to "word"'
            )
        if self.training.noise and self.data.train_trees:
            raise ConfigError(
                f"training.noise is {' '.join(self.training.noise)}, but only text for translation can have noise, not"
                " the words of trees: leave it out"
            )
        if not self.init_from and (self.init_optimizer or self.init_extend_vocabulary):
            name = "init_optimizer" if self.init_optimizer else "init_extend_vocabulary"
            raise ConfigError(f"{name} is set, but no model to begin from: set init_from to the directory of one")
        if self.model.tied == "all" and not (self.data.joint_vocabulary or self.init_from):
            raise ConfigError(
                'model.tied is "all", but with data.joint_vocabulary = false a row of the shared matrix would be one'
                ' piece of the source and another piece of the target: set model.tied to "target" or "none"'
            )

    @classmethod
    def of_preset(cls, name: str) -> RunConfig:
        """Return the settings of a run with a preset's model.  Raises: ConfigError for an unknown name.

        "tiny" trains like the demonstration, "small" like the recipe for Multi30k, all others like the paper.
        """
        if name == "tiny":
            return cls()
        if name == "small":
            return cls(data=DataConfig(vocabulary_size=6_000), model=presets.small(), training=small_training())
        if name in ("parsing", "parsing-small"):
            data = DataConfig(vocabulary_size=16_000, joint_vocabulary=False)
            return cls(data=data, model=presets.named(name), training=TrainingConfig())
        return cls(data=DataConfig(vocabulary_size=37_000), model=presets.named(name), training=TrainingConfig())

    @property
    def data_directory(self) -> Path:
        return self.data.directory or self.run / "data"

    def to_json(self) -> str:
        """Return all settings that determine the result, as JSON; a hash of this text is saved with scores."""
        parts = {
            "model": dataclasses.asdict(self.model),
            "data": self.data.fingerprint(),
            "training": dataclasses.asdict(self.training),
        }
        beginning = {} if self.init_from is None else {name: getattr(self, name) for name in BEGINNING}
        return json.dumps(parts | beginning, indent=2, default=str) + "\n"

    def settings(self) -> dict[str, str]:
        """Return the settings of ``to_json``, the device and the kernels, as a dict with keys like "training.seed"."""
        settings = {name: json.dumps(value) for name, value in _flat(json.loads(self.to_json())).items()}
        return settings | {"device": self.device, "kernels": self.kernels}

    def claim_directory(self, facts: Mapping[str, Any] | None = None) -> None:
        """Write this configuration, and ``facts`` (JSON values by name), to run.json in the run's directory."""
        text = json.dumps(json.loads(self.to_json()) | dict(facts), indent=2) + "\n" if facts else self.to_json()
        write_text(self.run / RUN_FILE, text)

    def check_directory(self) -> None:
        """Raise ConfigError if the run's directory is ``init_from``, or holds a run with other settings.

        Some settings may differ, such as training.max_updates; the message names the others that differ.
        """
        require_other_directory(self.run, self.init_from)
        if differences := self.differences(FREE):
            more = f"; and {len(differences) - 4} more" if len(differences) > 4 else ""
            raise ConfigError(
                f"{self.run}: holds another run: {'; '.join(differences[:4])}{more}. To go on with that run, give the"
                f" settings with which it began ({RUN_FILE} has them); for a new run, set run to another directory"
            )

    def differences(self, free: Collection[str]) -> list[str]:
        """Describe each setting that differs from the run in this directory; return [] if the directory holds no run.

        Settings of training whose names are in ``free``, such as "max_updates", are not compared.
        Raises: CorruptFileError if run.json lacks the fields of a run.
        """
        if not (self.run / RUN_FILE).exists():
            return []
        here, there = _flat(json.loads(self.to_json())), _flat(saved_settings(self.run))
        return [
            f"{name} is {_shown(name, there)} there, {_shown(name, here)} here"
            for name in here | there
            if here.get(name) != there.get(name) and name.removeprefix("training.") not in free
        ]


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run in one dict, with keys such as "training.seed" and "init_from"."""
    parts = {f"{part}.{name}": value for part in PARTS for name, value in settings[part].items()}
    return parts | {name: settings[name] for name in BEGINNING if name in settings}


def _shown(name: str, settings: Mapping[str, Any]) -> str:
    is_known = name in settings or name in BEGINNING
    return repr(settings.get(name)) if is_known else "unknown"


def saved_settings(run: Path) -> dict[str, Any]:
    """Return the content of the file of a run, with the settings that it lacks (see ``completed``).

    Raises: CorruptFileError if there is no file, or it lacks a table of settings.
    """
    path = run / RUN_FILE
    found = read_object(path)
    if missing := [part for part in PARTS if not isinstance(found.get(part), dict)]:
        raise CorruptFileError(
            f"{path}: has no table {', '.join(map(repr, missing))} of settings, so it is corrupt or of another program;"
            " restore it from a backup, or set run to another directory"
        )
    beginning = {name: getattr(RunConfig, name) for name in BEGINNING if "init_from" in found}
    return beginning | found | {part: completed(part, found[part]) for part in PARTS}


def completed(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a part, such as "data", in a file that an earlier version of the program may have written.

    A setting that the file lacks has the value that meant "as before": the value in ``BEFORE``, else today's default.
    """
    today = json.loads(RunConfig(model=ModelConfig(), training=TrainingConfig()).to_json())
    return {**today[part], **_missing(part, settings), **settings}


def _missing(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in BEFORE.get(part, {}).items() if name not in settings}


def require_other_directory(run: Path, init_from: Path | None) -> None:
    """Raise ConfigError if ``run`` and ``init_from`` are one directory: its model would be overwritten."""
    if init_from is not None and run.resolve() == init_from.resolve():
        raise ConfigError(
            f"run and init_from are both {run}: the training would overwrite the model from which it begins; set run to"
            " another directory"
        )


def initial_settings(run: Path) -> dict[str, dict[str, Any]]:
    """Return the values with which a run began, of settings that a run keeps if they are not given when it goes on.

    These are the automatic settings, and the settings in ``BEFORE`` that the run's file lacks; keys are parts and
    names.  Return {} if there is no run or its file is corrupt.  (``RunConfig.differences`` reports a corrupt file.)
    """
    try:
        found = read_object(run / RUN_FILE)
    except CorruptFileError:
        return {}
    return {part: kept_settings(part, as_object(found.get(part))) for part in PARTS}


def kept_settings(part: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a part of a file that are kept; {} if the file lacks the part."""
    automatic = {name: settings[name] for name in AUTOMATIC[part] if name in settings}
    return automatic | _missing(part, settings) if settings else {}


def with_values(config: RunConfig, values: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    """Return the configuration with ``values`` for those of its settings that have their default.

    Keys of ``values`` are parts and names.  Raises: ConfigError.
    """
    changes = {}
    for part, found in values.items():
        ours = getattr(config, part)
        default = type(ours)()
        changes[part] = {name: x for name, x in found.items() if getattr(ours, name) == getattr(default, name)}
    return with_changes(config, changes)


def resolved(config: RunConfig, n_ranks: int, why_no_bfloat16: str | None) -> RunConfig:
    """Return the configuration with its automatic settings replaced by values that suit its device.

    On GPUs there is one micro-batch for each rank that computes, because a GPU would compute two micro-batches one
    after the other.  The number of ranks that compute is a power of two, because the exact order of sums needs one.

    Args:
        n_ranks: number of processes.
        why_no_bfloat16: why the device does not compute faster in bfloat16; None if it does.
    """
    on_cpu = 2 if config.training.batch_tokens < SMALL_BATCH else 8
    n_micro_batches = on_cpu if config.device == "cpu" else working_ranks(n_ranks, MAX_MICRO_BATCHES)
    precision = "float32" if why_no_bfloat16 else "bfloat16"
    return with_values(config, {"training": {"n_micro_batches": n_micro_batches, "precision": precision}})
