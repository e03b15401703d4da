"""The options of a command: the fields of a dataclass, read from the command line by argparse."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from cli.command import say
from cli.help import FoldedHelp, help_of, in_order
from minitransformer.config import ConfigError
from minitransformer.config.checks import suggestion
from minitransformer.system.records import is_file_name, is_object_name

Value = TypeVar("Value")
Options = TypeVar("Options")

Positional = Annotated[Value, "positional"]
"""The type of a field that is given without a name."""
Repeated = Annotated[tuple[Value, ...], "repeated"]
"""The type of a field with one value for each occurrence of its option: --run A --run B."""

MOST_THREADS = 1_024
SHORT_NAMES = {"input": "-i", "output": "-o", "n_best": "-n"}
_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_EXPECTED = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Option:
    """One field of the dataclasses of options."""

    path: str
    """The name of the field's part, a dot and the field's name, such as training.warmup_steps."""
    types: tuple[Any, ...]
    """The types of the values; (T, ...) for any number of values."""
    may_be_file: bool
    """True if a value that is not in the list may be the path of a file, or a name such as package.module:name."""
    mark: str | None
    """The mark of ``Positional`` or ``Repeated``."""
    is_nullable: bool
    """True if the word None on the command line gives the value None."""
    default: Any
    help: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names on the command line; a switch has a second name, which turns it off."""
        part, dot, name = self.path.rstrip("_").replace("_", "-").rpartition(".")
        both = (f"--{part}{dot}{name}", f"--{part}{dot}no-{name}")
        return () if self.mark == "positional" else both if self.types == (bool,) else both[:1]

    @property
    def is_list(self) -> bool:
        """True if the option takes any number of values."""
        return self.types[-1] is Ellipsis

    @property
    def choices(self) -> tuple[str, ...]:
        """The words from which the value is chosen; () if the type is not Literal."""
        return get_args(self.types[0]) if get_origin(self.types[0]) is Literal else ()

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Let a parser read this option; the parser's result has only options that are given."""
        settings: dict[str, Any] = {"default": argparse.SUPPRESS, "help": self._help.replace("%", "%%")}
        if self.types == (bool,):
            parser.add_argument(*self.names, dest=self.path, action=_Switch, nargs=0, const=self.names[1], **settings)
            return
        words = (*self.choices, *([_METAVARS[Path], "MODULE:NAME"] if self.may_be_file else []))
        metavar = f"{{{','.join(words)}}}" if self.choices else _METAVARS[self.types[0]]
        settings |= {"type": self._value, "metavar": metavar, "action": _Once}
        if self.mark == "repeated":
            settings["action"] = "append"
        elif self.is_list:
            settings["nargs"] = "*"
        elif len(self.types) > 1:
            settings["nargs"] = len(self.types)
        if self.names:
            short = [SHORT_NAMES[self.path]] if self.path in SHORT_NAMES else []
            parser.add_argument(*self.names, *short, dest=self.path, required=self.default is MISSING, **settings)
        else:
            if self.is_list and self.default is MISSING:
                settings["default"] = ()
            parser.add_argument(self.path, **settings | {"metavar": self.path.upper(), "action": "store"})

    def _value(self, text: str) -> Any:
        """Convert a word of the command line.  Raises: ArgumentTypeError."""
        if self.is_nullable and text == "None":
            return None
        if self.choices:
            if text not in self.choices and self.may_be_file and (is_object_name(text) or is_file_name(text)):
                return text if is_object_name(text) else Path(text)
            if text not in self.choices:
                raise argparse.ArgumentTypeError(f"unknown value {text!r}; {suggestion(text, self.choices)}")
            return text
        try:
            return self.types[0](text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {_EXPECTED[self.types[0]]}; got {text!r}") from error

    @property
    def _help(self) -> str:
        if self.default is MISSING:
            return f"{self.help} (required)"
        if self.default is None:  # the help says what None means
            return self.help
        words = " ".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)
        return f"{self.help} (default: {words or 'none'})"


def options_in(kind: type, default: Any = None, part: str = "") -> Iterator[Option]:
    """Yield the options of a dataclass and of the dataclasses in its fields, in the order of the help.

    Args:
        default: an object with the defaults; if None, the fields' defaults are used.
        part: the name of the field that has this dataclass, and a dot.
    """
    types = get_type_hints(kind, include_extras=True)
    for field in in_order(kind):
        hint, mark, value = types[field.name], None, _default_of(field, default)
        if dataclasses.is_dataclass(hint):
            yield from options_in(cast(type, hint), value, f"{field.name}.")
            continue
        if get_origin(hint) is Annotated:
            hint, mark = get_args(hint)
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        hint, *others = (each for each in kinds if each is not NoneType)
        values = get_args(hint) if get_origin(hint) is tuple else (hint,)
        path, may_be_file, is_nullable = part + field.name, others == [Path, str], NoneType in kinds
        yield Option(path, values, may_be_file, mark, is_nullable, value, help_of(kind, field.name))


def _default_of(field: dataclasses.Field[Any], default: Any) -> Any:
    if default is not None:
        return getattr(default, field.name)
    return field.default if field.default_factory is MISSING else field.default_factory()


class _Once(argparse.Action):
    """An option that is given at most once, because a second value would replace the first in silence."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if hasattr(namespace, self.dest):
            first, second = (_shown(each) for each in (getattr(namespace, self.dest), values))
            remedy = "all its values follow one name" if isinstance(values, list) else "it takes one value"
            parser.error(f"{option_string} is given twice, with {first} and with {second}; {remedy}")
        setattr(namespace, self.dest, values)


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


class _Switch(argparse.Action):
    """An option without a value: true, or false if it is given by the name in ``const``."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        value = option_string != self.const
        if getattr(namespace, self.dest, value) != value:
            parser.error(f"{self.option_strings[0]} and {self.const} contradict each other; give one of them")
        setattr(namespace, self.dest, value)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error, and exit with status 2."""
        say(f"error: {message} (see {self.prog} --help)")
        raise SystemExit(2)


def _parser(kind: type, default: Any, program: str, description: str | None, *, add_help: bool = True) -> _Parser:
    """Return a parser of the options of a dataclass."""
    options = list(options_in(kind, default))
    places = [f"[{each.path.upper()} ...]" if each.is_list else each.path.upper() for each in options if not each.names]
    usage = " ".join([program, "[OPTIONS]", *places])
    parser = _Parser(program, usage, description, formatter_class=FoldedHelp, allow_abbrev=False, add_help=add_help)
    parts: dict[str, argparse._ArgumentGroup] = {}
    for option in options:
        part, _, _ = option.path.rpartition(".")
        if part and part not in parts:
            parts[part] = parser.add_argument_group(f"{part} options", help_of(kind, part))
        option.add_to(parts[part] if part else parser)
    parser.add_argument("--debug", action="store_true", help="Show where in the code an error arose. (default: False)")
    return parser


def parse_options(
    kind: type[Options],
    description: str,
    arguments: Sequence[str],
    file_remedy: str | None = None,
    *,
    default: Options | None = None,
    program: str | None = None,
) -> Options:
    """Return ``default``, or else an object with the fields' defaults, changed by the command line.

    Args:
        file_remedy: advice for a file name that is given without an option; {file} stands for the file name.
        program: the name of the command; if None, the name that was typed.

    Raises: ConfigError if a file name is given without an option and there is a ``file_remedy``; SystemExit after the
    help text, and after the message of any other error of the command line.
    """
    parser = _parser(kind, default, program or _typed_name(), description)
    # argparse reads "a --lowercase b" only with parse_known_intermixed_args, and "-- -a" only with parse_known_args
    read = parser.parse_known_args if "--" in arguments else parser.parse_known_intermixed_args
    given, unknown = read(_hyphenate(arguments))
    if unknown and unknown[0].startswith("-"):
        parser.error(_unknown_option(unknown[0].partition("=")[0], kind))
    if unknown and file_remedy:
        raise ConfigError(f"{unknown[0]}: it follows no option; {file_remedy.format(file=unknown[0])}")
    if unknown:
        parser.error(f"unexpected value {unknown[0]!r}")
    try:
        return _change(kind, default, vars(given))
    except ConfigError as error:  # a value is out of bounds, or two values contradict each other
        parser.error(str(error))


def parse_known(default: Options, arguments: Sequence[str]) -> Options:
    """Return ``default``, changed by the arguments that are options of its class; ignore all other arguments.

    Raises: SystemExit after the message of an error in one of these options.
    """
    parser = _parser(type(default), default, _typed_name(), None, add_help=False)
    given, _ = parser.parse_known_args(_hyphenate(arguments))
    return _change(type(default), default, vars(given))


def parse_kind(kinds: Mapping[str, type], description: str, arguments: Sequence[str], remedy: str = "") -> Any:
    """Return the options of one of several kinds of a command; the first argument names the kind.

    Args:
        remedy: further advice if the first argument is no kind; {word} stands for the argument.

    Raises: ConfigError if the first argument is no kind; SystemExit as ``parse_options`` does.
    """
    program, word = _typed_name(), arguments[0] if arguments else "-"
    if word.startswith("-"):
        parser = _Parser(program, f"{program} KIND [OPTIONS]", description, formatter_class=FoldedHelp)
        added = parser.add_subparsers(title="kinds", metavar="KIND")
        for name, kind in kinds.items():
            added.add_parser(name, help=(inspect.getdoc(kind) or "").partition("\n")[0])
        parser.parse_known_args(arguments)  # prints the help if the arguments ask for it
        parser.error(f"name the kind first: {', '.join(kinds)}")
    if word not in kinds:
        raise ConfigError(f"unknown word {word!r}; {suggestion(word, list(kinds))}{remedy.format(word=word)}")
    return parse_options(kinds[word], inspect.getdoc(kinds[word]) or "", arguments[1:], program=f"{program} {word}")


def _change(kind: type[Options], default: Options | None, given: Mapping[str, Any]) -> Options:
    """Return ``default``, or an object with the fields' defaults, changed by ``given``: values by option path."""
    values = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        prefix = f"{field.name}."
        inner = {path.removeprefix(prefix): value for path, value in given.items() if path.startswith(prefix)}
        if inner:
            before = _default_of(field, default)
            values[field.name] = _change(type(before), before, inner)
        elif field.name in given:
            value = given[field.name]
            values[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values) if default is None else dataclasses.replace(default, **values)  # type: ignore[type-var]


def _typed_name() -> str:
    return Path(sys.argv[0]).name


def _hyphenate(arguments: Sequence[str]) -> list[str]:
    """Replace underscores by hyphens in the names of options; users may give both."""
    n = arguments.index("--") if "--" in arguments else len(arguments)
    split = [word.partition("=") if word.startswith("--") else ("", "", word) for word in arguments[:n]]
    return [*(name.replace("_", "-") + equals + value for name, equals, value in split), *arguments[n:]]


def _unknown_option(option: str, kind: type) -> str:
    """Return a message with a similar option, preferably of the same name in a part (--training.seed for --seed)."""
    known = [name for each in options_in(kind) for name in each.names]
    inner = [name for name in known if name.endswith(f".{option.lstrip('-')}")]
    similar = inner or difflib.get_close_matches(option, known, n=1)
    return f"unknown option {option}{f'; did you mean {similar[0]}?' if similar else ''}"


class Rule(NamedTuple):
    """A rule on options that are given together; ``names`` and ``others`` are names of fields, such as n_best."""

    names: tuple[str, ...]
    relation: Literal["needs", "does not go with"]
    others: tuple[str, ...]
    reason: str = ""


def require_rules(options: Any, rules: Sequence[Rule]) -> None:
    """Raise ConfigError with both names and the remedy if the given options break a rule."""
    for rule in rules:
        names, others = given(options, rule.names), given(options, rule.others)
        reason = f", because {rule.reason}" if rule.reason else ""
        if rule.relation == "does not go with" and names and others:
            raise ConfigError(f"{names[0]}: does not go with {others[0]}{reason}; give one of them")
        if rule.relation == "needs" and names and len(others) < len(rule.others):
            needed = " and ".join(f"--{name.replace('_', '-')}" for name in rule.others)
            raise ConfigError(f"{names[0]}: needs {needed}{reason}; add what is missing, or leave {names[0]} out")


def given(options: Any, names: Sequence[str]) -> list[str]:
    """Return, as on the command line, the names of those fields in ``names`` whose values are not the defaults."""
    known = {option.path: option for option in options_in(type(options))}
    chosen = [known[name] for name in names]
    return [one.names[one.default is True] for one in chosen if getattr(options, one.path) != one.default]


def require_threads(n: int | None) -> None:
    """Raise ConfigError if ``n`` is given and is not between 1 and MOST_THREADS."""
    if n is not None and not 1 <= n <= MOST_THREADS:
        raise ConfigError(f"--threads must be at least 1 and at most {MOST_THREADS:,}; got {n}")


def as_text(name: str, argument: str) -> str:
    """Decode a command-line argument as UTF-8; replace invalid bytes, with a warning."""
    text = argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if text != argument:
        say(f"warning: the {name} is not UTF-8; read with replacements")
    return text
