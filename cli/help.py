"""The help of the commands: the order of options, their words, and lines that break between words."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Mapping
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, Generic, TextIO, get_type_hints

import tyro
from tyro.constructors import (
    MISSING,
    MISSING_NONPROP,
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from minitransformer.config import ModelConfig

# The options that are used most; in each list these come first, in this order, then the others as they are defined.
FIRST = (
    "run", "preset", "config", "input", "output", "device", "data", "training", "model",
    "train_source", "train_target", "validation_source", "validation_target", "vocabulary_size", "joint_vocabulary",
    "raw", "max_updates", "batch_tokens", "n_micro_batches", "warmup_steps", "precision", "patience",
)  # fmt: skip
REFUSED = ("vocabulary_size", "source_vocabulary_size", "source_end")  # settings of models that training refuses

AS_SHOWN = ConstructorRegistry()
"""The rule by which tyro reads a dataclass of options."""


@AS_SHOWN.struct_rule
def options_of(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Return the options of a dataclass as they are shown.

    tyro's own rule keeps the order of the source, and the line breaks and indentation of the fields' docstrings.
    """
    if not dataclasses.is_dataclass(info.type) or issubclass(info.type, Generic):  # tyro's own is generic
        return None
    types = get_type_hints(info.type, include_extras=True)
    shown = []
    for field in sorted(dataclasses.fields(info.type), key=partial(_rank, info.type)):
        default = _default(field, info.default)
        kind = types[field.name]
        if default in ((), MISSING_NONPROP):  # tyro prints "(default: )"
            hint = "(required)" if default is MISSING_NONPROP else "(default: none)"
            kind = Annotated[kind, tyro.conf.arg(help_behavior_hint=hint)]
        shown.append(StructFieldSpec(field.name, kind, default, partial(help_of, info.type, field.name)))
    return StructConstructorSpec(info.type, tuple(shown))


def _rank(options: type, field: dataclasses.Field[Any]) -> int:
    if field.name == "debug" or (options is ModelConfig and field.name in REFUSED):
        return len(FIRST) + 1
    return FIRST.index(field.name) if field.name in FIRST else len(FIRST)


def _default(field: dataclasses.Field[Any], of_all: Any) -> Any:
    """Return the default of an option: that in ``of_all``, the defaults that a command gave, or the field's own."""
    if dataclasses.is_dataclass(of_all):
        return getattr(of_all, field.name)
    if of_all is MISSING:
        return MISSING
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return MISSING_NONPROP if field.default is dataclasses.MISSING else field.default


def help_of(options: type, name: str) -> str | None:
    """Return the docstring of a field as one line, without marks of code.

    Numbers lose their commas, because tyro may break lines there.
    """
    for kind in options.__mro__:
        if dataclasses.is_dataclass(kind) and name in (docstrings := _docstrings(kind)):
            return re.sub(r"(?<=\d),(?=\d)", "", " ".join(docstrings[name].replace("``", "").split()))
    return None


@cache
def _docstrings(options: type) -> Mapping[str, str]:
    """Return the docstrings of the fields that a class defines, which stand below them in its source."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: docstring.value.value
        for field, docstring in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
        if isinstance(docstring.value.value, str)
    }


class WrappedLines:
    """A stream that breaks lines between words at the terminal's width; tyro breaks only those within its boxes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        width = shutil.get_terminal_size().columns
        return self._stream.write("\n".join(_wrapped(line, width) for line in text.split("\n")))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _wrapped(line: str, width: int) -> str:
    """Break a line; a line that has to be broken loses its colours, whose codes would count as letters."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return line if len(plain) <= width else textwrap.fill(plain, width, break_on_hyphens=False)
