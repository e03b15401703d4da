"""The options of a run: preset, conventions, TOML file and command line; a later one overrides the earlier ones."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from cli.command import say
from cli.options import parse_known, parse_options
from minitransformer.config import ConfigError, DataConfig, ModelConfig, RunConfig, TokenizerType, presets
from minitransformer.config.checks import unexpected_settings, with_changes
from minitransformer.data.given_tokenizer import read_tokenizer, settings_of
from minitransformer.extras.paper.compatibility import CONVENTIONS, compatible
from minitransformer.training.pretrained import fine_tuning
from parallel.launch import rank_launched

if TYPE_CHECKING:
    Preset: TypeAlias = str
    System: TypeAlias = str
else:
    Preset = Literal[tuple(presets.PRESETS)]
    System = Literal[tuple(CONVENTIONS)]

Options = TypeVar("Options")

STARTS: Sequence[str] = ("preset", "compat")
_HEAD_SIZES = ("d_model", "n_heads", "d_k")
RECIPES = (Path(__file__).parent, Path(__file__).parents[1])
"""The directories that have recipes/: in a wheel, and in a clone."""
FILE_REMEDY = 'to read options from a file, give "--config {file}"'


@dataclass(frozen=True)
class Start:
    """The file and the preset from which options start."""

    config: Path | None = None
    """TOML file of options, such as those in recipes/: warmup_steps in [training] is --training.warmup-steps."""
    preset: Preset = "tiny"
    """Name of the model and its training: tiny trains like the demonstration, small like the recipe for Multi30k, the
    others as in the paper; minitransformer-presets lists their sizes."""


@dataclass(frozen=True)
class RunStart(Start):
    """The file, the preset and the conventions from which the options of a run start."""

    compat: System = "paper"
    """System whose conventions the model follows where the paper leaves a choice, including the length penalty."""


@dataclass(frozen=True)
class _Data:
    """The options of a treebank and of a tokenizer; a tokenizer of whole words is valid only with a treebank."""

    tokenizer: TokenizerType | Path | str = "bpe"
    train_trees: tuple[str, ...] = ()
    validation_trees: tuple[str, ...] = ()


@dataclass(frozen=True)
class _EarlyOptions(RunStart):
    """The options of a run that are read first, because the defaults of other options depend on them."""

    run: Path = RunConfig.run
    init_from: Path | None = None
    data: _Data = field(default_factory=_Data)


def parse_run_options(options: type[Options], description: str, arguments: Sequence[str]) -> Options:
    """Return the options of a command.

    Fields that ``RunStart`` or ``RunConfig`` also have get their defaults from ``start_of``.
    Warn if d_model, n_heads and d_k no longer match because only some of them were changed from the preset.

    Raises: ConfigError for a wrong file, or a file name without an option; CheckpointError if there is no model to
    begin from; SystemExit as ``parse_options`` does.
    """
    start, config = start_of(parse_known(_EarlyOptions(), arguments).config, arguments)
    values = vars(start) | vars(config)
    names = [field.name for field in dataclasses.fields(options) if field.name in values]  # type: ignore[arg-type]
    default = options(**{name: values[name] for name in names})
    chosen = parse_options(options, description, arguments, FILE_REMEDY, default=default)
    _require_settings_of_tokenizer(vars(chosen)["data"])
    if isinstance(chosen, RunConfig) and not chosen.init_from:
        advice = head_size_advice(chosen.model, start.preset)
        if advice and rank_launched() == 0:
            say(f"warning: {advice}")
    return chosen


def start_of(file: Path | None, arguments: Sequence[str] = ()) -> tuple[RunStart, RunConfig]:
    """Return the file, preset and conventions of a run, and the run's settings that follow from them.

    The file may also name the preset and the system; a preset or system among the arguments overrides the file's.  The
    model in ``init_from`` replaces the preset's model.
    Raises: ConfigError that names the file, if it is missing, is not TOML, or has a wrong setting; CheckpointError if
    ``init_from`` has no model.
    """
    table = {} if file is None else read_toml(file)
    names = {key: table[key] for key in (*STARTS, "run", "init_from") if key in table}
    if isinstance(data := table.get("data"), dict):
        names["data"] = {key: data[key] for key in vars(_Data()) if key in data}
    table = {key: value for key, value in table.items() if key not in (*STARTS, "init_from")}
    try:
        start = parse_known(with_changes(_EarlyOptions(config=file), names), arguments)
        config = dataclasses.replace(RunConfig.of_preset(start.preset), run=start.run, init_from=start.init_from)
        if start.init_from is not None:
            if start.data.train_trees:
                data = dataclasses.replace(config.data, joint_vocabulary=False, **vars(start.data))
                config = dataclasses.replace(config, data=data)
            config = fine_tuning(config)
        elif isinstance(file_of_tokenizer := start.data.tokenizer, Path):
            config = dataclasses.replace(config, data=with_changes(config.data, _settings_of_file(file_of_tokenizer)))
        if start.init_from is None or start.compat != RunStart.compat:
            config = dataclasses.replace(config, model=compatible(config.model, start.compat))
        return start, with_changes(config, table, other_keys=STARTS)
    except ConfigError as error:
        if file is None:
            raise
        raise ConfigError(f"{file}: {error}") from error


@cache
def _settings_of_file(tokenizer: Path) -> Mapping[str, Any]:
    """Return the settings of data that the tokenizer in a file determines.  Raises: ConversionError."""
    return {name: value for name, value in settings_of(read_tokenizer(tokenizer)).items() if name != "tokenizer"}


def _require_settings_of_tokenizer(data: DataConfig) -> None:
    """Raise ConfigError if options of data contradict the tokenizer file that ``data.tokenizer`` names."""
    expected = _settings_of_file(data.tokenizer) if isinstance(data.tokenizer, Path) else {}
    if different := unexpected_settings("data", data, expected):
        raise ConfigError(f"{data.tokenizer}: {'; '.join(different)}; leave these options out")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, with or without a byte order mark; recipes/NAME.toml is found from any directory.

    Raises: ConfigError with the file's name, and the line if it is not TOML.
    """
    folders = RECIPES if path.parts[:1] == ("recipes",) else ()
    found = next((each for each in (path, *(folder / path for folder in folders)) if each.exists()), path)
    try:
        return tomllib.loads(found.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: not found; expected a TOML file, such as recipes/multi30k-en-de.toml") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not TOML, too long a number
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def head_size_advice(model: ModelConfig, preset: str) -> str | None:
    """Return advice if one or two of d_model, n_heads and d_k are as in the preset, and n_heads · d_k ≠ d_model.

    Otherwise return None.
    """
    sizes, preset_sizes = ({name: getattr(x, name) for name in _HEAD_SIZES} for x in (model, presets.named(preset)))
    kept = [f"model.{name}" for name in _HEAD_SIZES if sizes[name] == preset_sizes[name]]
    if len(kept) in (0, len(_HEAD_SIZES)) or model.n_heads * model.d_k == model.d_model:
        return None
    d_k, rest = divmod(model.d_model, model.n_heads)
    remedy = (
        f"set model.n_heads to a divisor of {model.d_model}"
        if rest
        else f"set model.d_k and model.d_v to {d_k}"
        if "model.d_k" in kept
        else f"set model.d_model to {model.n_heads * model.d_k}"
    )
    return (
        f"{' and '.join(kept)} {'stays' if len(kept) == 1 else 'stay'} as in the preset {preset}: model.n_heads ·"
        f" model.d_k = {model.n_heads} · {model.d_k} = {model.n_heads * model.d_k}, but model.d_model is"
        f" {model.d_model}. If you want them to be equal, as in the paper, {remedy}"
    )
