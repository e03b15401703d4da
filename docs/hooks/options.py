"""A hook of mkdocs: the pages of commands, settings and presets are filled from the code.

A page has a marker such as ``<!-- generated: commands -->``, which is replaced here by tables that are made of the
dataclasses of options and of the docstrings below their fields.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the tree that is documented, not an installed one

from cli.entry import COMMANDS  # noqa: E402
from cli.help import help_of  # noqa: E402
from cli.presets import HEADINGS, sizes_of  # noqa: E402
from cli.run_options import RunStart  # noqa: E402
from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig  # noqa: E402
from minitransformer.config.presets import PRESETS  # noqa: E402

MARKER = re.compile(r"<!-- generated: (\w+) -->")
HEADER = "| {} | type | default | what it is |\n|---|---|---|---|\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace the markers of a page."""
    return MARKER.sub(lambda match: GENERATED[match[1]](), markdown)


def commands() -> str:
    """Return a section for every command: its description, and a table of its options."""
    return "\n".join(section for name in COMMANDS for section in sections_of(name))


def sections_of(name: str) -> Iterator[str]:
    """Yield the sections of a command; one with several kinds, such as ``score``, has one for each."""
    module = import_module(f"cli.{name}")
    description = "\n\n".join(prose(paragraph) for paragraph in module.DESCRIPTION.split("\n\n"))
    yield f"\n## {name}\n\n{description}\n"
    kinds: dict[str, type] = getattr(module, "KINDS", {})
    for kind, options in kinds.items():
        yield f"\n### {name} {kind}\n\n{prose(inspect.getdoc(options) or '')}\n\n{table_of(options, option_name)}"
    if not kinds:
        yield table_of(getattr(module, f"{name.title()}Options"), option_name)


def option_name(name: str, hint: Any) -> str:
    """Return a field's name on the command line."""
    option = name.rstrip("_").replace("_", "-")
    return name.upper() if "positional" in repr(hint) else f"--{option}"


def key_name(name: str, _: Any) -> str:
    """Return a field's name in a TOML file."""
    return name


def settings() -> str:
    """Return a section for the keys of a run, and one for each table of a TOML file."""
    tables = {"data": DataConfig, "training": TrainingConfig, "model": ModelConfig}
    of_start = table_of(RunStart, key_name, without=("config",))
    parts = [f"\n## At the top\n\n{of_start}{table_of(RunConfig, key_name, headed=False)}"]
    for name, config in tables.items():
        parts.append(f"\n## [{name}]\n\n{table_of(config, key_name)}")
    return "\n".join(parts)


def presets() -> str:
    """Return a table of the presets, with their sizes and numbers of parameters."""
    rows = [HEADINGS, ("---", *["--:"] * (len(HEADINGS) - 1))]
    rows += [(f"`{name}`", *sizes_of(name, None)) for name in PRESETS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


GENERATED: dict[str, Callable[[], str]] = {"commands": commands, "settings": settings, "presets": presets}


def table_of(
    options: type, named: Callable[[str, Any], str], *, without: Sequence[str] = (), headed: bool = True
) -> str:
    """Return a table of the fields of a dataclass; fields that are dataclasses themselves lead to their settings."""
    hints, lines = typing.get_type_hints(options, include_extras=True), []
    heading = "option" if named is option_name else "key"
    for field in dataclasses.fields(options):
        if field.name in without:
            continue
        if dataclasses.is_dataclass(hints[field.name]):
            if heading == "option":
                text = f"all settings of [{field.name}](settings.md#{field.name})"
                lines.append(f"| `--{field.name}.…` | | | {text} |")
            continue
        hint = hints[field.name]
        text = prose(help_of(options, field.name) or "") + choices_of(hint)
        cells = (f"`{named(field.name, hint)}`", type_of(hint), default_of(field), text)
        lines.append(f"| {' | '.join(cells)} |")
    return (HEADER.format(heading) if headed else "") + "\n".join(lines) + "\n"


def type_of(hint: Any) -> str:
    """Return the type of a field in words."""
    if typing.get_origin(hint) is typing.Annotated:
        return type_of(typing.get_args(hint)[0])
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return "choice"
    if typing.get_origin(hint) is tuple:
        return f"{type_of(arguments[0])} …" if arguments[-1] is Ellipsis else " ".join(map(type_of, arguments))
    if arguments:  # X | None
        return " or ".join(type_of(each) for each in arguments if each is not type(None))
    return {str: "text", int: "integer", float: "number", bool: "true, false", Path: "path"}.get(hint, "text")


def choices_of(hint: Any) -> str:
    """Return a sentence with the values that a field may have; nothing if it has other values."""
    if typing.get_origin(hint) is typing.Literal:
        return " One of " + ", ".join(f"`{choice}`" for choice in typing.get_args(hint)) + "."
    return "".join(choices_of(each) for each in typing.get_args(hint))


def default_of(field: dataclasses.Field[Any]) -> str:
    """Return a field's default."""
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, tuple):
        return f"`{' '.join(map(str, value))}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def prose(text: str) -> str:
    """Return text as one line of Markdown that may stand in a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
