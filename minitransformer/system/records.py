"""Conversion of JSON objects in files to dataclasses, and of values of TOML and JSON to typed fields."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from minitransformer.system.files import CorruptFileError, read_json

Record = TypeVar("Record")
Bounds = Mapping[str, tuple[float, float]]  # field → (least, below): least ≤ number < below
MakeError = Callable[[str], Exception]  # makes an error from its message

_OBJECT_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_NONE: Mapping[str, Any] = MappingProxyType({})
_TYPES: dict[type, tuple[tuple[type, ...], str]] = {  # type of a field → the types that a file may give for it
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    Path: ((str,), "a string"),
    list: ((list,), "a list"),
    tuple: ((list,), "a list"),
    dict: ((dict,), "an object"),
}


def as_object(value: Any) -> dict[str, Any]:
    """Return a value of a JSON file if the value is an object, else {}."""
    return value if isinstance(value, dict) else {}


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if there is no file, or the file has another value.

    Raises: CorruptFileError if the file is not JSON.
    """
    return as_object(read_json(path)) if path.exists() else {}


def read_record(
    path: Path,
    kind: type[Record],
    *,
    bounds: Bounds = _NONE,
    needed: Collection[str] = (),
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ignore_unknown: bool = False,
    remedy: str = "it is corrupt or of another kind: remove it",
) -> Record:
    """Read an instance of the dataclass ``kind`` from a JSON object.

    An earlier version of the program may have written the file.  So the file may lack each field that has a default,
    except the ``needed`` ones: the default of a field must mean "as before the field existed".  ``upgrade`` returns
    today's fields for the fields of an earlier version.  ``ignore_unknown`` allows other keys.  ``remedy`` ends each
    message.
    Raises: CorruptFileError if the file is missing, or a field is missing, unknown, of another type or out of bounds.
    """
    content, types, error = read_json(path), get_type_hints(kind), corrupt_file_error(path, remedy)
    fields = upgrade(content) if isinstance(content, dict) else {}
    if ignore_unknown:
        fields = {name: value for name, value in fields.items() if name in types}
    if wrong := sorted((fields.keys() - types.keys()) | (_required(kind, needed) - fields.keys())):
        raise error(f"expected an object with {', '.join(types)}; missing or unknown: {wrong!r:.300}")
    record = kind(**{name: convert_value(name, value, types[name], error) for name, value in fields.items()})
    require_bounds(record, bounds, error)
    return record


def _required(kind: Any, needed: Collection[str]) -> set[str]:
    """Return the fields of a dataclass that a file must have."""
    missing = dataclasses.MISSING
    defaults = {field.name: (field.default, field.default_factory) for field in dataclasses.fields(kind)}
    return {name for name, default in defaults.items() if default == (missing, missing) or name in needed}


def require(condition: bool, name: str, expected: str, got: Any, error: MakeError) -> None:
    """Raise ``error`` unless the condition holds; the message has the field's name, and what was expected and given."""
    if not condition:
        raise error(f"{name} must be {expected}; got {got!r:.200}")


def corrupt_file_error(path: Path, remedy: str) -> MakeError:
    """Return a function that makes a CorruptFileError from a message about a field."""
    return lambda message: CorruptFileError(f"{path}: {message}; {remedy}")


def convert_value(name: str, value: Any, kind: Any, error: MakeError) -> Any:
    """Convert a value to the type of its field: a list to a tuple, a string to a path.  Raises: ``error``."""
    if get_origin(kind) is UnionType:  # X | None
        return None if value is None else convert_value(name, value, get_args(kind)[0], error)
    if get_origin(kind) is Union:  # Literal[…] | Path | str
        words, kind, _ = get_args(kind)
        if value in get_args(words) or is_object_name(value):
            return value
        expected = f"one of {get_args(words)}, a file or package.module:name"
        require(isinstance(value, str) and is_file_name(value), name, expected, value, error)
    if get_origin(kind) is Literal:
        require(value in get_args(kind), name, f"one of {get_args(kind)}", value, error)
        return value
    constructor = get_origin(kind) or kind
    allowed, expected = _TYPES[constructor]
    require(type(value) in allowed, name, expected, value, error)
    if constructor in (tuple, list):
        first, *others = get_args(kind)
        kinds = [first] * len(value) if others in ([], [...]) else [first, *others]
        require(len(value) == len(kinds), name, f"a list of {len(kinds)}", value, error)
        return constructor(convert_value(f"{name}[{i}]", value[i], item, error) for i, item in enumerate(kinds))
    try:
        return constructor(value)
    except OverflowError as cause:  # a whole number that is too large for a float
        raise error(f"{name} is too large: {cause}") from cause


def require_types(record: Any, error: MakeError, prefix: str = "") -> None:
    """Check that every field of a dataclass, made in Python, has a value of the field's type.  Raises: ``error``.

    Values of a Literal are not checked here.
    """
    for name, kind in _field_types(type(record)).items():
        value = getattr(record, name)
        require(_has_type(value, kind), prefix + name, _description(kind, value), value, error)


def _field_types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


_PYTHON_TYPES: dict[type, Any] = {int: Integral, float: Real, tuple: (tuple, list)}  # also NumPy's numbers


def _has_type(value: Any, kind: Any) -> bool:
    constructor = get_origin(kind) or kind
    if constructor in (Union, UnionType):
        return any(_has_type(value, each) for each in get_args(kind))
    if constructor is Literal:
        return isinstance(value, str)
    if not isinstance(value, _PYTHON_TYPES.get(constructor, constructor)):
        return False
    if constructor in (int, float):
        return not isinstance(value, bool)
    return constructor is not tuple or all(_has_type(item, get_args(kind)[0]) for item in value)


def _description(kind: Any, value: Any) -> str:
    """Return a description of a field's type; a single value for a tuple gets the advice to make one."""
    constructor = get_origin(kind) or kind
    if constructor in (Union, UnionType):
        return " or ".join(_description(each, value) for each in get_args(kind))
    if constructor is tuple:
        return f"a tuple, such as ({value!r:.80},)" if _has_type(value, get_args(kind)[0]) else "a tuple"
    if constructor is Literal:
        return f"one of {get_args(kind)}"
    if constructor in (bool, int, float, str):
        return _TYPES[constructor][1]
    return "None" if constructor is type(None) else f"a {constructor.__name__}"


def is_file_name(text: str) -> bool:
    """Return whether a text seems to name a file: it has an ending, or is the path of an existing file."""
    return Path(text).suffix != "" or Path(text).exists()


def is_object_name(value: Any) -> bool:
    """Return whether a value has the form "package.module:name"."""
    return isinstance(value, str) and _OBJECT_NAME.fullmatch(value) is not None


def require_bounds(record: Any, bounds: Bounds, error: MakeError, prefix: str = "") -> None:
    """Check that every number, also in a tuple, is within its bounds, least ≤ number < below.  Raises: ``error``."""
    for name, (least, below) in bounds.items():
        for number in _numbers(getattr(record, name)):
            expected = f"at least {least:,} and less than {below:,}"
            require(least <= number < below, prefix + name, expected, number, error)


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [number for item in value for number in _numbers(item)]
    return [] if value is None else [value]
