"""The help of the commands: the order of options, their descriptions, and lines that break between words."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from minitransformer.config import ModelConfig

# The most used options: in each list they come first, in this order; other options follow in the order of definition.
FIRST = (
    "run", "preset", "config", "input", "output", "device", "data", "training", "model",
    "train_source", "train_target", "validation_source", "validation_target", "vocabulary_size", "joint_vocabulary",
    "raw", "max_updates", "batch_tokens", "n_micro_batches", "warmup_steps", "precision", "patience",
)  # fmt: skip
REFUSED = ("vocabulary_size", "source_vocabulary_size", "source_end")  # settings that training refuses; listed last


def in_order(options: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass in the order of the help."""

    def rank(field: dataclasses.Field[Any]) -> int:
        if options is ModelConfig and field.name in REFUSED:
            return len(FIRST) + 1
        return FIRST.index(field.name) if field.name in FIRST else len(FIRST)

    return sorted(dataclasses.fields(options), key=rank)


def help_of(options: type, name: str) -> str:
    """Return the docstring of a field as one line, without marks of code."""
    for kind in options.__mro__:
        if dataclasses.is_dataclass(kind) and name in (docstrings := _docstrings(kind)):
            return " ".join(docstrings[name].replace("``", "").split())
    return ""


@cache
def _docstrings(options: type) -> Mapping[str, str]:
    """Return the docstrings of the fields that a class defines; in the source, a docstring follows its field."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: docstring.value.value
        for field, docstring in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
        if isinstance(docstring.value.value, str)
    }


class FoldedHelp(argparse.HelpFormatter):
    """A help text whose lines break only between words, at the terminal's width."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
        filled = [textwrap.indent("\n".join(self._split_lines(each, width)), indent) for each in paragraphs]
        return "\n\n".join(filled)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return the names of an option and its values; break a long list of values."""
        text = super()._format_action_invocation(action)
        if len(text) > self._width - self._current_indent:
            return "\n    ".join(self._split_lines(text.replace(",", ", "), self._width - 4))
        return text
