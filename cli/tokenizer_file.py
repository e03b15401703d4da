"""--data.tokenizer FILE: a tokenizer of another program, with which the text of a new training is prepared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import get_args

from minitransformer.config import ConfigError, DataConfig, TokenizerType
from minitransformer.data.given_tokenizer import GivenTokenizer, settings_of
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.extras.convert.tokenizer_files import read_tokenizer
from minitransformer.inference.task import task_of

OPTION = "--data.tokenizer"


def split_tokenizer_file(arguments: Sequence[str]) -> tuple[Path | None, Sequence[str]]:
    """Return the file that the option names, None for a kind of tokenizer, and the arguments without it."""
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == OPTION and (equals or i + 1 < len(arguments)):
            value = value if equals else arguments[i + 1]
            if value not in get_args(TokenizerType) and (Path(value).suffix or Path(value).exists()):
                return Path(value), [*arguments[:i], *arguments[i + (1 if equals else 2) :]]
    return None, arguments


tokenizer_in = cache(read_tokenizer)


def require_settings_of(file: Path, data: DataConfig, init_from: Path | None) -> None:
    """Raise ConfigError if options contradict the tokenizer in a file."""
    if init_from or data.train_trees:
        raise ConfigError(f"{OPTION} {file}: a model to begin from, or a treebank, has its own tokenizer; leave it out")
    different = [
        f"data.{name}: expected {expected!r}, got {got!r}"
        for name, expected in settings_of(tokenizer_in(file)).items()
        if (got := getattr(data, name)) != expected
    ]
    if different:
        raise ConfigError(f"{OPTION} {file}: {'; '.join(different)}; leave these options out")


def prepare_with_tokenizer(file: Path, data: DataConfig, directory: Path) -> None:
    """Prepare data with the tokenizer in a file, unless it is there.  Raises: ConfigError if it has another one."""
    given = GivenTokenizer(tokenizer_in(file))
    if not PreparedData.is_in(directory):
        prepare(data, directory, task_of(data).corpus, given)
    elif not given.is_of(PreparedData.open(directory).tokenizer, None):
        raise ConfigError(
            f"{directory}: was prepared with another tokenizer than {file}; set --data.directory or --run to another"
            " directory"
        )
